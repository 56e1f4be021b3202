"""Checkpoints of many partitions do not come together."""

from __future__ import annotations

from collections import Counter

import pytest

from dueq.core.ports.persistence import SaveCheckpoint, StoreWrite
from dueq.core.turn.context import Context
from dueq_chaos.scenarios.stage import Stage

PARTITIONS = 24
ROUNDS = 60
APART_MS = 100


def test_partitions_that_began_together_do_not_make_their_checkpoints_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else every delivery of that moment would be late, and the same on all brokers."""
    made: Counter[tuple[str, int]] = Counter()
    persist = Context.persist

    def counted(ctx: Context, write: StoreWrite) -> None:
        made[ctx.settings.broker_id, ctx.turn.mono_us] += isinstance(write, SaveCheckpoint)
        persist(ctx, write)

    stage = Stage(partitions=PARTITIONS)
    monkeypatch.setattr(Context, "persist", counted)
    producer = stage.hand("producer")
    for number in range(ROUNDS):
        for uid in stage.uids:
            producer.insert(stage.leader_of(uid) or "", [b"%d" % number], [stage.now_ms + 3_600_000], uid=uid)
        stage.run_ms(APART_MS)
    assert sum(made.values()) >= 3 * PARTITIONS, "each partition made some, on each broker"
    assert max(made.values()) <= PARTITIONS // 3, made.most_common(3)
