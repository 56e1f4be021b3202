"""Named scenarios of records that are committed and wait for a read of the disk: their memory is bounded."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq.core.ports.persistence import EntriesRead
from dueq.core.replication.log import resident_bytes
from dueq_chaos.scenarios.stage import Stage
from dueq_codecs.messages import Code

BODY = bytes(10_000)
FAR_MS = 10_000_000


def with_cold_rows(monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Messages of which a few are in memory."""
    monkeypatch.setattr(limits, "UNAPPLIED_BYTES_MAX", 64 << 10)
    monkeypatch.setattr(limits, "LOG_CACHE_BYTES", 8 << 10)
    return Stage(hot_rows_total=8)


def unapplied_bytes(stage: Stage, broker: str) -> int:
    partition = stage.replica(broker)
    entries = map(partition.replica.entry, range(partition.applied + 1, partition.log_end + 1))
    return sum(resident_bytes(entry) for entry in entries if entry is not None)


@pytest.mark.parametrize("slow", ["b1", "b2"], ids=["leader", "follower"])
def test_what_waits_for_a_slow_read_is_bounded(monkeypatch: pytest.MonkeyPatch, slow: str) -> None:
    """A MOVE of a message that is on the disk waits for its read, and all that comes after waits with it."""
    stage = with_cold_rows(monkeypatch)
    producer = stage.hand("producer")
    far_ms = stage.now_ms + FAR_MS
    messages = stage.stored(*[b"%d" % row for row in range(200)], dues=[far_ms + row for row in range(200)])
    timeline = stage.replica(slow).timeline
    stage.until(lambda: timeline.memory_rows < timeline.scheduled_count == 200, "rows that left memory")
    held = stage.hold(slow, lambda event: isinstance(event, EntriesRead))
    move = producer.move("b1", messages[-1:], [far_ms])
    stage.until(lambda: held.events, "the read that it needs")

    stage.step("many clients schedule on")
    most = 0
    inserts = []
    for number in range(60):
        inserts.append(stage.hand(f"p{number}").insert("b1", [BODY], [far_ms]))
        stage.run_ms(20)
        most = max(most, unapplied_bytes(stage, slow))
    stage.expect(most > limits.UNAPPLIED_BYTES_MAX, "much waited")
    stage.expect(most <= 2 * limits.UNAPPLIED_BYTES_MAX + 2 * len(BODY) + limits.LOG_CACHE_BYTES, f"{most}")

    stage.step("the disk answers: all is done, or was refused")
    held.forget()
    held.again()
    stage.until(lambda: move.replies and all(insert.replies for insert in inserts), "answers")
    stage.until(lambda: stage.replica(slow).applied == stage.replica("b1").log_end, "all is applied")
    refused = sum(Code.BUSY in request.codes for request in inserts)
    stage.expect(0 < refused < len(inserts), f"{refused} were refused")
    stage.until(stage.whole, "a whole mesh")
    stage.finish()
