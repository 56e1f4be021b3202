"""The waiting messages of one led partition of a priority topic: the smallest rank first, and the soonest of a rank.

Each rank has a heap of places. A rank sleeps until its first message is due, and is ready then: two heaps of ranks. So
time moves ranks, not messages: a million messages that fall due together cost one step.
"""

from __future__ import annotations

from collections.abc import KeysView
from heapq import heapify, heappop, heappush
from typing import Final

import numpy as np
import numpy.typing as npt

from dueq.core.delivery.due_queue import KEY_BITS, KEY_MASK, NEVER_MS, count_below
from dueq.core.delivery.hot_messages import HotMessages
from dueq.core.ports.entry import NO_ENTRIES, Entries, State, keys_of
from dueq.core.state.priority import ranks_of

WAITING: Final = int(State.WAITING)


class PriorityQueue:
    """Places of waiting messages; see `WaitingQueue`."""

    guide: Final = None
    is_cut: Final = False
    later_ms: Final = NEVER_MS

    def __init__(self, messages: HotMessages) -> None:
        self._messages = messages
        self._renew()

    def _renew(self) -> None:
        self._heaps: dict[int, list[int]] = {}
        # A heap of (instant, rank), and its elements: at most one for each instant at which messages of a rank wait.
        self._sleeping: list[tuple[int, int]] = []
        self._alarms: set[tuple[int, int]] = set()
        self._ready: list[int] = []
        self._is_ready: set[int] = set()
        self._places = 0

    def __len__(self) -> int:
        return self._places

    @property
    def head_ms(self) -> int:
        """Instant of some message that is due, or else of the first that will be; NEVER_MS when none waits."""
        ready = self._heaps[self._ready[0]][0] >> KEY_BITS if self._ready else NEVER_MS
        return min(ready, self._sleeping[0][0]) if self._sleeping else ready

    def add(self, entries: Entries) -> None:
        """Enter waiting messages; those that are in already do no harm."""
        columns = ranks_of(entries).tolist(), entries["wait_at"].tolist(), keys_of(entries).tolist()
        for rank, wait_at, key in zip(*columns, strict=True):
            heap = self._heaps.setdefault(rank, [])
            place = wait_at << KEY_BITS | key
            if rank not in self._is_ready and (not heap or place < heap[0]):
                self._wake_at(wait_at, rank)
            heappush(heap, place)
        self._places += len(entries)

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
        self._renew()
        columns = ranks_of(entries).tolist(), entries["wait_at"].tolist(), keys_of(entries).tolist()
        for rank, wait_at, key in zip(*columns, strict=True):
            self._heaps.setdefault(rank, []).append(wait_at << KEY_BITS | key)
        for rank, heap in self._heaps.items():
            heapify(heap)
            self._sleeping.append((heap[0] >> KEY_BITS, rank))
        heapify(self._sleeping)
        self._alarms = set(self._sleeping)
        self._places = len(entries)

    def go_back(self, entries: Entries, until_ms: int) -> None:
        """Mesh time has gone back: ranks that were ready may have to sleep again."""
        self.renew(entries)

    def _wake_at(self, instant: int, rank: int) -> None:
        alarm = instant, rank
        if alarm not in self._alarms:
            self._alarms.add(alarm)
            heappush(self._sleeping, alarm)

    def _wake(self, until_ms: int) -> None:
        """Let ranks be ready whose first message waits until then."""
        while self._sleeping and self._sleeping[0][0] <= until_ms:
            alarm = heappop(self._sleeping)
            self._alarms.discard(alarm)
            rank = alarm[1]
            heap = self._heaps.get(rank)
            if not heap or rank in self._is_ready:
                continue
            if heap[0] >> KEY_BITS <= until_ms:
                self._is_ready.add(rank)
                heappush(self._ready, rank)
            else:
                self._wake_at(heap[0] >> KEY_BITS, rank)

    def pop(self, until_ms: int, limit: int, taken: KeysView[int], *, again: bool = False) -> Entries:
        """Take out the next of all messages that wait until `until_ms` or sooner (see `WaitingQueue`)."""
        self._wake(until_ms)
        unknown = self._messages.unknown_from(until_ms)
        while True:
            ranks, places = self._pop_places(until_ms, limit, unknown)
            if not places:
                return NO_ENTRIES
            found = self._valid(ranks, places, taken)
            if len(found):
                return found

    def _pop_places(self, until_ms: int, limit: int, unknown: int | None) -> tuple[list[int], list[int]]:
        """Take the first places out, with the rank of each."""
        ranks: list[int] = []
        places: list[int] = []
        while self._ready and len(places) < limit:
            rank = self._ready[0]
            if unknown is not None and rank > unknown:
                break  # what comes before is on the disk
            heap, bound = self._heaps[rank], (until_ms + 1) << KEY_BITS
            if rank == unknown and (end := self._messages.end_of(rank)) is not None:
                bound = min(bound, (end[0] << KEY_BITS | end[1]) + 1)
            before = len(places)
            last = -1
            while heap and (heap[0] == last or (heap[0] < bound and len(places) < limit)):
                self._places -= 1
                place = heappop(heap)
                if place != last:
                    places.append(place)
                    last = place
            ranks += [rank] * (len(places) - before)
            if heap and heap[0] >> KEY_BITS <= until_ms:
                break
            self._sleep(rank, heap)
        return ranks, places

    def _sleep(self, rank: int, heap: list[int]) -> None:
        """The first rank that is ready is so no more."""
        heappop(self._ready)
        self._is_ready.discard(rank)
        if heap:
            self._wake_at(heap[0] >> KEY_BITS, rank)
        else:
            del self._heaps[rank]

    def _valid(self, ranks: list[int], places: list[int], taken: KeysView[int]) -> Entries:
        """Return the entries that still wait at their place and that nobody has taken."""
        keys = [place & KEY_MASK for place in places]
        rows = self._messages.rows(np.array(keys, np.uint64))
        good = (rows["state"] == WAITING) & (ranks_of(rows) == np.array(ranks, np.intp))
        good &= rows["wait_at"] == np.array([place >> KEY_BITS for place in places], np.uint64)
        if not taken.isdisjoint(keys):
            good &= np.array([key not in taken for key in keys])
        return rows if good.all() else rows.take(np.flatnonzero(good))

    def count_until(self, until_ms: int, limit: int) -> int:
        """Return about how many wait until `until_ms`, at most `limit`."""
        self._wake(until_ms)
        count = 0
        for rank in self._ready:
            count += count_below(self._heaps[rank], (until_ms + 1) << KEY_BITS, limit - count)
            if count >= limit:
                break
        return count
