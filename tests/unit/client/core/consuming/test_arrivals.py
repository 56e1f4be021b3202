"""Pushes that arrive: nothing is delivered twice, and no payload that is not whole."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq.client.core.consuming.arrivals import Arrivals
from dueq.client.core.ports.effects import Deliver, LeaseLost
from dueq_codecs.messages import ChangeRequest, ConsumerAction, ConsumerFrame, PushChunk
from dueq_codecs.records import Outcome, RecordKind
from tests.unit.client.stage import CONSUMER, TOPIC, Stage, attached, delivered, of, ok, push, sent, settle


def test_a_pair_that_was_seen_is_not_delivered_twice_but_a_later_lease_is() -> None:
    stage = Stage()
    attached(stage)
    assert [d.payload for d in delivered(stage, "a", b"x", b"yy")] == [b"x", b"yy"]
    assert delivered(stage, "a", b"x", number=2) == []
    [again] = delivered(stage, "a", b"x", number=3, token=61)
    assert (again.token, again.attempt) == (61, 1)


def test_a_later_lease_of_a_message_takes_the_place_of_the_one_that_is_held() -> None:
    """The leader has ended the older one: the user is told, and it takes no credit any more."""
    stage = Stage()
    attached(stage, credit=4)
    [old] = delivered(stage, "a", b"x", token=60)
    message, body = push("a", 1, 2, [b"x"], token=70)
    effects = stage.receive("a", message, body)
    assert [lost.deliveries for lost in of(effects, LeaseLost)] == [[old]]
    [new] = [delivery for effect in of(effects, Deliver) for delivery in effect.deliveries]
    assert (old.lost, new.lost, new.token) == (True, False, 70)
    [request] = settle(stage, RecordKind.ACK, new)
    assert request.token.tolist() == [70]


def test_what_was_seen_long_ago_is_not_delivered_twice_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen messages are remembered in two halves. The older half is forgotten when the newer one is full."""
    monkeypatch.setattr(limits, "DELIVERIES_SEEN_MAX", 4)
    stage = Stage()
    attached(stage)
    batch = delivered(stage, "a", b"a", b"b", b"c", b"d")
    [request] = settle(stage, RecordKind.ACK, *batch)
    stage.receive("a", ok(request, 99, outcomes=[Outcome.DONE] * 4))
    assert delivered(stage, "a", b"e", sequence=51, number=2)
    assert delivered(stage, "a", b"a", b"b", b"c", b"d", number=3) == []


def test_a_long_payload_is_put_together_from_its_chunks() -> None:
    stage = Stage()
    attached(stage)
    payload = bytes(range(256)) * 2_000
    message, _ = push("a", 1, 1, [payload])
    pieces = [payload[: 256 << 10], payload[256 << 10 :]]
    for number, piece in enumerate(pieces):
        stage.receive("a", PushChunk(TOPIC, CONSUMER, 1, 1, 50, 0, 60, number, 2, "a"), piece)
    [got] = of(stage.receive("a", message, b""), Deliver)
    assert got.deliveries[0].payload == payload


def test_a_long_payload_with_a_missing_chunk_is_waited_for() -> None:
    stage = Stage()
    attached(stage)
    payload = bytes(range(256)) * 2_000
    message, _ = push("a", 1, 1, [payload])
    stage.receive("a", PushChunk(TOPIC, CONSUMER, 1, 1, 50, 0, 60, 1, 2, "a"), payload[256 << 10 :])
    assert not of(stage.receive("a", message, b""), Deliver)
    [beat] = sent(stage.run_until(1_010), ConsumerFrame)[-1:]
    assert (beat.action, beat.push_seen) == (ConsumerAction.BEAT, 0), "it is to be pushed again"
    stage.receive("a", PushChunk(TOPIC, CONSUMER, 1, 1, 50, 0, 60, 0, 2, "a"), payload[: 256 << 10])
    message.number = 2
    assert len(of(stage.receive("a", message, b""), Deliver)) == 1


def test_a_damaged_payload_is_never_handed_out_but_given_back() -> None:
    stage = Stage()
    attached(stage)
    message, body = push("a", 1, 1, [b"good", b"evil"])
    effects = stage.receive("a", message, body.replace(b"evil", b"EVIL"))
    assert [d.payload for e in of(effects, Deliver) for d in e.deliveries] == [b"good"]
    [request] = sent(stage.run_until(stage.ms + 2), ChangeRequest)
    assert (request.kind, request.target_row.tolist()) == (RecordKind.NACK, [1])


def test_chunks_whose_push_never_comes_take_no_more_memory_than_is_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The oldest go first; one that comes again counts once."""
    monkeypatch.setattr(limits, "PAYLOAD_BYTES_MAX", 0)
    arrivals = Arrivals(bytes_max=10)
    for sequence in (50, 51, 51, 51):
        arrivals.chunk(PushChunk(TOPIC, CONSUMER, 1, 1, sequence, 0, 60, 0, 2, "a"), bytes(10))
    assert len(arrivals.chunks) == 2
    arrivals.chunk(PushChunk(TOPIC, CONSUMER, 1, 1, 52, 0, 60, 0, 2, "a"), bytes(1))
    assert [name >> 16 & 0xFF for name, _ in arrivals.chunks] == [51, 52]
