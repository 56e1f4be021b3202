"""The mesh as a test sees it: clients, and a clock to move."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from numbers import Real
from typing import Final

from dueq.client.aio import AsyncClient, AsyncConsumer, AsyncMessage
from dueq.client.aio.connection import AsyncConnection
from dueq.client.arguments import NO_NUMBERS
from dueq.client.handling import Handled
from dueq.client.sync import Client, Consumer, Message
from dueq.client.sync.connection import Connection
from dueq.errors import InvalidRequest
from dueq.testing.broker import ENDPOINT
from dueq.testing.host import WorldHost
from dueq.testing.tasks import Tasks
from dueq.testing.threads import Threads
from dueq.testing.world import World

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_DAYS_MAX: Final = 3660
_START_S: Final = 60
"""The most that a run may need to attach, by the mesh's clock."""
_NOTHING: Final = (
    "nothing is going to happen: no message waits for its time, none is leased, and no recurrence runs"
)


class Running:
    """A run of a handler.

    Attributes:
        result: how many messages were handled, failed and released; None before the end.
        error: what the run has raised.
    """

    def __init__(self) -> None:
        self.result: Handled | None = None
        self.error: BaseException | None = None

    def raise_error(self) -> None:
        """Raise what the run has raised, if it has."""
        if self.error is not None:
            raise self.error


