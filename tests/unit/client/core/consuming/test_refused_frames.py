"""A frame that a leader refuses: after which codes a consumer goes on, and after which it is over."""

from __future__ import annotations

import pytest

from dueq.client.core.ports.effects import ConsumerFailed, Deliver, LeaseLost
from dueq.errors import Broken, DueqError, InvalidRequest, NotAllowed
from dueq_codecs.messages import (
    ChangeReply,
    ChangeRequest,
    Code,
    ConsumerAction,
    ConsumerFrame,
    ConsumerReply,
    MetadataRequest,
)
from tests.unit.client.stage import CONSUMER, TOPIC, Stage, attached, confirm, delivered, of, push, sent


def refused(frame: ConsumerFrame, code: Code) -> ConsumerReply:
    return ConsumerReply(TOPIC, CONSUMER, frame.attach, frame.number, code, "why", leader=frame.leader)


@pytest.mark.parametrize(
    "code",
    [Code.BUSY, Code.OUTCOME_UNKNOWN, Code.COORDINATOR_UNAVAILABLE, Code.NOT_LEADER, Code.TOPIC_NOT_FOUND],
    ids=lambda code: code.name,
)
def test_a_leader_that_cannot_serve_just_now_is_no_end_of_the_consumer(code: Code) -> None:
    """It is overloaded, is being replaced, or has not heard of the topic yet."""
    stage = Stage()
    attached(stage)
    [beat] = sent(stage.run_until(2_600), ConsumerFrame)
    effects = stage.receive("a", refused(beat, code))
    effects += stage.run_until(3_600)
    assert (of(effects, ConsumerFailed), of(effects, LeaseLost)) == ([], [])
    again = sent(effects, ConsumerFrame)[-1]
    assert (again.action, again.attach) == (ConsumerAction.BEAT, beat.attach)
    stage.receive("a", confirm(again))
    assert delivered(stage, "a", b"x")


@pytest.mark.parametrize("code", [Code.NOT_LEADER, Code.TOPIC_NOT_FOUND], ids=lambda code: code.name)
def test_a_leader_that_says_that_it_does_not_lead_has_the_consumer_ask_at_once_who_does(code: Code) -> None:
    stage = Stage()
    [frame] = attached(stage).values()
    stage.answer_metadata(stage.run_until(60))
    stage.run_until(500)
    assert len(sent(stage.receive("a", refused(frame, code)), MetadataRequest)) == 1


@pytest.mark.parametrize(
    ("code", "error"),
    [(Code.NOT_ALLOWED, NotAllowed), (Code.INVALID_REQUEST, InvalidRequest), (Code.BROKEN, Broken)],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_refusal_that_would_come_again_and_again_is_the_end_of_the_consumer(
    code: Code, error: type[DueqError]
) -> None:
    """What it holds is lost, and its user hears why."""
    stage = Stage()
    [frame] = attached(stage).values()
    held = delivered(stage, "a", b"x")
    effects = stage.receive("a", refused(frame, code))
    assert [lost.deliveries for lost in of(effects, LeaseLost)] == [held]
    assert [type(failed.error) for failed in of(effects, ConsumerFailed)] == [error]
    assert sent(stage.run_until(20_000), ConsumerFrame) == []


def test_a_consumer_that_has_failed_takes_nothing_and_attaches_nowhere_any_more() -> None:
    """Its user has been told, and another one may have its messages."""
    stage = Stage(["a", "b"], {1: "a"})
    [frame] = attached(stage).values()
    stage.receive("a", refused(frame, Code.NOT_ALLOWED))
    message, body = push("a", frame.attach, 1, [b"x"])
    effects = stage.receive("a", message, body)
    effects += stage.receive("a", confirm(frame, waiting=5))
    effects += stage.receive("a", refused(frame, Code.UNKNOWN_SESSION))
    assert (of(effects, Deliver), sent(effects, ConsumerFrame)) == ([], [])
    stage.run_until(500)
    [request] = sent(stage.insert(7, b"y"), ChangeRequest)
    asking = stage.receive("a", ChangeReply(request.request_id, Code.NOT_LEADER))
    stage.leaders, stage.epoch = {1: "b"}, 2
    news = stage.answer_metadata(asking + stage.run_until(600))
    assert sent(news, ChangeRequest) == [request]
    assert sent(news + stage.run_until(20_000), ConsumerFrame) == []
