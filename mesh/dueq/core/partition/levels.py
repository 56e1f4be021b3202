"""The feature level of a partition: which records its leader may write.

Each build has a level, and announces it when it registers. A record's version is the level whose rules apply it, so
a build can apply records up to its own level. If a leader wrote a newer one while a replica runs an older build, that
replica would stop, and the partition would have one copy less. With two such replicas it could commit nothing.

So a partition has a level of its own, which begins at 1: the largest version of any record that was applied. Its
leader raises it once *every* assigned replica has announced the new level. It does so by a barrier of that version,
the first one of its leadership or a later one. A replica that is away counts with its last announcement. While a
replica has announced nothing, the level stays. The level is part of the replicated state, and never falls: a later
leader goes on with it. An older build that becomes a replica stops at the first record that it must not apply, and
says so.

A feature that needs a newer record asks `partition.timeline.level >= N`. Source: the
cluster version of CockroachDB, and KIP-584 of Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from dueq.core.replication.replica import Replica
from dueq.core.state.timeline import Timeline
from dueq.core.turn.context import Context
from dueq.instant import Now
from dueq_codecs.records import Record, RecordKind


def announced(ctx: Context, brokers: Iterable[str]) -> dict[str, int]:
    """Return the level that each broker has announced last; 0: nothing is known of it."""
    own = ctx.settings
    return {
        broker_id: own.feature_level if broker_id == own.broker_id else ctx.levels.get(broker_id, 0)
        for broker_id in brokers
    }


def holding_back(ctx: Context, brokers: Iterable[str], level: int) -> list[str]:
    """Return those of the brokers that have not announced a feature level."""
    return [broker_id for broker_id, known in announced(ctx, brokers).items() if known < level]


def level_needed(level: int, brokers: list[str]) -> str:
    """Say what a feature waits for, to a client that asks for it."""
    older = f"of an older build: {', '.join(brokers)}" if brokers else "it is reached in a moment"
    return f"this needs feature level {level} at every replica; {older}"


class LeveledPartition(Protocol):
    """The members of the partition that its level needs (see `Partition`)."""

    uid: int
    replicas: tuple[str, ...]
    replica: Replica
    timeline: Timeline

    def propose(self, record: Record, now: Now) -> int:
        """Append a record of the leader's own making; 0: not now."""
        ...


class Levels:
    """Raises the level of one partition while this broker leads it."""

    def __init__(self, ctx: Context, partition: LeveledPartition) -> None:
        self._ctx, self._partition = ctx, partition
        self._asked = 0  # the level that a barrier of this leadership, not applied yet, raises it to

    def of_all(self) -> int:
        """Return the level that every assigned replica has announced; 0: nothing is known of one."""
        return min(announced(self._ctx, self._partition.replicas).values())

    def tick(self, now: Now) -> bool:
        """Raise the level if every replica allows it; returns whether that is still under way."""
        partition = self._partition
        if not partition.replica.serving:
            return False
        if self._asked > partition.timeline.level:
            return True
        self._asked = 0
        wanted = self.of_all()
        if wanted <= partition.timeline.level:
            return False
        if partition.propose(Record(RecordKind.BARRIER, partition.uid, 0, 0, 0, version=wanted), now):
            self._asked = wanted
            self._ctx.log(
                "info", "partition.level_raised", uid=partition.uid,
                feature_level=wanted, before=partition.timeline.level,
            )  # fmt: skip
        return True

    def leadership_lost(self) -> None:
        """The proposal may fail; then the next leader makes its own."""
        self._asked = 0
