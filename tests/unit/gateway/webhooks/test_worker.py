"""How one endpoint is served: what is taken, sent, given back, and told to the mesh."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from dueq import Outcome, Target
from dueq.client.endpoints import StoredEndpoint, new_secret
from dueq.errors import Disconnected, StaleLease
from dueq.gateway.webhooks.answers import Answer, Fate
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
        self.outcome = Outcome.DONE
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
        self.worker = Worker(world, world, self.endpoint, lambda: self.now_ms * 1000, self.counters, shared)

    # the client and its consumer
    def consumer(self, topic: str, lease: float, credit: int, **more: Any) -> Stage:
        assert (topic, lease, more["detached"]) == ("bills", 25.0, True)
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


def test_a_message_waits_for_a_slot() -> None:
    async def story() -> None:
        stage = Stage(in_flight=2)
        for number in range(3):
            stage.come(number)
        assert [await stage.begun.get(), await stage.begun.get()] == ["m0", "m1"]
        assert stage.counters.in_flight == 2
        stage.answer("m1", 204)
        assert await stage.settled.get() == ("m1", "ack")
        assert await stage.begun.get() == "m2"
        await stage.worker.stop(0)
        assert stage.closed.is_set()

    play(story)


def test_no_request_begins_that_could_outlive_its_lease() -> None:
    async def story() -> None:
        stage = Stage()
        stage.come(0, lease=15.9, kept=0)
        stage.come(1)
        assert await stage.settled.get() == ("m0", "release", 1.0)
        assert await stage.begun.get() == "m1"
        assert stage.counters.put_back == 1
        await stage.worker.stop(0)

    play(story)


def test_what_waits_long_for_a_slot_keeps_its_turn() -> None:
    """Given back, it would go behind everything that is due, and come as late again."""

    async def story() -> None:
        stage = Stage(in_flight=1)
        stage.come(0)
        stage.come(1, lease=16.01)
        stage.come(2, lease=9.0)  # it has waited behind the other one
        assert await stage.begun.get() == "m0"
        assert await stage.settled.get() == ("m1", "extend", 25.0, True)
        stage.answer("m0", 204)
        assert await stage.settled.get() == ("m0", "ack")
        assert await stage.begun.get() == "m1"
        assert await stage.settled.get() == ("m2", "extend", 25.0, True)
        stage.answer("m1", 204)
        assert await stage.begun.get() == "m2"
        assert stage.counters.put_back == 0
        await stage.worker.stop(0)

    play(story)


@pytest.mark.parametrize("times", [0, 3])
def test_what_has_no_slot_in_time_is_given_back(times: int) -> None:
    """Another gateway may have one; three times is longer than any other request may take."""

    async def story() -> None:
        stage = Stage(in_flight=1)
        stage.come(0)
        stage.come(1, lease=16.01, kept=16.01 if times else 0)
        assert await stage.begun.get() == "m0"
        for _ in range(times):
            assert await stage.settled.get() == ("m1", "extend", 25.0, True)
        assert await stage.settled.get() == ("m1", "release", 1.0)
        await stage.worker.stop(0)

    play(story)


def test_what_waits_for_a_slot_is_kept_no_longer_in_a_pause() -> None:
    async def story() -> None:
        stage = Stage(in_flight=1)
        stage.come(0)
        stage.come(1, lease=16.01)
        assert await stage.begun.get() == "m0"
        stage.worker.seen(StoredEndpoint("bills", 8, True, 4_600_000, stage.endpoint.document))
        assert await stage.settled.get() == ("m1", "release", 5.0)
        await stage.worker.stop(0)

    play(story)


def test_what_was_given_back_takes_no_connection_from_another_endpoint() -> None:
    async def story() -> None:
        room = Room(4)
        one, other = Stage(room=room), Stage(room=room)
        for stage in (one, other):
            stage.come(0)
            await stage.begun.get()
        one.come(1, lease=16.01, kept=0)
        assert await one.settled.get() == ("m1", "release", 1.0)  # there was none for it in time
        other.come(1)
        await asyncio.sleep(0)
        one.answer("m0", 204)
        assert await other.begun.get() == "m1"
        for stage in (one, other):
            await stage.worker.stop(0)

    play(story)


def test_whose_window_has_shrunk_meanwhile_takes_no_connection_from_another_endpoint() -> None:
    async def story() -> None:
        room = Room(16)
        one, other = Stage(in_flight=5, room=room), Stage(in_flight=8, room=room)
        for stage in (one, other):
            for number in range(4):
                stage.come(number)
                await stage.begun.get()
        for stage in (one, other):
            stage.come(4)
            await asyncio.sleep(0)
        one.answer("m0", 503)
        assert await other.begun.get() == "m4"
        assert one.begun.empty()
        for stage in (one, other):
            await stage.worker.stop(0)

    play(story)


@pytest.mark.parametrize(
    ("status", "fate"), [(500, "nack"), (0, "nack"), (302, "nack"), (489, "dead"), (429, "nack")]
)
def test_each_answer_has_its_consequence(status: int, fate: str) -> None:
    async def story() -> None:
        stage = Stage()
        stage.come(0)
        stage.answer("m0", status)
        name, what, reason = await stage.settled.get()
        assert (name, what) == ("m0", fate)
        assert reason == (f"HTTP {status}" if status else "")
        assert stage.asked == []
        await stage.worker.stop(0)

    play(story)


def test_after_a_retry_after_nothing_is_sent_and_the_topic_is_held() -> None:
    async def story() -> None:
        stage = Stage()
        stage.come(0)
        stage.answer("m0", 503, "60")
        assert await stage.begun.get() == "m0"
        assert await stage.settled.get() == ("m0", "release", 60.0)
        stage.come(1)
        stage.now_ms += 20_000
        assert await stage.settled.get() == ("m1", "release", 5.0)
        assert stage.asked == ["hold"]
        assert (stage.counters.held_until_ms, stage.counters.window) == (1_060_000, 1)
        assert stage.counters.fates[Fate.LATER] == 1
        stage.now_ms += 40_000
        for number in (2, 3):
            stage.come(number)
        assert await stage.begun.get() == "m2"
        assert stage.begun.empty()
        stage.answer("m2", 200)
        assert await stage.begun.get() == "m3"
        await stage.worker.stop(0)

    play(story)


def test_what_a_receiver_asks_for_last_is_told_to_the_mesh_before_a_worker_ends() -> None:
    """Other gateways would go on sending."""

    async def story() -> None:
        stage, ready, told = Stage(), asyncio.Event(), list[str]()

        async def follow(steps: Any, _timeout: float | None) -> bool:
            steps.close()
            await ready.wait()
            told.append(steps.__name__)
            return True

        stage.follow = follow  # type: ignore[method-assign]
        stage.come(0)
        await stage.begun.get()
        stopping = asyncio.create_task(stage.worker.stop())
        stage.answer("m0", 503, "60")
        assert (await stage.settled.get())[:2] == ("m0", "release")
        for _ in range(20):
            await asyncio.sleep(0)
        ready.set()
        await stopping
        assert told == ["hold"]

    play(story)


def test_what_a_former_receiver_asks_for_does_not_hold_up_its_successor_here() -> None:
    async def story() -> None:
        stage = Stage()
        for number in (0, 1):
            stage.come(number)
        assert [await stage.begun.get(), await stage.begun.get()] == ["m0", "m1"]
        stopping = asyncio.create_task(stage.worker.stop())
        await stage.closed.wait()
        stage.answer("m0", 503, "60")
        stage.answer("m1", 503, "3600")
        await stopping
        assert stage.counters.held_until_ms == 0
        assert stage.held[-1] == 4_600_000, "the mesh decides whether it still is the receiver"

    play(story)


def test_whoever_resumes_the_topic_ends_the_pause_here_too() -> None:
    async def story() -> None:
        stage = Stage()
        stage.come(0)
        stage.answer("m0", 429, "3600")
        await stage.settled.get()
        paused = StoredEndpoint("bills", 8, True, 4_600_000, stage.endpoint.document)
        stage.worker.seen(stage.endpoint)  # read before the pause was stored
        assert stage.counters.held_until_ms
        stage.worker.seen(paused)
        stage.worker.seen(StoredEndpoint("bills", 9, False, 0, stage.endpoint.document))
        stage.come(1)
        assert await stage.begun.get() == "m0"
        assert await stage.begun.get() == "m1"
        await stage.worker.stop(0)

    play(story)


def test_the_end_of_a_pause_ends_no_longer_one_that_a_receiver_has_asked_for_since() -> None:
    async def story() -> None:
        stage = Stage()
        stage.worker.seen(StoredEndpoint("bills", 8, True, 1_030_000, stage.endpoint.document))
        stage.now_ms = 1_030_000
        stage.come(0)
        stage.answer("m0", 429, "3600")
        await stage.settled.get()
        stage.worker.seen(StoredEndpoint("bills", 9, False, 0, stage.endpoint.document))
        stage.come(1)
        assert (await stage.settled.get())[:2] == ("m1", "release")
        await stage.worker.stop(0)

    play(story)


@pytest.mark.parametrize("ends_ms", [4_630_000, 0])
def test_the_end_of_a_pause_ends_what_a_receiver_has_asked_for_within_it(ends_ms: int) -> None:
    async def story() -> None:
        stage = Stage()
        stage.come(0)
        stage.answer("m0", 429, "3600")
        await stage.settled.get()
        stage.worker.seen(StoredEndpoint("bills", 8, True, ends_ms, stage.endpoint.document))
        stage.worker.seen(StoredEndpoint("bills", 9, False, 0, stage.endpoint.document))
        assert not stage.counters.held_until_ms
        await stage.worker.stop(0)

    play(story)


@pytest.mark.parametrize(("left_ms", "delay"), [(3_600_000, 5.0), (3_000, 3.0), (20, 1.0)])
def test_what_is_given_back_in_a_pause_does_not_stay_away_if_somebody_ends_it(
    left_ms: int, delay: float
) -> None:
    """The pause of the topic keeps it, and a resume has to find it there."""

    async def story() -> None:
        stage = Stage()
        paused = StoredEndpoint("bills", 8, True, stage.now_ms + left_ms, stage.endpoint.document)
        stage.worker.seen(paused)
        stage.come(0)
        assert await stage.settled.get() == ("m0", "release", delay)
        await stage.worker.stop(0)

    play(story)


def test_a_pause_that_is_made_shorter_is_shorter_here_too() -> None:
    async def story() -> None:
        stage = Stage()
        for version, ends_ms in ((8, 4_600_000), (9, 1_004_000)):
            stage.worker.seen(StoredEndpoint("bills", version, True, ends_ms, stage.endpoint.document))
        stage.now_ms = 1_004_000
        stage.come(0)
        assert await stage.begun.get() == "m0"
        await stage.worker.stop(0)

    play(story)


def test_a_shorter_pause_of_the_topic_ends_no_longer_one_that_it_was_not_told_of() -> None:
    async def story() -> None:
        stage = Stage()
        stage.worker.seen(StoredEndpoint("bills", 8, True, 1_030_000, stage.endpoint.document))
        stage.now_ms = 1_030_000
        stage.come(0)
        stage.answer("m0", 429, "3600")
        await stage.settled.get()
        stage.worker.seen(StoredEndpoint("bills", 9, True, 1_040_000, stage.endpoint.document))
        stage.now_ms = 1_040_000
        stage.come(1)
        assert (await stage.settled.get())[:2] == ("m1", "release")
        await stage.worker.stop(0)

    play(story)


def test_what_another_gateway_was_asked_for_holds_here_too() -> None:
    async def story() -> None:
        stage = Stage()
        stage.worker.seen(StoredEndpoint("bills", 8, True, 1_030_000, stage.endpoint.document))
        stage.come(0)
        assert (await stage.settled.get())[:2] == ("m0", "release")
        stage.now_ms = 1_030_000
        stage.come(1)
        assert await stage.begun.get() == "m1"
        await stage.worker.stop(0)

    play(story)


def test_a_pause_without_an_end_holds_what_is_here_already_and_nothing_that_is_triggered_in_it() -> None:
    async def story() -> None:
        stage = Stage(in_flight=1)
        stage.come(0)
        stage.come(1)
        assert await stage.begun.get() == "m0"
        for version in (8, 9):
            stage.worker.seen(StoredEndpoint("bills", version, True, 0, stage.endpoint.document))
            stage.now_ms += 2
        stage.come(2)
        stage.come(3, released_at=1_000_001)
        stage.answer("m0", 204)
        assert await stage.settled.get() == ("m0", "ack")
        assert await stage.settled.get() == ("m1", "release", 1.0)
        assert await stage.settled.get() == ("m2", "release", 1.0)
        assert await stage.begun.get() == "m3"
        stage.answer("m3", 204)
        assert await stage.settled.get() == ("m3", "ack")
        stage.worker.seen(StoredEndpoint("bills", 10, False, 0, stage.endpoint.document))
        stage.come(4)
        assert await stage.begun.get() == "m4"
        await stage.worker.stop(0)

    play(story)


def test_what_has_expired_here_is_not_sent() -> None:
    """Its leader decides what becomes of it."""

    async def story() -> None:
        stage = Stage(in_flight=1, wanted={"kind": ["invoice"]})
        stage.come(0, kind="invoice", expires=1_000_001)
        stage.come(1, kind="invoice", expires=1_010_000)
        stage.come(2, kind="other", expires=1_010_000)
        assert await stage.begun.get() == "m0"
        stage.now_ms = 1_010_000
        stage.answer("m0", 204)
        assert await stage.settled.get() == ("m0", "ack")
        assert await stage.settled.get() == ("m1", "release", 1.0)
        assert await stage.settled.get() == ("m2", "release", 1.0)
        assert stage.begun.empty()
        await stage.worker.stop(0)

    play(story)


def test_410_disables_the_endpoint_once_and_gives_everything_back() -> None:
    async def story() -> None:
        stage = Stage()
        for number in (0, 1):
            stage.come(number)
            stage.answer(f"m{number}", 410)
        assert await stage.settled.get() == ("m0", "release", 1.0)
        assert await stage.settled.get() == ("m1", "release", 1.0)
        assert stage.asked == ["disable"]
        stage.come(2)
        assert await stage.settled.get() == ("m2", "release", 1.0)
        assert [await stage.begun.get(), await stage.begun.get()] == ["m0", "m1"]
        assert stage.begun.empty()
        await stage.worker.stop(0)

    play(story)


def test_what_waits_for_a_slot_is_given_back_after_410() -> None:
    async def story() -> None:
        stage = Stage(in_flight=1)
        stage.come(0)
        stage.come(1)
        assert await stage.begun.get() == "m0"
        stage.answer("m1", 204)
        stage.answer("m0", 410)
        assert await stage.settled.get() == ("m0", "release", 1.0)
        assert await stage.settled.get() == ("m1", "release", 1.0)
        assert stage.begun.empty()
        await stage.worker.stop(0)

    play(story)


def test_an_endpoint_that_cannot_be_disabled_is_tried_again() -> None:
    async def story() -> None:
        stage = Stage()
        stage.mesh = Disconnected("nobody there")
        stage.come(0)
        stage.answer("m0", 410)
        assert await stage.settled.get() == ("m0", "release", 1.0)
        stage.mesh = True
        stage.come(1)
        stage.answer("m1", 410)
        assert await stage.settled.get() == ("m1", "release", 1.0)
        assert stage.asked == ["disable", "disable"]
        await stage.worker.stop(0)

    play(story)


def test_an_endpoint_that_was_made_again_meanwhile_is_served_after_a_410_of_the_former_one() -> None:
    """It looks as before, so no other worker follows."""

    async def story() -> None:
        stage = Stage()
        stage.mesh = False
        stage.come(0)
        stage.answer("m0", 410)
        assert await stage.settled.get() == ("m0", "release", 1.0)
        stage.come(1)
        assert [await stage.begun.get(), await stage.begun.get()] == ["m0", "m1"]
        await stage.worker.stop(0)

    play(story)


def test_what_the_filter_does_not_want_is_finished() -> None:
    async def story() -> None:
        stage = Stage(wanted={"kind": ["invoice"]})
        stage.come(0, kind="other")
        stage.come(1, kind="invoice")
        assert await stage.settled.get() == ("m0", "ack", "filtered")
        assert await stage.begun.get() == "m1"
        assert stage.counters.filtered == 1
        await stage.worker.stop(0)

    play(story)


def test_a_worker_that_stops_lets_requests_under_way_end() -> None:
    async def story() -> None:
        stage = Stage(in_flight=1)
        stage.come(0)
        stage.come(1)
        assert await stage.begun.get() == "m0"
        stopping = asyncio.create_task(stage.worker.stop())
        # What has waited for a slot goes back before the consumer is closed, which keeps leases.
        assert await stage.settled.get() == ("m1", "release", 0.0)
        await stage.closed.wait()
        assert not stopping.done()
        stage.answer("m0", 204)
        await stopping
        assert await stage.settled.get() == ("m0", "ack", 7)
        assert stage.begun.empty()
        assert stage.counters.in_flight == 0

    play(story)


@pytest.mark.parametrize(
    ("status", "retry_after", "settled"),
    [(500, "", ("nack", "HTTP 500")), (489, "", ("nack", True, "HTTP 489")), (503, "60", ("release", 60.0))],
)
def test_what_is_answered_after_the_consumer_was_closed_is_settled_by_its_token(
    status: int, retry_after: str, settled: tuple[Any, ...]
) -> None:
    async def story() -> None:
        stage = Stage()
        stage.outcome = Outcome.STALE
        stage.come(0)
        assert await stage.begun.get() == "m0"
        stopping = asyncio.create_task(stage.worker.stop())
        await stage.closed.wait()
        stage.answer("m0", status, retry_after)
        await stopping
        assert await stage.settled.get() == ("m0", *settled, 7)
        assert stage.counters.leases_lost == 1

    play(story)


def test_what_was_sent_and_is_not_answered_as_a_worker_stops_stays_leased() -> None:
    async def story() -> None:
        stage = Stage()
        stage.come(0)
        assert await stage.begun.get() == "m0"
        await stage.worker.stop(0)
        assert stage.closed.is_set()
        assert stage.settled.empty()

    play(story)


def test_a_target_that_may_take_longer_gets_a_longer_lease() -> None:
    async def story() -> None:
        stage = Stage(targets=True)
        stage.timeouts["m0"] = 600.0
        stage.come(0, target=Target("https://example.org/", deadline=600.0))
        assert await stage.settled.get() == ("m0", "extend", 610.0, True)
        assert await stage.begun.get() == "m0"
        stage.answer("m0", 204)
        assert await stage.settled.get() == ("m0", "ack")
        stage.come(1, kept=0, target=Target("https://example.org/", deadline=600.0))
        assert await stage.settled.get() == ("m1", "release", 1.0)
        assert stage.begun.empty()
        await stage.worker.stop(0)

    play(story)


def test_a_target_that_is_not_allowed_is_the_end_of_its_message() -> None:
    async def story() -> None:
        stage = Stage(targets=False)
        stage.come(0, target=Target("https://example.org/"))
        assert await stage.settled.get() == (
            "m0",
            "dead",
            "the endpoint 'billing' allows no targets of messages",
        )
        assert stage.counters.dead == 1
        assert stage.begun.empty()
        await stage.worker.stop(0)

    play(story)
