"""The hot window: the instant up to which every waiting entry that may be delivered is in memory.

Messages of a job that is open, or being withdrawn, may not be delivered for now, perhaps for hours after their
instant: as long as the home of the job is away. They do not count, so that the messages behind them come into the
window. When they are many, or only on disk, they are *left out*: memory may be without them. When the job is committed,
the window goes back to the job's `until`, and the messages left out are read like any others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dueq.core.ports.entry import Entries, keys_of
from dueq.core.state.job_table import JobTable

Position = tuple[int, int]
"""(wait_at, key): the order of the index inside a class."""
ONE_CLASS: Final = 0
"""The class of everything, in a topic whose order has no classes."""
Mask = npt.NDArray[np.bool_]
Cut = tuple[int, int, int]
"""(class, wait_at, key): behind that position more of the class may be that is only on the disk."""


class Wanted(NamedTuple):
    """A wish to read from the disk."""

    spots: list[tuple[int, Position]]
    """Classes, ascending, each with the position behind which to read."""
    each: int
    """At most this many rows of each; 0: as many as there is room for."""
    onward: bool
    """The classes behind the last one, too."""


class Looked(NamedTuple):
    """How far a class was read."""

    of: int
    looked_to: Position | None
    """Of the last entry looked at; None: there was none."""
    exhausted: bool
    """No entry of this class lies behind it."""


class Guide(Protocol):
    """Knows whose turn it is: the leader's queue."""

    def hungry(self, runway: int, most: int) -> list[tuple[int, int]]:
        """Return what should be read for the next turns.

        Args:
            runway: so many turns ahead.
            most: at most this many classes.

        Returns:
            Classes in the order of turns, each with the number of rows that its turn takes.
        """
        ...

    @property
    def until_ms(self) -> int:
        """Messages that wait until then are ready."""
        ...

    @property
    def is_starving(self) -> bool:
        """Whether somebody whose turn it is waits for the disk."""
        ...

    def coming(self, limit: int) -> list[tuple[int, int]]:
        """Return the groups that have the next turns, in order: number, and how many messages a turn takes."""
        ...

    def expect(self, cuts: Iterable[Cut]) -> None:
        """Note that more of these classes lies behind a position, and only on the disk."""
        ...


class Window(ABC):
    """The waiting entries that are in memory, so that the next one is known without the disk.

    For each class of the topic's order it has an end: a position up to which (inclusive) every entry of that
    class is in memory that may be delivered. How much of which class, the kind decides.

    Attributes:
        count: waiting entries inside the window that may be delivered.
        left_out: numbers of jobs, none of them committed, of which entries inside the window may be only on disk.
        guide: who knows whose turn it is; None: nobody, or the kind has no turns.
        cuts: the ends that have moved back since the guide was told.
    """

    def __init__(self, jobs: JobTable) -> None:
        self.count = 0
        self.left_out: set[int] = set()
        self.guide: Guide | None = None
        self.cuts: list[Cut] = []
        self._jobs = jobs

    # ------------------------------------------------------------ what a kind says

    @property
    def by_turns(self) -> bool:
        """Whether reads follow the order of turns: a group that waits for the disk keeps its turn."""
        return False

    @property
    @abstractmethod
    def endless(self) -> bool:
        """Whether everything that waits is in memory."""

    @property
    @abstractmethod
    def known_until_ms(self) -> int | None:
        """Everything that waits before this instant and may be delivered is in memory; None: all of it is."""

    @abstractmethod
    def end_of(self, of: int) -> Position | None:
        """Return the position behind which more of a class may be that is only on disk; None: there is no more."""

    @abstractmethod
    def unknown_from(self, until_ms: int) -> int | None:
        """Return the first class of which something that waits until then may be only on disk; None: there is none."""

    @abstractmethod
    def unknown_in(self, first: int, behind: int, until_ms: int) -> int | None:
        """Return the same of the classes from `first` on, up to the one before `behind`."""

    def unknown_at(self, first: int, behind: int) -> int | None:
        """Return since when something of these classes may be ready that is only on disk; None: nothing is there."""
        return self.known_until_ms

    def heads(self) -> list[Cut]:
        """Return the end of each class that has one."""
        return []

    @property
    def unknown_count(self) -> int:
        """How many classes have an end."""
        return 0

    def forget(self, groups: Iterable[int]) -> None:
        """Note that nothing is left of these groups, on the disk either."""
        return

    @abstractmethod
    def mask(self, rows: Entries) -> Mask | None:
        """Return which rows lie inside, None for all of them."""

    @property
    @abstractmethod
    def least(self) -> int:
        """How many rows stay in memory however small the window should be: one of each class that has any."""

    @abstractmethod
    def wants(self, half: int, rows: int) -> Wanted | None:
        """Return of which classes more should be read; None: enough is in memory.

        Args:
            half: the rows that are enough, of all classes together.
            rows: how many one scan reads.
        """

    @abstractmethod
    def grow(self, looked: Sequence[Looked], following: int | None) -> None:
        """Let classes reach to the last entry looked at.

        Args:
            looked: the classes that were read, the one first that was asked for first.
            following: the next class behind all of them that has entries on the disk; None: there is none.
        """

    @abstractmethod
    def shrink(self, waiting: Entries, keep: int) -> None:
        """End earlier, so that about `keep` of all deliverable entries inside are left; sets `count`."""

    @abstractmethod
    def go_back(self, wait_at: int) -> bool:
        """End before all that waits at an instant or later, in every class; returns whether any ended later."""

    @abstractmethod
    def export(self) -> object:
        """Return the ends as plain values."""

    # ------------------------------------------------------------ what all have

    def counted(self, rows: Entries) -> Mask | None:
        """Return which rows lie inside and may be delivered, None for all of them."""
        inside, barred = self.mask(rows), self._jobs.barred(rows)
        if barred is None:
            return inside
        return ~barred if inside is None else inside & ~barred

    def inside(self, rows: Entries) -> Entries:
        """Return the rows that lie inside."""
        return _picked(rows, self.mask(rows))

    def deliverable(self, rows: Entries) -> Entries:
        """Return the rows that lie inside and may be delivered."""
        return _picked(rows, self.counted(rows))

    def begin(self, rows: Entries) -> Entries:
        """Count rows that begin to wait; returns those that are to be delivered from the window."""
        found = self.deliverable(rows)
        self.gain(found)
        return found

    def gain(self, rows: Entries) -> None:
        """Count rows that lie inside and may be delivered from now on."""
        self.count += len(rows)

    def recount(self, rows: Entries) -> None:
        """Take note that these are all rows inside that may be delivered."""
        self.count = 0
        self.gain(rows)

    def leave(self, rows: Entries) -> None:
        """Count rows out that wait no more (as they were while they waited)."""
        mask = self.counted(rows)
        self.count -= len(rows) if mask is None else int(np.count_nonzero(mask))


