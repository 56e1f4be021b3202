"""Payloads on their way to a push."""

from __future__ import annotations

from typing import Any

import numpy as np

from dueq import limits
from dueq.core.delivery.staging import CHUNKS_IN_FLIGHT
from dueq.core.ports.entry import Entries, keys_of
from dueq.core.ports.events import Route
from dueq.core.ports.persistence import ChunkRead, PayloadsRead, ReadChunk, ReadPayloads
from dueq_codecs.messages import ConsumerReply, PushChunk
from dueq_codecs.records import RecordKind
from tests.unit.core.led import ALICE, Stage, at, keys_in, kinds


def test_an_upload_goes_on_though_the_partition_moves_away_whose_chunks_were_being_read() -> None:
    stage = Stage(partitions=2)
    stage.attach(0, credit_bytes=64 << 20, lease_ms=60_000)
    stage.insert([1_000], uid=1, size=20 * limits.CHUNK_BYTES, upload=77)
    stage.run(975)
    (key,) = stage.insert([1_000], 980, uid=2, size=3 * limits.CHUNK_BYTES, upload=78)
    stage.run(980)
    assert [read.uid for read in stage.reads] == [1] * CHUNKS_IN_FLIGHT
    stage.dispatcher.unlead(1, at(981))
    stage.run(981)
    stage.read_payloads(985)
    assert [keys_in(push) for push in stage.run(1_000)] == [[key]]


def test_where_some_payloads_are_in_memory_the_others_are_waited_for() -> None:
    """A message without its payload would be an empty one for its consumer."""
    stage = Stage()
    keys = stage.insert([20, 20])
    led = stage.leds[1]

    def cached_payloads(entries: Entries) -> list[bytes | memoryview | None]:
        return [None if key == keys[0] else led.payloads[key] for key in keys_of(entries).tolist()]

    led.cached_payloads = cached_payloads  # type: ignore[method-assign]
    stage.attach(0)
    stage.run(0)
    (push,) = stage.run(20)
    assert keys_in(push) == keys[1:]
    stage.read_payloads(21)
    (push,) = stage.run(21)
    assert keys_in(push) == keys[:1]
    assert stage.sent[-1][2] == [led.payloads[keys[0]]]


def test_a_payload_that_comes_late_is_not_taken_for_that_of_another_lease_in_its_place() -> None:
    stage = Stage()
    led = stage.leds[1]
    led.cached = False
    (gone,) = stage.insert([20])
    stage.attach(0)
    stage.run(0)
    asked, stage.reads = stage.reads, []
    token = stage.dispatcher.withhold(1, np.array([gone], np.uint64)).tolist()
    led.change(RecordKind.CANCEL, [gone], at(1), token=token)
    stage.commit(1)
    (key,) = stage.insert([20], 2)
    stage.run(2)
    later, stage.reads = stage.reads, asked
    stage.read_payloads(10)
    assert stage.run(20) == []
    stage.reads = later
    stage.read_payloads(21)
    (push,) = stage.run(21)
    assert keys_in(push) == [key]
    assert stage.sent[-1][2] == [led.payloads[key]]


# ---------------------------------------------------------------- chunks


def waits_for(stage: Stage, chunks: int, upload: int, ms: float = 0, **options: Any) -> int:
    """A consumer has a lease of a message of so many chunks, due at 1000 ms; returns its key."""
    (key,) = stage.insert([1_000], ms, size=chunks * limits.CHUNK_BYTES, upload=upload, **options)
    stage.run(975)
    return key


def attached(consumer: bytes = ALICE, **options: Any) -> Stage:
    stage = Stage(**options)
    stage.attach(0, consumer, credit_bytes=1 << 30, lease_ms=60_000)
    return stage


def take(stage: Stage, upload: int) -> list[ReadChunk]:
    """Take the reads of an upload that are under way."""
    found = [read for read in stage.reads if isinstance(read, ReadChunk) and read.upload == upload]
    stage.reads = [read for read in stage.reads if read not in found]
    return found


