"""Mesh time as a client knows it.

Each Hello and its reply carry four timestamps. The error of a sample is at most half of its round trip,
plus the drift of the clocks since then (RFC 5905, sections 8 and 11.2). The best sample has the smallest
possible error. Samples are kept against the monotonic clock, so a step of the client's own wall clock
changes nothing once one sample is there.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from dueq import limits
from dueq.instant import Now

SAMPLES_MAX = 64
SAMPLE_AGE_US = 120_000_000
MESH_US_MAX = 4_102_444_800_000_000
"""What no clock shows: the year 2100."""


class Sample(NamedTuple):
    """One measurement: mesh time minus this machine's monotonic clock."""

    taken_us: int
    round_trip_us: int
    mesh_minus_mono_us: int

    def error_us(self, now: Now) -> int:
        """The largest error it may have by now."""
        return self.round_trip_us // 2 + (now.mono_us - self.taken_us) * limits.CLOCK_DRIFT_PPM // 1_000_000


class MeshClock:
    """The best known difference between mesh time and the monotonic clock."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self.best: Sample | None = None

    def measured(self, sent: Now, now: Now, received_us: int, replied_us: int, mesh_offset_us: int) -> None:
        """Take in one exchange: `sent` and `now` by our clocks, the other two by the broker's wall clock.

        Both are 0 when the broker does not know yet how wrong its clock is.
        """
        if not replied_us:
            return
        round_trip_us = (now.mono_us - sent.mono_us) - (replied_us - received_us)
        if round_trip_us < 0 or replied_us < received_us:
            return  # the broker's wall clock stepped between the two
        middle_us = (sent.mono_us + now.mono_us) // 2
        mesh_us = (received_us + replied_us) // 2 + mesh_offset_us
        if not 0 <= mesh_us <= MESH_US_MAX:
            return
        self._samples.append(Sample(now.mono_us, round_trip_us, mesh_us - middle_us))
        fresh = [sample for sample in self._samples if now.mono_us - sample.taken_us <= SAMPLE_AGE_US]
        self.best = min(fresh, key=lambda sample: sample.error_us(now))

    def mesh_us(self, now: Now) -> int:
        """Mesh time now, Unix µs; the own wall clock before the first measurement."""
        best = self.best
        return now.wall_us if best is None else now.mono_us + best.mesh_minus_mono_us
