"""Pushes that arrive: nothing is delivered twice, and no payload that is not whole."""

from __future__ import annotations

import numpy as np
import pytest

from dueq import limits
from dueq.client.core.consuming.arrivals import Arrivals
from dueq.client.core.ports.effects import Deliver, LeaseLost
from dueq_codecs.messages import ChangeRequest, ConsumerAction, ConsumerFrame, PushChunk
from dueq_codecs.meta import Meta, packed_headers, prefix_of
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


def test_a_damaged_payload_is_not_pushed_again_all_the_time() -> None:
    """It is as damaged on the leader's disk: another broker may lead by then."""
    stage = Stage()
    attached(stage)
    message, body = push("a", 1, 1, [b"good"])
    stage.receive("a", message, body.replace(b"good", b"evil"))
    [request] = sent(stage.run_until(stage.ms + 2), ChangeRequest)
    assert request.amount_ms.tolist() == [1_000]


# -------------------------------------------------------------- taken apart, without a client

LONG = bytes(range(256)) * 2_000
PIECES = [LONG[: limits.CHUNK_BYTES], LONG[limits.CHUNK_BYTES :]]


def arrivals(bytes_max: int = 1 << 20) -> Arrivals:
    return Arrivals(bytes_max)


def chunk_of(number: int, *, token: int = 60, sequence: int = 50) -> PushChunk:
    return PushChunk(TOPIC, CONSUMER, 1, 1, sequence, 0, token, number, 2, "a")


def taken(at: Arrivals, *payloads: bytes, **fields: int) -> tuple[list[bytes], list[bytes], bool]:
    """Of a push with these payloads: what is new, what is damaged, and whether it is whole."""
    message, body = push("a", 1, 1, payloads, **fields)  # type: ignore[arg-type]
    short = b"" if len(payloads[0]) > limits.CHUNK_BYTES else body
    fresh, damaged, complete = at.push(message, short, 0)
    return [each.payload for each in fresh], [each.payload for each in damaged], complete


def test_chunks_of_a_payload_that_was_delivered_are_not_kept() -> None:
    """They were sent again before our answer came: their push comes again too, and is seen already."""
    at = arrivals()
    for number, piece in enumerate(PIECES):
        at.chunk(chunk_of(number), piece)
    assert taken(at, LONG) == ([LONG], [], True)
    at.chunk(chunk_of(0), PIECES[0])
    assert at.chunks == {}
    at.chunk(chunk_of(0, token=61), PIECES[0])
    assert [token for _, token in at.chunks] == [61], "of a later lease they are"


def test_chunks_of_a_lease_that_is_held_are_not_kept() -> None:
    at = arrivals()
    message, body = push("a", 1, 1, [b"x"], token=60)
    [held], _, _ = at.push(message, body, 0)
    later = Arrivals(1)
    later.held[held.name] = held
    later.chunk(chunk_of(0), b"x")
    assert later.chunks == {}
    later.chunk(chunk_of(0, token=61), b"x")
    assert len(later.chunks) == 1


def test_chunks_of_two_leases_of_a_message_are_not_put_together() -> None:
    """The message may have been changed between the two."""
    at = arrivals()
    at.chunk(chunk_of(0, token=60), PIECES[0])
    at.chunk(chunk_of(1, token=61), PIECES[1])
    assert taken(at, LONG, token=61) == ([], [], False)
    at.chunk(chunk_of(0, token=61), PIECES[0])
    assert taken(at, LONG, token=61) == ([LONG], [], True)
    assert [token for _, token in at.chunks] == [60]


def test_chunks_that_are_not_those_of_the_payload_are_dropped_and_wanted_again() -> None:
    """Kept, they would be in the way of the right ones for ever."""
    at = arrivals()
    for number in (0, 7):
        at.chunk(chunk_of(number), PIECES[0])
    assert taken(at, LONG) == ([], [], False)
    assert at.chunks == {}
    for number, piece in enumerate(PIECES):
        at.chunk(chunk_of(number), piece)
    assert taken(at, LONG) == ([LONG], [], True)


def test_a_payload_of_one_whole_chunk_comes_with_its_push() -> None:
    whole = bytes(limits.CHUNK_BYTES)
    assert taken(arrivals(), whole) == ([whole], [], True)


def test_chunks_that_were_put_together_take_no_memory_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a consumer of many long payloads would keep none of the next one's."""
    monkeypatch.setattr(limits, "PAYLOAD_BYTES_MAX", 0)
    at = Arrivals(bytes_max=len(LONG))
    for sequence in range(50, 60):
        for number, piece in enumerate(PIECES):
            at.chunk(chunk_of(number, sequence=sequence), piece)
        assert taken(at, LONG, sequence=sequence) == ([LONG], [], True)


