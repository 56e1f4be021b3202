"""Which rows are in memory: those that records in the log need, those of the hot window, and when rows may go.

Three rules keep disk and memory apart:

* A row in memory is right; a row that a read or a scan brings is only taken for a key that is not in memory.
* A row that is on disk in an outdated form stays in memory (as a tombstone, if its message ended) until the
  checkpoint that mends it is durable *and* every read that may have seen the older disk has been answered.
* A row that a record in the log names stays in memory until the record is applied or cut off.

Messages of a job that is not committed are no part of the window (see `window`): they go when there are many of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np

from dueq.core.ports.entry import NO_ENTRIES, Entries, State, are_triggered, keys_of
from dueq.core.ports.persistence import ClassLooked
from dueq.core.state.cold import ColdIds, ColdReads, Hold
from dueq.core.state.entry_rows import Slots
from dueq.core.state.job import Job
from dueq.core.state.job_table import JobTable
from dueq.core.state.order import Order
from dueq.core.state.table import FEW, OnDisk, Table
from dueq.core.state.window import Looked, Position, Wanted, Window, in_order
from dueq.errors import invariant
from dueq.limits import DUE_MS_MAX, HOT_SCAN_ROWS, SEQUENCE_MAX
from dueq_codecs.records import U16, U64, JobState, Record, RecordKind

KEY_NONE: Final = (1 << 64) - 1
"""The key of an id that cannot exist."""

LOOSE_MAX: Final = 64
"""Lists of rows that memory may forget; more become one."""

NAMES_WAITING: Final = frozenset(
    (
        RecordKind.LEASE,
        RecordKind.MOVE,
        RecordKind.CANCEL,
        RecordKind.CHANGE,
        RecordKind.TRIGGER,
        RecordKind.REVEAL,
        RecordKind.RECURRENCE,
        RecordKind.LAPSE,
        RecordKind.DISCARD,
        RecordKind.REDRIVE,
    )
)
"""Kinds that concern waiting or dead messages, which may be on disk only. The other kinds concern leases, and those
are in memory: a key that is not there then is not leased, whatever the disk has."""


class ScanWanted(NamedTuple):
    """The part of the index that the window wants to be read."""

    after_wait_at: int
    after_key: int
    limit: int
    hidden: frozenset[int]
    """Numbers of jobs whose entries are to be left out."""
    of: bytes = b""
    """The class to read, as keys of the index begin; empty: there is only one."""
    more: tuple[tuple[bytes, int, int], ...] = ()
    """Further classes to read, each with the position behind which to begin."""
    each: int = 0
    """Most rows of one class; 0: as many as `limit`."""
    onward: bool = False
    """The classes behind the last one are wanted, too."""


class Counted(Protocol):
    """The messages' counts."""

    @property
    def dead(self) -> int:
        """Dead messages; any of them may be on the disk only."""
        ...


