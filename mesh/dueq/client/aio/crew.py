"""Handlers at work, in tasks; those that are plain functions in the loop's executor."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable
from typing import Any

from dueq.client.handling import Work, refuse_unrun
from dueq.client.host import SessionHost


class Crew:
    """Those who run the handler.

    Args:
        handler: takes a message.
        wake: called when a handler has ended.

    Attributes:
        ended: what was worked on, with the exception if there was one, until somebody takes it out.
    """

    def __init__(self, handler: Callable[[Any], object], wake: Callable[[], None]) -> None:
        self._handler: Callable[[Any], Any] = handler
        self._awaited = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            type(handler).__call__
        )
        self._wake = wake
        self._tasks: set[asyncio.Task[None]] = set()
        self.ended: deque[tuple[Work, BaseException | None]] = deque()

    def begin(self, work: Work, host: SessionHost) -> None:
        """Have the handler run."""
        host.hand_over(work)
        task = asyncio.create_task(self._work(work, host))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def dismiss(self) -> None:
        """Cancel the handlers that are still at work."""
        for task in list(self._tasks):
            task.cancel()

    def _call(self, message: Any) -> tuple[Any, BaseException | None]:
        try:
            return self._handler(message), None
        except BaseException as error:  # passed on as a result: futures take no StopIteration
            return None, error

    async def _work(self, work: Work, host: SessionHost) -> None:
        error: BaseException | None = None
        with host.handling(work):
            try:
                if self._awaited:
                    result = await self._handler(work.message)
                else:
                    loop = asyncio.get_running_loop()
                    result, failure = await loop.run_in_executor(None, self._call, work.message)
                    if failure is not None:
                        raise failure
                    if inspect.isawaitable(result):
                        result = await result
                refuse_unrun(result)
            except BaseException as raised:
                error = raised
            self.ended.append((work, error))
            self._wake()
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise error