class _Client(Client):
    """A client of a mesh inside a test."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection


class _AsyncClient(AsyncClient):
    """The same for asyncio."""

    def __init__(self, connection: AsyncConnection) -> None:
        self.connection = connection


class _Clocked:
    """What both meshes share."""

    def __init__(self, start: datetime | None) -> None:
        if start is not None and not isinstance(start, datetime):
            raise InvalidRequest(f"start is a datetime with a time zone, or None, not {start!r:.80}")
        if start is not None and start.tzinfo is None:
            raise InvalidRequest(f"start: {start!r} has no time zone; give it one, such as timezone.utc")
        begin_ms = int(time.time()) * 1000 if start is None else (start - _EPOCH) // _MILLISECOND
        if begin_ms < 0:
            raise InvalidRequest(f"start: {start!r} is before 1970, where the clocks of a mesh begin")
        self._world = World(begin_ms * 1000)
        self._threads = Threads(lambda: self._world.now().mono_us)
        self._tasks = Tasks(self._world)
        self._handlers: Threads | Tasks = self._threads
        self._hosts = 0

    @property
    def now_ms(self) -> int:
        """What the clock shows, Unix ms."""
        return self._world.now().wall_ms

    @property
    def now(self) -> datetime:
        """What the clock shows, in UTC."""
        return datetime.fromtimestamp(self.now_ms / 1000, UTC)

    def _host(self, endpoints: Sequence[str]) -> WorldHost:
        self._hosts += 1
        return WorldHost(self._world, self._threads, self._tasks, self._handlers, self._hosts, endpoints)

    def _after(self, seconds: float | timedelta) -> int:
        """Return the instant so much later, by the clock for durations, µs."""
        span = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
        if not isinstance(span, Real) or isinstance(span, NO_NUMBERS):
            raise InvalidRequest(f"the clock moves by seconds or a timedelta, not by {seconds!r:.80}")
        if not 0 <= span <= _DAYS_MAX * 86_400:
            raise InvalidRequest(f"the clock moves by 0 to {_DAYS_MAX} days at once, not by {span!r:.80} s")
        return self._world.now().mono_us + round(float(span) * 1_000_000)

    def _until(self, instant: datetime | int) -> int:
        """Return an instant by the clock for durations, µs."""
        if isinstance(instant, datetime):
            if instant.tzinfo is None:
                raise InvalidRequest(f"{instant!r} has no time zone; give it one, such as timezone.utc")
            instant = -(-round(instant.timestamp() * 1_000_000) // 1000)
        if not isinstance(instant, Real) or isinstance(instant, NO_NUMBERS):
            raise InvalidRequest(f"an instant is a datetime with a zone, or Unix ms, not {instant!r:.80}")
        later_ms = instant - self.now_ms
        if not 0 <= later_ms <= _DAYS_MAX * 86_400_000:
            raise InvalidRequest(
                f"the clock moves on by {_DAYS_MAX} days at most: from {self.now_ms} not to {instant!r:.80} ms"
            )
        return self._world.now().mono_us + round(later_ms * 1000)

    def _near(self, target_us: int, reached: bool) -> bool:
        """Say whether an instant is reached, which was rounded up to a millisecond."""
        return reached or target_us - self._world.now().mono_us < 1000

    def _next(self) -> int:
        at_ms = self._world.broker.next_ms(self._world.now())
        if at_ms is None:
            raise InvalidRequest(_NOTHING)
        return self._until(at_ms)


class Mesh(_Clocked):
    """A mesh of one broker inside a test, for the synchronous client.

    Time stands still, but for what the test does: it moves the clock, or waits itself (`receive` with a time-out, a
    call that needs some milliseconds). Waiting takes no real time. Other threads, such as those of a handler, are
    waited for before the clock moves on.

    Args:
        start: what the clock shows at the beginning; None: the present second.
    """

    def __init__(self, start: datetime | None = None) -> None:
        super().__init__(start)
        self._world.rest = self._threads.rest

    def client(self, *, timeout: float | None = None) -> Client:
        """Return a client of this mesh; any number of them.

        Args:
            timeout: seconds (of the mesh's clock) that a call may take, unless it says otherwise.
        """
        return _Client(Connection(ENDPOINT, timeout, self._host))

    def advance(self, seconds: float | timedelta) -> None:
        """Move the clock on; everything that falls into this time happens at its own instant.

        Raises:
            InvalidRequest: it is less than nothing, or more than ten years.
            NotAtRest: a handler is still at work after ten real seconds.
            Exception: what a handler of `consumer.run` has raised; the clock stands at that instant.
        """
        self._world.move(self._after(seconds))

    def run_until(self, instant: datetime | int) -> None:
        """Move the clock on to an instant (a datetime with a zone, or Unix ms). Raises as `advance`."""
        self._world.move(self._until(instant))

    def advance_to_next(self) -> int:
        """Move the clock on to the next instant at which a message is due, a lease ends or a recurrence ticks.

        Returns:
            That instant, Unix ms.

        Raises:
            InvalidRequest: there is no such instant.
            Exception: as `advance`.
        """
        self._world.settle()
        self._world.rest()
        target_us = self._next()
        while not self._near(target_us, self._world.step(target_us)):
            self._world.rest()
            target_us = self._next()  # acks and the like were still under way: they may change what is next
        self._world.move(target_us)
        return self.now_ms

    @contextmanager
    def running(
        self, consumer: Consumer, handler: Callable[[Message], object], workers: int = 8
    ) -> Iterator[Running]:
        """Have `consumer.run` in a thread for as long as the block lasts; it has attached when the block begins.

        Args:
            consumer: of a client of this mesh.
            handler: takes a message.
            workers: handlers at once, at most.

        Raises:
            Exception: what the run raises, or a handler that failed where the clock did not move afterwards.
        """
        run, work, ended = Running(), object(), threading.Event()

        def begin() -> None:
            with self._threads.handling(work):
                try:
                    run.result = consumer.run(handler, workers)
                except BaseException as error:
                    run.error = error
                finally:
                    ended.set()

        self._threads.hand_over(work)
        threading.Thread(target=begin, name="dueq-run", daemon=True).start()
        self._world.pass_until(lambda: consumer.attached or ended.is_set(), self._after(_START_S))
        self._world.rest()
        try:
            yield run
        finally:
            consumer.stop()
            self._world.pass_until(ended.is_set, self._after(_DAYS_MAX * 86_400))
        run.raise_error()
        self._world.surface()

    def close(self) -> None:
        """End the mesh; clients that are still open do not work any more."""
        self._threads.end()
        self._world.close()


class AsyncMesh(_Clocked):
    """A mesh of one broker inside a test, for the asyncio client; see `Mesh`.

    The task that uses it is the test's own: time moves while that task waits. Other tasks are waited for.
    """

    def __init__(self, start: datetime | None = None) -> None:
        super().__init__(start)
        self._handlers = self._tasks

    def client(self, *, timeout: float | None = None) -> AsyncClient:
        """Return a client of this mesh; any number of them. See `Mesh.client`."""
        with suppress(RuntimeError):  # no loop runs yet
            self._tasks.owner = asyncio.current_task()
        return _AsyncClient(AsyncConnection(ENDPOINT, timeout, self._host))

    async def advance(self, seconds: float | timedelta) -> None:
        """See `Mesh.advance`."""
        await self._move(self._after(seconds))

    async def run_until(self, instant: datetime | int) -> None:
        """See `Mesh.run_until`."""
        await self._move(self._until(instant))

    async def advance_to_next(self) -> int:
        """See `Mesh.advance_to_next`."""
        self._tasks.owner = asyncio.current_task()
        self._world.settle()
        await self._tasks.rest()
        target_us = self._next()
        while not self._near(target_us, self._tasks.step(target_us)):
            await self._tasks.rest()
            target_us = self._next()
        await self._move(target_us)
        return self.now_ms

    @asynccontextmanager
    async def running(
        self, consumer: AsyncConsumer, handler: Callable[[AsyncMessage], object], workers: int = 8
    ) -> AsyncIterator[Running]:
        """Have `consumer.run` in a task for as long as the block lasts; see `Mesh.running`."""
        run, work, ended = Running(), object(), asyncio.Event()

        async def begin() -> None:
            with self._tasks.handling(work):
                try:
                    run.result = await consumer.run(handler, workers)
                except BaseException as error:
                    run.error = error
                finally:
                    ended.set()

        self._tasks.owner = asyncio.current_task()
        self._tasks.hand_over(work)
        task = asyncio.create_task(begin(), name="dueq-run")
        await self._tasks.rest()
        try:
            yield run
        finally:
            consumer.stop()
            self._tasks.owner = asyncio.current_task()
            await self._tasks.move(self._after(_DAYS_MAX * 86_400), ended, patient=True)
            await task
        run.raise_error()
        self._world.surface()

    async def _move(self, until_us: int) -> None:
        self._tasks.owner = asyncio.current_task()
        await self._tasks.move(until_us)
        self._world.surface()

    def close(self) -> None:
        """See `Mesh.close`."""
        self._world.close()


@contextmanager
def mesh(start: datetime | None = None) -> Iterator[Mesh]:
    """Begin a mesh for the synchronous client, and end it; see `Mesh`. Raises errors of handlers that nobody saw."""
    found = Mesh(start)
    try:
        yield found
    finally:
        found.close()
    found._world.surface()


@contextmanager
def amesh(start: datetime | None = None) -> Iterator[AsyncMesh]:
    """Begin a mesh for the asyncio client, and end it; see `mesh`."""
    found = AsyncMesh(start)
    try:
        yield found
    finally:
        found.close()
    found._world.surface()
