"""Payloads on their way to a push."""

from __future__ import annotations

import numpy as np

from dueq import limits
from dueq.core.delivery.staging import CHUNKS_IN_FLIGHT
from dueq.core.ports.entry import Entries, keys_of
from dueq_codecs.records import RecordKind
from tests.unit.core.led import Stage, at, keys_in


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
