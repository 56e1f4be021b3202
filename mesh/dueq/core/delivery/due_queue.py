"""The waiting messages of one partition in the order in which they become due.

A heap of integers `wait_at << 56 | key`, so order is (wait_at, log sequence, row) and nothing else. A short one is
kept sorted, and a sorted list is a heap: the due messages are then cut off in one piece.

Deletion is lazy: the place of a message that was moved or cancelled stays in the heap until it comes up, and is then
checked, many at a time, against the timeline's rows. Nothing is ever forgotten: a message that the timeline shows as
waiting at that very instant comes out, once, and the caller that takes it out puts it back or leases it.

A dead place could stay for a year, so the heap is made anew from the timeline when most of it must be dead: it
holds at most two places per waiting message, and `SPARE_PLACES`. That costs less than taking the dead ones out
one by one would.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, KeysView
from heapq import heapify, heappop, heappush
from itertools import islice
from operator import gt
from typing import Final

import numpy as np
import numpy.typing as npt

from dueq.core.ports.entry import NO_ENTRIES, Entries, State, keys_of
from dueq_codecs.records import U64

NEVER_MS: Final = 1 << 62
"""Later than every instant."""
SPARE_PLACES: Final = 256
"""Dead places that are always allowed, so that a small heap is not rebuilt again and again."""
SORTED_PLACES: Final = 4096
"""Up to this many places are kept sorted. If there are more, a few added ones are pushed into the heap."""
_SORTED_AT_ONCE: Final = 16
"""More new places than this are sorted in only if they are in order."""
WAITING: Final = int(State.WAITING)
KEY_BITS: Final = 56
KEY_MASK: Final = (1 << KEY_BITS) - 1


class DueQueue:
    """Places of waiting messages, soonest first.

    Args:
        rows: returns the timeline's entry of each key, in order; state ABSENT where it holds none.
    """

    __slots__ = ("_heap", "_rows", "_sorted")
    guide: Final = None
    is_cut: Final = False
    later_ms: Final = NEVER_MS

    def __init__(self, rows: Callable[[U64], Entries]) -> None:
        self._rows = rows
        self._heap: list[int] = []
        self._sorted = True

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def head_ms(self) -> int:
        """Instant of the soonest place (its message may be gone); NEVER_MS when there is none."""
        return self._heap[0] >> KEY_BITS if self._heap else NEVER_MS

    def add(self, entries: Entries) -> None:
        """Enter waiting messages; those that are in already do no harm."""
        waits = entries["wait_at"].tolist()
        if len(waits) == 1:
            key = int(entries["sequence"][0]) << 16 | int(entries["row"][0])
            self._push([waits[0] << KEY_BITS | key])
            return
        keys = keys_of(entries).tolist()
        self._push([wait_at << KEY_BITS | key for wait_at, key in zip(waits, keys, strict=True)])

    def _push(self, places: list[int]) -> None:
        heap, was_sorted = self._heap, self._sorted
        self._sorted = len(heap) + len(places) <= (SORTED_PLACES if was_sorted else SORTED_PLACES // 2)
        if len(places) > _SORTED_AT_ONCE and any(map(gt, places, islice(places, 1, None))):
            self._sorted = False  # what lies that far apart does not come out together either
        if self._sorted and was_sorted and len(places) == 1:
            insort(heap, places[0])
        elif self._sorted:
            heap += places
            heap.sort()  # runs that are sorted already are only merged
        elif len(places) * 4 < len(heap):
            for place in places:
                heappush(heap, place)
        else:
            heap += places
            heapify(heap)

    def group_changed(self, name: str) -> None:
        """Nothing here depends on groups."""

    def put_back(self, entries: Entries) -> None:
        """Enter messages again that were taken out and not leased: their places say that they are next."""
        self.add(entries)

    def pass_over(self, entries: Entries, passed: npt.NDArray[np.bool_]) -> int:
        """These were taken out and are not delivered: nobody has turns, so all others stay out."""
        return len(entries)

    def renew(self, entries: Entries) -> None:
        """Forget all places but those of these waiting messages, which are all that may come out."""
        keys = keys_of(entries).tolist()
        waits = entries["wait_at"].tolist()
        self._heap = []
        self._push([wait_at << KEY_BITS | key for wait_at, key in zip(waits, keys, strict=True)])

    def go_back(self, entries: Entries, until_ms: int) -> None:
        """Mesh time has gone back: nothing is ready before it is asked for."""

    def pop(self, until_ms: int, limit: int, taken: KeysView[int], *, again: bool = False) -> Entries:
        """Take out messages that wait until `until_ms` or sooner.

        Args:
            until_ms: the latest instant, inclusive.
            limit: at most this many.
            taken: keys that are spoken for although the timeline does not show it yet.
            again: not for the first time in this turn; all repeats of what comes out go with it.

        Returns:
            Waiting entries in order. Fewer than `limit` does not mean that there are no more.
        """
        while True:
            places = self._pop_places((until_ms + 1) << KEY_BITS, limit)
            if not places:
                return NO_ENTRIES
            found = self._valid(places, taken)
            if len(found):
                return found

    def _pop_places(self, bound: int, limit: int) -> list[int]:
        heap = self._heap
        if self._sorted:
            return self._cut_places(bound, limit)
        places: list[int] = []
        last = -1
        while heap and heap[0] < bound and len(places) < limit:
            place = heappop(heap)
            if place != last:
                places.append(place)
                last = place
        # A repeat of the last one must not come out with the next look, before anybody knows that it is taken.
        while heap and heap[0] == last:
            heappop(heap)
        return places

    def _cut_places(self, bound: int, limit: int) -> list[int]:
        """The same of a sorted heap."""
        heap = self._heap
        end = bisect_left(heap, bound, 0, min(limit, len(heap)))
        places = heap[:end]
        if end:
            while end < len(heap) and heap[end] == places[-1]:
                end += 1
            del heap[:end]
            if len(set(places)) < len(places):
                places = list(dict.fromkeys(places))
        return places

    def _valid(self, places: list[int], taken: KeysView[int]) -> Entries:
        """Return the entries that still wait at their place and that nobody has taken."""
        keys = [place & KEY_MASK for place in places]
        rows = self._rows(np.array(keys, np.uint64))
        waits = [place >> KEY_BITS for place in places]
        free = taken.isdisjoint(keys)
        states = rows["state"].tolist()
        if free and rows["wait_at"].tolist() == waits and states.count(WAITING) == len(states):
            return rows
        good = (rows["state"] == WAITING) & (rows["wait_at"] == np.array(waits, np.uint64))
        if not free:
            good &= np.array([key not in taken for key in keys])
        return rows.take(np.flatnonzero(good))

    def count_until(self, until_ms: int, limit: int) -> int:
        """Return about how many wait until `until_ms`, at most `limit`; costs as much as it counts."""
        return count_below(self._heap, (until_ms + 1) << KEY_BITS, limit)


def count_below(heap: list[int], bound: int, limit: int) -> int:
    """Return how many places of a heap are below a bound, at most `limit`; costs as much as it counts."""
    size = len(heap)
    count = 0
    open_places = [0]
    while open_places and count < limit:
        at = open_places.pop()
        if at < size and heap[at] < bound:
            count += 1
            open_places += (2 * at + 1, 2 * at + 2)
    return count
