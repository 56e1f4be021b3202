"""The entries in memory: one structured array, a free list, and an index by key.

A row's number is its *slot*. Slot 0 belongs to nobody and is always ABSENT, so a lookup that finds nothing
can still be gathered with all the others. Beside the entries lie columns that never leave memory: the disk's
state of the row, and the reasons not to forget it.

All batch work is by fancy indexing. The table is as wide as its widest row so far (see `entry_rows`).
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from itertools import repeat
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dueq.core.ports.entry import ENTRY, Entries, State, is_full, keys_of
from dueq.core.state.entry_rows import EntryRows, Slots
from dueq.core.state.order import TIMELINE, Order
from dueq.errors import invariant
from dueq_codecs.records import U16, U64

Column = npt.NDArray[Any]

FEW: Final = 4
"""Up to this many rows, plain Python is quicker than numpy."""
CAPACITY_MIN = 32


class OnDisk(IntEnum):
    """State of a slot on disk, counting checkpoints that are on their way."""

    FREE = 0
    """The slot is not in use."""
    WAITING = 1
    """A waiting row at `disk_wait_at`."""
    LEASED = 2
    NOTHING = 3
    DEAD = 5
    """A dead row, under the instant of its death."""
    UNKNOWN = 4
    """A placeholder: the key is pinned, and whether it has an entry is not known (yet)."""


class Table:
    """Rows by slot, slots by key.

    Attributes:
        rows: the entries; free slots are ABSENT.
        disk, disk_wait_at: what the disk holds (OnDisk; instant of the waiting row, or of the death of the dead one).
        disk_class: the class of the waiting row; without rows where the order has no classes.
        pins: why the row must stay: log records that name it and are not applied yet, a checkpoint in flight.
        dirty: the row differs from the disk; the next checkpoint writes it.
        dirty_count: number of dirty rows.
        placeholders: number of slots with disk UNKNOWN.
    """

    def __init__(self, uid: int = 0, order: Order = TIMELINE) -> None:
        self.uid = uid  # of the partition, for errors
        self._classes = order.classes if order.class_bytes else None
        self.slot_of: dict[int, int] = {}
        self.dirty_count = 0
        self.placeholders = 0
        self._capacity = 0
        self._free = np.empty(0, np.intp)
        self._free_count = 0
        self._entries = EntryRows()
        self.disk: Column = np.empty(0, np.uint8)
        self.disk_wait_at: Column = np.empty(0, np.uint64)
        self.disk_class: Column = np.empty(0, np.uint64)
        self.pins: Column = np.empty(0, np.int32)
        self.dirty: Column = np.empty(0, np.bool_)
        self._resize(CAPACITY_MIN)

    def __len__(self) -> int:
        return len(self.slot_of)

    def _resize(self, capacity: int) -> None:
        """Grow every column to `capacity` slots; the new ones are free."""
        old, self._capacity = self._capacity, capacity
        more = capacity - old
        self._entries.resize(capacity)
        self.disk = _longer(self.disk, more)
        self.disk_wait_at = _longer(self.disk_wait_at, more)
        if self._classes is not None:
            self.disk_class = _longer(self.disk_class, more)
        self.pins = _longer(self.pins, more)
        self.dirty = _longer(self.dirty, more)
        self._look()
        free = np.arange(capacity - 1, max(old, 1) - 1, -1, dtype=np.intp)
        grown = np.empty(capacity, np.intp)
        grown[: len(free)] = free
        grown[len(free) : len(free) + self._free_count] = self._free[: self._free_count]
        self._free = grown
        self._free_count += len(free)

    def _look(self) -> None:
        """Look at the rows anew: there are more of them, or they have become wide."""
        self.rows: Entries = self._entries.rows
        self.state = self.rows["state"]
        self.wait_at = self.rows["wait_at"]

    def find(self, keys: U64) -> Slots:
        """Return the slot of each key, 0 where there is none."""
        if len(keys) == 1:
            return np.array((self.slot_of.get(int(keys[0]), 0),), np.intp)
        return np.fromiter(map(self.slot_of.get, keys.tolist(), repeat(0)), np.intp, len(keys))

    def find_few(self, sequences: U64, numbers: U16) -> list[int]:
        """Return the slots of rows that are in memory; [] if one is not, or is named twice."""
        slots: list[int] = []
        for sequence, number in zip(sequences.tolist(), numbers.tolist(), strict=True):
            slot = self.slot_of.get(sequence << 16 | number)
            if slot is None or slot in slots or (self.placeholders and self.disk[slot] == OnDisk.UNKNOWN):
                return []
            slots.append(slot)
        return slots

    def take(self, slots: Slots) -> Entries:
        """Return copies of rows."""
        return self.rows.take(slots)

    def fitting(self, rows: Entries) -> Entries:
        """Return rows as wide as the table, which becomes wide if they are."""
        found = self._entries.fitting(rows)
        if self._entries.rows is not self.rows:
            self._look()
        return found

    def put(self, slots: Slots, rows: Entries) -> None:
        """Write whole rows, which may make the table wide; `slots` are distinct."""
        rows = self.fitting(rows)
        self._entries.put(slots, rows)

    def _take(self, count: int) -> Slots:
        while self._free_count < count:
            self._resize(2 * self._capacity)
        self._free_count -= count
        return self._free[self._free_count : self._free_count + count].copy()

    def take_slots(self, count: int) -> list[int]:
        """Take free slots; the caller fills them in, and `slot_of`."""
        slots: list[int] = self._take(count).tolist()
        return slots

    def give_slot(self, slot: int, key: int) -> None:
        """Give a slot back whose columns are those of a free one."""
        del self.slot_of[key]
        self._free[self._free_count] = slot
        self._free_count += 1

    def add(self, rows: Entries, disk: OnDisk) -> Slots:
        """Take a slot for each row; their keys must be new to the table."""
        count = len(rows)
        slots = self._take(count)
        self.put(slots, rows)
        self.disk[slots] = disk
        if disk in (OnDisk.WAITING, OnDisk.DEAD):
            self.note_place(slots, rows)
        elif disk == OnDisk.UNKNOWN:
            self.placeholders += count
        self.slot_of.update(zip(keys_of(rows).tolist(), slots.tolist(), strict=True))
        return slots

    def fill(self, slots: Slots, rows: Entries, disk: OnDisk) -> None:
        """Turn placeholders into rows; `slots` are distinct."""
        unknown = int(np.count_nonzero(self.disk[slots] == OnDisk.UNKNOWN))
        invariant(
            len(set(slots.tolist())) == unknown == len(slots),
            "rows are filled in that are no placeholders, or twice",
            uid=self.uid,
            rows=len(slots),
            placeholders=unknown,
        )
        self.placeholders -= unknown
        self.put(slots, rows)
        self.disk[slots] = disk
        self.note_place(slots, rows)

    def note_place(self, slots: Slots, rows: Entries) -> None:
        """Note where the disk's index has rows."""
        self.disk_wait_at[slots] = places_of(rows)
        if self._classes is not None:
            self.disk_class[slots] = self._classes(rows)

    def add_placeholder(self, sequence: int, row: int) -> int:
        """Take a slot for a key of which nothing is known."""
        blank = np.zeros(1, ENTRY)
        blank["sequence"] = sequence
        blank["row"] = row
        return int(self.add(blank, OnDisk.UNKNOWN)[0])

    def free(self, slots: Slots, rows: Entries | None = None) -> None:
        """Give slots back; they are distinct and unpinned.

        Args:
            slots: which.
            rows: their contents, if the caller has them at hand.
        """
        count = len(slots)
        if not count:
            return
        keys = keys_of(self.take(slots) if rows is None else rows).tolist()
        deque(map(self.slot_of.pop, keys), maxlen=0)
        if self.placeholders:
            self.placeholders -= int(np.count_nonzero(self.disk[slots] == OnDisk.UNKNOWN))
        self.unmark(slots)
        self.state[slots] = State.ABSENT
        self.disk[slots] = OnDisk.FREE
        self._free[self._free_count : self._free_count + count] = slots
        self._free_count += count

    def check(self) -> None:
        """Compare the count of placeholders with the rows themselves (as long as everything takes to look at).

        Raises:
            InvariantViolated: a wrong count would make later inserts take a second slot for a key that has one.
        """
        unknown = int(np.count_nonzero(self.disk == OnDisk.UNKNOWN))
        invariant(
            unknown == self.placeholders,
            "the placeholders are miscounted",
            uid=self.uid,
            counted=self.placeholders,
            found=unknown,
        )

    def mark(self, slots: Slots) -> None:
        """Note that rows differ from the disk; `slots` are distinct."""
        self.dirty_count += len(slots) - int(np.count_nonzero(self.dirty[slots]))
        self.dirty[slots] = True

    def unmark(self, slots: Slots) -> None:
        """Note that rows are as the next durable checkpoint has them; `slots` are distinct."""
        self.dirty_count -= int(np.count_nonzero(self.dirty[slots]))
        self.dirty[slots] = False

    def slots_in(self, state: State) -> Slots:
        """Return the slots of all rows in a state (not ABSENT), ascending."""
        return np.flatnonzero(self.state == state)

    def slots_until(self, end_ms: int) -> Slots:
        """Return the slots of all rows that wait until before an instant."""
        return np.flatnonzero((self.state == State.WAITING) & (self.wait_at < end_ms))

    def slots_after(self, state: State, key: int, most: int) -> Slots:
        """Return the slots of the next rows in a state by key behind this one, `most` at most."""
        slots = self.slots_in(state)
        keys = keys_of(self.rows[["sequence", "row"]].take(slots)).astype(np.int64)
        behind = np.flatnonzero(keys > key)
        if len(behind) > most:
            behind = behind[np.argpartition(keys[behind], most)[:most]]
        return slots[behind[np.argsort(keys[behind])]]


def places_of(rows: Entries) -> U64:
    """Return the instant under which the disk has each row: of its death, or that at which it is ready."""
    if not is_full(rows):
        return rows["wait_at"]
    found: U64 = np.where(rows["state"] == State.DEAD, rows["died_at"], rows["wait_at"])
    return found


def _longer(column: Column, more: int) -> Column:
    grown = np.zeros(len(column) + more, column.dtype)
    grown[: len(column)] = column
    return grown
