"""Care for shared bodies: the leader lets a partition grow older while one is kept that no message names.

The grace of a body is a length of the partition's age, which only records move on, each by a minute at most. Where
nothing else happens, the leader makes a record now and then, until the last such body is forgotten. Nothing here is
replicated.
"""

from __future__ import annotations

from dueq.core.partition.care import CaredPartition
from dueq.core.state.applied import Applied
from dueq.core.turn.context import Context
from dueq.instant import Now
from dueq.limits import BODY_SWEEP_MS
from dueq_codecs.records import Record, RecordKind


class BodyCare:
    """The shared bodies of one partition, while it is led here."""

    def __init__(self, ctx: Context, partition: CaredPartition) -> None:
        self._ctx, self._partition = ctx, partition
        self._look_at_us: int | None = None

    def begin(self, now: Now) -> None:
        """The partition is served from now on."""
        self._look_at_us = None
        self._look(now)

    def end(self) -> None:
        """The partition is led no more."""
        self._set(None)

    def applied(self, record: Record, applied: Applied, now: Now) -> None:
        """A record was applied: the partition is older, and another body may have no message."""
        if self._look_at_us is not None or record.shared or len(applied.ended) or applied.results:
            self._look(now)

    def tick(self, now: Now) -> bool:
        """Make a record if it is time."""
        if self._look_at_us is not None and self._look_at_us <= now.mono_us and self._partition.serving:
            self._set(now.mono_us + BODY_SWEEP_MS * 1000)
            self._partition.propose(Record(RecordKind.BODY, self._partition.uid, 0, 0, 0), now)
        return False

    def _look(self, now: Now) -> None:
        """Say when a record is wanted, unless one comes before."""
        timeline = self._partition.timeline
        until_ms = timeline.bodies.idle_until_ms
        if until_ms is None:
            self._set(None)
            return
        left_ms = min(max(until_ms - timeline.age_ms, 1), BODY_SWEEP_MS)
        self._set(now.mono_us + left_ms * 1000)

    def _set(self, at_us: int | None) -> None:
        if at_us != self._look_at_us:
            self._look_at_us = at_us
            self._ctx.bodies.set(self._partition.uid, at_us)
