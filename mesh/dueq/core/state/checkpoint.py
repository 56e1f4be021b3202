"""From the rows that changed to one SaveCheckpoint."""

from __future__ import annotations

import numpy as np

from dueq.core.ports.entry import State, keys_of
from dueq.core.ports.persistence import SaveCheckpoint
from dueq.core.state.table import OnDisk, Slots, Table
from dueq.core.state.window import HotWindow


def write_rows(save: SaveCheckpoint, table: Table) -> Slots:
    """Put every dirty row into `save`, and count it as being on disk; returns their slots.

    The rows are pinned until the checkpoint is durable.
    """
    slots = np.flatnonzero(table.dirty)
    rows = table.take(slots)
    disk = table.disk[slots]
    state = rows["state"]
    keys = keys_of(rows)
    alive = state != State.ABSENT
    save.put = rows if alive.all() else rows.take(np.flatnonzero(alive))
    old_wait_at = table.disk_wait_at[slots]
    stays = (state == State.WAITING) & (rows["wait_at"] == old_wait_at)
    unwait = np.flatnonzero((disk == OnDisk.WAITING) & ~stays)
    save.unwait = np.column_stack((old_wait_at[unwait], keys[unwait], rows["first"][unwait]))
    save.unlease = keys[(disk == OnDisk.LEASED) & (state != State.LEASED)]
    table.disk[slots] = np.where(
        alive, np.where(state == State.LEASED, OnDisk.LEASED, OnDisk.WAITING), OnDisk.NOTHING
    )
    table.disk_wait_at[slots] = rows["wait_at"]
    table.unmark(slots)
    table.pins[slots] += 1
    return slots


def low_water_of(table: Table, window: HotWindow, stamp: int) -> int:
    """Return an instant below which nothing waits: not above the stamp (it may be tomorrow), nor above any
    waiting entry in memory, nor above the window's end, behind which all others are."""
    mark = stamp
    waiting = table.wait_at[table.slots_in(State.WAITING)]
    if len(waiting):
        mark = min(mark, int(waiting.min()))
    if window.end is not None:
        mark = min(mark, window.end[0])
    return max(mark, 0)
