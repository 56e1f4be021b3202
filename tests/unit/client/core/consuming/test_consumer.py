"""A consumer's sessions, leases and credit: what the SDK promises however brokers and links behave."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq.client.core.ports import events
from dueq.client.core.ports.delivery import Delivery
from dueq.client.core.ports.effects import Completed, Deliver, Effect, Failed, LeaseLost, Reclaim, Send
from dueq.errors import ClientClosed, OutcomeUnknown
from dueq_codecs.messages import (
    ChangeReply,
    ChangeRequest,
    Code,
    ConsumerAction,
    ConsumerFrame,
    ConsumerReply,
    PushChunk,
)
from dueq_codecs.records import Outcome, RecordKind
from tests.unit.client.stage import CONSUMER, TOPIC, WALL, Stage, confirm, endpoint, of, ok, push, sent


def attached(stage: Stage, **options: int) -> dict[str, ConsumerFrame]:
    """Open a consumer and have every leader confirm; returns the attach per leader."""
    stage.connect()
    frames = {frame.leader: frame for frame in sent(stage.consume(**options), ConsumerFrame)}
    for leader, frame in frames.items():
        stage.receive(leader, confirm(frame))
    return frames


def delivered(
    stage: Stage, leader: str, *payloads: bytes, attach: int = 1, number: int = 1, **fields: int
) -> list[Delivery]:
    """Have a leader push and return what the user gets."""
    message, body = push(leader, attach, number, payloads, **fields)  # type: ignore[arg-type]
    return [d for effect in of(stage.receive(leader, message, body), Deliver) for d in effect.deliveries]


def settle(
    stage: Stage, kind: RecordKind, *deliveries: Delivery, call: int = 0, amount_ms: int = 0
) -> list[ChangeRequest]:
    """The user decides; returns the requests once the linger is over."""
    stage.step(events.Settle(CONSUMER, kind, deliveries, amount_ms, call, stage.at_us(stage.ms + 4_000)))
    return sent(stage.run_until(stage.ms + 2), ChangeRequest)


def test_it_attaches_to_every_leader_and_divides_the_credit() -> None:
    frames = attached(Stage(["a", "b", "c"], {1: "a", 2: "b", 3: "c", 4: "a"}), credit=10)
    assert set(frames) == {"a", "b", "c"}
    assert sum(frame.credit for frame in frames.values()) == 10
    assert all(frame.action is ConsumerAction.ATTACH and frame.credit >= 3 for frame in frames.values())


def test_a_leader_out_of_reach_is_attached_through_another_broker() -> None:
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    stage.connect("a")
    frames = [e for e in of(stage.consume(), Send) if isinstance(e.message, ConsumerFrame)]
    assert {e.message.leader: e.link for e in frames} == dict.fromkeys(("a", "b"), stage.links[endpoint("a")])
    again = [e for e in of(stage.connect("b"), Send) if isinstance(e.message, ConsumerFrame)]
    assert [(e.message.leader, e.message.action, e.link) for e in again] == [
        ("b", ConsumerAction.ATTACH, stage.links[endpoint("b")])
    ]


def test_a_pair_that_was_seen_is_not_delivered_twice_but_a_later_lease_is() -> None:
    stage = Stage()
    attached(stage)
    assert [d.payload for d in delivered(stage, "a", b"x", b"yy")] == [b"x", b"yy"]
    assert delivered(stage, "a", b"x", number=2) == []
    [again] = delivered(stage, "a", b"x", number=3, token=61)
    assert (again.token, again.attempt) == (61, 1)


def settled_at(stage: Stage, *deliveries: Delivery) -> list[int]:
    """The user is done with them; returns the links that the acks went by."""
    stage.step(events.Settle(CONSUMER, RecordKind.ACK, deliveries))
    effects = of(stage.run_until(stage.ms + 2), Send)
    return [effect.link for effect in effects if isinstance(effect.message, ChangeRequest)]


def test_a_later_lease_of_a_message_takes_the_place_of_the_one_that_is_held() -> None:
    """The leader has ended the older one: the user is told, and it takes no credit any more."""
    stage = Stage()
    attached(stage, credit=4)
    [old] = delivered(stage, "a", b"x", token=60)
    message, body = push("a", 1, 2, [b"x"], token=70)
    effects = stage.receive("a", message, body)
    assert [lost.deliveries for lost in of(effects, LeaseLost)] == [[old]]
    [new] = [delivery for effect in of(effects, Deliver) for delivery in effect.deliveries]
    assert (old.lost, new.lost, new.token) == (True, False, 70)
    [request] = settle(stage, RecordKind.ACK, new)
    assert request.token.tolist() == [70]


def test_what_was_seen_long_ago_is_not_delivered_twice_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was seen is remembered in two halves, of which the older one is forgotten when the newer one is full."""
    monkeypatch.setattr(limits, "DELIVERIES_SEEN_MAX", 4)
    stage = Stage()
    attached(stage)
    batch = delivered(stage, "a", b"a", b"b", b"c", b"d")
    [request] = settle(stage, RecordKind.ACK, *batch)
    stage.receive("a", ok(request, 99, outcomes=[Outcome.DONE] * 4))
    assert delivered(stage, "a", b"e", sequence=51, number=2)
    assert delivered(stage, "a", b"a", b"b", b"c", b"d", number=3) == []


