"""Limits made small: an event that takes a week or a gigabyte in life happens within a storm.

A limit is a name of `dueq.limits`; modules have copies of some under the same name, and values that follow from them.
All of these change for as long as a storm lasts, and keep the relations that are asserted where they are made.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from random import Random
from types import ModuleType
from typing import Any, Final

from dueq import limits
from dueq.client.core.changing import request_windows
from dueq.core.state import dedup

SMALL: Final[tuple[Mapping[str, int], ...]] = (
    {"DEDUP_MS": 120_000},
    {"DEDUP_BYTES_MAX": 48 << 10},
    {"DEDUP_WINDOW": 8, "REQUESTS_IN_FLIGHT_MAX": 4},
    {
        "JOB_HIDDEN_MS_MAX": 20_000, "JOB_MEMORY_MS": 60_000, "JOB_ANSWERED_MS": 50_000,
        "JOB_LOOK_AGAIN_MS": 10_000,
    },
    {"JOBS_MAX": 6},
    {"MISSED_AFTER_MS": 3_000, "FIRE_AHEAD_MS": 2_000},
    {"RECURRENCES_MAX": 3},
    {"FIRED_AHEAD_MAX": 3, "FIRE_AHEAD_MS": 2_000},
    {"UPLOAD_IDLE_MS": 20_000},
    {"SNAPSHOT_IDLE_MS": 3_000},
    {"LOG_CACHE_BYTES": 8 << 10, "LOG_CACHE_TOTAL_BYTES": 32 << 10},
    {"UNAPPLIED_BYTES_MAX": 64 << 10},
    {"APPEND_WINDOW_RECORDS": 64, "APPEND_RECORDS": 64},
    {"HOT_SCAN_ROWS": 8},
    {"CHECKPOINT_ROWS": 16, "CHECKPOINT_ROWS_MAX": 32},
    {"CHECKPOINT_MS": 300},
    {"PARTITION_LEASES_MAX": 1_024},
    {"LOOK_AHEAD_BYTES_MAX": 600 << 10},
    {"REQUEST_ROWS_MAX": 12, "RECORD_ROWS_MAX": 24, "GATEWAY_ITEMS_MAX": 12},
    {"SPARE_PLACES": 16},
)  # fmt: skip
"""The limits that may be made small, and how small; related ones together."""
_PACKAGES: Final = ("dueq", "dueq_codecs", "dueq_chaos")


def draw(random: Random) -> tuple[tuple[str, int], ...]:
    """Choose limits to be made small."""
    share = random.choice([0.15, 0.5, 0.9])
    return tuple(pair for group in SMALL if random.random() < share for pair in group.items())


@contextmanager
def scaled(values: tuple[tuple[str, int], ...]) -> Iterator[None]:
    """Have these limits everywhere, as long as this lasts."""
    old: list[tuple[ModuleType, str, Any]] = []

    def change(module: ModuleType, name: str, value: Any) -> None:
        old.append((module, name, getattr(module, name)))
        setattr(module, name, value)

    try:
        for module in _modules() if values else ():
            for name, value in values:
                if name in vars(module):
                    change(module, name, value)
        if values:
            change(
                dedup, "DEDUP_LIMITS", dedup.DedupLimits(*_of("DEDUP_WINDOW", "DEDUP_MS", "DEDUP_BYTES_MAX"))
            )
            of_jobs = _of("JOB_DEDUP_WINDOW", "JOB_MEMORY_MS", "JOB_DEDUP_BYTES_MAX")
            change(dedup, "JOB_DEDUP_LIMITS", dedup.DedupLimits(*of_jobs))
            change(request_windows, "REPEAT_US", limits.DEDUP_MS * 1000 - 60_000_000)
        yield
    finally:
        for module, name, value in reversed(old):
            setattr(module, name, value)


def _of(*names: str) -> list[int]:
    return [getattr(limits, name) for name in names]


def _modules() -> list[ModuleType]:
    return [
        module
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in _PACKAGES and name != __name__
    ]
