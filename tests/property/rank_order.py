"""A second order of a topic, for tests: the smallest rank first. A message's rank follows from size and due.

It shows what a kind needs: an order, a window, a queue and turns, and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import KeysView
from heapq import heapify, heappop, heappush
from typing import Final

import numpy as np

from dueq.core.delivery.due_queue import NEVER_MS
from dueq.core.delivery.turns import Demand, HotMessages, Picks, Queued, WaitingQueue
from dueq.core.ports.entry import NO_ENTRIES, Entries, State, keys_of
from dueq.core.state.job_table import JobTable
from dueq.core.state.window import Mask, Position, Window, position_of
from dueq_codecs.records import U64

RANKS: Final = 6


def ranks_of(rows: Entries) -> U64:
    return (rows["size"].astype(np.uint64) + rows["due"]) % np.uint64(RANKS)


class RankOrder:
    kind = "rank"
    class_bytes = 2

    def classes(self, rows: Entries) -> U64:
        return ranks_of(rows)

    def window(self, jobs: JobTable, low_water: int | None) -> Window:
        return RankWindow(jobs, low_water)


class RankWindow(Window):
    """The first messages of each rank; the room is shared by the ranks that have more on the disk.

    Attributes:
        ends: rank -> its end, of those that are not wholly in memory.
        unseen: the first rank of which nobody knows what the disk has; None: all are known.
    """

    def __init__(self, jobs: JobTable, low_water: int | None) -> None:
        super().__init__(jobs)
        self.ends: dict[int, Position] = {}
        self.unseen = None if low_water is None else 0
        self._low_water = low_water or 0
        self._counts: Counter[int] = Counter()

    @property
    def endless(self) -> bool:
        return self.unseen is None and not self.ends and not self.left_out

    @property
    def known_until_ms(self) -> int | None:
        ends = [end[0] for end in self.ends.values()]
        if self.unseen is not None:
            ends.append(self._low_water)
        return min(ends, default=None)

    def end_of(self, of: int) -> Position | None:
        if self.unseen is not None and of >= self.unseen:
            return self._low_water, 0
        return self.ends.get(of)

    def mask(self, rows: Entries) -> Mask | None:
        if self.endless:
            return None
        ranks, at, keys = ranks_of(rows), rows["wait_at"], keys_of(rows)
        inside: Mask = np.ones(len(rows), np.bool_)
        for rank in np.unique(ranks).tolist():
            end = self.end_of(rank)
            if end is not None:
                inside[(ranks == rank) & ((at > end[0]) | ((at == end[0]) & (keys > end[1])))] = False
        return inside

    def _share(self, rows: int) -> int:
        return max(rows // max(len(self.ends), 1), 1)

    def wants(self, half: int) -> tuple[int, Position] | None:
        if self.unseen is not None:
            return self.unseen, (self._low_water, 0)
        for rank in sorted(self.ends):
            if self._counts[rank] < max(self._share(half) // 2, 1):
                return rank, self.ends[rank]
        return None

    def grow(self, of: int, looked_to: Position | None, exhausted: bool, following: int | None) -> None:
        if of == self.unseen:
            self.unseen = following
            self.ends[of] = self._low_water, 0
        if exhausted:
            self.ends.pop(of, None)
        elif looked_to is not None:
            self.ends[of] = looked_to

    def shrink(self, waiting: Entries, keep: int) -> None:
        ranks = ranks_of(waiting)
        kept = []
        counts = np.unique(ranks, return_counts=True)
        share = max(keep // len(counts[0]), 1)
        for rank, count in zip(counts[0].tolist(), counts[1].tolist(), strict=True):
            mine = waiting[ranks == rank]
            if count > share:
                self.ends[rank] = position_of(mine, share)
            kept.append(mine)
        self.recount(self.inside(np.concatenate(kept)))

    def gain(self, rows: Entries) -> None:
        super().gain(rows)
        self._counts.update(ranks_of(rows).tolist())

    def recount(self, rows: Entries) -> None:
        self._counts.clear()
        super().recount(rows)

    def leave(self, rows: Entries) -> None:
        found = self.deliverable(rows)
        self.count -= len(found)
        self._counts.subtract(ranks_of(found).tolist())

    def go_back(self, wait_at: int) -> bool:
        self.ends.clear()
        self.unseen, self._low_water = 0, min(self._low_water, wait_at)
        return True

    def export(self) -> object:
        return self.unseen, sorted(self.ends.items())


class RankQueue:
    """A heap for each rank."""

    def __init__(self, messages: HotMessages) -> None:
        self._messages = messages
        self._heaps: list[list[Position]] = [[] for _ in range(RANKS)]

    def __len__(self) -> int:
        return sum(map(len, self._heaps))

    @property
    def head_ms(self) -> int:
        return min((heap[0][0] for heap in self._heaps if heap), default=NEVER_MS)

    def add(self, entries: Entries) -> None:
        columns = ranks_of(entries).tolist(), entries["wait_at"].tolist(), keys_of(entries).tolist()
        for rank, wait_at, key in zip(*columns, strict=True):
            heappush(self._heaps[rank], (wait_at, key))

    def renew(self, entries: Entries) -> None:
        self._heaps = [[] for _ in range(RANKS)]
        self.add(entries)
        for heap in self._heaps:
            heapify(heap)

    def pop(self, until_ms: int, limit: int, taken: KeysView[int]) -> Entries:
        found: list[Entries] = []
        keys: set[int] = set()
        for rank, heap in enumerate(self._heaps):
            end = self._messages.end_of(rank)
            while heap and heap[0][0] <= until_ms and len(found) < limit and (end is None or heap[0] <= end):
                wait_at, key = heappop(heap)
                row = self._messages.rows(np.array([key], np.uint64))
                place = int(row["state"][0]), int(row["wait_at"][0]), int(ranks_of(row)[0])
                if place == (State.WAITING, wait_at, rank) and key not in taken and key not in keys:
                    keys.add(key)
                    found.append(row)
            if len(found) == limit or (end is not None and end[0] <= until_ms):
                break  # the rest of this rank comes first, and is on the disk
        return np.concatenate(found) if found else NO_ENTRIES

    def count_until(self, until_ms: int, limit: int) -> int:
        return min(sum(at <= until_ms for heap in self._heaps for at, _ in heap), limit)


class RankTurns:
    """Ready messages only; the partition whose first has the smallest rank goes first."""

    def queue(self, messages: HotMessages) -> WaitingQueue:
        return RankQueue(messages)

    def choose(self, lanes: list[Queued], demand: Demand, picks: Picks) -> None:
        free = demand.free
        for lane in lanes:
            free -= picks.take(lane, demand.mesh_ms, free)