def test_an_ack_goes_to_who_pushed_the_newest_lease_though_nobody_has_said_that_it_leads() -> None:
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    attached(stage)
    [first] = delivered(stage, "a", b"x", token=60)
    [second] = delivered(stage, "b", b"y", attach=2, sequence=51, token=61)
    assert settled_at(stage, second) == [stage.links[endpoint("b")]]
    # What an earlier leader sent before it lost the partition may come after.
    [late] = delivered(stage, "a", b"z", number=2, sequence=52, token=59)
    assert settled_at(stage, first, late) == [stage.links[endpoint("b")]]


def test_acks_travel_together_within_two_milliseconds_and_repeat_until_confirmed() -> None:
    stage = Stage()
    attached(stage)
    first, second = delivered(stage, "a", b"x", b"y")
    stage.step(events.Settle(CONSUMER, RecordKind.ACK, [first]))
    [request] = settle(stage, RecordKind.ACK, second)
    assert (request.sequence, request.rows) == (1, 2)
    assert (request.target_row.tolist(), request.token.tolist()) == ([0, 1], [60, 60])
    assert sent(stage.run_until(stage.ms + 1_100), ChangeRequest) == [request]
    stage.receive("a", ok(request, 99, outcomes=[0, 0]))
    assert sent(stage.run_until(stage.ms + 5_000), ChangeRequest) == []


def test_an_ack_that_nobody_waits_for_is_patient_until_others_are_not_or_credit_runs_short() -> None:
    stage = Stage()
    attached(stage, credit=8, linger_us=20_000)
    a, b, c, d, e = delivered(stage, "a", b"1", b"2", b"3", b"4", b"5")
    assert settle(stage, RecordKind.ACK, a) == []
    [request] = sent(stage.run_until(stage.ms + 18), ChangeRequest)
    stage.receive("a", ok(request, 99, outcomes=[0]))
    assert settle(stage, RecordKind.ACK, b) == []
    [together] = settle(stage, RecordKind.ACK, c)
    assert together.rows == 2
    stage.receive("a", ok(together, 100, outcomes=[0, 0]))
    assert settle(stage, RecordKind.ACK, d) == []
    assert {request.kind for request in settle(stage, RecordKind.NACK, e)} == {
        RecordKind.ACK,
        RecordKind.NACK,
    }


def patient_acks(stage: Stage, *deliveries: Delivery) -> list[ChangeRequest]:
    """The user is done with them and waits for nothing; returns the requests once they were gathered."""
    stage.step(events.Settle(CONSUMER, RecordKind.ACK, deliveries))
    return sent(stage.run_until(stage.ms + limits.ACK_LINGER_MS), ChangeRequest)


def test_an_ack_that_nobody_waits_for_may_wait_at_the_leader_too() -> None:
    stage = Stage()
    attached(stage, credit=64, linger_us=limits.ACK_LINGER_MS * 1000)
    a, b, c = delivered(stage, "a", b"1", b"2", b"3")
    assert [request.patient for request in patient_acks(stage, a)] == [True]
    assert [request.patient for request in settle(stage, RecordKind.ACK, b, call=7)] == [False]
    assert [request.patient for request in settle(stage, RecordKind.NACK, c)] == [False]


