"""Inserts share a bounded part of each turn."""

from __future__ import annotations

import numpy as np

from dueq.broker.inserts import Inserts, is_insert
from dueq.core.events import ClientFrameReceived, Persisted, Route
from dueq_codecs.messages import ChangeReply, ChangeRequest, ChunkReply, ChunkRequest, Code, MetadataRequest
from dueq_codecs.records import RecordKind


def insert(request_id: int, rows: int = 1, bytes_each: int = 10) -> ClientFrameReceived:
    request = ChangeRequest(
        request_id, RecordKind.INSERT, "t", 1, bytes(16), request_id, 0, due=np.zeros(rows, np.uint64)
    )
    return ClientFrameReceived(Route(b"x"), request, [bytes(rows * bytes_each)])


def chunk(request_id: int) -> ClientFrameReceived:
    request = ChunkRequest(request_id, "t", 1, bytes(16), 5, 2, 9, 1 << 21, 0)
    return ClientFrameReceived(Route(b"x"), request, [bytes(256 << 10)])


def numbers(events: object) -> list[int]:
    return [event.message.request_id for event in events]  # type: ignore[attr-defined]


def test_inserts_and_chunks_wait_and_nothing_else_does() -> None:
    assert is_insert(insert(1))
    assert is_insert(chunk(1))
    cancel = ChangeRequest(1, RecordKind.CANCEL, "t", 1, bytes(16), 1, 0)
    assert not is_insert(ClientFrameReceived(Route(b"x"), cancel, []))
    assert not is_insert(ClientFrameReceived(Route(b"x"), MetadataRequest(1), []))
    assert not is_insert(Persisted(1, 1))


def test_a_turn_takes_the_oldest_until_it_has_enough_rows() -> None:
    inserts = Inserts()
    for number in range(1, 10):
        assert inserts.put(insert(number, rows=512)) is None
    assert numbers(inserts.take()) == [1, 2, 3, 4]
    assert numbers(inserts.take()) == [5, 6, 7, 8]
    assert numbers(inserts.take()) == [9]
    assert not inserts
    assert inserts.waiting_bytes == 0


def test_a_turn_takes_the_oldest_until_it_has_enough_bytes() -> None:
    inserts = Inserts()
    for number in range(1, 7):
        inserts.put(chunk(number))
    assert numbers(inserts.take()) == [1, 2, 3, 4]
    assert numbers(inserts.take()) == [5, 6]


def test_a_turn_takes_one_insert_however_large_it_is() -> None:
    inserts = Inserts()
    inserts.put(insert(1, rows=1, bytes_each=3 << 20))
    inserts.put(insert(2))
    assert numbers(inserts.take()) == [1]
    assert numbers(inserts.take()) == [2]


def test_beyond_its_room_an_insert_is_refused_with_a_time_to_come_again() -> None:
    inserts = Inserts()
    accepted = 0
    while (refusal := inserts.put(insert(accepted + 1, bytes_each=3 << 20))) is None:
        accepted += 1
    identity, reply = refusal
    assert identity == b"x"
    assert isinstance(reply, ChangeReply)
    assert (reply.request_id, reply.code) == (accepted + 1, Code.BUSY)
    assert reply.retry_after_ms > 0
    assert accepted == 21, "64 MiB"
    assert numbers(inserts.take()) == [1]
    assert inserts.put(insert(99, bytes_each=3 << 20)) is None, "there is room again"


def test_a_refused_chunk_is_named_in_the_answer() -> None:
    inserts = Inserts()
    while (refusal := inserts.put(chunk(7))) is None:
        pass
    reply = refusal[1]
    assert isinstance(reply, ChunkReply)
    assert (reply.request_id, reply.code, reply.upload, reply.chunk) == (7, Code.BUSY, 5, 2)
