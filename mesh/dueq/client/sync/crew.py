"""Handlers at work, in threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from dueq.client.handling import Work, refuse_tasks, refuse_unrun
from dueq.client.host import SessionHost


class Crew:
    """Those who run the handler: as many threads as there was ever work at once.

    They do not hold up the end of the process, should a handler never return.

    Args:
        handler: takes a message.
        wake: called when a handler has ended.

    Attributes:
        ended: what was worked on, with the exception if there was one, until somebody takes it out.
    """

    def __init__(self, handler: Callable[[Any], object], wake: Callable[[], None]) -> None:
        refuse_tasks(handler)
        self._handler = handler
        self._wake = wake
        self._queue: SimpleQueue[tuple[Work, SessionHost] | None] = SimpleQueue()
        self._threads = 0
        self._idle = threading.Semaphore(0)
        self._waiting = 0  # for a thread, since none could be begun for it
        self.ended: deque[tuple[Work, BaseException | None]] = deque()

    def begin(self, work: Work, host: SessionHost) -> None:
        """Have the handler run."""
        host.hand_over(work)
        # A thread that has ended its work takes what waits first: it is not idle.
        while self._waiting and self._idle.acquire(blocking=False):
            self._waiting -= 1
        if self._waiting or not self._idle.acquire(blocking=False):
            self._begin_thread()
        self._queue.put((work, host))

    def _begin_thread(self) -> None:
        name = f"dueq-handler-{self._threads + 1}"
        try:
            threading.Thread(target=self._serve, name=name, daemon=True).start()
        except RuntimeError:  # the machine has no thread left for this process: those that are there do it
            if not self._threads:
                raise
            self._waiting += 1
        else:
            self._threads += 1

    def dismiss(self) -> None:
        """Let each thread end with the work that it has; what waits for one is begun no more."""
        with suppress(Empty):
            while self._waiting:
                self._queue.get_nowait()
        for _ in range(self._threads):
            self._queue.put(None)

    def _serve(self) -> None:
        while (given := self._queue.get()) is not None:
            work, host = given
            error: BaseException | None = None
            with host.handling(work):
                try:
                    refuse_unrun(self._handler(work.message))
                except BaseException as raised:
                    error = raised
                self._idle.release()
                self.ended.append((work, error))
                self._wake()
            del given, work, host, error
