"""The end of a consumer, or of a lease, that nobody has asked for: what its user hears, and what leaders do."""

from __future__ import annotations

from dueq.client.core.ports import events
from dueq.client.core.ports.effects import Completed, ConsumerFailed, LeaseLost
from dueq.errors import Superseded, TopicNotFound
from dueq_codecs.messages import (
    ChangeRequest,
    Code,
    ConsumerAction,
    ConsumerFrame,
    ConsumerReply,
    MetadataReply,
    MetadataRequest,
)
from dueq_codecs.records import Outcome, RecordKind
from tests.unit.client.stage import CONSUMER, TOPIC, Stage, attached, confirm, delivered, of, ok, sent, settle


def test_what_is_held_of_a_topic_that_is_gone_is_lost() -> None:
    """Its user may be at work on it, and is told to stop before the consumer fails."""
    stage = Stage()
    attached(stage)
    held = delivered(stage, "a", b"x", b"y")
    question = sent(stage.run_until(2_100), MetadataRequest)[-1]
    effects = stage.receive("a", MetadataReply(question.request_id, Code.TOPIC_NOT_FOUND, "why"))
    ends = [effect for effect in effects if isinstance(effect, LeaseLost | ConsumerFailed)]
    assert [type(end) for end in ends] == [LeaseLost, ConsumerFailed]
    assert [lost.deliveries for lost in of(effects, LeaseLost)] == [held]
    assert [type(failed.error) for failed in of(effects, ConsumerFailed)] == [TopicNotFound]


def test_a_consumer_that_another_process_has_followed_says_goodbye_and_sends_what_was_decided() -> None:
    """The other leaders would give it messages until its sessions are over."""
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    frames = attached(stage, life=5)
    [delivery] = delivered(stage, "a", b"x", attach=frames["a"].attach)
    stage.step(events.Settle(CONSUMER, RecordKind.ACK, [delivery]))
    frame = frames["a"]
    followed = ConsumerReply(TOPIC, CONSUMER, frame.attach, frame.number, Code.SUPERSEDED, "why", leader="a")
    effects = stage.receive("a", followed)
    assert [request.kind for request in sent(effects, ChangeRequest)] == [RecordKind.ACK]
    goodbyes = {frame.leader: frame.action for frame in sent(effects, ConsumerFrame)}
    assert goodbyes == dict.fromkeys("ab", ConsumerAction.GOODBYE)
    assert [type(failed.error) for failed in of(effects, ConsumerFailed)] == [Superseded]


def test_an_answer_to_an_earlier_frame_is_none_to_a_goodbye() -> None:
    """The goodbye may be lost: until it is answered it is said again, else messages go on to come there."""
    stage = Stage()
    [frame] = attached(stage).values()
    effects = stage.step(events.CloseConsumer(9, stage.at_us(5_000), CONSUMER, []))
    goodbye = sent(effects, ConsumerFrame)[-1]
    assert of(stage.receive("a", confirm(frame)), Completed) == []
    [again] = sent(stage.run_until(400), ConsumerFrame)
    assert (again.action, again.number > goodbye.number) == (ConsumerAction.GOODBYE, True)
    assert [done.call for done in of(stage.receive("a", confirm(goodbye)), Completed)] == [9]


def test_a_lease_is_lost_once_though_a_decision_about_it_is_refused_afterwards() -> None:
    stage = Stage()
    attached(stage)
    [delivery] = delivered(stage, "a", b"x", left_ms=1_000)
    delivery.handed = True
    stage.run_until(1_100)
    assert [lost.deliveries for lost in of(stage.effects, LeaseLost)] == [[delivery]]
    [request] = settle(stage, RecordKind.ACK, delivery)
    effects = stage.receive("a", ok(request, 99, outcomes=[Outcome.STALE]))
    assert of(effects, LeaseLost) == []


def test_a_lease_is_not_lost_since_nobody_knows_whether_it_was_extended() -> None:
    """It has the end that it had: its user goes on until then."""
    stage = Stage()
    attached(stage)
    [delivery] = delivered(stage, "a", b"x", left_ms=30_000)
    delivery.handed = True
    [request] = settle(stage, RecordKind.EXTEND, delivery, amount_ms=60_000)
    effects = stage.receive("a", ok(request, 99, outcomes=[Outcome.UNKNOWN]))
    assert (of(effects, LeaseLost), delivery.lost) == ([], False)


def test_a_silent_leader_has_the_credit_that_may_still_be_on_its_way_to_it() -> None:
    """A frame that was sent just before may be in force there: the others get no more than is left."""
    stage = Stage(["a", "b"], {1: "a", 2: "b"})
    attached(stage, credit=8)
    stated = {"a": 4, "b": 4}
    while stage.ms < 8_000:
        for frame in sent(stage.run_until(stage.ms + 100), ConsumerFrame):
            stated[frame.leader] = frame.credit
            if frame.leader == "b":
                stage.receive("b", confirm(frame, waiting=100))
        if stage.ms < 6_600:
            assert stated["b"] == 4
    assert stated["a"] == 0
    assert stated["b"] < 8


def test_what_is_being_settled_is_not_lost_when_its_leader_falls_silent() -> None:
    """Its outcome is to come, from whoever leads by then."""
    stage = Stage()
    attached(stage)
    acked, held = delivered(stage, "a", b"x", b"y")
    settle(stage, RecordKind.ACK, acked)
    assert [lost.deliveries for lost in of(stage.run_until(6_700), LeaseLost)] == [[held]]


def test_the_patience_of_a_leader_counts_from_what_it_has_answered_not_from_its_answer() -> None:
    stage = Stage()
    stage.connect()
    [frame] = sent(stage.consume(), ConsumerFrame)
    stage.run_until(900)
    stage.receive("a", confirm(frame))
    held = delivered(stage, "a", b"x")
    assert [lost.deliveries for lost in of(stage.run_until(6_700), LeaseLost)] == [held]


def test_leases_of_a_leader_that_has_answered_nothing_are_lost_too() -> None:
    """Its pushes come, and no frame reaches it: it ends the session, and others get the messages."""
    stage = Stage()
    stage.connect()
    stage.consume()
    held = delivered(stage, "a", b"x")
    assert [lost.deliveries for lost in of(stage.run_until(6_700), LeaseLost)] == [held]


def test_who_decides_otherwise_than_before_hears_that_it_has_no_effect() -> None:
    stage = Stage()
    attached(stage)
    [delivery] = delivered(stage, "a", b"x")
    settle(stage, RecordKind.ACK, delivery)
    event = events.Settle(CONSUMER, RecordKind.NACK, [delivery], 5, 7, stage.at_us(9_000))
    [done] = of(stage.step(event), Completed)
    assert (done.call, done.value) == (7, [Outcome.STALE])


def test_a_lease_that_is_over_is_not_extended() -> None:
    """The message may be another's by now, or this consumer's under a newer lease."""
    stage = Stage()
    attached(stage)
    [delivery] = delivered(stage, "a", b"x", left_ms=1_000)
    delivery.handed = True
    stage.run_until(1_100)
    event = events.Settle(CONSUMER, RecordKind.EXTEND, [delivery], 5_000, 7, stage.at_us(9_000))
    effects = stage.step(event)
    assert [(done.call, done.value) for done in of(effects, Completed)] == [(7, [Outcome.STALE])]
    assert sent(effects + stage.run_until(stage.ms + 100), ChangeRequest) == []