def test_acks_that_hold_a_quarter_of_the_credit_do_not_wait_at_the_leader() -> None:
    stage = Stage()
    attached(stage, credit=8, linger_us=limits.ACK_LINGER_MS * 1000)
    first, second = delivered(stage, "a", b"1", b"2")
    assert [request.patient for request in patient_acks(stage, first)] == [True]
    assert [request.patient for request in patient_acks(stage, second)] == [False]


def test_acks_of_short_leases_never_wait_at_the_leader() -> None:
    stage = Stage()
    attached(stage, credit=8, lease_ms=500, linger_us=50_000)
    [delivery] = delivered(stage, "a", b"1")
    assert [request.patient for request in patient_acks(stage, delivery)] == [False]


def test_an_ack_that_somebody_waits_for_does_not_wait_behind_patient_ones() -> None:
    stage = Stage()
    attached(stage, credit=64, linger_us=limits.ACK_LINGER_MS * 1000)
    first, second, third, fourth, fifth = delivered(stage, "a", b"1", b"2", b"3", b"4", b"5")
    assert len(patient_acks(stage, first) + patient_acks(stage, second)) == 2
    assert patient_acks(stage, third) == []
    [request] = settle(stage, RecordKind.ACK, fourth, call=7)
    assert (request.rows, request.patient) == (2, False)
    assert [request.rows for request in settle(stage, RecordKind.ACK, fifth, call=8)] == [1]


def test_an_ack_waits_for_earlier_answers_no_longer_than_for_company() -> None:
    """Its lease does not wait: an answer takes as long as the slowest disk, and may come after the end."""
    stage = Stage()
    attached(stage, credit=64, lease_ms=400, linger_us=40_000)
    first, second, third = delivered(stage, "a", b"1", b"2", b"3", left_ms=400)
    for call, delivery in ((1, first), (2, second)):
        assert len(settle(stage, RecordKind.ACK, delivery, call=call)) == 1
    assert settle(stage, RecordKind.ACK, third, call=3) == []
    assert sent(stage.run_until(stage.ms + 38), ChangeRequest) == []
    sent_then = sent(stage.run_until(stage.ms + 2), ChangeRequest)
    assert [request.target_row.tolist() for request in sent_then] == [[2]]


def test_what_waits_for_an_earlier_answer_waits_on_while_nobody_leads() -> None:
    stage = Stage()
    attached(stage, credit=64, linger_us=40_000)
    first, second, third = delivered(stage, "a", b"1", b"2", b"3")
    stage.step(events.LinkLost(stage.links[endpoint("a")], "gone"))
    for call, delivery in ((1, first), (2, second), (3, third)):
        assert settle(stage, RecordKind.ACK, delivery, call=call) == []
    assert sent(stage.run_until(stage.ms + 400), ChangeRequest) == []
    effects = stage.connect("a") + stage.run_until(stage.ms + 500)
    assert [request.target_row.tolist() for request in sent(effects, ChangeRequest)] == [[0], [1]]


def test_a_consumer_that_is_closed_does_not_wait_for_the_leader_to_gather() -> None:
    stage = Stage()
    attached(stage, credit=64, linger_us=limits.ACK_LINGER_MS * 1000)
    [delivery] = delivered(stage, "a", b"1")
    stage.step(events.Settle(CONSUMER, RecordKind.ACK, [delivery]))
    effects = stage.step(events.CloseConsumer(9, stage.at_us(stage.ms + 1_000), CONSUMER, []))
    assert [request.patient for request in sent(effects, ChangeRequest)] == [False]


def test_an_ack_that_somebody_waits_for_is_sent_soon() -> None:
    stage = Stage()
    attached(stage, linger_us=20_000)
    [delivery] = delivered(stage, "a", b"1")
    assert [request.rows for request in settle(stage, RecordKind.ACK, delivery, call=7)] == [1]


def crowd(stage: Stage, count: int) -> list[tuple[bytes, Delivery]]:
    """That many consumers of one client, each with one message of the same partition."""
    stage.connect()
    holding = []
    for number in range(count):
        consumer_id = bytes([number]) * 16
        for frame in sent(stage.consume(consumer_id=consumer_id), ConsumerFrame):
            stage.receive(frame.leader, confirm(frame))
        message, body = push(
            "a", 1, 1, [b"x"], token=70 + number, sequence=50 + number, consumer_id=consumer_id
        )
        [pushed] = of(stage.receive("a", message, body), Deliver)
        holding.append((consumer_id, pushed.deliveries[0]))
    return holding


