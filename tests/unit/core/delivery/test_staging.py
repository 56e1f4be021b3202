"""Payloads on their way to a push."""

from __future__ import annotations

from dueq import limits
from dueq.core.delivery.staging import CHUNKS_IN_FLIGHT
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
