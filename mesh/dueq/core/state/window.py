"""The hot window: how far ahead every waiting entry that may be delivered is in memory.

Messages of a job that is open, or being withdrawn, may not be delivered for now, perhaps for hours after their
instant: as long as the home of the job is away. They do not count, so that what waits behind them comes into the
window; and when they are many, or only on disk, they are *left out*: memory may be without them. The window goes
back to the job's `until` when it is committed, and what was left out is read like anything else.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dueq.core.ports.entry import Entries, keys_of
from dueq.core.state.job_table import JobTable

Position = tuple[int, int]
"""(wait_at, key): the order of the index."""
Mask = npt.NDArray[np.bool_]


class HotWindow:
    """The position up to which (inclusive) every waiting entry is in memory that may be delivered.

    Attributes:
        end: that position; None: there is no end.
        count: waiting entries inside the window that may be delivered.
        left_out: numbers of jobs, none of them committed, of which entries inside the window may be only on disk.
    """

    def __init__(self, end: Position | None, jobs: JobTable) -> None:
        self.end = end
        self.count = 0
        self.left_out: set[int] = set()
        self._jobs = jobs

    @property
    def endless(self) -> bool:
        """Whether everything that waits is in memory."""
        return self.end is None and not self.left_out

    def mask(self, rows: Entries) -> Mask | None:
        """Return which rows lie inside, None for all of them."""
        if self.end is None:
            return None
        wait_at, key = self.end
        at = rows["wait_at"]
        inside: Mask = at < wait_at
        level = at == wait_at
        if np.count_nonzero(level):
            inside |= level & (keys_of(rows) <= key)
        return inside

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
        self.count += len(found)
        return found

    def leave(self, rows: Entries) -> None:
        """Count rows out that wait no more (as they were while they waited)."""
        mask = self.counted(rows)
        self.count -= len(rows) if mask is None else int(np.count_nonzero(mask))

    def shrink(self, waiting: Entries, keep: int) -> None:
        """End the window at the `keep`-th of all deliverable entries inside it."""
        at = waiting["wait_at"]
        wait_at = int(np.partition(at, keep - 1)[keep - 1])
        before = int(np.count_nonzero(at < wait_at))
        level = np.sort(keys_of(waiting[at == wait_at]))
        self.end = (wait_at, int(level[keep - 1 - before]))
        self.count = keep

    def go_back(self, wait_at: int) -> bool:
        """End the window before all that waits at an instant or later; returns whether it ended later."""
        end = (wait_at, 0)
        if self.end is not None and self.end <= end:
            return False
        self.end = end
        return True


def in_order(rows: Entries) -> Entries:
    """Return rows sorted by position."""
    if len(rows) < 2:
        return rows
    return rows.take(np.lexsort((rows["row"], rows["sequence"], rows["wait_at"])))


def _picked(rows: Entries, mask: Mask | None) -> Entries:
    if mask is None or np.count_nonzero(mask) == len(mask):
        return rows
    return rows.take(np.flatnonzero(mask))