def test_many_consumers_of_one_client_share_the_requests_that_acknowledge() -> None:
    stage = Stage()
    holding = crowd(stage, 10)
    for consumer_id, delivery in holding:
        stage.step(events.Settle(consumer_id, RecordKind.ACK, [delivery]))
    first, second = sent(stage.run_until(stage.ms + 2), ChangeRequest)
    rest = sent(stage.receive("a", ok(first, 99, outcomes=[0])), ChangeRequest)
    assert [(each.sequence, each.rows) for each in (first, second, *rest)] == [(1, 1), (2, 1), (3, 8)]
    assert rest[0].token.tolist() == list(range(72, 80))


def test_a_consumer_that_is_closed_takes_only_its_own_decisions_with_it() -> None:
    stage = Stage()
    holding = crowd(stage, 4)
    for consumer_id, delivery in holding:
        stage.step(events.Settle(consumer_id, RecordKind.ACK, [delivery]))
    first, _ = sent(stage.run_until(stage.ms + 2), ChangeRequest)
    gone = holding[2][0]
    stage.step(events.CloseConsumer(9, stage.at_us(stage.ms + 1), gone, []))
    stage.run_until(stage.ms + 1)
    [shared] = sent(stage.receive("a", ok(first, 99, outcomes=[0])), ChangeRequest)
    assert shared.token.tolist() == [73]


def test_a_refused_ack_comes_as_a_lost_lease() -> None:
    stage = Stage()
    attached(stage)
    [delivery] = delivered(stage, "a", b"x")
    [request] = settle(stage, RecordKind.ACK, delivery)
    [lost] = of(stage.receive("a", ok(request, 99, outcomes=[Outcome.STALE])), LeaseLost)
    assert lost.deliveries == [delivery]
    assert delivery.lost


def test_an_ack_that_waits_gets_outcomes_and_its_retry_the_same_ones() -> None:
    stage = Stage()
    attached(stage)
    batch = delivered(stage, "a", b"x", b"y")
    [request] = settle(stage, RecordKind.ACK, *batch, call=5)
    [failed] = of(stage.run_until(stage.ms + 4_000), Failed)
    assert isinstance(failed.error, OutcomeUnknown)
    stage.step(events.Settle(CONSUMER, RecordKind.ACK, batch, 0, 6, stage.at_us(stage.ms + 5_000)))
    [done] = of(stage.receive("a", ok(request, 99, outcomes=[Outcome.DONE, Outcome.STALE])), Completed)
    assert (done.call, done.value) == (6, [Outcome.DONE, Outcome.STALE])
    [late] = of(
        stage.step(events.Settle(CONSUMER, RecordKind.ACK, batch, 0, 7, stage.at_us(60_000))), Completed
    )
    assert late.value == [Outcome.DONE, Outcome.STALE]


def test_an_ack_that_no_leader_ever_answers_has_an_unknown_outcome_and_not_a_refused_one() -> None:
    stage = Stage()
    attached(stage)
    [delivery] = delivered(stage, "a", b"x")
    deadline_us = stage.at_us(limits.DEDUP_MS + 60_000)
    stage.step(events.Settle(CONSUMER, RecordKind.ACK, [delivery], 0, 5, deadline_us))
    stage.run_until(2_000)
    [done] = of(stage.step(ms=limits.DEDUP_MS + 3_000), Completed)
    assert done.value == [Outcome.UNKNOWN]


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


def confirm_all(stage: Stage, until_ms: float, broker: str = "a") -> list[object]:
    """Answer every beat until then."""
    effects: list[object] = []
    while stage.ms < until_ms:
        step = stage.run_until(min(stage.ms + 500, until_ms))
        effects += step
        for frame in sent(step, ConsumerFrame):
            effects += stage.receive(broker, confirm(frame))
    return effects


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