def test_a_chunk_that_is_longer_than_all_that_may_be_kept_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "PAYLOAD_BYTES_MAX", 0)
    at = Arrivals(bytes_max=10)
    at.chunk(chunk_of(0), bytes(21))
    assert at.chunks == {}
    at.chunk(chunk_of(0), bytes(20))
    assert len(at.chunks) == 1


def test_the_rows_of_a_push_are_cut_out_though_one_of_them_was_seen_or_is_long() -> None:
    at = arrivals()
    assert taken(at, b"first") == ([b"first"], [], True)
    message, _ = push("a", 1, 2, [b"first", LONG, b"last"])
    fresh, damaged, complete = at.push(message, b"firstlast", 0)
    assert ([each.payload for each in fresh], damaged, complete) == ([b"last"], [], False)
    assert [each.row for each in fresh] == [2]


def test_of_what_was_damaged_no_older_lease_is_delivered() -> None:
    at = arrivals()
    message, _ = push("a", 1, 1, [b"good"], token=60)
    fresh, damaged, complete = at.push(message, b"evil", 0)
    assert (fresh, [each.payload for each in damaged], complete) == ([], [b"evil"], True)
    assert taken(at, b"good", token=60) == ([], [], True)
    assert taken(at, b"good", token=61) == ([b"good"], [], True)


def test_what_came_in_another_way_is_seen() -> None:
    source, at = arrivals(), arrivals()
    message, body = push("a", 1, 1, [b"x", b"y"])
    at.note(source.push(message, body, 0)[0])
    assert taken(at, b"x", b"y", b"z") == ([b"z"], [], True)


@pytest.mark.parametrize("pushes", [1, 2])
def test_what_is_remembered_as_seen_is_bounded(monkeypatch: pytest.MonkeyPatch, pushes: int) -> None:
    monkeypatch.setattr(limits, "DELIVERIES_SEEN_MAX", 4)
    at = arrivals()
    for turn in range(20):
        for each in range(pushes):
            taken(at, *[b"x"] * (4 // pushes), sequence=100 + pushes * turn + each)
    assert len(at._seen) + len(at._seen_before) <= 8
    assert taken(at, *[b"x"] * (4 // pushes), sequence=100 + pushes * 20 - 1) == ([], [], True)


def test_an_older_lease_than_one_that_was_seen_is_delivered_in_neither_half(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A push that was long on its way brings a lease that the leader has ended."""
    monkeypatch.setattr(limits, "DELIVERIES_SEEN_MAX", 2)
    at = arrivals()
    assert taken(at, b"x", token=60) == ([b"x"], [], True)
    assert taken(at, b"x", token=59) == ([], [], True)
    taken(at, b"y", sequence=51)
    assert taken(at, b"x", token=59) == ([], [], True)
    assert taken(at, b"x", token=61) == ([b"x"], [], True)


def test_what_is_held_is_not_delivered_twice_though_it_was_forgotten_as_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may be held for hours while thousands of others come and go."""
    monkeypatch.setattr(limits, "DELIVERIES_SEEN_MAX", 1)
    at = arrivals()
    message, body = push("a", 1, 1, [b"x"], token=60)
    [held], _, _ = at.push(message, body, 0)
    at.held[held.name] = held
    for sequence in range(51, 60):
        taken(at, b"y", sequence=sequence)
    assert taken(at, b"x", token=60) == ([], [], True)
    assert taken(at, b"x", token=61) == ([b"x"], [], True)


def test_keys_and_headers_come_off_the_payloads_and_headers_of_a_nack_take_the_place_of_the_own() -> None:
    own = prefix_of(Meta.HEADERS, b"k1", packed_headers({"a": "own"})) + b"first"
    key = prefix_of(Meta.KEY, b"k2", b"") + b"second"
    message, body = push("a", 1, 1, [own, own, key, b"plain"])
    message.rows["keyed"] = [Meta.HEADERS, Meta.HEADERS, Meta.KEY, Meta.NONE]
    message.heading = np.array([0, 1, 1, 0], np.uint16)
    message.headings = ("", '{"a":"given"}')
    fresh, _, _ = arrivals().push(message, body, 0)
    assert [(each.key, dict(each.headers), each.payload) for each in fresh] == [
        ("k1", {"a": "own"}, b"first"),
        ("k1", {"a": "given"}, b"first"),
        ("k2", {"a": "given"}, b"second"),
        ("", {}, b"plain"),
    ]
