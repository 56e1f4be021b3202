"""Mesh time at a client."""

from __future__ import annotations

from dueq.client.core.clock import MeshClock
from dueq.core.instant import Now

SENT = Now(1_000_000, 50_000)
CAME = Now(1_002_000, 52_000)


def test_the_broker_s_clock_and_the_mesh_s_offset_from_it_are_added_up() -> None:
    clock = MeshClock()
    clock.measured("a", SENT, CAME, 7_001_000, 7_001_000, -500)
    assert clock.mesh_us(CAME) == 7_001_500


def test_a_broker_that_does_not_know_the_time_yet_measures_nothing() -> None:
    """It has just started, with a clock that may be an hour off, and its answer may be the quickest of all."""
    clock = MeshClock()
    clock.measured("a", SENT, CAME, 0, 0, 0)
    assert clock.best is None
    assert clock.mesh_us(CAME) == CAME.wall_us


def measured(clock: MeshClock, mono_us: int, round_trip_us: int, mesh_us: int, broker: str = "a") -> Now:
    """Mesh time was measured; returns when the answer came."""
    now = Now(0, mono_us)
    clock.measured(broker, Now(0, mono_us - round_trip_us), now, mesh_us, mesh_us, 0)
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


def test_what_the_clocks_may_have_drifted_is_taken_from_an_instant_of_the_past() -> None:
    clock = MeshClock()
    measured(clock, 1_000_000, 200, 7_000_000)
    for seconds, drift_us in ((0, 0), (2, 1_000), (10, 5_000)):
        now = Now(0, 1_000_000 + seconds * 1_000_000)
        assert clock.mono_us(6_999_000, "a", now, 0) == 1_000_000 - 1_000 - 100 - drift_us - 100


def test_an_instant_that_a_broker_has_stamped_is_taken_by_that_broker_s_clock() -> None:
    """It may be a better measurement that another one's, whose view of mesh time differs, has made."""
    clock = MeshClock()
    measured(clock, 1_000_000, 400, 7_004_000, "drifting")
    now = measured(clock, 1_000_000, 200, 7_000_000, "right")
    assert clock.mono_us(7_002_000, "drifting", now, 0) == 1_000_000 - 2_000 - 200 - 200
    assert clock.mono_us(6_998_000, "right", now, 0) == 1_000_000 - 2_000 - 100 - 100
    assert clock.mono_us(6_998_000, "never measured", now, 0) == clock.mono_us(6_998_000, "right", now, 0)


def test_before_the_first_measurement_an_instant_is_only_known_to_be_later_than_some_other() -> None:
    assert MeshClock().mono_us(7_000_000, "a", Now(0, 1_000_000), 400_000) == 400_000


def test_a_stamp_from_the_future_shows_that_the_broker_s_clock_was_set() -> None:
    clock = MeshClock()
    now = measured(clock, 1_000_000, 200, 7_000_000)
    assert clock.mono_us(7_000_000 + 3_600_000_000, "a", now, 400_000) == 400_000
