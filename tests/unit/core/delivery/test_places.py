"""Dispatch's memory of a led partition is bounded by what waits there, not by what was ever done to it."""

from __future__ import annotations

from dueq.core.delivery.due_queue import SPARE_PLACES
from dueq.core.delivery.lane import Lane
from dueq_codecs.records import JobAction, Outcome, RecordKind
from tests.unit.core.delivery.test_job_dispatch import UNTIL_MS, decide, load
from tests.unit.core.led import START_MS, Stage, at, keys_in
from tests.unit.core.state.test_fair_window import Turns

DAY_MS = 24 * 3600 * 1000


def lane_of(stage: Stage) -> Lane:
    return stage.dispatcher._lanes[1]


def test_a_message_that_is_moved_without_end_has_a_bounded_number_of_places() -> None:
    stage = Stage()
    [key] = stage.insert([DAY_MS])
    for ms in range(2 * SPARE_PLACES):
        stage.leds[1].change(RecordKind.MOVE, [key], at(ms), due=[START_MS + DAY_MS + ms])
        stage.commit(ms)
    assert len(lane_of(stage).queue) <= SPARE_PLACES + 2


def test_time_outs_that_are_cancelled_leave_no_places_until_their_instants() -> None:
    stage = Stage()
    kept = stage.insert([20, DAY_MS])
    for ms in range(10):
        keys = stage.insert([DAY_MS + ms] * 1000, ms)
        stage.leds[1].change(RecordKind.CANCEL, keys, at(ms))
        stage.commit(ms)
        assert len(lane_of(stage).queue) <= 2 * len(kept) + SPARE_PLACES
    stage.attach(10)
    assert [keys_in(push) for push in stage.run(20)] == [kept[:1]]
    assert [keys_in(push) for push in stage.run(DAY_MS)] == []  # nobody said anything for a day
    stage.attach(DAY_MS, attach=2, held=None)
    assert [keys_in(push) for push in stage.run(DAY_MS)][-1][-1] == kept[1]


def test_a_queue_made_anew_gives_nothing_out_twice_that_is_being_leased() -> None:
    stage = Stage()
    stage.attach(0, credit=4)
    wanted = stage.insert([10] * 6)
    stage.tick(0)  # four of them are proposed
    keys = stage.insert([DAY_MS] * 2000, uid=1)
    stage.leds[1].change(RecordKind.CANCEL, keys, at(1))
    stage.commit(1)
    first = [key for push in stage.run(10) for key in keys_in(push)]
    assert len(first) == 4
    stage.beat(11, credit=10, number=2)
    rest = [key for push in stage.run(11) for key in keys_in(push)]
    assert sorted(first + rest) == wanted


def test_a_lease_whose_message_was_moved_away_before_its_grant_leaves_nothing_behind() -> None:
    stage = Stage()
    stage.attach(0)
    [key] = stage.insert([10])
    stage.leds[1].change(RecordKind.MOVE, [key], at(1), due=[START_MS + DAY_MS])
    stage.tick(1)  # leased as it was before the move
    stage.commit(1)
    assert stage.run(10) == []
    lane = lane_of(stage)
    assert len(lane.leases) == 0
    assert lane.next_push_ms > START_MS + 10 * DAY_MS


def test_messages_that_wait_for_a_late_decision_have_no_places() -> None:
    stage = Stage()
    stage.attach(0)
    [key] = load(stage, 10)
    for ms in range(UNTIL_MS, UNTIL_MS + 50):
        stage.leds[1].change(RecordKind.MOVE, [key], at(ms), due=[START_MS + 10])
        stage.commit(ms)
        stage.tick(ms)
    lane = lane_of(stage)
    assert len(lane.queue) == 0
    assert decide(stage, JobAction.ABORT, 3_000) == Outcome.DONE
    assert len(lane.queue) == 0


def test_what_the_window_lets_go_leaves_its_places() -> None:
    stage = Stage()
    stage.insert([DAY_MS + ms for ms in range(3 * SPARE_PLACES)])
    timeline = stage.leds[1].timeline
    timeline.hot_rows_max = 2
    saved = timeline.checkpoint()
    assert saved is not None
    timeline.checkpoint_saved(saved.applied)
    assert timeline.hot_count < SPARE_PLACES
    stage.dispatcher.window_kept(1)
    assert len(lane_of(stage).queue) <= 2 * timeline.hot_count + SPARE_PLACES


def test_who_knows_whose_turn_it_is_hears_after_each_turn_what_the_window_has_let_go() -> None:
    """Else places of messages that are not in memory would count as if they were."""
    stage, guide = Stage(), Turns()
    timeline = stage.leds[1].timeline
    timeline.led_by(guide)
    timeline._window.cuts.append((1 << 16, START_MS, 5))
    stage.dispatcher.window_kept(1)
    assert (guide.told, timeline._window.cuts) == ([(1 << 16, START_MS, 5)], [])


def test_a_window_follows_the_order_of_turns_as_long_as_it_is_led_here() -> None:
    """Without it, groups whose turn it is are not read. Kept, it holds all places of a leadership."""
    stage = Stage(kind="fair")
    timeline = stage.leds[1].timeline
    assert timeline._window.guide is lane_of(stage).queue.guide
    assert timeline._window.guide is not None
    stage.dispatcher.unlead(1, at(10))
    assert timeline._window.guide is None
