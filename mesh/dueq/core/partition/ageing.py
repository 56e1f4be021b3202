"""Care for a partition's age, by which much is forgotten: only records move it on, each by a minute at most.

If nothing else is logged, the leader makes a record now and then, as long as something is left that has to run out:

* a shared body that no message names, so that its bytes are deleted when its grace is over;
* rows that go by age, in a table that is filling up. A full table refuses new rows, and a refusal makes no record:
  without other records the table would stay full for ever.

Nothing here is replicated.
"""

from __future__ import annotations

from dueq import limits
from dueq.core.partition.care import CaredPartition
from dueq.core.state.applied import Applied
from dueq.core.state.timeline import AGE_STEP_MS, Timeline
from dueq.core.turn.context import Context
from dueq.instant import Now
from dueq_codecs.records import Record, RecordKind


class Ageing:
    """The age of one partition, while it is led here."""

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
        """A record was applied: the partition is older, and something else may have to run out."""
        self._look(now)

    def tick(self, now: Now) -> bool:
        """Make a record if it is time, unless one is on its way."""
        if self._look_at_us is not None and self._look_at_us <= now.mono_us and self._partition.serving:
            self._set(now.mono_us + AGE_STEP_MS * 1000)
            if self._partition.timeline.applied == self._partition.log_end:
                self._partition.propose(Record(RecordKind.BARRIER, self._partition.uid, 0, 0, 0), now)
        return False

    def _look(self, now: Now) -> None:
        """Say when a record is wanted, unless one comes before."""
        timeline = self._partition.timeline
        wanted = [AGE_STEP_MS] if _fills_up(timeline) else []
        if (until_ms := timeline.bodies.idle_until_ms) is not None:
            wanted.append(min(max(until_ms - timeline.age_ms, 1), AGE_STEP_MS))
        self._set(now.mono_us + min(wanted) * 1000 if wanted else None)

    def _set(self, at_us: int | None) -> None:
        if at_us != self._look_at_us:
            self._look_at_us = at_us
            self._ctx.ageing.set(self._partition.uid, at_us)


def _fills_up(timeline: Timeline) -> bool:
    """Whether a bounded table has something to forget by age, and not much room."""
    jobs, passes, groups = timeline.jobs.by_key, timeline.passes.by_name, timeline.groups
    return (
        8 * len(jobs) >= limits.JOBS_MAX
        or (timeline.names_run_out and 8 * timeline.names_count >= limits.NAMES_MAX)
        or len(passes) > min(limits.PASSES_KEPT, limits.PASSES_MAX - 1)
        or (groups.has_idle and 8 * len(groups.by_name) >= limits.GROUPS_MAX)
    )
