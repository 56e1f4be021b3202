"""Waiting for the I/O thread, in tasks: answers come into the loop that awaits them, many with one awakening.

There is no loop of its own and no global one.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

from dueq.client.core.ports import events
from dueq.client.core.ports.effects import Completed
from dueq.client.host import Answer, SessionHost

Lock = asyncio.Lock

_TURN_S: Final = 0.001
"""A task that takes messages without waiting for them lets others have their turn this often."""


class _Bridge:
    """From I/O threads into one loop; actions that come close together cost one awakening."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._call, self._is_closed = loop.call_soon_threadsafe, loop.is_closed
        self._waiting: deque[Callable[[], object]] = deque()
        self._scheduled = False

    def post(self, action: Callable[[], object]) -> None:
        """Run `action` in the loop soon; nothing if the loop is closed."""
        self._waiting.append(action)
        if not self._scheduled:
            self._scheduled = True
            try:
                self._call(self._drain)
            except RuntimeError:  # the loop is closed: nobody waits any more
                self._scheduled = False
                self._waiting.clear()
        elif self._is_closed():  # it was, before its turn came
            self._waiting.clear()

    def _drain(self) -> None:
        self._scheduled = False
        while self._waiting:
            try:
                self._waiting.popleft()()
            except Exception as error:  # a user's callback; others wait for what follows it
                context = {"message": "a callback of dueq's client failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)


class Bridges:
    """The bridges of one client, one for each loop that has used it."""

    def __init__(self) -> None:
        # A bridge holds its loop; those of closed loops go when there is another loop.
        self._of: dict[asyncio.AbstractEventLoop, _Bridge] = {}

    def here(self) -> _Bridge:
        """The bridge of the running loop."""
        loop = asyncio.get_running_loop()
        bridge = self._of.get(loop)
        if bridge is None:
            for old in [old for old in self._of.copy() if old.is_closed()]:
                self._of.pop(old, None)
            bridge = self._of[loop] = _Bridge(loop)
        return bridge


class Pending:
    """A call in flight.

    Args:
        host: sends it.
        bridges: bring the answer into the loop.
        build: its event, from its number and its deadline (monotonic µs).
        seconds: until it must be answered.
        undo: of its `Call`. It undoes the answer to an abandoned call.
    """

    def __init__(
        self,
        host: SessionHost,
        bridges: Bridges,
        build: Callable[[int, int], events.Event],
        seconds: float,
        undo: Callable[[Any], events.Event] | None = None,
    ) -> None:
        self._host = host
        self._undo = undo
        self._abandoned = False
        self._came: Answer | None = None
        self._future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        bridge = bridges.here()
        self._call: Final = host.call(
            build, seconds, lambda answer: bridge.post(lambda: self._settle(answer))
        )

    async def answer(self) -> Answer:
        """Wait for the answer; a task that is cancelled meanwhile abandons the call."""
        try:
            return await self._host.answer_in_loop(self._future)
        except asyncio.CancelledError:
            self.abandon()
            raise

    async def came(self) -> bool:
        """Whether the answer is there; other tasks have their turn before that."""
        await asyncio.sleep(0)
        return self._future.done()

    def abandon(self) -> None:
        """Nobody waits any more; it may or may not take effect."""
        self._abandoned = True
        if self._came is not None:
            self._take_back(self._came)
        self._host.submit(events.Abandon(self._call))

    def _settle(self, answer: Answer) -> None:
        # If the task has been cancelled, the future has too, and the task gets to know that only in its next turn.
        self._came = answer
        if not self._future.done():
            self._future.set_result(answer)
        elif self._abandoned:
            self._take_back(answer)

    def _take_back(self, answer: Answer) -> None:
        if self._undo is not None and isinstance(answer, Completed) and answer.value:
            self._host.submit(self._undo(answer.value))


class Arrivals:
    """Wakes the task that waits for messages, and reports lost leases in its loop at once.

    Args:
        bridges: of the client.
        tell: called in the loop when something has come; a method of somebody whom this does not keep alive.
    """

    def __init__(self, bridges: Bridges, tell: Callable[[], object]) -> None:
        self._bridges = bridges
        self._tell = weakref.WeakMethod(tell)
        self._bridge: _Bridge | None = None
        self._event = asyncio.Event()
        self.clear = self._event.clear
        """Wait for what comes from now on."""
        self._turn_until = 0.0
        self._tasks: set[asyncio.Future[Any]] = set()

    def begin(self) -> None:
        """Wake in the running loop from now on."""
        self._bridge = self._bridges.here()

    def wake(self) -> None:
        """In the I/O thread: something has come."""
        if self._bridge is not None:
            self._bridge.post(self._come)

    async def give_way(self) -> None:
        """Let other tasks have their turn now and then: who never has to wait would keep the loop to himself."""
        if time.monotonic() >= self._turn_until:
            await asyncio.sleep(0)
            self._turn_until = time.monotonic() + _TURN_S

    async def wait(self, host: SessionHost, seconds: float | None) -> None:
        """Return when something has come, or time is over."""
        await host.wait_in_loop(self._event, seconds)

    def follow(self, result: object) -> None:
        """Run what a callback has returned, if it is to be awaited, as a task."""
        if isinstance(result, Awaitable):
            task = asyncio.ensure_future(result)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _come(self) -> None:
        tell = self._tell()
        try:
            if tell is not None:
                tell()
        finally:
            self._event.set()


async def acquired(lock: Lock, seconds: float) -> bool:
    """Whether the lock could be had in time; who has it releases it."""
    try:
        async with asyncio.timeout(seconds):
            return await lock.acquire()
    except TimeoutError:
        return False


async def sleep(host: SessionHost, seconds: float) -> None:
    """Let time pass."""
    await host.sleep_in_loop(seconds)


async def stop(host: SessionHost) -> None:
    """End a runtime without holding up the loop; the loop's executor may be busy with handlers that never return."""
    ended = asyncio.Event()
    bridge = _Bridge(asyncio.get_running_loop())

    def end() -> None:
        try:
            host.stop()
        finally:
            bridge.post(ended.set)

    threading.Thread(target=end, name="dueq-stop", daemon=True).start()
    await ended.wait()
