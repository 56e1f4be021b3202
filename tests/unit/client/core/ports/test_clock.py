"""Mesh time at a client."""

from __future__ import annotations

from dueq.client.core.ports.clock import MeshClock
from dueq.instant import Now

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


def measured(clock: MeshClock, mono_us: int, round_trip_us: int, mesh_us: int) -> Now:
    """Mesh time was measured; returns when the answer came."""
    now = Now(0, mono_us)
    clock.measured(Now(0, mono_us - round_trip_us), now, mesh_us, mesh_us, 0)
    return now


def test_of_two_measurements_as_old_the_quicker_one_holds() -> None:
    clock = MeshClock()
    measured(clock, 1_000_000, 200, 7_000_000)
    now = measured(clock, 1_000_100, 4_000, 9_000_000)
    assert clock.mesh_us(now) == 7_000_000 + 100 + 100


def test_clocks_drift_so_a_quick_measurement_gives_way_to_a_later_one() -> None:
    clock = MeshClock()
    measured(clock, 1_000_000, 200, 7_000_000)
    now = measured(clock, 11_000_000, 4_000, 17_004_000)
    assert clock.mesh_us(now) == 17_006_000


def test_what_was_measured_while_the_broker_s_clock_stepped_says_nothing() -> None:
    """Backwards it seems to have answered before it was asked, forwards before its answer can have come."""
    clock = MeshClock()
    clock.measured(SENT, CAME, 7_001_000, 7_000_999, 0)
    clock.measured(SENT, CAME, 7_000_000, 7_002_001, 0)
    assert clock.best is None
    clock.measured(SENT, CAME, 7_000_000, 7_002_000, 0)
    assert clock.best is not None


def test_what_was_measured_long_ago_gives_way_to_whatever_there_is() -> None:
    clock = MeshClock()
    measured(clock, 1_000_000, 0, 7_000_000)
    now = measured(clock, 121_000_000, 200_000, 90_000_000)
    assert clock.mesh_us(now) == 127_000_000
    now = measured(clock, 121_000_001, 200_000, 90_000_001)
    assert clock.mesh_us(now) == 90_100_001
