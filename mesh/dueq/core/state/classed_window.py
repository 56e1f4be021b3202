"""The window of an order with classes: the first messages of each class.

The classes of which more is on the disk share the window's room. So a message of an early class comes into memory at
once, however many others wait, and the next message of each class is at hand when its turn comes.

Classes are numbers, perhaps far apart. Each class that has a message in memory, or an end, has a place in columns.
There may be a hundred thousand of them, so many classes are read or let go at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import islice
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from sortedcontainers import SortedSet

from dueq.core.ports.entry import Entries, keys_of
from dueq.core.state.class_set import ClassSet
from dueq.core.state.job_table import JobTable
from dueq.core.state.window import Cut, Looked, Mask, Position, Wanted, Window
from dueq_codecs.records import U64

Places = npt.NDArray[np.intp]
Classes: TypeAlias = SortedSet[int] | ClassSet

ENDLESS: Final = (1 << 64) - 1
"""As an instant: nothing more of this class is on the disk."""
_PLACES_MIN: Final = 16
_REFILL_ROWS: Final = 16
"""Rows of a class that are read at once: they cost about as much as to find the class."""
_FEW_ROWS: Final = 2
"""The same where there are more classes than rows in memory."""


class ClassedWindow(Window):
    """The first messages of each class.

    Nobody knows yet what the disk has of the classes from `_unseen` on: they are looked at in their order, many in one
    scan.

    Args:
        jobs: which say what may be delivered.
        low_water: everything on the disk waits at this instant or later; None: nothing is on the disk.
        classes_of: returns the class of each row.
    """

    def __init__(self, jobs: JobTable, low_water: int | None, classes_of: Callable[[Entries], U64]) -> None:
        super().__init__(jobs)
        self._classes_of = classes_of
        self._low_water = low_water or 0
        self._unseen = None if low_water is None else 0
        self._place_of: dict[int, int] = {}
        self._free: list[int] = []
        self._class_at: U64 = np.empty(0, np.uint64)
        self._end_at: U64 = np.empty(0, np.uint64)
        self._end_key: U64 = np.empty(0, np.uint64)
        self._counts: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._limited = self._no_classes()
        # A heap of classes of which more may have to be read: those that lost messages or were read since.
        self._looked_at: list[int] = []
        self._listed: set[int] = set()

    def _no_classes(self) -> Classes:
        """Return an empty set of classes."""
        classes: Classes = SortedSet()
        return classes

    # ------------------------------------------------------------ places

    def _places(self, rows: Entries) -> Places:
        """Return the place of each row's class; classes that have none get one."""
        classes = self._classes_of(rows)
        if len(classes) == 1:
            return np.array([self._place(int(classes[0]))], np.intp)
        found, inverse = np.unique(classes, return_inverse=True)
        places: Places = np.array([self._place(of) for of in found.tolist()], np.intp)[inverse]
        return places

    def _place(self, of: int) -> int:
        place = self._place_of.get(of)
        if place is None:
            if not self._free:
                self._grow_columns()
            place = self._place_of[of] = self._free.pop()
            self._class_at[place] = of
        return place

    def _grow_columns(self) -> None:
        before = len(self._counts)
        more = max(before, _PLACES_MIN)
        self._class_at = np.concatenate((self._class_at, np.zeros(more, np.uint64)))
        self._end_at = np.concatenate((self._end_at, np.full(more, ENDLESS, np.uint64)))
        self._end_key = np.concatenate((self._end_key, np.zeros(more, np.uint64)))
        self._counts = np.concatenate((self._counts, np.zeros(more, np.int64)))
        self._free += range(before + more - 1, before - 1, -1)

    def _give_back(self, classes: list[int]) -> None:
        """Forget the places of classes that have neither messages in memory nor an end."""
        for of in classes:
            place = self._place_of[of]
            if not self._counts[place] and of not in self._limited:
                del self._place_of[of]
                self._free.append(place)

    # ------------------------------------------------------------ what lies inside

    @property
    def endless(self) -> bool:
        return self._unseen is None and not self._limited and not self.left_out

    @property
    def known_until_ms(self) -> int | None:
        ends = [self._low_water] if self._unseen is not None else []
        if self._limited:
            ends.append(int(self._end_at.min()))
        return min(ends, default=None)

    def end_of(self, of: int) -> Position | None:
        if self._unseen is not None and of >= self._unseen:
            return self._low_water, 0
        if of not in self._limited:
            return None
        place = self._place_of[of]
        return int(self._end_at[place]), int(self._end_key[place])

    def unknown_from(self, until_ms: int) -> int | None:
        first = self._unseen if self._unseen is not None and self._low_water <= until_ms else None
        if self._limited:
            classes = self._class_at[self._end_at <= np.uint64(until_ms)]
            if len(classes):
                of = int(classes.min())
                return of if first is None else min(of, first)
        return first

    def unknown_at(self, first: int, behind: int) -> int | None:
        ends = [int(self._end_at[self._place_of[of]]) for of in self._limited.irange(first, behind - 1)]
        if self._unseen is not None and self._unseen < behind:
            ends.append(self._low_water)
        return min(ends, default=None)

    def heads(self) -> list[Cut]:
        at, keys, place_of = self._end_at.tolist(), self._end_key.tolist(), self._place_of
        return [(of, at[place_of[of]], keys[place_of[of]]) for of in self._limited]

    @property
    def unknown_count(self) -> int:
        return len(self._limited)

    def unknown_in(self, first: int, behind: int, until_ms: int) -> int | None:
        for of in self._limited.irange(first, behind - 1):
            if int(self._end_at[self._place_of[of]]) <= until_ms:
                return int(of)
        if self._unseen is not None and self._unseen < behind and self._low_water <= until_ms:
            return max(self._unseen, first)
        return None

    def mask(self, rows: Entries) -> Mask | None:
        if not self._limited and self._unseen is None:
            return None
        classes, at, keys = self._classes_of(rows), rows["wait_at"], keys_of(rows)
        found, inverse = np.unique(classes, return_inverse=True)
        places = np.array([self._place_of.get(of, -1) for of in found.tolist()], np.intp)
        end_at, end_key = np.full(len(found), ENDLESS, np.uint64), np.zeros(len(found), np.uint64)
        known = places >= 0
        end_at[known], end_key[known] = self._end_at[places[known]], self._end_key[places[known]]
        if self._unseen is not None:
            unseen = found >= np.uint64(self._unseen)
            end_at[unseen], end_key[unseen] = self._low_water, 0
        end_at = end_at[inverse]
        inside: Mask = at < end_at
        level = at == end_at
        if level.any():
            inside |= level & (keys <= end_key[inverse])
        return inside

    def _end(self, of: int, end: Position | None) -> None:
        """Let a class end there."""
        place = self._place(of)
        (self._limited.discard if end is None else self._limited.add)(of)
        self._end_at[place], self._end_key[place] = (ENDLESS, 0) if end is None else end

    # ------------------------------------------------------------ what to read, and what to let go

    @property
    def least(self) -> int:
        return len(self._place_of)

    def wants(self, half: int, rows: int) -> Wanted | None:
        if self._unseen is not None:
            # Nobody knows how many there are: each gets less, the more were found.
            each = max(rows // (len(self._place_of) + 1), 1)
            return Wanted([(self._unseen, (self._low_water, 0))], each, onward=True)
        share = half // max(len(self._limited), 1)
        enough = max(share // 2, 1)
        # If there are very many classes, memory keeps one or two rows of each: more would be read again and again.
        most = max(rows // min(max(share, _FEW_ROWS), _REFILL_ROWS), 1)
        spots: list[tuple[int, Position]] = []
        while self._looked_at and len(spots) < most:
            of = heappop(self._looked_at)
            end = self.end_of(of)
            if end is not None and int(self._counts[self._place_of[of]]) < enough:
                spots.append((of, end))
            else:
                self._listed.discard(of)
        for of, _ in spots:  # until they have been read
            heappush(self._looked_at, of)
        if not spots:
            return None
        if len(spots) < most:
            spots = sorted({*spots, *self._next_ones(spots[0][0], most - len(spots))})
        return Wanted(spots, max(rows // len(spots), 1), onward=False)

    def _next_ones(self, of: int, most: int) -> list[tuple[int, Position]]:
        """Return those of the next classes of which little is in memory: they will be wanted soon."""
        found = []
        for each in islice(self._limited.irange(of + 1), most):
            place = self._place_of[each]
            if self._counts[place] < _REFILL_ROWS:
                found.append((each, (int(self._end_at[place]), int(self._end_key[place]))))
        return found

    def _look_at(self, classes: list[int]) -> None:
        for of in classes:
            if of not in self._listed:
                self._listed.add(of)
                heappush(self._looked_at, of)

    def grow(self, looked: Sequence[Looked], following: int | None) -> None:
        unseen = self._unseen
        if unseen == looked[0].of:
            self._unseen = following
        for of, looked_to, exhausted in looked:
            if exhausted:
                self._end(of, None)
                self._give_back([of])
            elif unseen is not None and of >= unseen:
                self._end(of, max(looked_to or (0, 0), (self._low_water, 0)))
            elif looked_to is not None:
                self._end(of, looked_to)
        self._look_at([of for of, *_ in looked])

    def _are_unseen(self, classes: U64) -> Mask:
        """Return which classes nobody has looked at yet: they end at the low-water mark, none of them before."""
        return classes >= np.uint64(ENDLESS if self._unseen is None else self._unseen)

    def shrink(self, waiting: Entries, keep: int) -> None:
        places = self._places(waiting)
        order = np.lexsort((keys_of(waiting), waiting["wait_at"], places))
        found, starts, counts = np.unique(places[order], return_index=True, return_counts=True)
        share = max(keep // max(len(found), 1), 1)
        over = (counts > share) & ~self._are_unseen(self._class_at[found])
        last = order[starts[over] + share - 1]
        self._end_at[found[over]] = waiting["wait_at"][last]
        self._end_key[found[over]] = keys_of(waiting)[last]
        self._limited.update(self._class_at[found[over]].tolist())
        self.recount(self.inside(waiting))

    def go_back(self, wait_at: int) -> bool:
        known_ms = self.known_until_ms
        if known_ms is not None:  # what was let go may wait since before the low-water mark
            wait_at = min(wait_at, known_ms)
        self._end_at[:] = ENDLESS
        self._limited.clear()
        self._unseen, self._low_water = 0, min(self._low_water, wait_at)
        return True

    def export(self) -> object:
        return self._unseen, [(of, self.end_of(of)) for of in self._limited]

    # ------------------------------------------------------------ counts

    def gain(self, rows: Entries) -> None:
        super().gain(rows)
        if len(rows):
            places = self._places(rows)
            np.add.at(self._counts, places, 1)

    def recount(self, rows: Entries) -> None:
        self._counts[:] = 0
        super().recount(rows)
        self._look_at(list(self._limited))
        counts = self._counts.tolist()
        self._give_back([of for of, place in self._place_of.items() if not counts[place]])

    def leave(self, rows: Entries) -> None:
        found = self.deliverable(rows)
        if not len(found):
            return
        self.count -= len(found)
        places = self._places(found)
        np.subtract.at(self._counts, places, 1)
        classes = np.unique(self._class_at[places]).tolist()
        self._look_at(classes)
        self._give_back(classes)