def test_a_leader_that_forgot_the_session_hears_what_is_held() -> None:
    stage = Stage()
    attached(stage)
    first, second = delivered(stage, "a", b"x", b"y")
    [request] = settle(stage, RecordKind.ACK, first)
    beat = sent(stage.run_until(2_600), ConsumerFrame)[-1]
    unknown = ConsumerReply(TOPIC, CONSUMER, beat.attach, beat.number, Code.UNKNOWN_SESSION)
    [attach] = sent(stage.receive("a", unknown), ConsumerFrame)
    assert (attach.action, attach.attach) == (ConsumerAction.ATTACH, 2)
    assert attach.held_row.tolist() == [first.row, second.row]
    assert attach.held_token.tolist() == [60, 60]
    assert request.token.tolist() == [60]


def test_an_attach_that_is_refused_at_once_is_made_again_soon() -> None:
    """A leader that begins to serve asks those who came before: a second later would be late for what was due."""
    stage = Stage()
    stage.connect()
    [frame] = sent(stage.consume(), ConsumerFrame)
    unknown = ConsumerReply(TOPIC, CONSUMER, frame.attach, frame.number, Code.UNKNOWN_SESSION)
    assert not sent(stage.receive("a", unknown), ConsumerFrame), "not as fast as refusals come"
    [again] = sent(stage.run_until(stage.ms + 150), ConsumerFrame)
    assert (again.action, again.attach) == (ConsumerAction.ATTACH, frame.attach + 1)


def test_a_partition_that_moves_is_attached_at_its_new_leader_with_its_leases() -> None:
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    attached(stage)
    [delivery] = delivered(stage, "a", b"x")
    stage.leaders, stage.epoch = {1: "b", 2: "b"}, 2
    effects = stage.answer_metadata(stage.run_until(2_100))
    frames = sent(effects, ConsumerFrame)
    assert {frame.leader for frame in frames} == {"b"}
    [attach] = [frame for frame in frames if frame.action is ConsumerAction.ATTACH]
    assert attach.held_uid.tolist() == [1]
    stage.receive("b", confirm(attach))
    assert not of(confirm_all(stage, 8_000, "b"), LeaseLost)  # type: ignore[arg-type]
    assert not delivery.lost


def test_a_lost_push_is_reported_by_a_beat_a_second_later() -> None:
    stage = Stage()
    attached(stage)
    delivered(stage, "a", b"y", number=2, sequence=51)
    [beat] = sent(stage.run_until(1_010), ConsumerFrame)
    assert (beat.action, beat.push_seen) == (ConsumerAction.BEAT, 0)
    delivered(stage, "a", b"x", number=1)
    stage.receive("a", confirm(beat, push_sent=2))
    [beat] = sent(stage.run_until(3_600), ConsumerFrame)
    assert beat.push_seen == 2


def test_credit_of_one_moves_to_where_messages_wait_once_it_is_free() -> None:
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    frames = attached(stage, credit=1)
    rich, poor = sorted(frames, key=lambda leader: -frames[leader].credit)
    assert [frames[rich].credit, frames[poor].credit] == [1, 0]
    [lowered] = sent(stage.receive(poor, confirm(frames[poor], waiting=3)), ConsumerFrame)
    assert (lowered.leader, lowered.credit) == (rich, 0)
    [raised] = sent(stage.receive(rich, confirm(lowered)), ConsumerFrame)
    assert (raised.leader, raised.credit) == (poor, 1)


def test_credit_of_one_stays_while_its_message_is_held() -> None:
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    frames = attached(stage, credit=1)
    rich, poor = sorted(frames, key=lambda leader: -frames[leader].credit)
    uid = {"a": 1, "b": 2}[rich]
    [delivery] = delivered(stage, rich, b"x", attach=frames[rich].attach, uid=uid)
    assert not sent(stage.receive(poor, confirm(frames[poor], waiting=3)), ConsumerFrame)
    [request] = settle(stage, RecordKind.ACK, delivery)
    [lowered] = sent(stage.receive(rich, ok(request, 99, outcomes=[0])), ConsumerFrame)
    assert (lowered.leader, lowered.credit) == (rich, 0)


