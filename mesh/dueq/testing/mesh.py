"""The mesh as a test sees it: clients, and a clock to move."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

from dueq.client.aio import AsyncClient
from dueq.client.aio.connection import AsyncConnection
from dueq.client.sync import Client
from dueq.client.sync.connection import Connection
from dueq.errors import InvalidRequest
from dueq.testing.broker import ENDPOINT
from dueq.testing.host import WorldHost
from dueq.testing.tasks import Tasks
from dueq.testing.threads import Threads
from dueq.testing.world import World

_DAYS_MAX: Final = 3660
_NOTHING: Final = (
    "nothing is going to happen: no message waits for its time, none is leased, and no recurrence runs"
)


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
        if start is not None and start.tzinfo is None:
            raise InvalidRequest(f"start: {start!r} has no time zone; give it one, such as timezone.utc")
        seconds = int(time.time() if start is None else start.timestamp())
        self._world = World(seconds * 1_000_000)
        self._threads = Threads(lambda: self._world.now().mono_us)
        self._tasks = Tasks(self._world)
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
        return WorldHost(self._world, self._threads, self._tasks, self._hosts, endpoints)

    def _after(self, seconds: float | timedelta) -> int:
        """Return the instant so much later, by the clock for durations, µs."""
        span = seconds.total_seconds() if isinstance(seconds, timedelta) else float(seconds)
        if not 0 <= span <= _DAYS_MAX * 86_400:
            raise InvalidRequest(f"the clock moves by 0 to {_DAYS_MAX} days at once, not by {span:g} s")
        return self._world.now().mono_us + round(span * 1_000_000)

    def _until(self, instant: datetime | int) -> int:
        """Return an instant by the clock for durations, µs."""
        if isinstance(instant, datetime):
            if instant.tzinfo is None:
                raise InvalidRequest(f"{instant!r} has no time zone; give it one, such as timezone.utc")
            instant = -(-round(instant.timestamp() * 1_000_000) // 1000)
        return self._after(timedelta(milliseconds=instant - self.now_ms))

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
        """
        self._world.settle()
        self._world.rest()
        target_us = self._next()
        while not self._near(target_us, self._world.step(target_us)):
            self._world.rest()
            target_us = self._next()  # acks and the like were still under way: they may change what is next
        self._world.move(target_us)
        return self.now_ms

    def close(self) -> None:
        """End the mesh; clients that are still open do not work any more."""
        self._world.close()


class AsyncMesh(_Clocked):
    """A mesh of one broker inside a test, for the asyncio client; see `Mesh`.

    The task that uses it is the test's own: time moves while that task waits. Other tasks are waited for.
    """

    def client(self, *, timeout: float | None = None) -> AsyncClient:
        """Return a client of this mesh; any number of them. See `Mesh.client`."""
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
        await self._tasks.move(target_us)
        return self.now_ms

    async def _move(self, until_us: int) -> None:
        self._tasks.owner = asyncio.current_task()
        await self._tasks.move(until_us)

    def close(self) -> None:
        """See `Mesh.close`."""
        self._world.close()


@contextmanager
def mesh(start: datetime | None = None) -> Iterator[Mesh]:
    """Begin a mesh for the synchronous client, and end it; see `Mesh`."""
    found = Mesh(start)
    try:
        yield found
    finally:
        found.close()


@contextmanager
def amesh(start: datetime | None = None) -> Iterator[AsyncMesh]:
    """Begin a mesh for the asyncio client, and end it; see `AsyncMesh`."""
    found = AsyncMesh(start)
    try:
        yield found
    finally:
        found.close()
