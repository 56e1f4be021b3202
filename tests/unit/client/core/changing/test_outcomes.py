"""A change whose time is over fails with what is known of it: what may have been appended is never called undone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dueq.client.core.changing import request_windows
from dueq.client.core.ports import events
from dueq.client.core.ports.effects import Completed, Effect, Failed
from dueq.errors import Busy, OutcomeUnknown, TopicNotFound
from dueq_codecs.messages import (
    ChangeReply,
    ChangeRequest,
    Code,
    DeleteTopicRequest,
    MetadataReply,
    MetadataRequest,
    PartitionInfo,
    Reply,
)
from tests.unit.client.stage import TOPIC, Stage, endpoint, of, ok, sent


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


# -------------------------------------------------------------- topics that were deleted


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Its client lets go of a topic that it has deleted as soon as it uses another one."""
    monkeypatch.setattr(request_windows, "FEW", 1)
    stage = Stage(["a"])
    stage.connect()
    stage.learn_topic()
    return stage


def delete(stage: Stage) -> None:
    deleting = stage.step(events.DeleteTopic(50, stage.at_us(stage.ms + 30_000), TOPIC))
    [request] = sent(deleting, DeleteTopicRequest)
    stage.receive("a", Reply(request.request_id, Code.OK))


def use_another(stage: Stage, name: str = "other") -> None:
    """Insert into another topic, whose partition has the uid 9."""
    none = np.zeros(1, np.uint32)
    event = events.Insert(51, stage.at_us(stage.ms + 30_000), name, [b""], np.ones(1, np.uint64), none, none)
    [question] = sent(stage.step(event), MetadataRequest)
    answer = stage.metadata(question.request_id)
    partition = PartitionInfo(9, "a", 1, True, ())
    answer.topics = (replace(answer.topics[0], name=name, partitions=(partition,)),)
    [request] = sent(stage.receive("a", answer), ChangeRequest)
    assert of(stage.receive("a", ok(request, 1)), Completed)


def failed_insert(stage: Stage) -> tuple[Failed, ChangeRequest]:
    """An insert whose outcome is unknown, and its request."""
    [request] = sent(stage.insert(7, b"x", timeout_ms=100), ChangeRequest)
    [failed] = of(stage.run_until(stage.ms + 100), Failed)
    assert isinstance(failed.error, OutcomeUnknown)
    return failed, request


def refused_insert(stage: Stage) -> Failed:
    """An insert that has surely changed nothing."""
    [request] = sent(stage.insert(7, b"x", timeout_ms=100), ChangeRequest)
    stage.receive("a", refuse(request, Code.BUSY, retry_after_ms=10_000))
    [failed] = of(stage.run_until(stage.ms + 100), Failed)
    assert isinstance(failed.error, Busy)
    return failed


def repeat(stage: Stage, failed: Failed) -> list[Effect]:
    assert failed.repeat is not None
    return stage.step(events.Repeat(60, stage.at_us(stage.ms + 5_000), failed.repeat))


def deny(stage: Stage, effects: list[Effect]) -> list[Effect]:
    """The broker says that there is no topic."""
    [question] = sent(effects, MetadataRequest)
    return stage.receive(
        "a", MetadataReply(question.request_id, Code.TOPIC_NOT_FOUND, "there is no such topic")
    )


def test_a_retry_of_an_unknown_outcome_ends_though_its_topic_was_deleted_and_forgotten(
    forgetful: Stage,
) -> None:
    failed, _ = failed_insert(forgetful)
    delete(forgetful)
    use_another(forgetful)
    [again] = of(deny(forgetful, repeat(forgetful, failed)), Failed)
    assert again.call == 60
    assert isinstance(again.error, OutcomeUnknown)
    assert isinstance(again.error.__cause__, TopicNotFound)


def test_a_retry_of_what_was_refused_ends_though_its_topic_was_deleted_and_forgotten(
    forgetful: Stage,
) -> None:
    failed = refused_insert(forgetful)
    delete(forgetful)
    use_another(forgetful)
    [again] = of(deny(forgetful, repeat(forgetful, failed)), Failed)
    assert isinstance(again.error, TopicNotFound)


def test_a_retry_of_what_was_refused_goes_to_the_topic_that_has_the_name_by_then(forgetful: Stage) -> None:
    failed = refused_insert(forgetful)
    delete(forgetful)
    use_another(forgetful)
    forgetful.leaders = {12: "a"}
    [request] = sent(forgetful.answer_metadata(repeat(forgetful, failed)), ChangeRequest)
    assert request.uid == 12
    assert of(forgetful.receive("a", ok(request, 1)), Completed)


