"""`dueq`, under libfaketime.

libfaketime 0.9.10 answers EINVAL to clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME) while it leaves the monotonic
clock alone, and `time.sleep` of Python 3.11 makes that call. It does not touch `select`. Everything else is the
real thing: C libraries see the false clock too.
"""

from __future__ import annotations

import select
import time
from typing import SupportsIndex


def _sleep(seconds: float | SupportsIndex) -> None:
    wanted = seconds if isinstance(seconds, float) else float(seconds.__index__())
    until = time.monotonic() + wanted
    while (rest := until - time.monotonic()) > 0:
        select.select([], [], [], rest)


if __name__ == "__main__":
    time.sleep = _sleep
    from dueq.cli.main import main

    main()
