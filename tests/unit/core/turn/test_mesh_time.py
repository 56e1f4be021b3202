"""Mesh time: never ahead of the majority, held after a step, and when to hand over."""

from __future__ import annotations

from dueq import limits
from dueq.core.turn.mesh_time import ALONE_US, LONE_HOLD_US, MeshTime
from dueq.instant import Now

WALL_US = 1_700_000_000_000_000


def at(ms: int, step_ms: int = 0) -> Now:
    return Now(WALL_US + (ms + step_ms) * 1000, 9_000_000 + ms * 1000)


def settled() -> MeshTime:
    """The clock of a broker that was alone when it started."""
    clock = MeshTime()
    clock.registered([], at(-2000))
    clock.named([], at(-2000))
    clock.turn(at(-2000))
    clock.turn(at(-2000))
    assert clock.settled
    return clock


def measure(
    clock: MeshTime, peer: str, offset_ms: int, now: Now, trip_us: int = 200, there_us: int | None = None
) -> None:
    """The peer's clock is ahead by `offset_ms`; the frames took `trip_us` in all, `there_us` of it to the peer."""
    sent_us = now.wall_us - trip_us - 1000
    came_us = sent_us + (trip_us // 2 if there_us is None else there_us) + offset_ms * 1000
    clock.observe(peer, sent_us, came_us, came_us + 1000, now.wall_us, now)


def test_without_peers_mesh_time_is_the_own_clock() -> None:
    clock = MeshTime()
    assert clock.mesh_now_us(at(0)) == WALL_US


def test_a_clock_that_is_ahead_of_the_majority_is_set_back_and_half_a_round_trip_more() -> None:
    clock = MeshTime()
    for peer in ("b2", "b3"):
        measure(clock, peer, -40, at(0))
    clock.turn(at(0))
    assert clock.offset_us("b2") == -40_000
    assert clock.mesh_now_us(at(0)) == WALL_US - 40_000 - 100


def test_a_clock_that_is_proved_to_be_ahead_makes_nothing_early_however_slow_the_network_is() -> None:
    """Found by storm 70138: b2, an hour ahead, pushed early by what its own frame had taken to the others."""
    for there_us in (0, 20_000, 39_000, 40_000):
        clock = MeshTime()
        measure(clock, "b2", -3_600_000, at(0), trip_us=40_000, there_us=there_us)
        measure(clock, "b3", -3_600_000, at(0), trip_us=10_000, there_us=there_us // 4)
        mesh_us = clock.mesh_now_us(at(0))
        assert WALL_US - 3_600_000_000 - 40_000 <= mesh_us <= WALL_US - 3_600_000_000


def test_a_clock_that_is_right_is_not_set_back_however_slow_the_network_is() -> None:
    for there_us in (0, 20_000, 40_000):
        clock = MeshTime()
        for peer in ("b2", "b3"):
            measure(clock, peer, 0, at(0), trip_us=40_000, there_us=there_us)
        assert clock.mesh_now_us(at(0)) == WALL_US


def test_the_bounds_of_a_majority_count_and_not_those_of_the_clock_in_the_middle() -> None:
    """The middle one of three clocks may be the wrong one, and have the better measurement."""
    clock = MeshTime()
    measure(clock, "b2", -100, at(0), trip_us=60_000, there_us=60_000)
    measure(clock, "b3", -80, at(0), trip_us=200)
    assert clock.mesh_now_us(at(0)) <= WALL_US - 80_000
    measure(clock, "b3", -60, at(1), trip_us=100)
    assert clock.mesh_now_us(at(1)) <= at(1).wall_us - 60_000


def test_mesh_time_does_not_leap_to_a_clock_that_is_ahead_when_the_last_measured_peer_dies() -> None:
    """Found by the nemesis: a clock 20 s ahead, one peer restarting, the other one dying: pushes left early."""
    clock = MeshTime()
    measure(clock, "b2", -20_000, at(0))
    clock.turn(at(0))
    clock.forget("b2")
    assert clock.mesh_now_us(at(3)) == WALL_US + 3_000 - 20_000_000 - 100
    for second in range(1, 30):
        clock.turn(at(second * 1000))
    assert clock.mesh_now_us(at(30_000)) == WALL_US + 30_000_000


def test_a_wrong_clock_that_is_gone_does_not_help_another_one_to_outvote_the_right_one() -> None:
    """Found by storm 8010276: b2, 20 ms ahead, died; our own clock was set 200 ms ahead, and only b3 was right."""
    for wrong_ms in (20, 200, 400):
        clock = MeshTime()
        measure(clock, "b2", wrong_ms, at(0))
        measure(clock, "b3", 0, at(0))
        clock.turn(at(0))
        clock.forget("b2")
        measure(clock, "b3", -200, at(100, step_ms=200), trip_us=100)
        assert clock.mesh_now_us(at(100, step_ms=200)) == WALL_US + 100_000 - 50


def test_a_clock_that_is_behind_is_left_alone() -> None:
    clock = MeshTime()
    for peer in ("b2", "b3"):
        measure(clock, peer, 40, at(0))
    assert clock.mesh_now_us(at(0)) == WALL_US


def test_who_measures_a_broker_that_is_behind_is_told_how_late_it_is_in_the_mesh() -> None:
    """Else a client takes the delay of a push for the mesh's, and holds a message for longer than its lease."""
    clock = MeshTime()
    for peer in ("b2", "b3"):
        measure(clock, peer, 40, at(0))
    assert clock.offset_of_mesh_us(at(0)) == 40_000


def test_one_wrong_peer_of_two_changes_nothing() -> None:
    clock = MeshTime()
    measure(clock, "b2", -900, at(0))
    measure(clock, "b3", 1, at(0))
    assert clock.mesh_now_us(at(0)) == WALL_US


def test_of_two_clocks_the_one_behind_counts() -> None:
    clock = MeshTime()
    measure(clock, "b2", -40, at(0))
    assert clock.mesh_now_us(at(0)) == WALL_US - 40_000 - 100


def test_an_old_measurement_counts_no_longer_than_clocks_may_have_parted() -> None:
    clock = MeshTime()
    for ms in range(0, 6_001, 1_000):
        measure(clock, "b2", 0, at(ms), trip_us=3_000 if ms else 200)
        measure(clock, "b3", 0, at(ms), trip_us=3_000 if ms else 200)
    for peer in ("b2", "b3"):
        measure(clock, peer, -3, at(6_000), trip_us=1_000)
    assert clock.mesh_now_us(at(6_000)) == at(6_000).wall_us - 3_000 - 500


def test_the_shortest_round_trip_of_the_last_seconds_counts() -> None:
    clock = MeshTime()
    measure(clock, "b2", -40, at(0), trip_us=100)
    measure(clock, "b2", -55, at(1000), trip_us=30_000)
    clock.turn(at(1000))
    assert clock.offset_us("b2") == -40_000
    measure(clock, "b2", -41, at(70_000), trip_us=400)
    clock.turn(at(70_000))
    assert clock.offset_us("b2") == -41_000


def test_a_measurement_during_which_a_clock_was_set_counts_nothing() -> None:
    """One in which an answer leaves before its question came would even look like a very slow one."""
    sent_us, now = WALL_US - 10_000, at(0)
    for came_us, left_us in ((WALL_US, WALL_US - 1), (WALL_US, WALL_US + 10_001)):
        clock = MeshTime()
        clock.observe("b2", sent_us, came_us, left_us, now.wall_us, now)
        clock.turn(now)
        assert clock.offset_us("b2") is None


def test_who_has_had_nothing_from_here_yet_is_not_measured() -> None:
    """Its frame echoes no instant at all, and would be measured by half of all the time since 1970."""
    clock = MeshTime()
    clock.observe("b2", 0, 0, WALL_US - 10_000, WALL_US, at(0))
    clock.turn(at(0))
    assert clock.offset_us("b2") is None


def test_an_answer_that_takes_no_time_at_all_is_a_measurement() -> None:
    clock = MeshTime()
    clock.observe("b2", WALL_US, WALL_US + 7_000, WALL_US + 7_000, WALL_US, at(0))
    clock.turn(at(0))
    assert clock.offset_us("b2") == 7_000


def test_what_leaves_in_the_turn_in_which_a_step_is_seen_measures_the_clock_as_it_is_now() -> None:
    clock = settled()
    measure(clock, "b2", 0, at(0))
    stepped = at(10, step_ms=500)
    assert clock.turn(stepped)
    now = at(11, step_ms=500)
    clock.observe("b2", stepped.wall_us, at(10).wall_us, at(10).wall_us, now.wall_us, now)
    clock.turn(now)
    assert not clock.hold


def test_a_late_frame_of_a_broker_without_registration_does_not_register_it() -> None:
    """Majorities would need it for ever."""
    clock = MeshTime()
    measure(clock, "b2", -40, at(0))
    clock.forget("b2")
    measure(clock, "b2", -41, at(10), trip_us=100)
    clock.turn(at(10))
    assert clock.offset_us("b2") is None
    assert clock.mesh_now_us(at(10)) == at(10).wall_us - 41_000 - 50


def test_what_was_measured_of_a_broker_before_it_was_gone_ends_when_it_is_measured_again() -> None:
    """Its machine's clock may have been put right meanwhile. It must not be outvoted by what it was itself."""
    clock = MeshTime()
    for peer in ("b2", "b3"):
        measure(clock, peer, -20_000, at(0))
        clock.forget(peer)
    clock.registered(["b2"], at(10))
    assert clock.mesh_now_us(at(10)) == at(10).wall_us - 20_000_100
    measure(clock, "b2", 0, at(10))
    assert clock.mesh_now_us(at(10)) == at(10).wall_us


def test_the_last_measurement_of_a_registered_broker_stays_while_it_is_silent() -> None:
    """Found in review: cut off from the others, a clock that is ahead would be believed after ten seconds."""
    clock = MeshTime()
    measure(clock, "b2", -40, at(0))
    clock.turn(at(0))
    clock.turn(at(70_000))
    assert clock.offset_us("b2") == -40_000
    assert clock.mesh_now_us(at(70_000)) == WALL_US + 70_000_000 - 40_000 - 100
    clock.forget("b2")
    clock.turn(at(90_000))
    assert clock.mesh_now_us(at(90_000)) == WALL_US + 90_000_000


def started(registered: list[str], named: list[str]) -> MeshTime:
    clock = MeshTime()
    clock.turn(at(0))
    assert clock.hold
    clock.registered(registered, at(0))
    clock.named(named, at(0))
    return clock


def test_who_has_just_started_holds_until_a_majority_of_the_registered_brokers_is_measured() -> None:
    clock = started(["b2", "b3", "b4", "b5"], [])
    measure(clock, "b2", -7_200_000, at(100))
    clock.turn(at(100))
    assert clock.hold
    clock.turn(at(3_600_000))
    assert not clock.settled, "a broker that is registered and silent may be the one that is right"
    for peer in ("b4", "b5"):
        clock.forget(peer)
    clock.turn(at(3_600_100))
    assert clock.settled
    assert not clock.hold


def test_a_lone_broker_goes_on_as_soon_as_it_has_read_that_it_is_alone() -> None:
    clock = MeshTime()
    clock.turn(at(0))
    clock.named([], at(0))
    clock.turn(at(5))
    assert clock.hold, "the registrations have not been read"
    clock.registered([], at(10))
    clock.turn(at(10))
    assert not clock.hold


def test_brokers_that_topics_name_may_be_starting_too_and_are_waited_for_a_while() -> None:
    clock = started([], ["b2", "b3"])
    assert clock.next_deadline_us() == at(0).mono_us + ALONE_US
    clock.turn(at(ALONE_US // 1000 - 1))
    assert clock.hold
    clock.turn(at(ALONE_US // 1000))
    assert not clock.hold
    clock = started([], ["b2", "b3"])
    clock.registered(["b2"], at(300))
    clock.turn(at(300))
    assert clock.hold
    measure(clock, "b2", -7_200_000, at(400))
    clock.turn(at(400))
    assert not clock.hold


def test_a_broker_without_registration_has_no_offset_and_is_needed_for_no_majority() -> None:
    clock = settled()
    for peer in ("b2", "b3"):
        measure(clock, peer, -40, at(0))
    clock.turn(at(0))
    for peer in ("b2", "b3"):
        clock.forget(peer)
    assert clock.offset_us("b2") is None
    clock.turn(at(100, step_ms=500))
    assert clock.hold
    clock.turn(at(100 + LONE_HOLD_US // 1000, step_ms=500))
    assert not clock.hold


def test_slewing_the_own_clock_does_not_change_mesh_time() -> None:
    clock = settled()
    measure(clock, "b2", -40, at(0))
    assert clock.mesh_now_us(at(1000, step_ms=30)) == WALL_US + 1_000_000 - 40_000 - 100


def test_a_step_holds_until_a_majority_is_measured_anew() -> None:
    clock = settled()
    for peer in ("b2", "b3", "b4", "b5"):
        measure(clock, peer, 0, at(0))
    assert not clock.turn(at(0))
    assert not clock.turn(at(10, step_ms=50))
    assert clock.turn(at(20, step_ms=150))
    assert clock.hold
    assert clock.alarm(at(20, step_ms=150))
    measure(clock, "b2", -150, at(30, step_ms=150))
    clock.turn(at(30, step_ms=150))
    assert clock.hold
    measure(clock, "b3", -150, at(40, step_ms=150))
    clock.turn(at(40, step_ms=150))
    assert not clock.hold


def test_a_wall_clock_that_was_set_forward_does_not_set_mesh_time_meanwhile() -> None:
    """A record that is stamped before the mesh is measured anew would wait for the set clock's time."""
    clock = settled()
    for peer in ("b2", "b3"):
        measure(clock, peer, 0, at(0))
    clock.turn(at(0))
    clock.turn(at(10, step_ms=3_600_000))
    assert clock.hold
    assert clock.mesh_now_us(at(10, step_ms=3_600_000)) == at(10).wall_us - 100


def test_after_a_step_good_measurements_are_not_given_up_for_a_bad_one() -> None:
    """Found by storm 70138: what was measured before a clock was set is as right as ever, and was better."""
    clock = settled()
    for peer in ("b2", "b3"):
        measure(clock, peer, 0, at(0))
    clock.turn(at(0))
    clock.turn(at(10, step_ms=90))
    for peer in ("b2", "b3"):
        measure(clock, peer, -90, at(300, step_ms=90), trip_us=200_000, there_us=200_000)
    clock.turn(at(300, step_ms=90))
    assert not clock.hold
    assert clock.mesh_now_us(at(300, step_ms=90)) == at(300).wall_us - 100


def test_after_a_step_measurements_that_the_first_new_one_disproves_are_given_up() -> None:
    """The monotonic clock stood still with the machine: all that was measured against it is behind."""
    clock = settled()
    for peer in ("b2", "b3"):
        measure(clock, peer, 0, at(0))
    clock.turn(at(0))
    slept = at(10, step_ms=60_000)
    clock.turn(slept)
    assert clock.mesh_now_us(slept) == at(10).wall_us - 100
    awake = at(40, step_ms=60_000)
    for peer in ("b2", "b3"):
        measure(clock, peer, 0, awake, trip_us=5_000)
    clock.turn(awake)
    assert clock.mesh_now_us(awake) == awake.wall_us


def test_frames_from_before_a_step_measure_nothing() -> None:
    clock = settled()
    measure(clock, "b2", 0, at(0))
    clock.turn(at(0))
    clock.turn(at(10, step_ms=3_600_000))
    sent_us = at(5).wall_us
    clock.observe("b2", sent_us, sent_us + 100, sent_us + 200, at(20, 3_600_000).wall_us, at(20, 3_600_000))
    clock.turn(at(20, step_ms=3_600_000))
    assert clock.hold
    clock.turn(at(30))
    clock.observe("b2", at(25, 3_600_000).wall_us, at(26).wall_us, at(27).wall_us, at(40).wall_us, at(40))
    clock.turn(at(40))
    assert clock.hold


def test_a_lone_broker_holds_for_a_second() -> None:
    clock = settled()
    clock.turn(at(0))
    clock.turn(at(10, step_ms=-500))
    assert clock.hold
    assert clock.next_deadline_us() == at(10).mono_us + LONE_HOLD_US
    clock.turn(at(1009, step_ms=-500))
    assert clock.hold
    clock.turn(at(1010, step_ms=-500))
    assert not clock.hold
    assert clock.next_deadline_us() is None


def verdicts(clock: MeshTime, offsets_ms: dict[str, int], count: int, from_ms: int = 0) -> Now:
    now = at(from_ms)
    for turn in range(count):
        now = at(from_ms + turn * 1000)
        for peer, offset_ms in offsets_ms.items():
            measure(clock, peer, offset_ms, now)
        clock.turn(now)
    return now


def test_three_measurements_against_a_majority_convict_a_clock_and_once_a_minute() -> None:
    clock = settled()
    now = verdicts(clock, {"b2": -600, "b3": -610}, 2)
    assert not clock.excess(now)
    now = verdicts(clock, {"b2": -600, "b3": -610}, 1, 2000)
    assert "600 ms" in clock.alarm(now)
    assert clock.excess(now)
    assert not clock.excess(now)
    later = verdicts(clock, {"b2": -600, "b3": -610}, 1, 2000 + limits.HANDOVER_MS)
    assert clock.excess(later)
    assert clock.within("b2", later)


def test_measurements_of_one_second_are_one_verdict_and_none_counts_twice() -> None:
    """Else a single moment, or a single measurement, would take the leaderships from a broker."""
    clock = settled()
    for ms in (0, 100, 200, 300):
        for peer in ("b2", "b3"):
            measure(clock, peer, -600, at(ms))
        clock.turn(at(ms))
    assert not clock.excess(at(300))
    for ms in range(1_000, 9_000, 1_000):
        clock.turn(at(ms))
    assert not clock.excess(at(9_000))


def test_the_clock_in_the_middle_and_the_one_of_two_stay() -> None:
    middle = settled()
    now = verdicts(middle, {"b2": -600, "b3": 600}, 5)
    assert not middle.excess(now)
    assert middle.alarm(now)
    assert not middle.within("b2", now)
    one_of_two = settled()
    now = verdicts(one_of_two, {"b2": -600}, 5)
    assert not one_of_two.excess(now)
    assert one_of_two.alarm(now)


def test_a_clock_that_has_come_back_is_acquitted() -> None:
    clock = settled()
    verdicts(clock, {"b2": -600, "b3": -610}, 3)
    now = verdicts(clock, {"b2": 0, "b3": 1}, 1, 90_000)
    assert not clock.excess(now)
    assert clock.alarm(now) == ""


def test_a_clock_is_not_convicted_of_what_slow_answers_may_have_made() -> None:
    clock = settled()
    for turn in range(5):
        now = at(turn * 1000)
        for peer in ("b2", "b3"):
            measure(clock, peer, 0, now, trip_us=700_000, there_us=500)
        clock.turn(now)
    assert clock.offset_us("b2") == -349_500
    assert not clock.excess(now)
    assert clock.alarm(now) == ""


def test_a_clock_is_convicted_of_what_no_slow_answer_can_have_made() -> None:
    clock = settled()
    for turn in range(3):
        now = at(turn * 1000)
        for peer in ("b2", "b3"):
            measure(clock, peer, -251, now, trip_us=700_000, there_us=0)
        clock.turn(now)
    assert clock.excess(now)


def test_a_majority_acquits_a_clock_though_others_are_out_of_reach() -> None:
    """What was measured of those before still stands, and would have the broker hand over once more."""
    clock = settled()
    verdicts(clock, {"b2": -600, "b3": -610}, 3)
    now = verdicts(clock, {"b2": 0}, 1, 3_000)
    assert not clock.excess(now)
