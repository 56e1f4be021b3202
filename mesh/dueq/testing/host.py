"""A client's session machine inside a world: its links lead to the broker beside it, and its clock is the world's."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Final

from dueq.client.core.ports import effects
from dueq.client.core.ports.events import Close, Event, FrameReceived, LinkReady
from dueq.client.host import Answer, Done, SessionHost, Waking
from dueq.errors import ClientClosed
from dueq.instant import Now
from dueq.testing.tasks import Tasks
from dueq.testing.threads import Threads
from dueq.testing.world import HOPE_US, World
from dueq_codecs.frames import encode
from dueq_codecs.messages import BrokerMessage

_NEVER_US: Final = 1 << 62


class _Links:
    """Connections to the one broker."""

    def __init__(self, host: WorldHost, world: World, name: bytes) -> None:
        self._host, self._broker, self._name = host, world.broker, name

    def _identity(self, link: int) -> bytes:
        return b"%s/%d" % (self._name, link)

    def open(self, link: int, endpoint: str) -> None:
        def receive(message: BrokerMessage, bodies: list[bytes | memoryview]) -> None:
            self._host.happens(FrameReceived(link, message, bodies))

        self._broker.connect(self._identity(link), receive)
        self._host.happens(LinkReady(link))

    def close(self, link: int) -> None:
        self._broker.disconnect(self._identity(link))

    def send(self, order: effects.Send) -> None:
        self._broker.take(self._identity(order.link), encode(order.message, order.bodies))


class WorldHost(SessionHost):
    """One client's session machine; whoever calls does the work.

    Args:
        world: where it lives.
        threads, tasks: how those wait that are not the world's owner.
        handlers: which of the two handlers are.
        number: of the client, from 1.
        endpoints: of the broker.
    """

    def __init__(
        self,
        world: World,
        threads: Threads,
        tasks: Tasks,
        handlers: Threads | Tasks,
        number: int,
        endpoints: Sequence[str],
    ) -> None:
        super().__init__(endpoints, number.to_bytes(16, "big"), random.Random(number), steady=True)
        self._world, self._threads, self._tasks, self._handlers = world, threads, tasks, handlers
        self._happened: list[Event] = []
        self._links = _Links(self, world, self.client_id)
        world.add(self)

    def happens(self, event: Event) -> None:
        """Something has happened to one of its links."""
        self._happened.append(event)

    # -------------------------------------------------------------- the world's side

    def next_us(self, now: Now) -> int | None:
        """See `world.Host`."""
        return now.mono_us if self._happened or self._queue or self._dropped else self._core.next_deadline_us

    def turn(self) -> None:
        """See `world.Host`."""
        happened, self._happened = self._happened, []
        self._step(happened, self._links)

    def end(self) -> None:
        """See `world.Host`."""
        self._failure = ClientClosed("the mesh of this test has ended")
        self.stop()

    # -------------------------------------------------------------- time

    def now(self) -> Now:
        """See `SessionHost`."""
        return self._world.now()

    def mono_us(self) -> int:
        """See `SessionHost`."""
        return self._world.now().mono_us

    def wait(self, waking: Waking, seconds: float | None) -> None:
        """See `SessionHost`."""
        if threading.get_ident() == self._world.owner:
            until_us = self._until_us(seconds)
            while not self._world.pass_until(
                lambda: waking.wait(0) or bool(self._world.errors), min(until_us, self.mono_us() + HOPE_US)
            ):
                self._world.surface()
                if self.mono_us() >= until_us:
                    return
                if seconds is None:
                    self._world.expect()
            self._world.surface()
        else:
            self._threads.wait(waking, self._until_us(seconds))

    def wait_done(self, done: Done, seconds: float) -> bool:
        """See `SessionHost`."""
        if threading.get_ident() == self._world.owner:
            return self._world.pass_until(lambda: done.acquire(blocking=False), self._until_us(seconds))
        return self._threads.wait_done(done, self._until_us(seconds))

    def sleep(self, seconds: float) -> None:
        """See `SessionHost`."""
        self.wait(threading.Event(), seconds)

    async def wait_in_loop(self, event: asyncio.Event, seconds: float | None) -> None:
        """See `SessionHost`."""
        await self._tasks.wait(event, None if seconds is None else self._until_us(seconds))

    async def answer_in_loop(self, future: asyncio.Future[Answer]) -> Answer:
        """See `SessionHost`."""
        return await self._tasks.answer(future)

    async def sleep_in_loop(self, seconds: float) -> None:
        """See `SessionHost`."""
        await self._tasks.wait(asyncio.Event(), self._until_us(seconds))

    def _until_us(self, seconds: float | None) -> int:
        return _NEVER_US if seconds is None else self.mono_us() + int(seconds * 1_000_000)

    # -------------------------------------------------------------- handlers of a run

    def hand_over(self, work: object) -> None:
        """See `SessionHost`."""
        self._handlers.hand_over(work)

    def handling(self, work: object) -> AbstractContextManager[None]:
        """See `SessionHost`."""
        return self._handlers.handling(work)

    def handler_failed(self, error: BaseException) -> None:
        """See `SessionHost`."""
        if not isinstance(error, asyncio.CancelledError):
            self._world.errors.append(error)

    # -------------------------------------------------------------- any thread

    def submit(self, event: Event) -> None:
        """See `SessionHost`."""
        self._queue.append(event)
        self._world.settle()

    submit_lazily = submit

    def stop(self, timeout: float = 5.0) -> None:
        """See `SessionHost`."""
        if self._ended:
            return
        self.submit(Close())
        self._stopping = self._ended = True
        self._world.remove(self)
        self._fail_all()
