"""Mesh time as a dispatcher last measured it, so that all of one tick goes by one clock."""

from __future__ import annotations

import numpy as np

from dueq.core.delivery.leases import I64
from dueq.instant import Now
from dueq_codecs.records import U64


class TickClock:
    """How far mesh time is ahead of the monotonic clock; the wall clock before the first tick."""

    def __init__(self) -> None:
        self._mesh_minus_mono_us: int | None = None

    def tick(self, mesh_us: int, now: Now) -> None:
        """It is this late by mesh time."""
        self._mesh_minus_mono_us = mesh_us - now.mono_us

    def mesh_us(self, now: Now) -> int:
        """Return mesh time, µs."""
        ahead_us = self._mesh_minus_mono_us
        return now.wall_us if ahead_us is None else now.mono_us + ahead_us

    def mesh_ms(self, now: Now) -> int:
        """Return mesh time, ms."""
        return self.mesh_us(now) // 1000

    def mono_of(self, waits: U64, now: Now) -> I64:
        """Return the mono instant (µs) of each waiting instant by mesh time (ms), now at the earliest."""
        ahead_us = self.mesh_us(now) - now.mono_us
        return np.maximum(waits.astype(np.int64) * 1000 - ahead_us, now.mono_us)
