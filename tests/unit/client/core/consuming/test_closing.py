"""A consumer that its user has closed: what it still does, what it does no more, and when it is over."""

from __future__ import annotations

from dueq.client.core.consuming.consumer import GOODBYES
from dueq.client.core.ports import events
from dueq.client.core.ports.delivery import Delivery
from dueq.client.core.ports.effects import Completed, ConsumerFailed, Deliver, Effect, Failed, LeaseLost
from dueq.errors import ClientClosed
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
from tests.unit.client.stage import (
    CONSUMER,
    TOPIC,
    Stage,
    attached,
    confirm,
    delivered,
    endpoint,
    of,
    ok,
    push,
    sent,
    settle,
)

CLOSING = 9
"""The call that closes."""


def close(stage: Stage, *unhandled: Delivery) -> list[Effect]:
    return stage.step(
        events.CloseConsumer(CLOSING, stage.at_us(stage.ms + 60_000), CONSUMER, list(unhandled))
    )


def closing_behind_an_ack(stage: Stage) -> ChangeRequest:
    """An ack is not confirmed yet, and its user has closed the consumer."""
    attached(stage)
    [delivery] = delivered(stage, "a", b"x")
    [request] = settle(stage, RecordKind.ACK, delivery)
    assert not of(close(stage), Completed)
    return request


def refused(frame: ConsumerFrame, code: Code) -> ConsumerReply:
    return ConsumerReply(TOPIC, CONSUMER, frame.attach, frame.number, code, "why", leader=frame.leader)


def closed(effects: list[Effect]) -> bool:
    """Whether the call that closes is answered; nothing else is, and the consumer has not failed."""
    assert of(effects, ConsumerFailed) == []
    calls = [completed.call for completed in of(effects, Completed)]
    assert set(calls) <= {CLOSING}
    return calls == [CLOSING]


def led_by_another() -> Stage:
    """The consumer has attached to "a", and then to "b", which leads now."""
    stage = Stage(["a", "b"], {1: "a"})
    attached(stage)
    stage.leaders, stage.epoch = {1: "b"}, 2
    [attach] = sent(stage.answer_metadata(stage.run_until(2_100)), ConsumerFrame)
    stage.receive("b", confirm(attach))
    return stage


def test_a_goodbye_that_nobody_answers_is_said_a_few_times_only() -> None:
    """The user has a minute; the leader is dead, and ends the session without it."""
    stage = Stage()
    attached(stage)
    effects = close(stage) + stage.run_until(5_000)
    assert [frame.action for frame in sent(effects, ConsumerFrame)] == [ConsumerAction.GOODBYE] * GOODBYES
    assert closed(effects)


def test_who_reaches_no_broker_is_closed_at_once() -> None:
    stage = Stage()
    attached(stage)
    stage.step(events.LinkLost(stage.links[endpoint("a")], "gone"))
    assert closed(close(stage))


def test_a_leader_that_knows_nothing_of_the_consumer_has_answered_its_goodbye() -> None:
    stage = Stage()
    attached(stage)
    [goodbye] = sent(close(stage), ConsumerFrame)
    assert closed(stage.receive("a", refused(goodbye, Code.UNKNOWN_SESSION)))


def test_leaders_hear_that_it_lives_until_what_was_decided_is_confirmed() -> None:
    """Else they would end the session, and with it the lease that is being acked."""
    stage = Stage()
    request = closing_behind_an_ack(stage)
    spoken: list[ConsumerFrame] = []
    while stage.ms < 12_000:
        for frame in sent(stage.run_until(stage.ms + 100), ConsumerFrame):
            spoken.append(frame)
            stage.receive("a", confirm(frame))
    assert {(frame.action, frame.credit) for frame in spoken} == {(ConsumerAction.BEAT, 0)}
    assert len(spoken) >= 4
    assert of(stage.effects, LeaseLost) == []
    [goodbye] = sent(stage.receive("a", ok(request, 99, outcomes=[Outcome.DONE])), ConsumerFrame)
    assert goodbye.action is ConsumerAction.GOODBYE


def test_who_was_never_answered_is_not_looked_at_all_the_time() -> None:
    stage = Stage()
    stage.connect()
    stage.consume()
    [delivery] = delivered(stage, "a", b"x")
    settle(stage, RecordKind.ACK, delivery)
    close(stage)
    steps = 0
    while (deadline := stage.core.next_deadline_us) is not None and deadline <= stage.at_us(5_000):
        stage.run_until((deadline - stage.at_us(0)) / 1000)
        steps += 1
    assert steps < 100


def test_what_comes_while_it_closes_is_not_handed_out() -> None:
    """Its user reads nothing any more. The leader gives it to others after the goodbye."""
    stage = Stage()
    closing_behind_an_ack(stage)
    message, body = push("a", 1, 2, [b"y"], sequence=51)
    assert of(stage.receive("a", message, body), Deliver) == []


