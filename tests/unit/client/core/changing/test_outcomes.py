"""A change whose time is over fails with what is known of it: what may have been appended is never called undone."""

from __future__ import annotations

import pytest

from dueq.client.core.ports import events
from dueq.client.core.ports.effects import Failed
from dueq.errors import Busy, OutcomeUnknown
from dueq_codecs.messages import ChangeReply, ChangeRequest, Code
from tests.unit.client.stage import Stage, endpoint, of, sent


@pytest.fixture
def stage() -> Stage:
    """Two brokers; the first leads the only partition."""
    stage = Stage(["a", "b"])
    stage.connect()
    stage.learn_topic()
    return stage


def refuse(request: ChangeRequest, code: Code, **fields: object) -> ChangeReply:
    return ChangeReply(request.request_id, code, "why", **fields)  # type: ignore[arg-type]


def failure(stage: Stage, ms: float) -> Exception:
    """The error of the call that ends within this time."""
    [failed] = of(stage.run_until(stage.ms + ms), Failed)
    return failed.error


def test_what_a_leader_does_not_know_is_unknown_also_before_it_is_asked_again(stage: Stage) -> None:
    """The deadline falls within the rest between two attempts: nothing is on its way just then."""
    [request] = sent(stage.insert(7, b"x", timeout_ms=10), ChangeRequest)
    assert not sent(stage.receive("a", refuse(request, Code.OUTCOME_UNKNOWN)), ChangeRequest)
    assert isinstance(failure(stage, 10), OutcomeUnknown)


def test_what_a_leader_does_not_know_stays_unknown_though_the_next_attempt_is_refused(stage: Stage) -> None:
    [request] = sent(stage.insert(7, b"x", timeout_ms=500), ChangeRequest)
    stage.receive("a", refuse(request, Code.OUTCOME_UNKNOWN))
    assert sent(stage.run_until(stage.ms + 100), ChangeRequest) == [request]
    stage.receive("a", refuse(request, Code.BUSY, retry_after_ms=10_000))
    assert isinstance(failure(stage, 500), OutcomeUnknown)


def test_what_was_sent_by_a_link_that_broke_is_unknown_also_before_it_is_sent_again(stage: Stage) -> None:
    assert sent(stage.insert(7, b"x", timeout_ms=5), ChangeRequest)
    assert not sent(stage.step(events.LinkLost(stage.links[endpoint("a")])), ChangeRequest)
    assert isinstance(failure(stage, 5), OutcomeUnknown)


def test_what_an_earlier_leader_may_have_appended_stays_unknown_though_the_next_one_refuses(
    stage: Stage,
) -> None:
    """It was sent on within the first second, so no silence had made it unknown."""
    [unanswered] = sent(stage.insert(7, b"x", timeout_ms=500), ChangeRequest)
    [refused] = sent(stage.insert(8, b"y"), ChangeRequest)
    asking = stage.receive("a", refuse(refused, Code.NOT_LEADER))
    stage.leaders, stage.epoch = {1: "b"}, 2
    moved = stage.answer_metadata(asking + stage.run_until(stage.ms + 60))
    assert unanswered.request_id in {request.request_id for request in sent(moved, ChangeRequest)}
    stage.receive("b", refuse(unanswered, Code.BUSY, retry_after_ms=10_000))
    assert isinstance(failure(stage, 440), OutcomeUnknown)


def test_what_only_was_refused_is_known(stage: Stage) -> None:
    [request] = sent(stage.insert(7, b"x", timeout_ms=500), ChangeRequest)
    stage.receive("a", refuse(request, Code.BUSY, retry_after_ms=10_000))
    assert isinstance(failure(stage, 500), Busy)


def test_what_no_leader_will_ever_know_is_not_asked_again_and_keeps_no_other_request_waiting(
    stage: Stage,
) -> None:
    """A record says so: the request is older than what the partition remembers of this client."""
    [request] = sent(stage.insert(7, b"x"), ChangeRequest)
    [failed] = of(stage.receive("a", refuse(request, Code.OUTCOME_UNKNOWN, epoch=1)), Failed)
    assert isinstance(failed.error, OutcomeUnknown)
    assert "not known any more" in str(failed.error)
    assert not sent(stage.run_until(stage.ms + 1_000), ChangeRequest)
    [other] = sent(stage.insert(8, b"y"), ChangeRequest)
    assert other.sequence > request.sequence
