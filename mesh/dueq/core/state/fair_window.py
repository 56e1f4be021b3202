"""The window of a fair topic: with very many groups, it holds the first messages of those whose turn is near.

While there are few classes, each has its share, as in a priority topic. When there are *too many*, a class may have
nothing in memory: its end lies before its first message then, and says when that is ready. The order of turns
(`window.Guide`) says which messages are read next and which are let go last; without a guide nothing is read ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dueq.core.ports.entry import Entries, keys_of
from dueq.core.state.class_set import RANK_BITS, ClassSet
from dueq.core.state.classed_window import ClassedWindow
from dueq.core.state.job_table import JobTable
from dueq.core.state.window import Position, Wanted
from dueq.limits import SCAN_CLASSES_MAX
from dueq_codecs.records import U64

_SHARE_MIN: Final = 4
"""Rows for each class; where there is less room, there are too many classes."""
_RUNWAY: Final = 4 * SCAN_CLASSES_MAX
"""Turns for which messages are brought to memory."""
_NO_TURN: Final = 1 << 40
"""A turn after all others."""
_NEVER_MS: Final = 1 << 62
_MANY_RANKS: Final = 16
"""If a group has more ranks that end, their ends are not gone through for each message of it."""


class _Unknown(NamedTuple):
    """The first class of a group of which something is ready that is only on the disk; None: there is none.

    It is so from `since_ms` on, and before `before_ms`, while no end changes.
    """

    of: int | None
    since_ms: int
    before_ms: int


class FairWindow(ClassedWindow):
    """The first messages of each class, or of those whose turn is near."""

    def __init__(self, jobs: JobTable, low_water: int | None, classes_of: Callable[[Entries], U64]) -> None:
        super().__init__(jobs, low_water, classes_of)
        self._has_too_many = False
        self._unknown: dict[int, _Unknown] = {}  # by group, of those with many ranks

    def _no_classes(self) -> ClassSet:
        return ClassSet()

    @property
    def by_turns(self) -> bool:
        return self._has_too_many and self._unseen is None

    @property
    def least(self) -> int:
        return 0

    # ------------------------------------------------------------ what is only on the disk

    def unknown_at(self, first: int, behind: int) -> int | None:
        ranks = self._limited.ranks(group := first >> RANK_BITS)
        if len(ranks) <= _MANY_RANKS:
            return super().unknown_at(first, behind)
        soonest = self._unknown_of(group, ranks, -1).before_ms
        is_unseen = self._unseen is not None and self._unseen < behind
        return min(soonest, self._low_water) if is_unseen else soonest

    def unknown_in(self, first: int, behind: int, until_ms: int) -> int | None:
        ranks = self._limited.ranks(group := first >> RANK_BITS)
        if len(ranks) <= _MANY_RANKS:
            return super().unknown_in(first, behind, until_ms)
        of = self._unknown_of(group, ranks, until_ms).of
        if of is None and self._unseen is not None and self._unseen < behind and self._low_water <= until_ms:
            of = max(self._unseen, first)
        return of

    def _unknown_of(self, group: int, ranks: Sequence[int], until_ms: int) -> _Unknown:
        held = self._unknown.get(group)
        if held is None or not held.since_ms <= until_ms < held.before_ms:
            ends = self._end_at[[self._place_of[group << RANK_BITS | rank] for rank in ranks]].astype(
                np.int64
            )
            ready = np.flatnonzero(ends <= until_ms)
            at = int(ready[0]) if len(ready) else None
            held = self._unknown[group] = _Unknown(
                None if at is None else group << RANK_BITS | ranks[at],
                -1 if at is None else int(ends[at]),
                int(ends[:at].min(initial=_NEVER_MS)),
            )
        return held

    def _end(self, of: int, end: Position | None) -> None:
        super()._end(of, end)
        self._unknown.pop(of >> RANK_BITS, None)

    def go_back(self, wait_at: int) -> bool:
        self._unknown.clear()
        return super().go_back(wait_at)

    # ------------------------------------------------------------ what to read

    def _look(self, half: int) -> None:
        """Look whether there are too many classes."""
        count = len(self._place_of)
        if not self._has_too_many:
            self._has_too_many = count * _SHARE_MIN > half
        elif count * _SHARE_MIN * 2 <= half:
            self._has_too_many = False
            self._look_at(list(self._limited))

    def wants(self, half: int, rows: int) -> Wanted | None:
        self._look(half)
        if not self._has_too_many:
            return super().wants(half, rows)
        self._keep_barren()
        if self._unseen is not None:
            return super().wants(half, rows)
        most = min(rows, SCAN_CLASSES_MAX)
        if self._looked_at:
            wanted = [(of, 1) for of in sorted(self._looked_at)[:most]]
        elif self.guide is not None:
            wanted = self.guide.hungry(min(half, _RUNWAY), most)
        else:
            return None
        each = wanted[0][1] if wanted else 1
        spots = [(of, end) for of, takes in wanted if takes <= each and (end := self.end_of(of)) is not None][
            : max(rows // each, 1)
        ]
        return Wanted(sorted(spots), min(each, rows), onward=False) if spots else None

    def _keep_barren(self) -> None:
        """Look again only at those of the read classes that brought nothing that may be delivered."""
        self._looked_at = [
            of for of in self._looked_at if of in self._limited and not self._counts[self._place_of[of]]
        ]
        heapify(self._looked_at)
        self._listed = set(self._looked_at)

    # ------------------------------------------------------------ what to let go

    def shrink(self, waiting: Entries, keep: int) -> None:
        self._unknown.clear()
        self._look(keep)
        if not self._has_too_many:
            super().shrink(waiting, keep)
            return
        classes, at, keys = self._classes_of(waiting), waiting["wait_at"], keys_of(waiting)
        order = np.lexsort((keys, at, classes))
        classes, at, keys = classes[order], at[order], keys[order]
        kept = np.zeros(len(classes), np.int64)
        kept[self._by_need(classes, at, keys, keep)[:keep]] = 1
        kept[self._are_unseen(classes)] = 1
        found, starts, counts = np.unique(classes, return_index=True, return_counts=True)
        left = np.add.reduceat(kept, starts)  # of each class: its first ones
        places = np.array([self._place_of[of] for of in found.tolist()], np.intp)
        self._counts[:] = 0
        self._counts[places] = left
        self.count = int(left.sum())
        is_cut = left < counts
        behind = (starts + left)[is_cut]
        cut, end_at, end_key = found[is_cut].tolist(), at[behind], keys[behind] - np.uint64(1)
        self._end_at[places[is_cut]], self._end_key[places[is_cut]] = end_at, end_key
        self._limited.update([of for of in cut if of not in self._limited])
        self._listed.difference_update(cut)
        self._looked_at = sorted(self._listed)
        if self.guide is not None:
            self.cuts += zip(cut, end_at.tolist(), end_key.tolist(), strict=True)

    def _by_need(self, classes: U64, at: U64, keys: U64, keep: int) -> npt.NDArray[np.intp]:
        """Return the places of these messages in the order in which they are needed.

        First what each group's next turn takes, in the order of turns, and the soonest message of each group that has
        no turn; then what the turns after those take, and so on.
        """
        guide, groups = self.guide, classes >> np.uint64(RANK_BITS)
        coming = np.array(guide.coming(keep) if guide is not None else [], np.int64).reshape(-1, 2)
        late = at > np.uint64(max(guide.until_ms, 0)) if guide is not None else np.ones(len(at), np.bool_)
        order = np.lexsort((keys, at, np.where(late, 0, classes), late, groups))
        _, starts, counts = np.unique(groups, return_index=True, return_counts=True)
        nth = np.empty(len(classes), np.int64)
        nth[order] = np.arange(len(classes)) - np.repeat(starts, counts)
        turns, takes = np.full(len(classes), _NO_TURN, np.int64), np.ones(len(classes), np.int64)
        if len(coming):
            numbers, first = np.unique(coming[:, 0].astype(np.uint64), return_index=True)
            places = np.minimum(np.searchsorted(numbers, groups), len(numbers) - 1)
            has_turn = numbers[places] == groups
            turns[has_turn] = first[places[has_turn]]
            takes[has_turn] = coming[first[places[has_turn]], 1]
        return np.lexsort((keys, at, np.where(turns < _NO_TURN, nth, 0), turns, nth // takes))

    def forget(self, groups: Iterable[int]) -> None:
        for number in groups:
            first = number << RANK_BITS
            for of in list(self._limited.irange(first, first + (1 << RANK_BITS) - 1)):
                self._end(of, None)
                self._give_back([of])
