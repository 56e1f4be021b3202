"""Care for passes: what the leader of a partition does so that each is worked off.

    RUNNING ──checkpoint──► the index, page by page ──► CANCEL, MOVE or CHANGE with the pass's name … ──► PASS end
                                          (of dead messages: DISCARD or REDRIVE)

Nothing here is replicated. A new leader begins the running pass anew: what is done is gone from the index, or has the
version of its record, so nothing is done twice. Messages are found by reading the index from a checkpoint that contains
the pass's first record: each message that it is about waits there, or is leased, or was changed since. One record of at
most `PASS_ROWS_MAX` rows is under way at a time, so that consumers are served in between, and memory holds one page.

A message that a consumer gives back while the pass goes on may wait behind the place that the pass has reached, and so
may one that is revealed, its job being committed. So the pass goes through the index once more, but not for ever: it
begins when the jobs that were committed before are revealed, of which there may be more than it has ways. Messages that
are leased even in the last way are skipped, and counted. Dead messages are gone through once.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from dueq.core.partition.care import CaredPartition
from dueq.core.partition.filtered_walk import FilteredWalk
from dueq.core.ports.entry import NO_ENTRIES, Entries, State, is_full
from dueq.core.state.applied import Applied
from dueq.core.state.matching import filter_of
from dueq.core.state.pass_table import Pass, PassState
from dueq.core.turn.context import Context
from dueq.instant import Now
from dueq.limits import DUE_MS_MAX, PASS_ROWS_MAX, PASS_WALKS_MAX
from dueq_codecs.records import Record, RecordKind

_GIVING_BACK = (RecordKind.NACK, RecordKind.RELEASE, RecordKind.EXPIRE, RecordKind.REVEAL)
"""They let messages wait anew, perhaps behind the place that a pass has reached."""
_GOLDEN = 0.6180339887498949
"""Multiples of it, without their whole parts, fill an interval evenly, however many there are (Weyl)."""


_KINDS: Final = {
    "shift": RecordKind.MOVE, "move": RecordKind.MOVE, "change": RecordKind.CHANGE, "redrive": RecordKind.REDRIVE,
}  # fmt: skip


def _state_of(run: Pass) -> State:
    """Return the state of the messages that a pass is about."""
    return filter_of(run.work["filter"]).state


@dataclass(slots=True)
class _Work:
    """The way through the index, for one pass.

    Attributes:
        unrevealed: numbers of the jobs that were committed before it; it begins when none of them hides anything.
        walk: where it is; None: the checkpoint before it is not made yet.
        reading: a page, or the checkpoint, is on its way.
        chosen: messages of the last page that no record names yet, each with its new due.
        last: sequence of the last record proposed.
        placed: messages that have got an instant in the spread, or were skipped at it.
        skipped: by reason, of this way.
        ways: how many were begun.
        returned: something was given back, or revealed, since this way was begun.
        counted: the leased messages were counted.
    """

    run: Pass
    unrevealed: frozenset[int]
    walk: FilteredWalk | None = None
    reading: bool = True
    chosen: Entries = field(default_factory=lambda: NO_ENTRIES)
    last: int = 0
    placed: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    ways: int = 0
    returned: bool = False
    counted: bool = False


class Passes:
    """The passes of one partition, while it is led here: one at a time, the oldest first."""

    def __init__(self, ctx: Context, partition: CaredPartition) -> None:
        self._ctx, self._partition = ctx, partition
        self._work: _Work | None = None

    def begin(self, now: Now) -> None:
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
        work = self._work
        if work is None:
            return
        work.returned |= record.kind in _GIVING_BACK
        if record.sequence == work.last:
            self._go_on(work, now)

    def tick(self, now: Now) -> bool:
        """Go on; returns whether any pass is left."""
        if not self._partition.serving:
            return False
        running = self._partition.timeline.passes.running
        if self._work is not None and self._work.run is not running:
            self._work = None
        if running is None:
            return False
        unrevealed = self._partition.timeline.jobs.unrevealed
        if self._work is None:
            self._work = _Work(running, unrevealed, placed=running.done)
        if self._work.ways:
            self._go_on(self._work, now)
        elif not self._work.unrevealed & unrevealed:
            self._start(self._work, now)
        return True

    def looked(self, run: Pass) -> int:
        """Return how many messages of a pass were looked at, as far as this leader knows."""
        work = self._work
        return work.walk.looked if work is not None and work.run is run and work.walk is not None else 0

    def _start(self, work: _Work, now: Now) -> None:
        """Begin a way through the index."""
        work.ways += 1
        work.reading, work.returned, work.walk = True, False, None
        work.skipped.clear()

        def durable(hidden: frozenset[int], then: Now) -> None:
            if self._work is work:
                work.walk = self._walk_of(work.run, _state_of(work.run))
                self._read(work, work.walk)

        self._partition.checkpoints.after(durable, now)

    def _walk_of(self, run: Pass, state: State) -> FilteredWalk:
        wanted = filter_of(run.work["filter"])._replace(state=state)
        return FilteredWalk(self._ctx, self._partition, wanted, run.sequence)

    def _read(self, work: _Work, walk: FilteredWalk) -> None:
        work.reading = True

        def read(entries: Entries, now: Now) -> None:
            if self._work is work:
                work.reading = False
                work.chosen = self._changeable(work, entries, now)
                self._go_on(work, now)

        walk.read(read)

    def _go_on(self, work: _Work, now: Now) -> None:
        """Do the next step, if nothing is on its way."""
        partition, walk = self._partition, work.walk
        if work.reading or work.run.state != PassState.RUNNING or partition.timeline.applied < work.last:
            return
        waits = _state_of(work.run) == State.WAITING
        if len(work.chosen):
            some = work.chosen[:PASS_ROWS_MAX]
            sequence = partition.propose(self._record(work, some), now)
            if sequence:
                work.last = sequence
                work.chosen = work.chosen[PASS_ROWS_MAX:]
        elif walk is not None and not walk.ended:
            self._read(work, walk)
        elif waits and work.returned and work.ways < PASS_WALKS_MAX:
            self._start(work, now)
        elif waits and not work.counted:
            self._count_leased(work, now)
        else:
            record = Record(RecordKind.PASS, partition.uid, 0, 0, 0)
            skipped = {
                reason: work.skipped[reason] for reason in sorted(work.skipped) if work.skipped[reason]
            }
            record.name, record.document = work.run.name, json.dumps({"do": "end", "skipped": skipped})
            work.last = partition.propose(record, now)

    def _count_leased(self, work: _Work, now: Now) -> None:
        """Count the leased messages that match: they are left as they are."""
        work.reading = True

        def counted(entries: Entries, then: Now) -> None:
            if self._work is work:
                work.reading, work.counted = False, True
                work.skipped["leased"] = len(entries)
                self._go_on(work, then)

        self._walk_of(work.run, State.LEASED).choose(self._partition.timeline.leased(), counted, now)

    # -------------------------------------------------------------- what is done

    def _changeable(self, work: _Work, entries: Entries, now: Now) -> Entries:
        """Return what may be changed so, each with its new due; the rest is skipped, and counted."""
        due = self._dues(work, entries)
        work.placed += len(entries)
        if due is None or not len(entries):
            return entries
        fine = np.ones(len(entries), np.bool_)
        if _state_of(work.run) == State.WAITING:
            fine = due <= DUE_MS_MAX
            latest_ms = self._latest_ms(now)
            if latest_ms is not None:
                fine &= due <= latest_ms
            work.skipped["horizon"] += int(np.count_nonzero(~fine))
            if is_full(entries):
                expires = entries["expires"].astype(np.int64)
                expired = fine & (expires != 0) & (due >= expires)
                work.skipped["expiry"] += int(np.count_nonzero(expired))
                fine &= ~expired
        chosen = entries.take(np.flatnonzero(fine))
        chosen["due"] = due[fine]
        return chosen

    def _latest_ms(self, now: Now) -> int | None:
        """Return the latest instant that the topic allows; None: it has no horizon."""
        horizon_ms = self._partition.settings.horizon_ms
        return self._ctx.clock.mesh_now_us(now) // 1000 + horizon_ms if horizon_ms else None

    def _dues(self, work: _Work, entries: Entries) -> npt.NDArray[np.int64] | None:
        """Return the new due of each, Unix ms; None: it stays."""
        asked = work.run.work
        if asked["do"] == "shift":
            due: npt.NDArray[np.int64] = np.maximum(entries["due"].astype(np.int64) + asked["by_ms"], 0)
            return due
        if asked["do"] in ("move", "redrive"):
            places = (work.placed + np.arange(len(entries))) * _GOLDEN % 1.0
            to_ms = int(asked["to_ms"]) if "to_ms" in asked else self._partition.timeline.stamp
            spread_ms = int(asked["spread_ms"])
            moved: npt.NDArray[np.int64] = to_ms + (places * spread_ms).astype(np.int64)
            return moved
        return None

    def _record(self, work: _Work, entries: Entries) -> Record:
        asked = work.run.work
        withdrawing = RecordKind.DISCARD if _state_of(work.run) == State.DEAD else RecordKind.CANCEL
        kind = _KINDS.get(asked["do"], withdrawing)
        record = Record(kind, self._partition.uid, 0, 0, 0)
        record.name = work.run.name
        record.first = np.ascontiguousarray(entries["first"])
        record.target_sequence = np.ascontiguousarray(entries["sequence"])
        record.target_row = np.ascontiguousarray(entries["row"])
        if _state_of(work.run) == State.WAITING:
            record.token = np.zeros(len(entries), np.uint64)
        if kind in (RecordKind.MOVE, RecordKind.REDRIVE):
            record.due = np.ascontiguousarray(entries["due"])
        if kind == RecordKind.CHANGE:
            record.rank = np.full(len(entries), asked["rank"], np.uint16)
        return record
