"""Time as an argument."""

from __future__ import annotations

from typing import NamedTuple


class Now(NamedTuple):
    """The instant of one step, read once by the shell (or made up by the simulator).

    Two clocks with two names: `wall_us` (Unix µs, UTC) for dates, `mono_us` (CLOCK_BOOTTIME, µs) for
    durations. Both are integers.
    """

    wall_us: int
    mono_us: int

    @property
    def wall_ms(self) -> int:
        """Unix ms, rounded down: never ahead of the clock."""
        return self.wall_us // 1000
