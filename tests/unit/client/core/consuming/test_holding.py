"""How long a lease lasts, as the one who holds it counts."""

from __future__ import annotations

from dueq.client.core.ports import events
from dueq.client.core.ports.effects import LeaseLost, Reclaim
from dueq_codecs.messages import (
    ChangeReply,
    ChangeRequest,
    Code,
    ConsumerAction,
    ConsumerFrame,
    ConsumerReply,
)
from dueq_codecs.records import Outcome, RecordKind
from tests.unit.client.stage import (
    CONSUMER,
    TOPIC,
    WALL,
    Stage,
    attached,
    confirm,
    confirm_all,
    delivered,
    of,
    ok,
    sent,
    settle,
)


def test_what_is_not_handed_out_is_reclaimed_before_the_lease_ends_and_the_rest_is_lost_at_its_end() -> None:
    stage = Stage()
    attached(stage, lease_ms=4_000)
    handed, waiting = delivered(stage, "a", b"x", b"y", left_ms=4_000)
    handed.handed = True
    effects = stage.run_until(3_100)
    [reclaim] = of(effects, Reclaim)
    assert reclaim.deliveries == [waiting]
    waiting.handed = True
    stage.step(events.Settle(CONSUMER, RecordKind.RELEASE, [waiting]))
    effects = stage.run_until(4_050)
    [request] = sent(effects, ChangeRequest)
    assert (request.kind, request.target_row.tolist()) == (RecordKind.RELEASE, [1])
    assert [(lost.deliveries, lost.returning) for lost in of(effects, LeaseLost)] == [([handed], False)]


def test_a_lease_that_ends_before_those_that_came_earlier_is_looked_at_in_time() -> None:
    stage = Stage()
    attached(stage, lease_ms=4_000)
    delivered(stage, "a", b"x", left_ms=4_000)
    stage.run_until(600)
    [short] = delivered(stage, "a", b"y", number=2, sequence=51, left_ms=1_200)
    [reclaim] = of(stage.run_until(900), Reclaim)
    assert reclaim.deliveries == [short]


def test_what_becomes_of_an_older_lease_of_a_message_says_nothing_of_the_newer_one() -> None:
    """It was released, and came again before the answer: the answer must not take the newer one away."""
    stage = Stage()
    attached(stage, lease_ms=4_000)
    [older] = delivered(stage, "a", b"x", token=60, left_ms=4_000)
    older.handed = True
    [request] = settle(stage, RecordKind.RELEASE, older)
    [newer] = delivered(stage, "a", b"x", number=2, token=70, left_ms=4_000)
    newer.handed = True
    stage.receive("a", ok(request, 99, outcomes=[Outcome.DONE]))
    lost = of(confirm_all(stage, 5_000), LeaseLost)
    assert [deliveries for each in lost for deliveries in each.deliveries if deliveries is newer] == [newer]


def test_an_extended_lease_is_counted_from_the_decision() -> None:
    stage = Stage()
    attached(stage, lease_ms=1_000)
    [delivery] = delivered(stage, "a", b"x", left_ms=1_000)
    delivery.handed = True
    decided = stage.ms
    [request] = settle(stage, RecordKind.EXTEND, delivery, amount_ms=9_000)
    stage.receive("a", ok(request, 99, outcomes=[0]))
    assert delivery.deadline_us == stage.at_us(decided + 9_000)
    beats = confirm_all(stage, 8_900)
    assert not of(beats, LeaseLost)
    assert of(stage.run_until(9_050), LeaseLost)


UP_US = 77_000_000_000
"""What a leader's monotonic clock shows when ours shows nothing."""


def left_after(stage: Stage, released_ms: float, *, life: int = 5, attach: int = 1, number: int = 1) -> float:
    """A push of a lease of ten seconds comes now; returns how much of it is left, ms."""
    [delivery] = delivered(
        stage, "a", b"x", attach=attach, number=number, token=60 + number, left_ms=10_000,
        released_us=WALL + 3_600_000_000, life=life, mono_us=UP_US + int(released_ms * 1000),
    )  # fmt: skip
    return (delivery.deadline_us - stage.at_us(stage.ms)) / 1000


def heard(stage: Stage, frame: ConsumerFrame, life: int = 5) -> None:
    """The leader answers at once."""
    stage.receive("a", confirm(frame, life=life, mono_us=UP_US + int(stage.ms * 1000)))


def test_a_lease_counts_from_its_release_by_the_leader_s_monotonic_clock() -> None:
    """The push was under way for 300 ms; the leader's wall clock is an hour ahead."""
    stage = Stage()
    frames = attached(stage)
    heard(stage, frames["a"])
    stage.step(ms=1_300)
    drift_ms = 0.5
    assert left_after(stage, 1_000) == 10_000 - 300 - drift_ms


def test_an_answer_that_was_long_on_its_way_does_not_make_a_lease_longer() -> None:
    stage = Stage()
    [frame] = attached(stage).values()
    stage.step(ms=400)
    stage.receive("a", confirm(frame, life=5, mono_us=UP_US + 100_000))
    assert left_after(stage, 350) <= 10_000 - 50


def test_the_quickest_of_all_answers_counts_until_clocks_may_have_drifted_more() -> None:
    stage = Stage()
    [frame] = attached(stage).values()
    heard(stage, frame)
    [beat] = sent(stage.run_until(2_500), ConsumerFrame)
    stage.step(ms=2_700)
    heard(stage, beat)
    assert left_after(stage, 2_700) == 10_000 - 1.35


def test_a_new_life_of_the_leader_has_a_clock_of_its_own() -> None:
    """Its machine may have been started anew: nothing is known but that the attach had been sent before."""
    stage = Stage()
    [frame] = attached(stage).values()
    heard(stage, frame)
    stage.step(ms=700)
    assert left_after(stage, 40_000, life=6) == 10_000 - 700