class Residency:
    """Brings rows of one partition into memory and lets them go again.

    Attributes:
        hot_rows_max: how many waiting messages to keep in memory.
    """

    def __init__(
        self, table: Table, window: Window, order: Order, jobs: JobTable, live: Counted, hot_rows_max: int
    ) -> None:
        self.table = table
        self._live = live
        self.window = window
        self._order = order
        self._asked = Wanted([(0, (0, 0))], 0, onward=False)  # by the scan under way
        self.jobs = jobs
        self.reads = ColdReads()
        self.hot_rows_max = max(hot_rows_max, 1)
        self._loose: list[Slots] = []  # rows that memory may perhaps forget
        self._scan_is_void = False  # the window has gone back since the scan under way was asked for

    # ------------------------------------------------------------ records in the log

    def cold(self, record: Record) -> ColdIds | None:
        """Hold a record: pin what it names; return the ids to read from the disk before it can be applied.

        To be called once for every record, in order, as soon as it is in the log. The ids returned must be
        read (ReadEntries) and answered with `entries_read`.
        """
        if record.kind not in NAMES_WAITING or not record.rows:
            return None
        self.unpin(record)
        if record.rows <= FEW and self._hold_few(record):
            return None
        table = self.table
        slots = table.find(keys_named(record))
        hold = self.reads.held[record.sequence] = Hold(slots)
        asked = None if self._are_known(slots) else self._ask_for(record, hold)
        table.pins[slots] += 1
        return asked

    def _ask_for(self, record: Record, hold: Hold) -> ColdIds | None:
        invariant(
            self.window.endless or len(record.first) == len(record.target_sequence),
            "a record names messages that are not in memory, without their first instants",
            uid=self.table.uid,
            sequence=record.sequence,
            kind=record.kind,
        )
        return self._ask(ColdIds(record.first, record.target_sequence, record.target_row), hold)

    def hold(self, ids: ColdIds) -> tuple[Hold, ColdIds | None]:
        """Hold messages that no record names, as `cold` does; `release` ends that."""
        slots = self.table.find((ids.sequence << np.uint64(16)) | ids.row)
        hold = Hold(slots)
        asked = None if self._are_known(slots) else self._ask(ids, hold)
        self.table.pins[slots] += 1
        return hold, asked

    def _are_known(self, slots: Slots) -> bool:
        """Whether all of these are in memory."""
        table = self.table
        unknown = table.placeholders and (table.disk[slots] == OnDisk.UNKNOWN).any()
        return bool(slots.all()) and not unknown

    def _hold_few(self, record: Record) -> bool:
        """Hold a record of few rows, all of them in memory; False, and nothing was done: they are not."""
        slots = self.table.find_few(record.target_sequence, record.target_row)
        if not slots:
            return False
        self.reads.held[record.sequence] = Hold(np.array(slots, np.intp))
        for slot in slots:
            self.table.pins[slot] += 1
        return True

    def _ask(self, ids: ColdIds, hold: Hold) -> ColdIds | None:
        """Give every key that is not in memory a placeholder; return what is not being read yet.

        Nothing has to be read while the window is endless and nobody is dead: what is not in memory then does not
        exist.
        """
        endless = self.window.endless
        table, slots = self.table, hold.slots
        keys = (ids.sequence << np.uint64(16)) | ids.row
        keys[ids.sequence > SEQUENCE_MAX] = KEY_NONE
        to_read = []
        first_pair = None
        for at in np.flatnonzero((slots == 0) | (table.disk[slots] == OnDisk.UNKNOWN)).tolist():
            key = int(keys[at])
            if key == KEY_NONE:
                continue
            slot = table.slot_of.get(key)
            slots[at] = table.add_placeholder(key >> 16, key & 0xFFFF) if slot is None else slot
            if endless and not (self._live.dead and len(ids.first)):
                continue
            first = int(ids.first[at])
            if first <= DUE_MS_MAX and self.reads.wait(hold, (first, key)):
                first_pair = first_pair or (first, key)
                to_read.append(at)
        if first_pair is None:
            return None
        self.reads.begin(first_pair)
        return ColdIds(ids.first[to_read], ids.sequence[to_read], ids.row[to_read])

    def entries_read(self, entries: Entries, asked: tuple[U64, U64, U16]) -> None:
        """Take the answer of the read that `cold` asked for.

        Args:
            entries: those that are on disk, in any order.
            asked: what `cold` returned.
        """
        first, sequence, row = asked
        keys = (sequence << np.uint64(16)) | row
        self._take_in(entries)
        self.reads.end(list(zip(first.tolist(), keys.tolist(), strict=True)))
        self._forget()

    def ready(self, record: Record) -> bool:
        """Return whether everything that the record names is in memory: `apply` may run."""
        hold = self.reads.held.get(record.sequence)
        return hold is None or hold.unresolved == 0

    def unpin(self, record: Record) -> None:
        """Let go of a record that was cut off the log before it was applied."""
        hold = self.reads.held.pop(record.sequence, None)
        if hold is not None:
            self.release(hold)

    def release(self, hold: Hold) -> None:
        """Let go of what is held."""
        table, slots = self.table, hold.slots
        table.pins[slots] -= 1
        self.loosen(slots)

    def loosen(self, slots: Slots) -> None:
        """Forget placeholders that nobody names any more; note what else memory may forget one day."""
        table = self.table
        if table.placeholders:
            idle = np.unique(slots[(table.disk[slots] == OnDisk.UNKNOWN) & (table.pins[slots] == 0)])
            table.free(idle)
        clean = slots[~table.dirty[slots]]
        if len(clean):
            self._loosen(clean)

    def _loosen(self, slots: Slots) -> None:
        """Note what memory may forget one day: what changes nothing brings no checkpoint, after which it would."""
        self._loose.append(slots)
        if len(self._loose) > LOOSE_MAX:
            self._loose = [np.unique(np.concatenate(self._loose))]

    def _take_in(self, entries: Entries) -> None:
        """Bring waiting or dead entries of the disk into memory, each once, but for keys that memory knows."""
        if not len(entries):
            return
        table = self.table
        slots = table.find(keys_of(entries))
        unknown = np.flatnonzero(table.disk[slots] == OnDisk.UNKNOWN)
        if len(unknown):
            unknown = unknown[np.unique(slots[unknown], return_index=True)[1]]
            slots, entries = slots[unknown], entries.take(unknown)
            dead = entries["state"] == State.DEAD
            for some, disk in ((np.flatnonzero(~dead), OnDisk.WAITING), (np.flatnonzero(dead), OnDisk.DEAD)):
                if len(some):
                    table.fill(slots[some], entries.take(some), disk)

    def bring(self, entries: Entries) -> Hold:
        """Bring waiting entries of the disk into memory, but for those that it knows, and hold all of them."""
        self._take_in(entries)
        slots = self.table.find(keys_of(entries))
        new = np.flatnonzero(slots == 0)
        if len(new):
            slots[new] = self.table.add(entries.take(new), OnDisk.WAITING)
        self.table.pins[slots] += 1
        return Hold(slots)

    def take_hold(self, record: Record) -> Hold | None:
        """Take the hold off a record that is being applied; what it named may go once `loosen` is called.

        None for a record that needs none.
        """
        if record.kind not in NAMES_WAITING or not record.rows:
            return None
        if record.sequence not in self.reads.held:
            self.cold(record)
        hold = self.reads.held[record.sequence]
        invariant(
            hold.unresolved == 0,
            "a record is applied before its entries were read",
            uid=self.table.uid,
            sequence=record.sequence,
            missing=hold.unresolved,
        )
        del self.reads.held[record.sequence]
        self.table.pins[hold.slots] -= 1
        return hold

    # ------------------------------------------------------------ the hot window

    @property
    def _half(self) -> int:
        """Rows to which a window shrinks, and below which it grows: else it would do both in turn, without end."""
        return max(self.hot_rows_max // 2, 1)

    def wants_scan(self) -> ScanWanted | None:
        """Return what to scan when the window should grow; the caller must scan then.

        From this call until `scanned` a scan counts as under way, and nothing else is wanted.
        """
        rows = min(HOT_SCAN_ROWS, self._half)
        asked = None if self.reads.scanning else self.window.wants(self._half, rows)
        if asked is None:
            return None
        self.reads.begin_scan()
        self._asked = asked
        width = self._order.class_bytes
        (first, after), *others = asked.spots
        more = tuple((of.to_bytes(width, "big"), *spot) for of, spot in others)
        return ScanWanted(
            *after, rows, self.jobs.hidden, first.to_bytes(width, "big"), more, asked.each, asked.onward
        )

    def scanned(
        self,
        entries: Entries,
        exhausted: bool,
        asked_position: Position,
        looked_to: Position | None = None,
        left_out: frozenset[int] = frozenset(),
        following: bytes | None = None,
        beyond: Sequence[ClassLooked] = (),
    ) -> Entries:
        """Take the answer of a scan: the window grows to the last entry looked at, or over everything.

        Args:
            entries: waiting entries of the disk, in order.
            exhausted: nothing lies behind the last one.
            asked_position: (after_wait_at, after_key) of the scan.
            looked_to: position of the last entry looked at; None: of the last of `entries`.
            left_out: numbers of jobs of which entries were left out.
            following: the next class behind all that were read that has entries; None: there is none.
            beyond: how far other classes than the one asked for first were read.

        Returns:
            The waiting entries that the window gained and that may be delivered, by (wait_at, key).
        """
        if self._scan_is_void or not left_out <= self.jobs.closed.keys():
            # A job was committed meanwhile, and what is its own was left out: read it once more.
            self._scan_is_void = False
            self._take_in(entries)
            self.reads.end_scan()
            self.resize()
            return NO_ENTRIES
        of, expected = self._asked.spots[0]
        invariant(
            self.reads.scanning and asked_position == expected,
            "a scan is answered that was not asked for",
            uid=self.table.uid,
            asked=asked_position,
            expected=expected,
        )
        self._take_in(entries)
        fresh = np.flatnonzero(self.table.find(keys_of(entries)) == 0) if len(entries) else ()
        if len(fresh):
            self.table.add(entries.take(fresh), OnDisk.WAITING)
        self.window.left_out |= left_out
        if looked_to is None and len(entries):
            looked_to = int(entries["wait_at"][-1]), int(keys_of(entries[-1:])[0])
        looked = [Looked(of, looked_to, exhausted)]
        looked += [Looked(int.from_bytes(each.of, "big"), *each[1:]) for each in beyond]
        gained = self._grow(looked, following)
        self.reads.end_scan()
        self.resize()
        return gained

    def _grow(self, looked: list[Looked], following: bytes | None) -> Entries:
        next_of = int.from_bytes(following, "big") if following is not None else None
        waiting = self.table.take(self._waiting_in(looked, next_of))
        before = self.window.mask(waiting)
        self.window.grow(looked, next_of)
        after = self.window.counted(waiting)
        gained = ~before if before is not None else np.zeros(len(waiting), np.bool_)
        if after is not None:
            gained &= after
        found = in_order(waiting.take(np.flatnonzero(gained)))
        self.window.gain(found)
        return found

    def _waiting_in(self, looked: list[Looked], next_of: int | None) -> Slots:
        """Return the slots of waiting rows of these classes, and of those between them that only memory has."""
        slots = self.table.slots_in(State.WAITING)
        classes = self._order.classes(self.table.rows)
        if classes is None:
            return slots
        near = classes[slots]
        if not self._asked.onward:
            return slots[np.isin(near, np.array([each.of for each in looked], np.uint64))]
        chosen = near >= looked[0].of
        if next_of is not None:
            chosen &= near < next_of
        return slots[chosen]

    def decided(self, job: Job) -> Entries:
        """Note that a job's state has changed: its messages count from now on, or no more.

        Returns:
            Those of them that may be delivered from now on and are in memory, inside the window.
        """
        window = self.window
        if job.state == JobState.COMMITTED and job.number in window.left_out:
            window.left_out.discard(job.number)
            # Until now it was open, so nothing of it waits for an instant before that.
            if window.go_back(job.until):
                self._scan_is_void = self.reads.scanning
        slots = self.table.slots_in(State.WAITING)
        waiting = window.deliverable(self.table.take(slots))
        window.recount(waiting)
        self._loosen(slots)
        if job.state != JobState.COMMITTED:
            return NO_ENTRIES
        return waiting.take(np.flatnonzero(waiting["job"] == job.number))

    def clean_up(self) -> None:
        """Forget jobs that were left out of the window and of which nothing waits any more."""
        if self.window.left_out:
            self.window.left_out &= self.jobs.hidden

    def checkpoint_saved(self, slots: Slots) -> None:
        """Note that the checkpoint with these rows is durable."""
        self.table.pins[slots] -= 1
        self._loosen(slots)
        self.reads.checkpoint_saved()
        self.resize()

    def resize(self) -> None:
        """Make the window smaller if it holds too much (not during a scan), and forget what may go."""
        self._shrink()
        self._leave_out()
        self._forget()

    def _leave_out(self) -> None:
        """Leave jobs that are not committed out of the window when more of them is in memory than of all the rest."""
        if not self.jobs.closed:
            return
        slots = self.table.slots_in(State.WAITING)
        rows = self.table.take(slots)
        barred = self.jobs.barred(rows)
        if barred is not None and np.count_nonzero(barred) > self._half:
            self.window.left_out |= set(rows["job"][barred].tolist())
            self._loosen(slots[barred])

    def _shrink(self) -> None:
        """Make the window smaller when it holds too much (never while a scan relies on its end)."""
        if self.window.count <= max(self.hot_rows_max, 2 * self.window.least) or self.reads.scanning:
            return
        slots = self.table.slots_in(State.WAITING)
        waiting = self.table.take(slots)
        self.window.shrink(self.window.deliverable(waiting), self._half)
        self._loosen(slots)

    def _forget(self) -> None:
        """Forget loose rows: those that the disk holds just so, beyond the window, and tombstones of what the
        disk does not hold any more. Nothing, while an older read is under way."""
        if not self._loose or not self.reads.settled:
            return
        table = self.table
        loose = np.zeros(len(table.state), np.bool_)  # sorting them costs ten times as much
        for slots in self._loose:
            loose[slots] = True
        slots = np.flatnonzero(loose)
        self._loose.clear()
        idle = ~table.dirty[slots] & (table.pins[slots] == 0)
        slots = slots[idle]
        gone = (table.state[slots] == State.ABSENT) & (table.disk[slots] == OnDisk.NOTHING)
        waits = (table.state[slots] == State.WAITING) & (table.disk[slots] == OnDisk.WAITING)
        gone |= (table.state[slots] == State.DEAD) & (table.disk[slots] == OnDisk.DEAD)
        rows = table.take(slots)
        waits &= ~are_triggered(rows)
        inside = self.window.mask(rows)
        if inside is not None:
            gone |= waits & ~inside
        if self.window.left_out:
            gone |= waits & np.isin(rows["job"], list(self.window.left_out))
        table.free(slots[gone])


def keys_named(record: Record) -> U64:
    """Return the key that each row of a record names, KEY_NONE where its sequence is too large to be one."""
    keys: U64 = (record.target_sequence << np.uint64(16)) | record.target_row
    sequence = record.target_sequence
    if len(sequence) and int(sequence[0] if len(sequence) == 1 else sequence.max()) > SEQUENCE_MAX:
        keys[record.target_sequence > SEQUENCE_MAX] = KEY_NONE
    return keys
