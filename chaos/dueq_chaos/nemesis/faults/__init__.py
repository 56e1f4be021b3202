"""Faults: each begins and ends; its end undoes it completely, and may come at any time after the beginning."""

from __future__ import annotations

from dueq_chaos.nemesis.faults.clock import SetClock
from dueq_chaos.nemesis.faults.disk import FillDisk
from dueq_chaos.nemesis.faults.fault import Fault
from dueq_chaos.nemesis.faults.network import (
    Cut,
    CutIn,
    CutOut,
    CutZooKeeper,
    Isolate,
    Lossy,
    Reset,
    Slow,
)
from dueq_chaos.nemesis.faults.processes import Kill, KillConsumer, Pause
from dueq_chaos.nemesis.faults.zookeeper import KillZooKeeper, PauseZooKeeper

FAULTS: dict[str, type[Fault]] = {
    fault.kind: fault
    for fault in (
        Kill, Pause, KillConsumer,
        Cut, CutOut, CutIn, Isolate, CutZooKeeper, Slow, Lossy, Reset,
        FillDisk, SetClock, KillZooKeeper, PauseZooKeeper,
    )
}  # fmt: skip
"""Every kind of fault by its name in a plan."""

__all__ = ["FAULTS", "Fault"]