def test_a_push_of_an_earlier_attach_and_of_an_unknown_age_counts_from_that_attach() -> None:
    stage = Stage()
    [frame] = attached(stage).values()
    heard(stage, frame)
    [beat] = sent(stage.run_until(2_500), ConsumerFrame)
    unknown = ConsumerReply(TOPIC, CONSUMER, beat.attach, beat.number, Code.UNKNOWN_SESSION)
    stage.receive("a", unknown)
    assert left_after(stage, 1_500, attach=1) == 10_000 - 1_000 - 0.75
    assert left_after(stage, 90_000, attach=1, number=2, life=6) == 10_000 - 2_500
    assert left_after(stage, 90_000, attach=2, number=3, life=6) == 10_000


def test_a_push_from_before_the_leader_led_anew_counts_from_the_attach_that_it_was_for() -> None:
    stage = Stage(["a", "b"], {1: "a"})
    attached(stage)
    for now, before in (("b", "a"), ("a", "b")):
        stage.step(ms=stage.ms + 500)
        [refused] = sent(stage.insert(int(stage.ms), b"x"), ChangeRequest)
        stage.receive(before, ChangeReply(refused.request_id, Code.NOT_LEADER))
        stage.run_until(stage.ms + 60)
        stage.leaders, stage.epoch = {1: now}, stage.epoch + 1
        frames = sent(stage.answer_metadata(list(stage.effects)), ConsumerFrame)
    assert [frame.attach for frame in frames if frame.leader == "a"] == [3]
    assert left_after(stage, 90_000, attach=1) == 10_000 - stage.ms


def test_a_lease_of_a_leader_that_does_not_say_by_which_clock_counts_from_the_attach() -> None:
    """Its push may have been under way since then, however late its last answer was."""
    stage = Stage()
    attached(stage)
    [beat] = sent(stage.run_until(2_500), ConsumerFrame)
    stage.receive("a", confirm(beat))
    [delivery] = delivered(stage, "a", b"x", left_ms=10_000)
    assert delivery.deadline_us == stage.at_us(10_000)


def test_after_two_thirds_of_a_session_without_an_answer_leases_are_lost() -> None:
    stage = Stage()
    attached(stage)
    held = delivered(stage, "a", b"x", b"y")
    assert not of(stage.run_until(6_600), LeaseLost)
    [lost] = of(stage.run_until(6_700), LeaseLost)
    assert (lost.deliveries, lost.returning) == (held, True)


def test_answered_beats_keep_the_leases() -> None:
    stage = Stage()
    attached(stage)
    delivered(stage, "a", b"x", left_ms=60_000)
    assert not of(confirm_all(stage, 20_000), LeaseLost)  # type: ignore[arg-type]


def test_the_answers_of_a_leader_keep_the_leases_of_all_its_partitions() -> None:
    stage = Stage(uids={1: "a", 2: "a", 3: "a"})
    attached(stage)
    for uid in (1, 2, 3):
        delivered(stage, "a", b"x", number=uid, uid=uid, left_ms=60_000)
    assert not of(confirm_all(stage, 20_000), LeaseLost)  # type: ignore[arg-type]


def test_a_lease_of_a_leader_that_was_silent_is_given_a_new_chance() -> None:
    stage = Stage()
    attached(stage)
    delivered(stage, "a", b"x")
    assert of(stage.run_until(6_700), LeaseLost)
    [again] = delivered(stage, "a", b"x", number=2, token=61)
    stage.run_until(9_000)
    assert not again.lost


def test_a_silent_leader_is_given_up_though_others_answer() -> None:
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    frames = attached(stage)
    delivered(stage, "a", b"x", attach=frames["a"].attach)
    [held] = delivered(stage, "b", b"y", attach=frames["b"].attach, uid=2)
    while stage.ms < 6_500:
        for frame in sent(stage.run_until(stage.ms + 100), ConsumerFrame):
            if frame.leader == "a":
                stage.receive("a", confirm(frame))
    assert not of(stage.effects, LeaseLost)
    assert [lost.deliveries for lost in of(stage.run_until(6_700), LeaseLost)] == [[held]]


def test_of_a_long_lease_what_is_not_handed_out_is_kept_until_two_seconds_before_its_end() -> None:
    """A quarter of an hour would be lost of each hour."""
    stage = Stage()
    attached(stage, lease_ms=30_000)
    [waiting] = delivered(stage, "a", b"x", left_ms=30_000)
    assert of(confirm_all(stage, 27_900), Reclaim) == []  # type: ignore[arg-type]
    assert [reclaim.deliveries for reclaim in of(stage.run_until(28_100), Reclaim)] == [[waiting]]


def test_a_lease_is_over_at_its_end_and_not_a_moment_later() -> None:
    """From then on its message may be another's."""
    stage = Stage()
    attached(stage)
    [held] = delivered(stage, "a", b"x", left_ms=1_000)
    held.handed = True
    assert of(stage.run_until(999), LeaseLost) == []
    assert [lost.deliveries for lost in of(stage.run_until(1_000), LeaseLost)] == [[held]]


def test_a_leader_at_which_a_lease_is_over_hears_at_once_that_its_consumer_lives() -> None:
    """It gives nothing more to one whose leases run out, as that may have died."""
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    frames = attached(stage)
    [held] = delivered(stage, "a", b"x", attach=frames["a"].attach, left_ms=1_000)
    held.handed = True
    stage.run_until(999)
    [beat] = sent(stage.run_until(1_000), ConsumerFrame)
    assert (beat.leader, beat.action) == ("a", ConsumerAction.BEAT)
    assert beat.credit == frames["a"].credit
