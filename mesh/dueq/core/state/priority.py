"""The order of a priority topic: the smallest rank first, and the soonest of a rank.

A rank is a class. The window holds the first messages of each rank; its room is shared by the ranks of which more is on
the disk. So an urgent message comes into memory at once, however many others wait, and what is next of each
rank is at hand when its turn comes.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

import numpy as np
import numpy.typing as npt

from dueq.core.ports.entry import Entries, is_wide, keys_of
from dueq.core.state.job_table import JobTable
from dueq.core.state.window import Mask, Position, Window
from dueq.limits import RANK_MAX
from dueq_codecs.records import U64

Ranks = npt.NDArray[np.intp]

_ENDLESS: Final = (1 << 64) - 1
"""As an instant: nothing more of this rank is on the disk."""


def ranks_of(rows: Entries) -> Ranks:
    """Return the rank of each entry; 0 where none was given."""
    return rows["rank"].astype(np.intp) if is_wide(rows) else np.zeros(len(rows), np.intp)


class PriorityOrder:
    """The smallest rank first."""

    kind: Final = "priority"
    class_bytes: Final = 2
    has_ranks: Final = True

    def classes(self, rows: Entries) -> U64:
        """Return the rank of each row."""
        return ranks_of(rows).astype(np.uint64)

    def window(self, jobs: JobTable, low_water: int | None) -> Window:
        """Return a window that ends before everything that is on the disk."""
        return PriorityWindow(jobs, low_water)


class PriorityWindow(Window):
    """The first messages of each rank.

    Ranks up to the largest that was seen have a place in columns. Of those from `_unseen` on nobody knows yet what the
    disk has: they are looked at one after the other.
    """

    def __init__(self, jobs: JobTable, low_water: int | None) -> None:
        super().__init__(jobs)
        self._low_water = low_water or 0
        self._unseen = None if low_water is None else 0
        self._end_at: U64 = np.empty(0, np.uint64)
        self._end_key: U64 = np.empty(0, np.uint64)
        self._counts: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._limited = 0  # ranks with an end
        # A heap of ranks of which more may have to be read: those that lost messages or were read since.
        self._looked_at: list[int] = []
        self._listed: set[int] = set()

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
        if of >= len(self._end_at) or int(self._end_at[of]) == _ENDLESS:
            return None
        return int(self._end_at[of]), int(self._end_key[of])

    def unknown_from(self, until_ms: int) -> int | None:
        ranks: list[int] = []
        if self._limited:
            ranks = np.flatnonzero(self._end_at <= np.uint64(until_ms))[:1].tolist()
        if self._unseen is not None and self._low_water <= until_ms:
            ranks.append(self._unseen)
        return min(ranks, default=None)

    def mask(self, rows: Entries) -> Mask | None:
        if not self._limited and self._unseen is None:
            return None
        ranks = self._placed(rows)
        end_at, end_key = self._end_at[ranks], self._end_key[ranks]
        if self._unseen is not None:
            unseen = ranks >= self._unseen
            end_at[unseen], end_key[unseen] = self._low_water, 0
        at = rows["wait_at"]
        inside: Mask = at < end_at
        level = at == end_at
        if level.any():
            inside |= level & (keys_of(rows) <= end_key)
        return inside

    def _placed(self, rows: Entries) -> Ranks:
        """Return the ranks of rows, all of which have a place then."""
        ranks = ranks_of(rows)
        if len(ranks):
            self._reach(int(ranks.max()))
        return ranks

    def _reach(self, rank: int) -> None:
        if rank >= len(self._counts):
            more = min(max(rank + 1, 2 * len(self._counts)), RANK_MAX + 1) - len(self._counts)
            self._end_at = np.concatenate((self._end_at, np.full(more, _ENDLESS, np.uint64)))
            self._end_key = np.concatenate((self._end_key, np.zeros(more, np.uint64)))
            self._counts = np.concatenate((self._counts, np.zeros(more, np.int64)))

    def _end(self, rank: int, end: Position | None) -> None:
        """Let a rank end there."""
        self._reach(rank)
        self._limited += (end is not None) - (int(self._end_at[rank]) != _ENDLESS)
        self._end_at[rank], self._end_key[rank] = (_ENDLESS, 0) if end is None else end

    # ------------------------------------------------------------ what to read, and what to let go

    def wants(self, half: int) -> tuple[int, Position] | None:
        if self._unseen is not None:
            return self._unseen, (self._low_water, 0)
        enough = max(half // max(self._limited, 1) // 2, 1)
        while self._looked_at:
            rank = self._looked_at[0]
            end = self.end_of(rank)
            if end is not None and int(self._counts[rank]) < enough:
                return rank, end
            self._listed.discard(heappop(self._looked_at))
        return None

    def _look_at(self, ranks: list[int]) -> None:
        for rank in ranks:
            if rank not in self._listed:
                self._listed.add(rank)
                heappush(self._looked_at, rank)

    def grow(self, of: int, looked_to: Position | None, exhausted: bool, following: int | None) -> None:
        if of == self._unseen:
            self._unseen = following
            self._end(of, (self._low_water, 0))
        if exhausted:
            self._end(of, None)
        elif looked_to is not None:
            self._end(of, looked_to)
        self._look_at([of])

    def shrink(self, waiting: Entries, keep: int) -> None:
        ranks = self._placed(waiting)
        order = np.lexsort((keys_of(waiting), waiting["wait_at"], ranks))
        found, starts, counts = np.unique(ranks[order], return_index=True, return_counts=True)
        share = max(keep // max(len(found), 1), 1)
        over = counts > share
        last = order[starts[over] + share - 1]
        shortened = found[over]
        self._limited += int(np.count_nonzero(self._end_at[shortened] == _ENDLESS))
        self._end_at[shortened] = waiting["wait_at"][last]
        self._end_key[shortened] = keys_of(waiting)[last]
        self.recount(self.inside(waiting))

    def go_back(self, wait_at: int) -> bool:
        self._end_at[:] = _ENDLESS
        self._limited = 0
        self._unseen, self._low_water = 0, min(self._low_water, wait_at)
        return True

    def export(self) -> object:
        limited = np.flatnonzero(self._end_at != _ENDLESS).tolist()
        return self._unseen, [(rank, self.end_of(rank)) for rank in limited]

    # ------------------------------------------------------------ counts

    def gain(self, rows: Entries) -> None:
        super().gain(rows)
        if len(rows):
            ranks = self._placed(rows)
            np.add.at(self._counts, ranks, 1)

    def recount(self, rows: Entries) -> None:
        self._counts[:] = 0
        super().recount(rows)
        self._look_at(np.flatnonzero(self._end_at != _ENDLESS).tolist())

    def leave(self, rows: Entries) -> None:
        found = self.deliverable(rows)
        if not len(found):
            return
        self.count -= len(found)
        ranks = self._placed(found)
        np.subtract.at(self._counts, ranks, 1)
        self._look_at(np.unique(ranks).tolist())
