"""The hot window: how far ahead every waiting entry is in memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dueq.core.entry import Entries, keys_of

Position = tuple[int, int]
"""(wait_at, key): the order of the index."""


class HotWindow:
    """The position up to which (inclusive) every waiting entry is in memory.

    Attributes:
        end: that position; None: every waiting entry is in memory.
        count: waiting entries inside the window.
    """

    def __init__(self, end: Position | None) -> None:
        self.end = end
        self.count = 0

    def mask(self, rows: Entries) -> npt.NDArray[np.bool_] | None:
        """Return which rows lie inside, None for all of them."""
        if self.end is None:
            return None
        wait_at, key = self.end
        at = rows["wait_at"]
        inside: npt.NDArray[np.bool_] = at < wait_at
        level = at == wait_at
        if np.count_nonzero(level):
            inside |= level & (keys_of(rows) <= key)
        return inside

    def inside(self, rows: Entries) -> Entries:
        """Return the rows that lie inside."""
        mask = self.mask(rows)
        if mask is None or np.count_nonzero(mask) == len(mask):
            return rows
        return rows.take(np.flatnonzero(mask))

    def begin(self, rows: Entries) -> Entries:
        """Count rows that begin to wait; returns those inside."""
        inside = self.inside(rows)
        self.count += len(inside)
        return inside

    def leave(self, rows: Entries) -> None:
        """Count rows out that wait no more (as they were while they waited)."""
        mask = self.mask(rows)
        self.count -= len(rows) if mask is None else int(np.count_nonzero(mask))

    def shrink(self, waiting: Entries, keep: int) -> None:
        """End the window at the `keep`-th of all waiting entries inside it."""
        at = waiting["wait_at"]
        wait_at = int(np.partition(at, keep - 1)[keep - 1])
        before = int(np.count_nonzero(at < wait_at))
        level = np.sort(keys_of(waiting[at == wait_at]))
        self.end = (wait_at, int(level[keep - 1 - before]))
        self.count = keep


def in_order(rows: Entries) -> Entries:
    """Return rows sorted by position."""
    if len(rows) < 2:
        return rows
    return rows.take(np.lexsort((rows["row"], rows["sequence"], rows["wait_at"])))