class HotWindow(Window):
    """The window of a timeline: one class, the soonest first.

    Attributes:
        end: the position up to which it reaches; None: there is no end.
    """

    def __init__(self, end: Position | None, jobs: JobTable) -> None:
        super().__init__(jobs)
        self.end = end

    @property
    def endless(self) -> bool:
        return self.end is None and not self.left_out

    @property
    def known_until_ms(self) -> int | None:
        return None if self.end is None else self.end[0]

    def end_of(self, of: int) -> Position | None:
        return self.end

    def unknown_from(self, until_ms: int) -> int | None:
        return ONE_CLASS if self.end is not None and self.end[0] <= until_ms else None

    def unknown_in(self, first: int, behind: int, until_ms: int) -> int | None:
        return self.unknown_from(until_ms)

    def holds(self, wait_at: int, key: int) -> bool:
        """Whether one position lies inside."""
        return self.end is None or (wait_at, key) <= self.end

    def mask(self, rows: Entries) -> Mask | None:
        if self.end is None:
            return None
        wait_at, key = self.end
        at = rows["wait_at"]
        inside: Mask = at < wait_at
        level = at == wait_at
        if np.count_nonzero(level):
            inside |= level & (keys_of(rows) <= key)
        return inside

    @property
    def least(self) -> int:
        return 0

    def wants(self, half: int, rows: int) -> Wanted | None:
        if self.end is None or self.count >= half:
            return None
        return Wanted([(ONE_CLASS, self.end)], 0, onward=False)

    def grow(self, looked: Sequence[Looked], following: int | None) -> None:
        for _, looked_to, exhausted in looked:
            self.end = None if exhausted else looked_to or self.end

    def shrink(self, waiting: Entries, keep: int) -> None:
        self.end = position_of(waiting, keep)
        self.count = keep

    def go_back(self, wait_at: int) -> bool:
        end = (wait_at, 0)
        if self.end is not None and self.end <= end:
            return False
        self.end = end
        return True

    def export(self) -> Position | None:
        return self.end


def position_of(rows: Entries, nth: int) -> Position:
    """Return the position of the `nth` row (counted from 1) in order of position."""
    at = rows["wait_at"]
    wait_at = int(np.partition(at, nth - 1)[nth - 1])
    before = int(np.count_nonzero(at < wait_at))
    level = np.sort(keys_of(rows[at == wait_at]))
    return wait_at, int(level[nth - 1 - before])


def in_order(rows: Entries) -> Entries:
    """Return rows sorted by position."""
    if len(rows) < 2:
        return rows
    return rows.take(np.lexsort((rows["row"], rows["sequence"], rows["wait_at"])))


def _picked(rows: Entries, mask: Mask | None) -> Entries:
    if mask is None:
        return rows
    picked = np.count_nonzero(mask)
    if picked == len(rows):
        return rows
    return rows.take(np.flatnonzero(mask)) if picked else rows[:0]
