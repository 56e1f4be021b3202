"""Bulk inserts yield to deliveries that are due.

While this broker delivers, it measures the time from the instant at which the turn of a push should have begun until
the push leaves. This is the cost of a busy processor and of long turns, and of nothing else that a message may have
waited for. If too many pushes are late, inserts that are due much later are slowed until few are late, and then
admitted faster again. A load that begins beside many deliveries begins slowly: otherwise it would spoil seconds until
its pace is found. Increase and decrease are both by a factor, over windows, as a broker has one controller, which
shares with nobody. The decrease is the larger one, as in TCP's congestion control (Jacobson, Karels: Congestion
Avoidance and Control, 1988).
"""

from __future__ import annotations

import math
from typing import Final

LATE_US: Final = 2_000
"""A push that leaves later than this after its turn should have begun is late."""
WINDOW_US: Final = 50_000
WINDOW_PUSHES: Final = 16
"""A window ends when it is long enough and has so many pushes, or after `WINDOW_MAX_US`."""
WINDOW_MAX_US: Final = 500_000
LATE_SHARE: Final = 0.04
"""More late pushes than this in a window are too many; of half as many, or fewer, the pace is made faster."""
SLOWER: Final = 0.6
FASTER: Final = 1.05
FASTER_AT_FIRST: Final = 1.5
"""Until there are too many late pushes for the first time."""
ROWS_PER_S_MIN: Final = 1_000
ROWS_PER_S_AT_FIRST: Final = 4_000
ROWS_PER_S_MAX: Final = 400_000
"""At this pace and beyond there is no limit."""
IDLE_US: Final = 1_000_000
"""After this long without a push nobody needs room; after this long without an insert a load begins anew."""
AHEAD_S: Final = 0.05
"""Share of a second's rows that may be taken at once."""


class Pace:
    """Limits the admission of rows that are due much later.

    Attributes:
        rows_per_s: the limit; None: as fast as it goes.
    """

    def __init__(self) -> None:
        self.rows_per_s: float | None = None
        self._rows = 0.0
        self._refilled_us = 0
        self._pushed_us = -IDLE_US
        self._began_us = 0
        self._pushes = self._late = 0
        self._taken = 0
        self._taken_us = -IDLE_US
        # Whether the last window was full, and whether the present load has not made too many pushes late yet.
        self._delivers = self._begins = False

    def pushed(self, late_us: int, mono_us: int) -> None:
        """A turn has pushed.

        Args:
            late_us: from the instant at which the turn should have begun to its end.
            mono_us: its end.
        """
        if mono_us - self._pushed_us >= IDLE_US:
            self._begin(mono_us)
        self._pushed_us = mono_us
        self._pushes += 1
        self._late += late_us > LATE_US
        elapsed_us = mono_us - self._began_us
        if elapsed_us >= WINDOW_MAX_US or (elapsed_us >= WINDOW_US and self._pushes >= WINDOW_PUSHES):
            self._delivers = self._pushes >= WINDOW_PUSHES
            self._judge(elapsed_us, mono_us)

    def _begin(self, mono_us: int) -> None:
        self._began_us = mono_us
        self._pushes = self._late = self._taken = 0

    def _judge(self, elapsed_us: int, mono_us: int) -> None:
        share = self._late / self._pushes
        if share > LATE_SHARE:
            if self._taken:  # else it is not these inserts that make pushes late
                self._begins = False
                taken_per_s = self._taken * 1e6 / elapsed_us
                limit = taken_per_s if self.rows_per_s is None else min(self.rows_per_s, taken_per_s)
                self.rows_per_s = max(ROWS_PER_S_MIN, SLOWER * limit)
        elif self.rows_per_s is not None and share <= LATE_SHARE / 2:
            faster = (FASTER_AT_FIRST if self._begins else FASTER) * self.rows_per_s
            self.rows_per_s = faster if faster < ROWS_PER_S_MAX else None
        self._begin(mono_us)

    def wait_us(self, mono_us: int) -> int:
        """Return how long no more may be taken; 0: now."""
        if mono_us - self._pushed_us >= IDLE_US:
            self.rows_per_s = None
            self._rows = 0.0
        elif self._delivers and mono_us - self._taken_us >= IDLE_US:
            self.rows_per_s = min(self.rows_per_s or math.inf, ROWS_PER_S_AT_FIRST)
            self._begins = True
        if self.rows_per_s is None:
            return 0
        earned = (mono_us - self._refilled_us) * self.rows_per_s / 1e6
        self._refilled_us = mono_us
        self._rows = min(self._rows + earned, AHEAD_S * self.rows_per_s)
        return 0 if self._rows >= 0 else int(-self._rows * 1e6 / self.rows_per_s) + 1

    def rows_within(self, seconds: float) -> float:
        """Return how many rows it lets in during that time; infinity where there is no limit."""
        return math.inf if self.rows_per_s is None else self.rows_per_s * seconds

    def took(self, rows: int, mono_us: int) -> None:
        """Note how many rows were taken."""
        self._taken += rows
        self._taken_us = mono_us
        if self.rows_per_s is not None:
            self._rows -= rows
