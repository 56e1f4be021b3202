"""Inserts share a bounded part of each turn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dueq.broker.inserts import Inserts, is_insert
from dueq.core.ports.events import ClientFrameReceived, PeerFrameReceived, Persisted, Route
from dueq.instant import Now
from dueq_codecs.envelope import ENVELOPE_BYTES, seal
from dueq_codecs.frames import decode, encode
from dueq_codecs.layouts import Kind
from dueq_codecs.messages import (
    ChangeReply,
    ChangeRequest,
    ChunkReply,
    ChunkRequest,
    Code,
    MetadataRequest,
    PeerFrame,
    Relay,
)
from dueq_codecs.records import RecordKind

NOW = Now(1_800_000_000_000_000, 5_000_000)
LATER_MS = NOW.wall_us // 1000 + 3_600_000


def insert(
    request_id: int, rows: int = 1, bytes_each: int = 10, due_ms: int = 0, route: bytes = b"x"
) -> ClientFrameReceived:
    request = ChangeRequest(
        request_id, RecordKind.INSERT, "t", 1, bytes(16), request_id, 0, due=np.full(rows, due_ms, np.uint64)
    )
    return ClientFrameReceived(Route(route), request, [bytes(rows * bytes_each)])


def patient(request_id: int, rows: int = 500, route: bytes = b"x") -> ClientFrameReceived:
    return insert(request_id, rows, due_ms=LATER_MS, route=route)


def slowed(rows_per_s: float) -> Inserts:
    """Inserts whose pace is this one, and used up."""
    inserts = Inserts()
    inserts.pace.pushed(0, NOW.mono_us)
    inserts.pace.rows_per_s = rows_per_s
    assert inserts.pace.wait_us(NOW.mono_us) == 0
    inserts.pace.took(int(rows_per_s), NOW.mono_us)
    return inserts


def relayed(event: ClientFrameReceived, by: str = "b2") -> PeerFrameReceived:
    """The same, by way of another broker."""
    relay = Relay(by, 1, event.route.identity, False, event.message, event.bodies)
    return PeerFrameReceived(relay, [])


def chunk(request_id: int) -> ClientFrameReceived:
    request = ChunkRequest(request_id, "t", 1, bytes(16), 5, 2, 9, 1 << 21, 0)
    return ClientFrameReceived(Route(b"x"), request, [bytes(256 << 10)])


def numbers(events: Iterable[Any]) -> list[int]:
    """The numbers of the clients' requests."""
    messages = [event.message for event in events]
    return [getattr(message, "inner", message).request_id for message in messages]


def test_inserts_and_chunks_wait_and_nothing_else_does() -> None:
    assert is_insert(insert(1))
    assert is_insert(chunk(1))
    cancel = ChangeRequest(1, RecordKind.CANCEL, "t", 1, bytes(16), 1, 0)
    assert not is_insert(ClientFrameReceived(Route(b"x"), cancel, []))
    assert not is_insert(ClientFrameReceived(Route(b"x"), MetadataRequest(1), []))
    assert not is_insert(Persisted(1, 1))


def test_inserts_and_chunks_that_another_broker_relays_wait_too() -> None:
    assert is_insert(relayed(insert(1)))
    assert is_insert(relayed(chunk(1)))
    cancel = ChangeRequest(1, RecordKind.CANCEL, "t", 1, bytes(16), 1, 0)
    assert not is_insert(relayed(ClientFrameReceived(Route(b"x"), cancel, [])))
    answer = Relay("b2", 1, b"x", True, ChangeReply(1, Code.OK, "", uid=1))
    assert not is_insert(PeerFrameReceived(answer, []))
    assert not is_insert(PeerFrameReceived(PeerFrame("b2", 1, "b1", 1, 0, 0), []))


def test_relayed_inserts_are_weighed_refused_and_kept_in_order_like_others() -> None:
    inserts = slowed(10_000)
    assert inserts.put(relayed(patient(1)), NOW) is None
    assert inserts.waiting_bytes > 5_000
    inserts.put(relayed(insert(2)), NOW)
    inserts.put(
        relayed(insert(3), by="b3"), NOW
    )  # another client, though it has a connection of the same name
    inserts.put(insert(4), NOW)
    assert numbers(inserts.take(NOW)) == [3, 4]
    while (refusal := inserts.put(relayed(patient(9)), NOW)) is None:
        pass
    assert (refusal.code, refusal.request_id) == (Code.BUSY, 9)


def test_a_turn_takes_the_oldest_until_it_has_enough_rows() -> None:
    inserts = Inserts()
    for number in range(1, 10):
        assert inserts.put(insert(number, rows=512), NOW) is None
    assert numbers(inserts.take(NOW)) == [1, 2, 3, 4]
    assert numbers(inserts.take(NOW)) == [5, 6, 7, 8]
    assert numbers(inserts.take(NOW)) == [9]
    assert inserts.wait_us(NOW) is None, "nothing waits"
    assert inserts.waiting_bytes == 0


def test_a_turn_takes_the_oldest_until_it_has_enough_bytes() -> None:
    inserts = Inserts()
    for number in range(1, 7):
        inserts.put(chunk(number), NOW)
    assert numbers(inserts.take(NOW)) == [1, 2, 3, 4]
    assert numbers(inserts.take(NOW)) == [5, 6]


def test_a_turn_takes_one_insert_however_large_it_is() -> None:
    inserts = Inserts()
    inserts.put(insert(1, rows=1, bytes_each=3 << 20), NOW)
    inserts.put(insert(2), NOW)
    assert numbers(inserts.take(NOW)) == [1]
    assert numbers(inserts.take(NOW)) == [2]


