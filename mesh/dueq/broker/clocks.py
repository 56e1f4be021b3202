"""The two clocks of a broker, read in one place."""

from __future__ import annotations

import time
from collections.abc import Callable

from dueq.instant import Now

Clocks = Callable[[], Now]


def read_clocks() -> Now:
    """Read both clocks: wall for dates, boot time (which goes on while the machine sleeps) for durations."""
    return Now(time.time_ns() // 1000, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000)
