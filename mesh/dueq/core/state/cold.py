"""Reads of entries that are only on disk, and the rows that must stay in memory meanwhile.

A record that names messages is *held* from the moment it is in the log: the rows that it names are pinned, so
a row found in memory, or brought in, is there when the record is applied. A key that is not in memory gets
a placeholder, so that it can be pinned as well. Its INSERT may be a record further up in the log that is not
applied yet. Then the disk's answer "absent" says nothing, and the INSERT fills the placeholder.

A read asks for (first, key): with another `first` the same key may be answered "absent" and yet exist. So
absence is known per pair, and only for the records that waited for the answer.

A read is answered some time after it was asked, from a disk that may have moved on. The rule *memory wins* is right
only if memory keeps the rows that a checkpoint changed for as long as an older read is under way: hence `settled`.
"""

from __future__ import annotations

from typing import NamedTuple

from dueq.core.state.entry_rows import Slots
from dueq_codecs.records import U16, U64


class ColdIds(NamedTuple):
    """Ids to read from the disk: three columns of one length."""

    first: U64
    sequence: U64
    row: U16


class Hold:
    """A record in the log: the rows that it names, and how many of them wait for a read."""

    __slots__ = ("slots", "unresolved")

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.unresolved = 0


Pair = tuple[int, int]
"""(first, key)."""


class ColdReads:
    """The reads under way and the records that they hold up.

    Attributes:
        held: sequence of the record -> its hold.
    """

    def __init__(self) -> None:
        self.held: dict[int, Hold] = {}
        self._waiters: dict[Pair, list[Hold]] = {}
        self._reads: dict[Pair, int] = {}  # first pair of each read -> its number, oldest first
        self._scan = 0  # number of the scan under way; 0: none
        self._next = 1
        self._saved_at = 0  # number of the first read after the last checkpoint became durable

    def wait(self, hold: Hold, pair: Pair) -> bool:
        """Let a record wait for a pair; returns whether it must be asked for (it is not under way yet)."""
        hold.unresolved += 1
        waiters = self._waiters.get(pair)
        if waiters is None:
            self._waiters[pair] = [hold]
            return True
        waiters.append(hold)
        return False

    def begin(self, pair: Pair) -> None:
        """Note that a read has been asked for; `pair` is its first one."""
        self._reads[pair] = self._next
        self._next += 1

    def end(self, pairs: list[Pair]) -> None:
        """Note the answer of a read: its pairs hold up nothing any more."""
        for pair in pairs:
            for hold in self._waiters.pop(pair, ()):
                hold.unresolved -= 1
        if pairs:
            self._reads.pop(pairs[0], None)

    @property
    def scanning(self) -> bool:
        """Whether a scan of the index is under way."""
        return self._scan != 0

    def begin_scan(self) -> None:
        """Note that a scan has been asked for."""
        self._scan = self._next
        self._next += 1

    def end_scan(self) -> None:
        """Note that the scan was answered."""
        self._scan = 0

    def checkpoint_saved(self) -> None:
        """Reads asked for from now on see the disk as it is after this checkpoint."""
        self._saved_at = self._next

    @property
    def settled(self) -> bool:
        """Whether no read or scan is under way that may have seen the disk before the last checkpoint."""
        if self._scan and self._scan < self._saved_at:
            return False
        oldest = next(iter(self._reads.values()), self._next)
        return oldest >= self._saved_at
