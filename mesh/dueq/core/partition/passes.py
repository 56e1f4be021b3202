"""Care for passes: what the leader of a partition does so that each is worked off.

    RUNNING ──checkpoint──► the index, page by page ──► CANCEL with the pass's name … ──► PASS end

Nothing here is replicated. A new leader begins the running pass anew: what is done is gone from the index, so nothing
is done twice. Messages are found by reading the index from a checkpoint that contains the pass's first record: what it
is about waits there, or is leased, or was changed since. One record of at most `PASS_ROWS_MAX` rows is under way at a
time, so that consumers are served in between, and memory holds one page.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dueq.core.partition.care import CaredPartition
from dueq.core.partition.index_walk import IndexWalk
from dueq.core.ports.entry import NO_ENTRIES, Entries
from dueq.core.ports.persistence import IndexScanned
from dueq.core.state.applied import Applied
from dueq.core.state.matching import filter_of, matching
from dueq.core.state.pass_table import Pass, PassState
from dueq.core.turn.context import Context
from dueq.instant import Now
from dueq.limits import PASS_ROWS_MAX
from dueq_codecs.records import Record, RecordKind


@dataclass(slots=True)
class _Work:
    """The way through the index, for one pass.

    Attributes:
        walk: where it is; None: the checkpoint before it is not made yet.
        reading: a page, or the checkpoint, is on its way.
        chosen: messages of the last page that no record names yet.
        last: sequence of the last record proposed.
    """

    run: Pass
    walk: IndexWalk | None = None
    reading: bool = True
    chosen: Entries = field(default_factory=lambda: NO_ENTRIES)
    last: int = 0


class Passes:
    """The passes of one partition, while it is led here: one at a time, the oldest first."""

    def __init__(self, ctx: Context, partition: CaredPartition) -> None:
        self._ctx, self._partition = ctx, partition
        self._work: _Work | None = None

    def begin(self) -> None:
        """The partition is served from now on."""
        self._work = None
        if self._partition.timeline.passes.running is not None:
            self._ctx.attend(self._partition.uid)

    def end(self) -> None:
        """The partition is led no more."""
        self._work = None

    def applied(self, record: Record, applied: Applied, now: Now) -> None:
        """A record was applied: go on if it was waited for."""
        if record.kind == RecordKind.PASS:
            self._ctx.attend(self._partition.uid)
        if self._work is not None and record.sequence == self._work.last:
            self._go_on(self._work, now)

    def tick(self, now: Now) -> bool:
        """Go on; returns whether any pass is left."""
        if not self._partition.serving:
            return False
        running = self._partition.timeline.passes.running
        if self._work is not None and self._work.run is not running:
            self._work = None
        if running is None:
            return False
        if self._work is None:
            self._start(running, now)
        else:
            self._go_on(self._work, now)
        return True

    def _start(self, run: Pass, now: Now) -> None:
        work = self._work = _Work(run)

        def durable(hidden: frozenset[int], then: Now) -> None:
            if self._work is work:
                timeline = self._partition.timeline
                work.walk = IndexWalk(self._partition.uid, timeline.order.class_bytes, timeline.low_water)
                self._read(work, work.walk)

        self._partition.checkpoints.after(durable, now)

    def _read(self, work: _Work, walk: IndexWalk) -> None:
        work.reading = True

        def read(answer: object, now: Now) -> None:
            assert isinstance(answer, IndexScanned)
            if self._work is work:
                work.reading = False
                work.chosen = self._matching(work.run, walk.take(answer))
                self._go_on(work, now)

        self._ctx.read(walk.request, read)

    def _matching(self, run: Pass, entries: Entries) -> Entries:
        """Return those that the pass is about; messages of a job that is not committed are not."""
        wanted = matching(entries, filter_of(run.filter), run.sequence)
        barred = self._partition.timeline.jobs.barred(entries)
        if barred is not None:
            wanted &= ~barred
        return entries.take(np.flatnonzero(wanted))

    def _go_on(self, work: _Work, now: Now) -> None:
        """Do the next step, if nothing is on its way."""
        partition = self._partition
        if work.reading or work.run.state != PassState.RUNNING or partition.timeline.applied < work.last:
            return
        if len(work.chosen):
            sequence = partition.propose(self._cancel(work.run, work.chosen[:PASS_ROWS_MAX]), now)
            if sequence:
                work.last = sequence
                work.chosen = work.chosen[PASS_ROWS_MAX:]
        elif work.walk is not None and not work.walk.ended:
            self._read(work, work.walk)
        else:
            record = Record(RecordKind.PASS, partition.uid, 0, 0, 0)
            record.name, record.document = work.run.name, '{"do":"end"}'
            work.last = partition.propose(record, now)

    def _cancel(self, run: Pass, entries: Entries) -> Record:
        record = Record(RecordKind.CANCEL, self._partition.uid, 0, 0, 0)
        record.name = run.name
        record.first = np.ascontiguousarray(entries["first"])
        record.target_sequence = np.ascontiguousarray(entries["sequence"])
        record.target_row = np.ascontiguousarray(entries["row"])
        record.token = np.zeros(len(entries), np.uint64)
        return record