def test_beyond_its_room_an_insert_is_refused_with_a_time_to_come_again() -> None:
    inserts = Inserts()
    accepted = 0
    while (refusal := inserts.put(insert(accepted + 1, bytes_each=3 << 20), NOW)) is None:
        accepted += 1
    assert isinstance(refusal, ChangeReply)
    assert (refusal.request_id, refusal.code) == (accepted + 1, Code.BUSY)
    assert refusal.retry_after_ms > 0
    assert accepted == 21, "64 MiB"
    assert numbers(inserts.take(NOW)) == [1]
    assert inserts.put(insert(99, bytes_each=3 << 20), NOW) is None, "there is room again"


def test_a_refused_chunk_is_named_in_the_answer() -> None:
    inserts = Inserts()
    while (refusal := inserts.put(chunk(7), NOW)) is None:
        pass
    assert isinstance(refusal, ChunkReply)
    assert (refusal.request_id, refusal.code, refusal.upload, refusal.chunk) == (7, Code.BUSY, 5, 2)


def test_what_is_due_much_later_waits_for_the_pace_and_is_passed_by_what_is_not() -> None:
    inserts = slowed(10_000)
    assert inserts.put(patient(1), NOW) is None
    assert inserts.put(insert(2, due_ms=NOW.wall_us // 1000 + 9_000, route=b"y"), NOW) is None
    assert numbers(inserts.take(NOW)) == [2]
    wait_us = inserts.wait_us(NOW)
    assert wait_us is not None
    assert 0 < wait_us <= 1_000_000
    assert numbers(inserts.take(Now(NOW.wall_us, NOW.mono_us + wait_us - 10))) == []
    assert numbers(inserts.take(Now(NOW.wall_us, NOW.mono_us + wait_us))) == [1]
    assert inserts.wait_us(NOW) is None
    assert (inserts.held_up, inserts.waiting_bytes) == (1, 0)


def test_one_connection_s_inserts_stay_in_order() -> None:
    inserts = slowed(10_000)
    inserts.put(patient(1), NOW)
    inserts.put(insert(2), NOW)
    inserts.put(insert(3, route=b"y"), NOW)
    assert numbers(inserts.take(NOW)) == [3]
    assert numbers(inserts.take(Now(NOW.wall_us, NOW.mono_us + 2_000_000))) == [1, 2]


def test_a_connection_whose_inserts_for_later_are_taken_is_held_up_no_more() -> None:
    inserts = slowed(10_000)
    inserts.put(patient(1), NOW)
    inserts.pace.pushed(0, NOW.mono_us + 900_000)
    then = Now(NOW.wall_us, NOW.mono_us + 1_100_000)
    assert numbers(inserts.take(then)) == [1]
    inserts.pace.took(100_000, then.mono_us)
    inserts.put(insert(2), then)
    assert numbers(inserts.take(then)) == [2]


def test_without_a_limit_the_oldest_comes_first_whenever_it_is_due() -> None:
    inserts = Inserts()
    for number, event in enumerate((insert(1), patient(2, route=b"y"), insert(3), patient(4, route=b"y"))):
        assert inserts.put(event, NOW) is None, number
    assert numbers(inserts.take(NOW)) == [1, 2, 3, 4]
    assert inserts.held_up == 0


def test_more_than_the_pace_lets_in_soon_is_refused_and_what_is_due_soon_is_not() -> None:
    inserts = slowed(10_000)
    accepted = 0
    while (refusal := inserts.put(patient(accepted + 1), NOW)) is None:
        accepted += 1
    assert accepted == 11, "half a second's rows, and what goes beyond them"
    assert refusal.code == Code.BUSY
    assert "deliveries come first" in refusal.text
    assert refusal.retry_after_ms > 0
    assert inserts.put(insert(99, route=b"y"), NOW) is None


def test_what_waits_is_weighed_with_its_columns_and_texts() -> None:
    """A hundred thousand requests without payloads weighed nothing, and took gigabytes."""
    inserts = Inserts()
    for event in (insert(1, rows=1_024, bytes_each=0), insert(2)):
        assert isinstance(event.message, ChangeRequest)
        if event.message.rows == 1:
            event.message.document = "x" * 65_536
        before = inserts.waiting_bytes
        assert inserts.put(event, NOW) is None
        assert inserts.waiting_bytes - before > 65_536
    assert list(inserts.take(NOW))
    assert inserts.waiting_bytes == 0


def test_a_request_is_weighed_with_all_of_the_frame_that_its_columns_hold() -> None:
    """A frame may have bytes that belong to no field: 500 rows that waited for the pace held 2 GiB."""
    event = insert(1, bytes_each=0)
    assert isinstance(event.message, ChangeRequest)
    event.message.size = event.message.crc = np.zeros(1, np.uint32)
    [head, body] = encode(event.message)
    padded = seal(Kind.CHANGE_REQUEST, bytes(head[ENVELOPE_BYTES:]) + bytes(1 << 20))
    message, bodies = decode([padded, body])
    inserts = Inserts()
    assert inserts.put(ClientFrameReceived(Route(b"x"), message, bodies), NOW) is None  # type: ignore[arg-type]
    assert inserts.waiting_bytes > 1 << 20


def test_a_chunk_is_weighed_with_its_topic() -> None:
    event = chunk(1)
    assert isinstance(event.message, ChunkRequest)
    event.message.topic = "t" * (1 << 20)
    inserts = Inserts()
    assert inserts.put(event, NOW) is None
    assert inserts.waiting_bytes > 5 << 18
