"""The order of a fair topic: groups take turns; inside a group it is that of a priority topic.

A class is a rank of a group. The leader decides whose turn it is among the groups, and that is volatile
(`core/delivery/fair_queue.py`): here classes are only told apart.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from dueq.core.ports.entry import Entries, is_wide
from dueq.core.state.class_set import RANK_BITS
from dueq.core.state.fair_window import FairWindow
from dueq.core.state.job_table import JobTable
from dueq.core.state.priority import ranks_of
from dueq.core.state.window import Window
from dueq_codecs.records import U64


def group_classes(rows: Entries) -> U64:
    """Return the class of each entry: group << 16 | rank."""
    groups = rows["group"].astype(np.uint64) if is_wide(rows) else np.zeros(len(rows), np.uint64)
    found: U64 = groups << np.uint64(RANK_BITS) | ranks_of(rows).astype(np.uint64)
    return found


class FairOrder:
    """Groups take turns."""

    kind: Final = "fair"
    class_bytes: Final = 6
    has_ranks: Final = True
    has_groups: Final = True

    def classes(self, rows: Entries) -> U64:
        """Return the class of each row."""
        return group_classes(rows)

    def window(self, jobs: JobTable, low_water: int | None) -> Window:
        """Return a window that ends before everything that is on the disk."""
        return FairWindow(jobs, low_water, group_classes)
