"""How one endpoint is served: what is taken, sent, given back, and settled."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from dueq import Outcome, Target
from dueq.client import endings
from dueq.client.endpoints import StoredEndpoint
from dueq.gateway.webhooks.room import Room
from tests.unit.gateway.webhooks.stage import Message, Stage, play


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
        stage.seen(StoredEndpoint("bills", 8, True, 4_600_000, stage.endpoint.document))
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


def test_a_target_that_is_refused_at_length_is_dead_by_a_reason_that_a_message_can_keep() -> None:
    """Else the message is never settled: it comes again whenever its lease is over."""

    async def story() -> None:
        stage = Stage(targets=True)
        message = Message(1, stage.settled)
        headers = {"webhook-" + "x" * 2000: ""}
        target = {"url": "https://example.com", "method": "POST", "deadline_ms": 0, "headers": headers}
        message.payload = json.dumps(target).encode()
        message.headers = {"dueq_target": str(len(message.payload))}
        stage.messages.put_nowait(message)
        name, how, reason = await stage.settled.get()
        assert (name, how, reason[:11]) == ("m1", "dead", "the header ")
        assert endings.nack(None, reason, dead=True).reason == reason
        await stage.worker.stop()
        assert stage.counters.dead == 1

    play(story)
