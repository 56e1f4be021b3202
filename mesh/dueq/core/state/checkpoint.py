"""From the rows that changed to one SaveCheckpoint."""

from __future__ import annotations

from typing import Final

import numpy as np

from dueq.core.ports.entry import State, keys_of
from dueq.core.ports.persistence import SaveCheckpoint
from dueq.core.state.entry_rows import Slots
from dueq.core.state.order import Order
from dueq.core.state.table import OnDisk, Table, places_of
from dueq.core.state.window import Window
from dueq_codecs.records import U8, U64

_ON_DISK: Final = np.array([OnDisk.NOTHING, OnDisk.WAITING, OnDisk.LEASED, OnDisk.DEAD], np.uint8)
"""By state: the kind of row that a checkpoint writes."""


def write_rows(save: SaveCheckpoint, table: Table, order: Order) -> Slots:
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
    undie = np.flatnonzero(
        (disk == OnDisk.DEAD) & ~((state == State.DEAD) & (places_of(rows) == old_wait_at))
    )
    save.undie = np.column_stack((old_wait_at[undie], keys[undie]))
    classes = order.classes(rows)
    if classes is not None:
        old_class = table.disk_class[slots]
        stays &= classes == old_class
    unwait = np.flatnonzero((disk == OnDisk.WAITING) & ~stays)
    save.unwait = np.column_stack((old_wait_at[unwait], keys[unwait], rows["first"][unwait]))
    save.unlease = keys[(disk == OnDisk.LEASED) & (state != State.LEASED)]
    table.disk[slots] = _ON_DISK[state]
    if classes is not None:
        save.put_of = _as_bytes(classes[alive], order.class_bytes)
        save.unwait_of = _as_bytes(old_class[unwait], order.class_bytes)
    table.note_place(slots, rows)
    table.unmark(slots)
    table.pins[slots] += 1
    return slots


def _as_bytes(classes: U64, width: int) -> U8:
    """Return classes as keys of the index begin: a row of `width` bytes each."""
    return classes.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - width :]


def low_water_of(table: Table, window: Window, stamp: int) -> int:
    """Return an instant below which nothing waits: not above the stamp (it may be tomorrow), nor above any
    waiting entry in memory, nor above the window's end, behind which all others are."""
    mark = stamp
    waiting = table.wait_at[table.slots_in(State.WAITING)]
    if len(waiting):
        mark = min(mark, int(waiting.min()))
    known_until_ms = window.known_until_ms
    if known_until_ms is not None:
        mark = min(mark, known_until_ms)
    return max(mark, 0)
