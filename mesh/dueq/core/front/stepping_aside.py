"""Handing over leaderships that this broker should not keep because its disk, clock or a payload has gone wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dueq import limits
from dueq.core.partition.partition import Partition
from dueq.core.ports.membership import CoordinatorState
from dueq.core.turn.context import Context
from dueq.core.turn.mesh_time import MeshTime
from dueq.instant import Now

_UNREADABLE_US: Final = 600_000_000
"""After a partition was handed over for a payload that cannot be read, it is not handed over again for this long."""


class SteppingAside:
    """Leads nothing where another member of the ISR had better lead; not while nobody could be elected."""

    def __init__(self, ctx: Context, clock: MeshTime, partitions: Mapping[int, Partition]) -> None:
        self._ctx = ctx
        self._clock = clock
        self._partitions = partitions
        self._disk_almost_full = False
        # Until when (mono µs) a partition is not handed over again for a payload that cannot be read.
        self._unreadable_until_us: dict[int, int] = {}

    def pressed(self, disk_almost_full: bool, now: Now) -> None:
        """The store says how much room the disk has left."""
        self._disk_almost_full = disk_almost_full
        self.tick(now)

    def tick(self, now: Now) -> None:
        """Hand over everything if the disk or the clock says so."""
        if self._ctx.coordinator is not CoordinatorState.CONNECTED:
            return
        if self._disk_almost_full and now.mono_us >= self._ctx.step_aside_until_us:
            self._step_aside(now, "the disk is almost full")
        if self._clock.excess(now):
            self._step_aside(now, self._clock.alarm(now))

    def _step_aside(self, now: Now, why: str) -> None:
        """Hand leadership over wherever another member of the ISR could take it."""
        self._ctx.step_aside_until_us = now.mono_us + limits.HANDOVER_MS * 1000
        self._ctx.log("error", "broker.stepped_aside", reason=why)
        for partition in self._partitions.values():
            partition.replica.hand_over(now, why)

    def payload_unreadable(self, partition: Partition, now: Now) -> None:
        """Let another replica deliver what this disk has lost: once in a while, as it may have lost it, too."""
        if now.mono_us < self._unreadable_until_us.get(partition.uid, 0):
            return
        if self._ctx.coordinator is not CoordinatorState.CONNECTED:
            return
        self._unreadable_until_us[partition.uid] = now.mono_us + _UNREADABLE_US
        aside_us = now.mono_us + limits.HANDOVER_MS * 1000
        self._ctx.step_aside_until_us = max(self._ctx.step_aside_until_us, aside_us)
        self._ctx.log("error", "payload.unreadable", uid=partition.uid)
        partition.replica.hand_over(now, "a payload cannot be read")

    def forget(self, uid: int) -> None:
        """A partition is gone."""
        self._unreadable_until_us.pop(uid, None)