def bring(stage: Stage, read: ReadChunk, ms: float, data: bytes | None = b"chunk") -> bool:
    """The disk answers; returns whether the broker is content."""
    done = ChunkRead(read.token, read.uid, read.upload, read.chunk, data)
    fine = stage.dispatcher.payloads_read(done, at(ms))
    stage.sent += stage.dispatcher.take_sends()
    stage.reads += stage.dispatcher.take_reads()
    return fine


def sent(stage: Stage) -> list[tuple[int, int]]:
    """Sequence and number of each chunk that has left."""
    return [(m.sequence, m.chunk) for _, m, _ in stage.sent if isinstance(m, PushChunk)]


def test_an_upload_of_which_a_chunk_cannot_be_read_is_given_up_and_told_once() -> None:
    """What it lacks never comes: the rest would only fill the link, and the disk be asked for all of it."""
    stage = attached()
    waits_for(stage, 20, 77)
    lost, *rest = take(stage, 77)
    assert not bring(stage, lost, 980, None)
    assert all(bring(stage, read, 981, None) for read in rest[:2])
    assert all(bring(stage, read, 982) for read in rest[2:])
    assert (sent(stage), stage.reads) == ([], [])
    assert stage.metrics.errors["payload_unreadable"] == 1
    assert stage.run(1_000) == []


def test_a_message_of_which_a_chunk_could_not_be_read_is_tried_again_at_the_pace_of_leases() -> None:
    stage = Stage()
    stage.attach(0, credit_bytes=1 << 30, lease_ms=2_000)
    key = waits_for(stage, 2, 77)
    for read in take(stage, 77):
        bring(stage, read, 980, None)
    stage.run(1_000)
    assert kinds(stage) == [RecordKind.LEASE]
    stage.beat(1_990, number=2, credit_bytes=1 << 30, lease_ms=2_000)
    stage.run(2_000)
    assert kinds(stage) == [RecordKind.LEASE, RecordKind.RELEASE, RecordKind.LEASE]
    stage.read_payloads(2_001)
    assert [(keys_in(push), push.attempt.tolist()) for push in stage.run(2_001)] == [([key], [1])]


def test_after_a_chunk_that_cannot_be_read_those_of_other_uploads_go_on() -> None:
    stage = attached()
    waits_for(stage, CHUNKS_IN_FLIGHT, 77)
    other = waits_for(stage, 2, 78, 976)
    for read in take(stage, 77):
        bring(stage, read, 980, None)
    for read in take(stage, 78):
        bring(stage, read, 981)
    assert [keys_in(push) for push in stage.run(1_000)] == [[other]]


def test_a_chunk_that_is_missing_is_no_damage_if_nobody_waits_for_it() -> None:
    """It may be deleted, as the message is over."""
    stage = attached()
    waits_for(stage, 2, 77)
    stage.dispatcher.route_lost(Route(ALICE), ConsumerReply("t", ALICE, 1, 1), at(976))
    assert all(bring(stage, read, 980, None) for read in take(stage, 77))
    assert stage.metrics.errors["payload_unreadable"] == 0


def test_nothing_more_is_read_or_sent_of_an_upload_whose_consumer_is_gone() -> None:
    stage = attached()
    waits_for(stage, 20, 77)
    stage.dispatcher.route_lost(Route(ALICE), ConsumerReply("t", ALICE, 1, 1), at(976))
    for read in take(stage, 77):
        bring(stage, read, 980)
    assert (sent(stage), stage.reads) == ([], [])


def test_nothing_is_sent_of_a_message_that_is_being_cancelled() -> None:
    stage = attached()
    key = waits_for(stage, 20, 77)
    stage.dispatcher.withhold(1, np.array([key], np.uint64))
    for read in take(stage, 77):
        bring(stage, read, 980)
    assert (sent(stage), stage.reads) == ([], [])