def test_a_leader_that_gives_more_than_we_count_gets_no_credit_for_it() -> None:
    """By a's clock a lease of it is over that we still count, and that a's next message comes for."""
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    frames = attached(stage, credit=4)
    limits_of = {leader: frame.credit for leader, frame in frames.items()}
    assert limits_of == {"a": 2, "b": 2}
    for leader, uid in (("a", 1), ("b", 2)):
        delivered(stage, leader, b"x", b"y", attach=frames[leader].attach, uid=uid)
        stage.receive(leader, confirm(frames[leader], waiting=3))
    message, body = push("a", frames["a"].attach, 2, [b"z"], sequence=51)
    told = sent(stage.receive("a", message, body), ConsumerFrame)
    told += sent(stage.run_until(stage.ms + 20_000), ConsumerFrame)
    assert {frame.leader for frame in told} == {"a", "b"}
    assert max(frame.credit for frame in told if frame.leader == "a") == 2


def test_closing_releases_confirms_and_says_goodbye_everywhere() -> None:
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    attached(stage)
    handled, unhandled = delivered(stage, "a", b"x", b"y")
    stage.step(events.Settle(CONSUMER, RecordKind.ACK, [handled]))
    effects = stage.step(events.CloseConsumer(9, stage.at_us(5_000), CONSUMER, [unhandled]))
    requests = {request.kind: request for request in sent(effects, ChangeRequest)}
    assert set(requests) == {RecordKind.ACK, RecordKind.RELEASE}
    stage.receive("a", ok(requests[RecordKind.ACK], 98, outcomes=[0]))
    effects = stage.receive("a", ok(requests[RecordKind.RELEASE], 99, outcomes=[0]))
    goodbyes = sent(effects, ConsumerFrame)
    assert {frame.leader: frame.action for frame in goodbyes} == dict.fromkeys("ab", ConsumerAction.GOODBYE)
    stage.receive("a", confirm(goodbyes[0]))
    [done] = of(stage.receive("b", confirm(goodbyes[1])), Completed)
    assert done.call == 9


def test_a_consumer_that_is_closed_before_it_is_open_never_takes_anything() -> None:
    stage = Stage()
    stage.connect()
    opening = stage.step(events.OpenConsumer(1, stage.at_us(30_000), CONSUMER, TOPIC, 8, 64 << 20, 30_000))
    closing = stage.step(events.CloseConsumer(2, stage.at_us(5_000), CONSUMER, []))
    assert [(failed.call, type(failed.error)) for failed in of(closing, Failed)] == [(1, ClientClosed)]
    assert [done.call for done in of(closing, Completed)] == [2]
    assert sent(stage.answer_metadata(opening) + stage.run_until(20_000), ConsumerFrame) == []


def test_a_consumer_whose_opening_nobody_waits_for_any_more_never_takes_anything() -> None:
    """As a task does that is cancelled while it opens one."""
    stage = Stage()
    stage.connect()
    opening = stage.step(events.OpenConsumer(1, stage.at_us(30_000), CONSUMER, TOPIC, 8, 64 << 20, 30_000))
    stage.step(events.Abandon(1))
    assert sent(stage.answer_metadata(opening) + stage.run_until(40_000), ConsumerFrame) == []


def test_closing_ends_at_its_deadline_though_nobody_answers() -> None:
    stage = Stage()
    attached(stage)
    [delivery] = delivered(stage, "a", b"x")
    stage.step(events.CloseConsumer(9, stage.at_us(2_000), CONSUMER, [delivery]))
    effects = stage.run_until(2_000)
    assert [done.call for done in of(effects, Completed)] == [9]
    assert sent(effects, ConsumerFrame)[-1].action is ConsumerAction.GOODBYE
    assert sent(stage.run_until(30_000), ConsumerFrame) == []


def test_a_long_payload_is_put_together_from_its_chunks() -> None:
    stage = Stage()
    attached(stage)
    payload = bytes(range(256)) * 2_000
    message, _ = push("a", 1, 1, [payload])
    pieces = [payload[: 256 << 10], payload[256 << 10 :]]
    for number, piece in enumerate(pieces):
        stage.receive("a", PushChunk(TOPIC, CONSUMER, 1, 1, 50, 0, 60, number, 2, "a"), piece)
    [got] = of(stage.receive("a", message, b""), Deliver)
    assert got.deliveries[0].payload == payload


