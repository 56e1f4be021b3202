"""Free space: the marks at which inserts are refused and leadership is handed over, and a reserve.

Acks, cancels and compactions need room too, so inserts stop long before the disk is full. The ballast is a file
that is given up if the disk fills up in spite of that, so that the store can be closed and opened again.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol, Self
from zlib import crc32

from dueq import limits
from dueq.storage.port import Pressure

_COMPACTION_BYTES = 16 << 20
_SMALLER_MAX = 0.4
LEVEL0_BUSY = 6
"""LevelDB slows writes down at 8 files and stops at 12: inserts are refused well before."""


class Buffers(NamedTuple):
    """LevelDB's write buffers, bytes: each may be on the disk twice (its log and its first table) for a while."""

    timeline: int
    payload: int

    @classmethod
    def on(cls, folder: Path) -> Self:
        """Choose them for the disk: a small one must not be filled by working room alone.

        Rows of timeline/ come in no order of their keys, and merging them is what most compaction is: the larger its
        buffer, the less often. Blocks of payload/ come nearly in order.
        """
        payload = max(min(shutil.disk_usage(folder).total // 64, 16 << 20), 1 << 20)
        return cls(2 * payload, payload)

    def of(self, broker_id: str) -> Self:
        """Make each a little smaller: replicas get the same rows, and would write full buffers down together."""
        share = 1 - _SMALLER_MAX * crc32(broker_id.encode()) / 2**32
        return type(self)(int(self.timeline * share), int(self.payload * share))


class Room(Protocol):
    """The space that a store may fill."""

    def pressure(self) -> Pressure:
        """Return how full it is."""
        ...


class Space:
    """The disk under a data folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ballast = _ballast(folder)
        # The bytes that a flush and a compaction write before they delete; a quarter of a small disk at most.
        room = 2 * sum(Buffers.on(folder)) + _COMPACTION_BYTES
        self._working_room = min(room, shutil.disk_usage(folder).total // 4)

    def make_ballast(self) -> None:
        """Make the reserve if there is none and enough room for one."""
        usage = shutil.disk_usage(self._folder)
        wanted = int(min(usage.total * limits.BALLAST_SHARE, limits.BALLAST_BYTES))
        is_empty = self._ballast.is_file() and not self._ballast.stat().st_size  # a crash has left it
        if (self._ballast.exists() and not is_empty) or usage.free - wanted < self.low_mark(usage.total):
            return
        try:
            with self._ballast.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, max(wanted, 1))
        except OSError:  # a quota, say, of which the disk tells nothing: there is no reserve, then
            self._ballast.unlink(missing_ok=True)

    def spare_bytes(self) -> int:
        """Return how much may be written before inserts are refused; less than nothing, if they are already."""
        usage = shutil.disk_usage(self._folder)
        return usage.free - self.low_mark(usage.total)

    def low_mark(self, total: int) -> int:
        """Free bytes below which inserts are refused: what acks, cancels and two flushes need stays."""
        mark = int(min(total * limits.DISK_LOW_SHARE, limits.DISK_LOW_BYTES))
        return max(mark, self.critical_mark(total) + self._working_room)

    def critical_mark(self, total: int) -> int:
        """Free bytes below which leadership is handed over."""
        return int(min(total * limits.DISK_CRITICAL_SHARE, limits.DISK_CRITICAL_BYTES))

    def pressure(self) -> Pressure:
        """Judge the marks."""
        usage = shutil.disk_usage(self._folder)
        if usage.free >= self.low_mark(usage.total):
            return Pressure("", False)
        return Pressure("disk_full", usage.free < self.critical_mark(usage.total))


def release_ballast(folder: Path) -> None:
    """Give the reserve of a data folder up, if that is possible: who does so has met a failure, and reports that."""
    with suppress(OSError):
        _ballast(folder).unlink(missing_ok=True)


def _ballast(folder: Path) -> Path:
    return folder / "ballast"


def judge(level0_files: int, room: Room | None) -> Pressure:
    """Return how the room and the compactions stand."""
    if room is not None:
        pressure = room.pressure()
        if pressure.inserts_refused:
            return pressure
    return Pressure("busy" if level0_files >= LEVEL0_BUSY else "", False)
