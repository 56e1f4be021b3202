"""The steps of a message's life, with the counts and notes of each: begin or stop to wait, to be leased or to be dead,
and end. `live` says which record takes which steps.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dueq.core.ports.entry import (
    ENTRY,
    FLAG_DETACHED,
    FLAG_TRIGGERED,
    FULL,
    Entries,
    State,
    is_full,
    is_wide,
    joined,
    narrowed,
    widened,
)
from dueq.core.state.applied import Applied
from dueq.core.state.entry_rows import Slots
from dueq.core.state.names import Names
from dueq.core.state.remarks import Remarks
from dueq.core.state.side_tables import SideTables
from dueq.core.state.table import OnDisk, Table
from dueq.core.state.window import Window
from dueq_codecs.records import U64, Record

Mask = npt.NDArray[np.bool_]


class Steps:
    """Entries with their counts, and the steps of their lives.

    Attributes:
        scheduled: messages that wait, on disk and in memory.
        leased: messages with a consumer; all of them are in memory.
        dead: messages that are not tried again, on disk and in memory.
        settings: the topic's, as they are in force.
        names: unique keys, and the messages that bear them.
        remarks: why messages were given back, where the disk may not know it yet.
        finished: messages that ended since the last checkpoint, in batches.
        finished_count: how many they are.
    """

    def __init__(
        self, table: Table, window: Window, tables: SideTables, names: Names, scheduled: int, dead: int
    ) -> None:
        self.table = table
        self.window = window
        self.names = names
        self.forecast = tables.forecast
        self.jobs = tables.jobs
        self._headings = tables.headings
        self._counting = tables.counting
        self.scheduled = scheduled
        self.leased = 0
        self.dead = dead
        self.remarks = Remarks()
        self.settings = tables.settings
        self.finished: list[Entries] = []
        self.finished_count = 0

    def _wait(
        self, record: Record, slots: Slots, rows: Entries, not_before: U64 | None, applied: Applied
    ) -> None:
        """Let rows wait; those of a job that has ended go instead.

        From now on, at max(not_before, stamp); `not_before` None: since when they last began to.
        """
        ended = self.jobs.ended(rows)
        if ended is not None:
            self._finish(slots[ended], pick(rows, ended))
            slots, rows = slots[~ended], pick(rows, ~ended)
            not_before = not_before[~ended] if not_before is not None else None
            if not len(rows):
                return
        if not_before is not None:
            hidden_until = self.jobs.not_before(rows)
            if hidden_until is not None:
                not_before = np.maximum(not_before, hidden_until)
            rows["wait_at"] = np.maximum(not_before, np.uint64(max(record.stamp, 0)))
        rows["state"] = State.WAITING
        rows["flags"] &= ~np.uint8(FLAG_DETACHED)
        for name in ("token", "consumer_high", "consumer_low", "lease_ms"):
            rows[name] = 0
        self.forecast.begin(rows, record.stamp)
        self.table.put(slots, rows)
        self.table.mark(slots)
        self.scheduled += len(rows)
        self._count(rows, 1, 0)
        applied.waiting = both(applied.waiting, self.window.begin(rows))

    def _bury(self, record: Record, slots: Slots, rows: Entries, applied: Applied) -> None:
        """Let messages be dead that neither wait nor are leased; those of a job that has ended go instead."""
        ended = self.jobs.ended(rows)
        if ended is not None:
            self._finish(slots[ended], pick(rows, ended))
            slots, rows = slots[~ended], pick(rows, ~ended)
        if not len(rows):
            return
        rows = widened(rows, FULL.itemsize)
        self._let_keys_go(rows)
        rows["state"] = State.DEAD
        rows["flags"] &= ~np.uint8(FLAG_DETACHED | FLAG_TRIGGERED)
        rows["died_at"] = max(record.stamp, 0)
        for name in ("token", "consumer_high", "consumer_low", "lease_ms"):
            rows[name] = 0
        self.table.put(slots, rows)
        self.table.mark(slots)
        self._count_dead(rows, 1)
        applied.died += len(rows)

    def _count_dead(self, rows: Entries, sign: int) -> None:
        """Count messages that are dead (1), or are no longer (-1)."""
        self.dead += sign * len(rows)
        self._count(rows, 0, 0, sign)

    def _stop_waiting(self, rows: Entries) -> None:
        self.forecast.end(rows)
        self.window.leave(rows)
        self.scheduled -= len(rows)
        self._count(rows, -1, 0)

    def _end_leases(self, rows: Entries, applied: Applied) -> None:
        self.leased -= len(rows)
        self._count(rows, 0, -1)
        applied.ended = both(applied.ended, rows)

    def _count(self, rows: Entries, waiting: int, leased: int, dead: int = 0) -> None:
        """Tell the side tables of messages that begin (1) or stop (-1) to wait, to be leased, or to be dead.

        A row without an extension has no group, recurrence or shared body, and no record has changed or triggered it.
        """
        if is_wide(rows):
            for count in self._counting:
                count(rows, waiting, leased, dead)
        else:
            self.jobs.count(rows, waiting, leased, dead)

    def _let_keys_go(self, rows: Entries) -> None:
        """Let go of the keys of messages that end. They are remembered, but for those of jobs that have ended."""
        keyed = keyed_of(rows)
        if keyed is None:
            return
        rows = pick(rows, keyed & (rows["state"] != State.DEAD))
        ended = self.jobs.ended(rows)
        if ended is not None:
            self.names.end(pick(rows, ended), 0)
            rows = pick(rows, ~ended)
        self.names.end(rows, self.settings.current.remember_ms)

    def _finish(self, slots: Slots, rows: Entries, *, bearing: bool = True) -> None:
        """Let messages go: those that the disk has become tombstones, the others are forgotten at once.

        `bearing`: those with unique keys have them still, unless they are dead.
        """
        if bearing:
            self._let_keys_go(rows)
        self.note_finished(rows)
        table = self.table
        table.state[slots] = State.ABSENT
        forget = (table.disk[slots] == OnDisk.NOTHING) & (table.pins[slots] == 0)
        if whole(forget):
            table.free(slots, rows)
            return
        keep = slots[~forget]
        # A row that the disk never had needs no delete; it stays only because a record further up names it.
        table.unmark(keep)
        table.mark(keep[table.disk[keep] != OnDisk.NOTHING])
        table.free(slots[forget])

    def note_finished(self, rows: Entries) -> None:
        """Note messages that have ended: their payloads are garbage."""
        if len(rows):
            self.remarks.forget(rows)
            self._headings.forget(rows)
            self.finished.append(narrowed(rows))
            self.finished_count += len(rows)

    def note_bodies(self, bodies: list[tuple[int, int]]) -> None:
        """Note shared bodies that are garbage: (sequence of the record that brought each, bytes)."""
        rows = np.zeros(len(bodies), ENTRY)
        rows["sequence"], rows["size"] = np.array(bodies, np.uint64).T
        rows["block_rows"] = 1
        self.finished.append(rows)
        self.finished_count += len(rows)


def keyed_of(rows: Entries) -> Mask | None:
    """Return which rows have unique keys; None: no row has."""
    if not is_full(rows):
        return None
    keyed: Mask = (rows["key_high"] | rows["key_low"]) != 0
    return keyed if keyed.any() else None


def whole(mask: Mask) -> bool:
    """Return whether it holds of every row."""
    return int(np.count_nonzero(mask)) == len(mask)


def pick(rows: Entries, mask: Mask) -> Entries:
    """Return the rows of which it holds."""
    return rows.take(np.flatnonzero(mask))


def both(left: Entries, right: Entries) -> Entries:
    """Return the rows of both, in this order."""
    if not len(left):
        return right
    return joined([left, right]) if len(right) else left
