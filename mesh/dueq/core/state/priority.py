"""The order of a priority topic: the smallest rank first, and the soonest of a rank. A rank is a class."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from dueq.core.ports.entry import Entries, is_wide
from dueq.core.state.classed_window import ClassedWindow
from dueq.core.state.job_table import JobTable
from dueq.core.state.window import Window
from dueq_codecs.records import U64

Ranks = npt.NDArray[np.intp]


def ranks_of(rows: Entries) -> Ranks:
    """Return the rank of each entry; 0 where none was given."""
    return rows["rank"].astype(np.intp) if is_wide(rows) else np.zeros(len(rows), np.intp)


class PriorityOrder:
    """The smallest rank first."""

    kind: Final = "priority"
    class_bytes: Final = 2
    has_ranks: Final = True
    has_groups: Final = False

    def classes(self, rows: Entries) -> U64:
        """Return the rank of each row."""
        return ranks_of(rows).astype(np.uint64)

    def window(self, jobs: JobTable, low_water: int | None) -> Window:
        """Return a window that ends before everything that is on the disk."""
        return ClassedWindow(jobs, low_water, self.classes)