def test_a_topic_that_goes_while_it_closes_is_no_failure() -> None:
    stage = Stage()
    closing_behind_an_ack(stage)
    question = sent(stage.run_until(2_100), MetadataRequest)[-1]
    effects = stage.receive("a", MetadataReply(question.request_id, Code.TOPIC_NOT_FOUND, "why"))
    effects += stage.run_until(5_000)
    assert {frame.action for frame in sent(effects, ConsumerFrame)} == {ConsumerAction.GOODBYE}
    assert closed(effects)


def test_another_process_that_follows_while_it_closes_ends_it_at_once() -> None:
    """What is not confirmed is the other's by now."""
    stage = Stage()
    closing_behind_an_ack(stage)
    beat = sent(stage.effects, ConsumerFrame)[-1]
    effects = stage.receive("a", refused(beat, Code.SUPERSEDED))
    assert [frame.action for frame in sent(effects, ConsumerFrame)] == [ConsumerAction.GOODBYE]
    assert closed(effects)
    assert sent(stage.run_until(30_000), ChangeRequest) == []


def test_a_leader_that_leads_nothing_any_more_hears_the_goodbye_all_the_same() -> None:
    """It may lead after all: then it would push to nobody until the session is over."""
    stage = Stage(["a", "b"], {1: "a"})
    request = closing_behind_an_ack(stage)
    stage.leaders, stage.epoch = {1: "b"}, 2
    stage.answer_metadata(stage.run_until(2_100))
    effects = stage.receive("b", ok(request, 99, outcomes=[Outcome.DONE]))
    assert [(each.leader, each.action) for each in sent(effects, ConsumerFrame)] == [
        ("a", ConsumerAction.GOODBYE)
    ]


def test_a_leader_that_was_left_hears_the_goodbye_and_is_not_waited_for() -> None:
    """It knows the consumer for a while, and would take it for alive if it led again: a later process would wait."""
    stage = led_by_another()
    goodbyes = sent(close(stage), ConsumerFrame)
    assert {each.leader: each.action for each in goodbyes} == dict.fromkeys("ab", ConsumerAction.GOODBYE)
    assert closed(stage.receive("b", confirm(next(each for each in goodbyes if each.leader == "b"))))


def test_a_leader_that_leads_again_is_not_one_that_was_left() -> None:
    stage = Stage(["a", "b"], {1: "a"})
    attached(stage)
    for epoch, leader in ((2, "b"), (3, "a")):
        stage.leaders, stage.epoch = {1: leader}, epoch
        [attach] = sent(stage.answer_metadata(stage.run_until(stage.ms + 2_100)), ConsumerFrame)
        stage.receive(leader, confirm(attach))
    assert sorted(each.leader for each in sent(close(stage), ConsumerFrame)) == ["a", "b"]


def test_a_broker_that_was_left_and_is_out_of_reach_hears_no_goodbye_by_others() -> None:
    """It is dead, or will have forgotten the consumer when it is back."""
    stage = led_by_another()
    stage.step(events.LinkLost(stage.links[endpoint("a")], "gone"))
    assert [each.leader for each in sent(close(stage), ConsumerFrame)] == ["b"]


def test_who_decides_when_it_is_closed_hears_that_the_leases_were_given_back() -> None:
    stage = Stage()
    attached(stage)
    [delivery] = delivered(stage, "a", b"x")
    delivery.handed = True
    [goodbye] = sent(close(stage), ConsumerFrame)
    assert closed(stage.receive("a", confirm(goodbye)))
    late = events.Settle(CONSUMER, RecordKind.ACK, [delivery], 0, 12, stage.at_us(50_000))
    effects = stage.step(late) + stage.run_until(10_000)
    assert [(failed.call, type(failed.error)) for failed in of(effects, Failed)] == [(12, ClientClosed)]
    assert sent(effects, ChangeRequest) == []


def test_two_closings_end_together() -> None:
    """As a closing of one thread, and that of another which opened the consumer meanwhile."""
    stage = Stage()
    attached(stage)
    [delivery] = delivered(stage, "a", b"x")
    [request] = settle(stage, RecordKind.ACK, delivery)
    effects = close(stage)
    effects += stage.step(events.CloseConsumer(CLOSING + 1, stage.at_us(stage.ms + 60_000), CONSUMER, []))
    assert of(effects, Completed) == []
    [goodbye] = [
        frame
        for frame in sent(stage.receive("a", ok(request, 9, outcomes=[Outcome.DONE])), ConsumerFrame)
        if frame.action is ConsumerAction.GOODBYE
    ]
    effects = stage.receive("a", confirm(goodbye))
    assert [completed.call for completed in of(effects, Completed)] == [CLOSING, CLOSING + 1]


def test_a_closing_that_joins_another_is_over_in_its_own_time() -> None:
    stage = Stage()
    attached(stage)
    [delivery] = delivered(stage, "a", b"x")
    settle(stage, RecordKind.ACK, delivery)
    close(stage)
    stage.step(events.CloseConsumer(CLOSING + 1, stage.at_us(1_000), CONSUMER, []))
    effects = stage.run_until(1_000)
    assert [completed.call for completed in of(effects, Completed)] == [CLOSING, CLOSING + 1]
