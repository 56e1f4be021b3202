"""One worker with everything around it played by the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from dueq import Outcome, Target
from dueq.client.endpoints import StoredEndpoint, new_secret
from dueq.errors import StaleLease
from dueq.gateway.webhooks.answers import Answer
from dueq.gateway.webhooks.counters import Counters
from dueq.gateway.webhooks.room import Room
from dueq.gateway.webhooks.worker import Worker


class Message:
    """A message in a consumer's hands, whose lease is as long as the test says.

    Attributes:
        kept: how long it is when it was extended; 0: it cannot be.
    """

    payload = b"x"
    key, topic, due, released_at, attempt, token, expires = "", "bills", 1, 2, 1, 7, 0

    def __init__(self, number: int, settled: asyncio.Queue[tuple[Any, ...]], lease: float = 25.0) -> None:
        self.id, self.lease, self._settled = f"m{number}", lease, settled
        self.headers: dict[str, str] = {}
        self.kept = lease

    async def ack(self, *, reason: str = "") -> None:
        self._settled.put_nowait((self.id, "ack", reason) if reason else (self.id, "ack"))

    async def nack(self, *, reason: str, dead: bool = False) -> None:
        self._settled.put_nowait((self.id, "dead" if dead else "nack", reason))

    async def extend(self, seconds: float, *, wait: bool, timeout: float) -> None:
        if not self.kept:
            raise StaleLease("the lease is over", [])
        self.lease = self.kept
        self._settled.put_nowait((self.id, "extend", seconds, wait))

    async def release(self, *, delay: float = 0.0, wait: bool = False) -> None:
        self._settled.put_nowait((self.id, "release", delay))


class Stage:
    """A worker with everything around it.

    Attributes:
        messages: what its consumer gets.
        settled: what became of them; with a token: without their consumer.
        outcome: of those.
        asked: the steps that it has run at the mesh.
        held: until when it wanted the topic to be paused.
        answers: of the receiver, by the message's id; a message without one is not answered.
        mesh: what the steps return, or raise.
        credit: of its consumer.
        looks: one for each time that it asked for a look at the mesh.
        timeouts: of requests, other than 15 s, by the message's id.
    """

    def __init__(
        self,
        in_flight: int = 2,
        wanted: dict[str, list[str]] | None = None,
        targets: bool = False,
        room: Room | None = None,
    ) -> None:
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self.settled: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()
        self.asked: list[str] = []
        self.held: list[int] = []
        self.begun: asyncio.Queue[str] = asyncio.Queue()
        self.answers: dict[str, asyncio.Future[Answer]] = {}
        self.mesh: Any = True
        self.timeouts: dict[str, float] = {}
        self.closed = asyncio.Event()
        self.outcome, self.credit = Outcome.DONE, 0
        self.connection = self
        self.now_ms = 1_000_000
        self.counters = Counters()
        document = {
            "name": "billing", "version": 3, "url": "https://example.com", "timeout_ms": 15_000, "in_flight": in_flight,
            "headers": {}, "filter": wanted or {}, "targets": targets, "disabled": "", "secrets": [[new_secret(), 0]],
        }  # fmt: skip
        self.endpoint = StoredEndpoint("bills", 7, False, 0, document)
        world: Any = self
        shared = room or Room(100)
        self.looks: asyncio.Queue[None] = asyncio.Queue()
        self.worker = Worker(
            world,
            world,
            self.endpoint,
            lambda: self.now_ms * 1000,
            self.counters,
            shared,
            lambda: self.looks.put_nowait(None),
        )

    def seen(self, endpoint: StoredEndpoint, began_s: float = 0.0) -> None:
        """Let it see its endpoint in a look that began at this instant of the loop."""
        self.worker.seen(endpoint, began_s)

    # the client and its consumer
    def consumer(self, topic: str, lease: float, credit: int, **more: Any) -> Stage:
        assert (topic, lease, more["detached"]) == ("bills", 25.0, True)
        self.credit = credit
        return self

    async def __aiter__(self) -> AsyncIterator[Message]:
        while True:
            yield await self.messages.get()

    async def close(self) -> None:
        self.closed.set()

    async def settle(self, topic: str, leases: list[tuple[str, int]], how: str, **more: Any) -> list[Outcome]:
        assert topic == "bills"
        [(message_id, token)] = leases
        self.settled.put_nowait((message_id, how, *more.values(), token))
        return [self.outcome]

    async def follow(self, steps: Any, _timeout: float | None) -> Any:
        self.asked.append(steps.__name__)
        if steps.__name__ == "hold":
            self.held.append(steps.gi_frame.f_locals["until_ms"])
        steps.close()
        if isinstance(self.mesh, Exception):
            raise self.mesh
        return self.mesh

    # the sender
    async def send(
        self, method: str, _url: str, headers: Any, _body: bytes, timeout_s: float, _whose: str
    ) -> Answer:
        name = headers["webhook-id"]
        assert method == "POST"
        assert timeout_s == self.timeouts.get(name, 15.0)
        self.begun.put_nowait(name)
        return await self.answers.setdefault(name, asyncio.get_running_loop().create_future())

    def answer(self, name: str, status: int, retry_after: str = "") -> None:
        """Let the receiver answer."""
        self.answers.setdefault(name, asyncio.get_running_loop().create_future()).set_result(
            Answer(status, "", retry_after, 0.5)
        )

    def come(
        self,
        number: int,
        lease: float = 25.0,
        target: Target | None = None,
        kept: float = 25.0,
        expires: int = 0,
        released_at: int = 2,
        **headers: str,
    ) -> None:
        """Deliver a message."""
        message = Message(number, self.settled, lease)
        message.kept, message.expires, message.released_at = kept, expires, released_at
        message.headers = headers
        if target is not None:
            message.payload, message.headers = target.around(b"x", headers)
        self.messages.put_nowait(message)


def play(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 60))


def now_s() -> float:
    return asyncio.get_running_loop().time()