def test_a_chunk_that_comes_late_is_not_taken_for_that_of_another_lease_in_its_place() -> None:
    """The other message would be pushed before its own chunks."""
    stage = attached()
    gone = waits_for(stage, 2, 77)
    late = take(stage, 77)
    token = stage.dispatcher.withhold(1, np.array([gone], np.uint64)).tolist()
    stage.leds[1].change(RecordKind.CANCEL, [gone], at(976), token=token)
    stage.commit(976)
    key = waits_for(stage, 2, 78, 977)
    for read in late:
        bring(stage, read, 980)
    assert sent(stage) == []
    assert stage.run(1_000) == []
    for read in take(stage, 78):
        bring(stage, read, 1_001)
    assert [keys_in(push) for push in stage.run(1_001)] == [[key]]


def test_all_uploads_get_their_chunks_in_turn() -> None:
    """A huge payload delays nobody."""
    stage = attached()
    stage.insert([1_000], size=20 * limits.CHUNK_BYTES, upload=77)
    stage.insert([1_000], size=20 * limits.CHUNK_BYTES, upload=78)
    stage.run(975)
    reads = [(read.upload, read.chunk) for read in stage.reads if isinstance(read, ReadChunk)]
    assert reads == [(upload, chunk) for chunk in range(CHUNKS_IN_FLIGHT // 2) for upload in (77, 78)]


def test_a_push_waits_for_all_chunks_in_whatever_order_they_come() -> None:
    stage = attached()
    key = waits_for(stage, 3, 77)
    first, second, last = take(stage, 77)
    bring(stage, last, 980)
    bring(stage, first, 981)
    assert stage.run(1_000) == []
    bring(stage, second, 1_001)
    assert [keys_in(push) for push in stage.run(1_001)] == [[key]]


def test_of_a_partition_that_has_moved_nothing_more_is_read_and_its_reads_hold_up_nobody() -> None:
    """Their answers may be long in coming."""
    stage = attached(partitions=2)
    waits_for(stage, 20, 77)
    waits_for(stage, 20, 78, 976, uid=2)
    assert len(take(stage, 77)) == CHUNKS_IN_FLIGHT
    stage.dispatcher.unlead(1, at(980))
    stage.run(981)
    assert take(stage, 77) == []
    assert len(take(stage, 78)) == CHUNKS_IN_FLIGHT


def test_a_payload_that_nobody_wants_any_more_is_not_counted_as_damage() -> None:
    """The message is over, so the disk may have deleted it."""
    stage = Stage()
    led = stage.leds[1]
    led.cached = False
    gone, kept = stage.insert([20, 20])
    stage.attach(0)
    stage.run(0)
    token = stage.dispatcher.withhold(1, np.array([gone], np.uint64)).tolist()
    led.change(RecordKind.CANCEL, [gone], at(1), token=token)
    stage.commit(1)
    [read] = stage.reads
    assert isinstance(read, ReadPayloads)
    found = [None, led.payloads[kept]]
    assert stage.dispatcher.payloads_read(PayloadsRead(read.token, 1, read.entries, found), at(2))
    assert stage.metrics.errors["payload_unreadable"] == 0
    (push,) = stage.run(20)
    assert keys_in(push) == [kept]


def test_of_a_partition_that_has_moved_a_payload_that_cannot_be_read_is_not_counted_as_damage() -> None:
    stage = Stage()
    stage.leds[1].cached = False
    stage.insert([20])
    stage.attach(0)
    stage.run(0)
    [read] = stage.reads
    assert isinstance(read, ReadPayloads)
    stage.dispatcher.unlead(1, at(1))
    assert stage.dispatcher.payloads_read(PayloadsRead(read.token, 1, read.entries, [None]), at(2))
    assert stage.metrics.errors["payload_unreadable"] == 0


def test_the_broker_is_told_of_a_payload_that_is_wanted_and_cannot_be_read() -> None:
    """Another member may have it, and is to lead."""
    stage = Stage()
    stage.leds[1].cached = False
    stage.insert([20])
    stage.attach(0)
    stage.run(0)
    [read] = stage.reads
    assert isinstance(read, ReadPayloads)
    assert not stage.dispatcher.payloads_read(PayloadsRead(read.token, 1, read.entries, [None]), at(2))
