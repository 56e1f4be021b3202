"""Two builds in one mesh: what a newer one has written stops one partition of an older broker, and not all of them."""

from __future__ import annotations

import pytest

from dueq.storage.ordered import layout
from dueq_chaos.scenarios.stage import Stage

_TAIL = b"T", b"L", b"M"
"""What goes on while a partition is stopped: the log and its commit position."""


def _state_rows(stage: Stage, broker: str) -> list[dict[bytes, bytes]]:
    heads = [layout.head(stage.uid, tag) for tag in _TAIL]
    return [
        {key: value for key, value in rows.items() if key[:3] == heads[0][:3] and key[:4] not in heads}
        for rows in stage.photograph(broker)
    ]


def test_a_newer_checkpoint_stops_one_partition_and_not_the_broker() -> None:
    """The log goes on, so nothing that it acks is lost; its state stays as it is until the newer build is back."""
    stage = Stage(partitions=2)
    for uid in stage.uids:
        stage.stored(b"before", uid=uid)
    stage.run_ms(5_000)
    stage.nodes["b3"].crash()
    stage.expect(stage.nodes["b3"].disk.make_newer(stage.uid), "a checkpoint")
    untouched = _state_rows(stage, "b3")
    stage.nodes["b3"].start()
    stage.run_ms(2_000)
    stage.expect(
        "summary of version" in stage.replica("b3").broken, f"it says why: {stage.replica('b3').broken!r}"
    )
    stage.expect(not stage.replica("b3", stage.uids[1]).broken, "the other partition goes on")
    for number in range(40):
        stage.stored(b"%d" % number * 300)
    stage.run_ms(5_000)
    stage.expect(not stage.failures(), f"no failures: {stage.failures()}")
    held = stage.replica("b3").replica
    stage.expect(held.synced == stage.replica("b1").replica.log.end, "it has all records")
    stage.expect(_state_rows(stage, "b3")[0] == untouched[0], "its checkpoint is untouched")
    stage.step("the newer build is installed again")
    stage.finish()
    stage.expect(not stage.replica("b3").broken, "it goes on")
    stage.expect(stage.replica("b3").timeline.scheduled_count == 41, "with every message")


def test_a_stopped_replica_lets_go_of_what_it_need_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that are never applied are read from the disk when they are wanted, and are not kept in memory."""
    monkeypatch.setattr("dueq.limits.LOG_CACHE_BYTES", 5_000)
    stage = Stage()
    stage.stored(b"before")
    stage.run_ms(5_000)
    stage.nodes["b3"].crash()
    stage.nodes["b3"].disk.make_newer(stage.uid)
    stage.nodes["b3"].start()
    stage.run_ms(2_000)
    for number in range(40):
        stage.stored(b"%d" % number * 300)
    log = stage.replica("b3").replica.log
    stage.until(lambda: log.end == stage.replica("b1").replica.log.end, "b3 has all records")
    stage.expect(log.end + 1 - log.cached_from < 15, f"{log.end + 1 - log.cached_from} records in memory")
    stage.finish()


def test_a_newer_snapshot_stops_the_partition_that_it_fills() -> None:
    """An upgraded leader fills an older follower: it holds the snapshot, and says that it cannot read it."""
    stage = Stage(partitions=2, log_retain_bytes=2_000)
    stage.nodes["b3"].crash()
    stage.until(lambda: "b3" not in stage.coordinator.registrations, "the end of b3's session")
    for number in range(30):
        stage.stored(*[b"%d-%d" % (number, n) * 200 for n in range(20)])
    stage.run_ms(6_000)
    leader = stage.nodes[stage.leader]
    stage.expect(leader.disk.make_newer(stage.uid), "a checkpoint")
    stage.nodes["b3"].start()
    stage.until(lambda: stage.told("b3", "replica.installed"), "b3 was filled")
    stage.expect(stage.replica("b3").broken, "it cannot read it")
    stage.run_ms(3_000)
    stage.expect(stage.nodes["b3"].core is not None, "b3 lives")
    stage.expect(not stage.replica("b3", stage.uids[1]).broken, "its other partition goes on")
    stage.step("b3 is upgraded too")
    stage.expect(not leader.disk.upgrade(), "the leader's checkpoint is as it was")
    stage.nodes["b3"].crash()
    filled = stage.nodes["b3"].disk.timeline.get(layout.head(stage.uid, b"C"))
    assert filled is not None
    at = layout.CHECKPOINT.size
    known = filled[:at] + bytes([filled[at] & 0x7F]) + filled[at + 1 :]
    stage.nodes["b3"].disk.timeline.write([(layout.head(stage.uid, b"C"), known)], sync=True)
    stage.nodes["b3"].start()
    stage.finish()
    stage.expect(stage.replica("b3").timeline.scheduled_count == 600, "it has every message")
