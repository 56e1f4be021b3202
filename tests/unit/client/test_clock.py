"""Mesh time at a client."""

from __future__ import annotations

from dueq.client.core.clock import MeshClock
from dueq.core.instant import Now

SENT = Now(1_000_000, 50_000)
CAME = Now(1_002_000, 52_000)


def test_the_broker_s_clock_and_the_mesh_s_offset_from_it_are_added_up() -> None:
    clock = MeshClock()
    clock.measured(SENT, CAME, 7_001_000, 7_001_000, -500)
    assert clock.mesh_us(CAME) == 7_001_500


def test_a_broker_that_does_not_know_the_time_yet_measures_nothing() -> None:
    """It has just started, with a clock that may be an hour off, and its answer may be the quickest of all."""
    clock = MeshClock()
    clock.measured(SENT, CAME, 0, 0, 0)
    assert clock.best is None
    assert clock.mesh_us(CAME) == CAME.wall_us