def test_a_retry_that_waits_for_its_forgotten_topic_ends_at_its_deadline(forgetful: Stage) -> None:
    failed = refused_insert(forgetful)
    delete(forgetful)
    use_another(forgetful)
    assert not of(repeat(forgetful, failed), Failed)
    [again] = of(forgetful.run_until(forgetful.ms + 5_000), Failed)
    assert again.call == 60


def test_no_number_is_used_twice_though_a_topic_that_was_forgotten_is_there(forgetful: Stage) -> None:
    """A broker that was behind had not heard of it; a request under a known number is taken for a repetition."""
    failed, unanswered = failed_insert(forgetful)
    asking = forgetful.receive(
        "a", refuse(sent(forgetful.insert(8, b"y"), ChangeRequest)[0], Code.TOPIC_NOT_FOUND)
    )
    deny(forgetful, asking + forgetful.run_until(forgetful.ms + 60))
    use_another(forgetful)
    [later] = sent(forgetful.answer_metadata(forgetful.insert(9, b"z")), ChangeRequest)
    assert later.uid == unanswered.uid
    assert later.sequence > unanswered.sequence + 1
    assert sent(repeat(forgetful, failed), ChangeRequest) == [unanswered]
    assert of(forgetful.receive("a", ok(unanswered, 90)), Completed)


def test_what_is_under_way_is_not_forgotten(forgetful: Stage) -> None:
    [request] = sent(forgetful.insert(7, b"x"), ChangeRequest)
    delete(forgetful)
    use_another(forgetful)
    assert [done.call for done in of(forgetful.receive("a", ok(request, 90)), Completed)] == [7]


def test_what_waited_for_a_forgotten_topic_is_not_sent_after_its_caller_was_told_that_it_is_not(
    forgetful: Stage,
) -> None:
    failed = refused_insert(forgetful)
    assert failed.repeat is not None
    delete(forgetful)
    use_another(forgetful)
    asking = forgetful.step(events.Repeat(60, forgetful.at_us(forgetful.ms + 500), failed.repeat))
    for name in ("third", "fourth", "fifth"):
        use_another(forgetful, name)
    assert [again.call for again in of(forgetful.run_until(forgetful.ms + 600), Failed)] == [60]
    assert sent(forgetful.answer_metadata(asking), ChangeRequest) == []


def numbered(stage: Stage, call: int) -> ChangeRequest:
    """The request of a `NumberedProducer`, whose client id is its own."""
    none = np.zeros(1, np.uint32)
    event = events.Insert(
        call, stage.at_us(stage.ms + 30_000), TOPIC, [b""], np.ones(1, np.uint64), none, none, b"n" * 16, 0
    )
    [request] = sent(stage.answer_metadata(stage.step(event)) + stage.effects, ChangeRequest)[-1:]
    return request


def test_the_numbers_of_a_client_id_go_on_though_its_topic_was_forgotten_meanwhile(forgetful: Stage) -> None:
    """A partition that is there after all takes another request of the first number for a repetition of that."""
    first = numbered(forgetful, 30)
    assert of(forgetful.receive("a", ok(first, 80)), Completed)
    delete(forgetful)
    use_another(forgetful)
    second = numbered(forgetful, 31)
    assert (second.uid, second.client_id) == (first.uid, first.client_id)
    assert (first.sequence, second.sequence) == (1, 2)


def test_what_was_meant_for_a_topic_that_was_made_anew_meanwhile_ends(stage: Stage) -> None:
    """Its partition is no more: to ask for it until the deadline would help nobody."""
    [request] = sent(stage.insert(7, b"x"), ChangeRequest)
    effects = stage.receive("a", refuse(request, Code.TOPIC_NOT_FOUND)) + stage.run_until(stage.ms + 60)
    stage.leaders = {12: "a"}
    [failed] = of(stage.answer_metadata(effects), Failed)
    assert (failed.call, type(failed.error)) == (7, TopicNotFound)


def test_a_leader_that_names_its_epoch_and_is_busy_is_asked_again(stage: Stage) -> None:
    """Its answer is final only where it says that no leader will ever know what came of the request."""
    [request] = sent(stage.insert(7, b"x"), ChangeRequest)
    effects = stage.receive("a", refuse(request, Code.BUSY, epoch=1)) + stage.run_until(stage.ms + 500)
    assert (sent(effects, ChangeRequest), of(effects, Failed)) == ([request], [])