def test_a_long_payload_with_a_missing_chunk_is_waited_for() -> None:
    stage = Stage()
    attached(stage)
    payload = bytes(range(256)) * 2_000
    message, _ = push("a", 1, 1, [payload])
    stage.receive("a", PushChunk(TOPIC, CONSUMER, 1, 1, 50, 0, 60, 1, 2, "a"), payload[256 << 10 :])
    assert not of(stage.receive("a", message, b""), Deliver)
    [beat] = sent(stage.run_until(1_010) + stage.run_until(2_600), ConsumerFrame)[-1:]
    assert (beat.action, beat.push_seen) == (ConsumerAction.BEAT, 0), "it is to be pushed again"
    stage.receive("a", PushChunk(TOPIC, CONSUMER, 1, 1, 50, 0, 60, 0, 2, "a"), payload[: 256 << 10])
    message.number = 2
    assert len(of(stage.receive("a", message, b""), Deliver)) == 1


def test_a_damaged_payload_is_never_handed_out_but_given_back() -> None:
    stage = Stage()
    attached(stage)
    message, body = push("a", 1, 1, [b"good", b"evil"])
    effects = stage.receive("a", message, body.replace(b"evil", b"EVIL"))
    assert [d.payload for e in of(effects, Deliver) for d in e.deliveries] == [b"good"]
    [request] = sent(stage.run_until(stage.ms + 2), ChangeRequest)
    assert (request.kind, request.target_row.tolist()) == (RecordKind.NACK, [1])


def test_acks_and_extensions_by_turns_share_requests() -> None:
    """While two requests are under way the others wait: together, whichever kind was between them."""
    stage = Stage()
    attached(stage, credit=100, linger_us=1_000_000)
    deliveries = delivered(stage, "a", *[b"x"] * 42, left_ms=30_000)
    turns = [RecordKind.ACK, RecordKind.EXTEND] * 21
    for delivery, kind in zip(deliveries, turns, strict=True):
        settle(stage, kind, delivery, call=100 + delivery.row, amount_ms=30_000)
        stage.run_until(stage.ms + 3)

    def done(request: ChangeRequest, sequence: int) -> list[Effect]:
        return stage.receive("a", ok(request, sequence, outcomes=[0] * request.rows))

    first, second = requests = sent(stage.effects, ChangeRequest)
    assert [request.rows for request in requests] == [1, 1]
    effects = done(first, 90) + done(second, 91)
    third, fourth = requests = sent(effects, ChangeRequest)
    assert [(request.kind, request.rows) for request in requests] == [
        (RecordKind.ACK, 1),
        (RecordKind.EXTEND, 20),
    ]
    effects = done(third, 92) + done(fourth, 93)
    assert [(request.kind, request.rows) for request in sent(effects, ChangeRequest)] == [
        (RecordKind.ACK, 19)
    ]


def moved(frame: ConsumerFrame) -> ConsumerReply:
    """What a leader says by itself once another one serves; `frame` is the last it has seen."""
    return ConsumerReply(
        TOPIC, CONSUMER, frame.attach, frame.number, Code.NOT_LEADER, "a partition has another leader",
        leader=frame.leader,
    )  # fmt: skip


def test_a_consumer_that_hears_of_another_leader_attaches_to_it_though_the_first_answer_is_old() -> None:
    """The broker that it asks may hear of the new leader a little later than the old one did."""
    stage = Stage(["a", "b"], {1: "a"})
    [frame] = attached(stage).values()
    stage.answer_metadata(stage.run_until(500))
    assert sent(stage.answer_metadata(stage.receive("a", moved(frame))), ConsumerFrame) == []
    stage.leaders, stage.epoch = {1: "b"}, 2
    effects = stage.run_until(700)
    [attach] = sent(stage.answer_metadata(effects), ConsumerFrame)
    assert (attach.action, attach.leader) == (ConsumerAction.ATTACH, "b")


def test_word_of_another_leader_is_no_answer_to_a_goodbye() -> None:
    """It left before the goodbye came: whether the leader has ended the session is not known by it."""
    stage = Stage()
    [frame] = attached(stage).values()
    effects = stage.step(events.CloseConsumer(9, stage.at_us(5_000), CONSUMER, []))
    goodbye = sent(effects, ConsumerFrame)[-1]
    assert goodbye.action is ConsumerAction.GOODBYE
    assert of(stage.receive("a", moved(frame)), Completed) == []
    [again] = sent(stage.run_until(400), ConsumerFrame)
    assert again.action is ConsumerAction.GOODBYE
    assert of(stage.receive("a", confirm(again)), Completed)
