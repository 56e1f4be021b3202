"""Mesh time as a client knows it.

Each Hello and its reply carry four timestamps; the sample with the shortest round trip is the best, because
its error is at most half of that round trip (RFC 5905, section 8). Samples are kept against the monotonic
clock, so a step of the client's own wall clock changes nothing once one sample is there.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from dueq.core.instant import Now

SAMPLES_MAX = 32
SAMPLE_AGE_US = 120_000_000


class Sample(NamedTuple):
    """One measurement: mesh time minus this machine's monotonic clock, and the round trip it cost."""

    taken_us: int
    round_trip_us: int
    mesh_minus_mono_us: int


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
        broker_us = (received_us + replied_us) // 2
        self._samples.append(Sample(now.mono_us, round_trip_us, broker_us + mesh_offset_us - middle_us))
        fresh = [s for s in self._samples if now.mono_us - s.taken_us <= SAMPLE_AGE_US]
        self.best = min(fresh, key=lambda sample: sample.round_trip_us)

    def mesh_us(self, now: Now) -> int:
        """Mesh time now, Unix µs; the own wall clock before the first measurement."""
        best = self.best
        return now.wall_us if best is None else now.mono_us + best.mesh_minus_mono_us

    def mono_us(self, mesh_us: int, now: Now) -> int:
        """The monotonic instant of a past instant of mesh time: by the error bound too early, never in the future."""
        best = self.best
        if best is None:
            return now.mono_us
        return min(now.mono_us, mesh_us - best.mesh_minus_mono_us - best.round_trip_us // 2)
