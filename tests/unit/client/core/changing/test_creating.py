"""Making a topic: how many brokers there are is asked first, where nobody says how many replicas."""

from __future__ import annotations

import pytest

from dueq.client.core.ports.effects import Completed, Effect, Failed
from dueq.client.core.ports.events import CreateTopic, Inspect
from dueq.errors import DueqError, InvalidRequest, OutcomeUnknown, TopicExists, TopicNotFound
from dueq_codecs.messages import (
    BrokerInfo,
    ChangeRequest,
    Code,
    CreateTopicRequest,
    InspectRequest,
    MetadataReply,
    MetadataRequest,
    Reply,
)
from tests.unit.client.stage import TOPIC, Stage, endpoint, of, sent


@pytest.fixture
def stage() -> Stage:
    made = Stage()
    made.connect()
    return made


@pytest.mark.parametrize(("brokers", "replicas"), [(1, 1), (2, 2), (5, 3)])
def test_the_brokers_are_counted_without_a_list_of_all_topics(
    stage: Stage, brokers: int, replicas: int
) -> None:
    order = CreateTopic(1, stage.at_us(30_000), b"c" * 16, "new")
    [question] = sent(stage.step(order), MetadataRequest)
    assert question.brokers_only
    infos = tuple(BrokerInfo(f"b{number}", endpoint(f"b{number}")) for number in range(brokers))
    found = MetadataReply(question.request_id, Code.OK, "", infos)
    [request] = sent(stage.receive("a", found), CreateTopicRequest)
    assert (request.topic, request.replicas) == ("new", replicas)


def test_whoever_says_how_many_replicas_is_not_asked(stage: Stage) -> None:
    effects = stage.step(CreateTopic(1, stage.at_us(30_000), b"c" * 16, "new", replicas=2))
    [request] = sent(effects, CreateTopicRequest)
    assert request.replicas == 2
    assert not sent(effects, MetadataRequest)


def answered(stage: Stage, question: list[Effect], uid: int) -> list[Effect]:
    """A broker says that partition `uid` is the topic."""
    stage.leaders = {uid: "a"}
    return stage.answer_metadata(question)


def test_a_broker_that_knows_of_the_deleted_topic_only_is_asked_again() -> None:
    """It would let a call return, count or send messages that are of the topic that was deleted."""
    stage = Stage()
    stage.connect()
    [request] = sent(
        stage.step(CreateTopic(1, stage.at_us(30_000), b"c" * 16, TOPIC, replicas=1)), CreateTopicRequest
    )
    asked = stage.receive("a", Reply(request.request_id, Code.OK, document="[7]"))
    assert not of(answered(stage, asked, 1), Completed)
    assert of(answered(stage, stage.run_until(stage.ms + 60), 7), Completed)

    counted = stage.step(Inspect(2, stage.at_us(30_000), "describe", TOPIC))
    assert not sent(answered(stage, counted, 1), InspectRequest)
    assert sent(answered(stage, stage.run_until(stage.ms + 60), 7), InspectRequest)

    scheduled = stage.insert(3, b"x")
    assert not sent(answered(stage, scheduled, 1), ChangeRequest)


@pytest.mark.parametrize("document", ["", "{}", "null", '["x"]', "[1", "7"])
def test_an_answer_that_names_no_partitions_is_one_of_a_broker_that_does_not_say(document: str) -> None:
    stage = Stage()
    stage.connect()
    order = CreateTopic(1, stage.at_us(30_000), b"c" * 16, TOPIC, replicas=1)
    [request] = sent(stage.step(order), CreateTopicRequest)
    asked = stage.receive("a", Reply(request.request_id, Code.OK, document=document))
    assert of(answered(stage, asked, 1), Completed)


def test_a_creation_whose_topic_was_deleted_since_is_told() -> None:
    """Nothing is to be waited for."""
    stage = Stage()
    stage.connect()
    order = CreateTopic(1, stage.at_us(30_000), b"c" * 16, TOPIC, replicas=1)
    [request] = sent(stage.step(order), CreateTopicRequest)
    text = "topic 't' was created by this request, and has been deleted since"
    error = failure(stage.receive("a", Reply(request.request_id, Code.TOPIC_NOT_FOUND, text)))
    assert isinstance(error, TopicNotFound)
    assert str(error) == text


def counted(stage: Stage, question: list[Effect]) -> list[Effect]:
    """The brokers are counted, at the second attempt."""
    [first] = sent(question, MetadataRequest)
    stage.receive("a", Reply(first.request_id, Code.BUSY, retry_after_ms=1))
    [again] = sent(stage.run_until(stage.ms + 300), MetadataRequest)
    infos = (BrokerInfo("a", endpoint("a")),)
    return stage.receive("a", MetadataReply(again.request_id, Code.OK, "", infos))


def failure(effects: list[Effect]) -> DueqError:
    """What the call has failed with."""
    [failed] = of(effects, Failed)
    return failed.error


def test_refusals_of_the_count_do_not_hide_that_the_creation_was_not_answered(stage: Stage) -> None:
    begun = stage.step(CreateTopic(1, stage.at_us(3_000), b"c" * 16, TOPIC))
    assert sent(counted(stage, begun), CreateTopicRequest)
    assert isinstance(failure(stage.run_until(3_100)), OutcomeUnknown)


def test_nor_do_refusals_of_the_creation_hide_that_it_has_succeeded(stage: Stage) -> None:
    """The topic is there, and not serving yet."""
    order = CreateTopic(1, stage.at_us(3_000), b"c" * 16, TOPIC, replicas=1)
    [first] = sent(stage.step(order), CreateTopicRequest)
    stage.receive("a", Reply(first.request_id, Code.COORDINATOR_UNAVAILABLE, retry_after_ms=1))
    [again] = sent(stage.run_until(stage.ms + 300), CreateTopicRequest)
    [question] = sent(stage.receive("a", Reply(again.request_id, Code.OK, document="[7]")), MetadataRequest)
    stage.receive("a", Reply(question.request_id, Code.BUSY, retry_after_ms=60_000))
    assert isinstance(failure(stage.run_until(3_100)), OutcomeUnknown)


@pytest.mark.parametrize(
    ("code", "expected"), [(Code.INVALID_REQUEST, OutcomeUnknown), (Code.TOPIC_EXISTS, TopicExists)]
)
def test_a_refusal_after_an_attempt_without_an_answer_does_not_say_that_nothing_was_done(
    stage: Stage, code: Code, expected: type[DueqError]
) -> None:
    """The broker that made the topic may be the one that is missing now for its replicas."""
    stage.step(CreateTopic(1, stage.at_us(30_000), b"c" * 16, TOPIC, replicas=1))
    [again] = sent(stage.run_until(stage.ms + 4_100), CreateTopicRequest)
    assert isinstance(failure(stage.receive("a", Reply(again.request_id, code, "why"))), expected)


def test_a_refusal_of_the_first_attempt_says_it(stage: Stage) -> None:
    order = CreateTopic(1, stage.at_us(30_000), b"c" * 16, TOPIC, replicas=1)
    [request] = sent(stage.step(order), CreateTopicRequest)
    refused = stage.receive("a", Reply(request.request_id, Code.INVALID_REQUEST, "why"))
    assert isinstance(failure(refused), InvalidRequest)


LATE = "ZooKeeper did not confirm topic 'new' within 10 s; it may still happen"


def unconfirmed(stage: Stage) -> int:
    """The creation was sent, and the broker does not know what has become of it; returns the last request."""
    order = CreateTopic(1, stage.at_us(30_000), b"c" * 16, TOPIC, replicas=1)
    [first] = sent(stage.step(order), CreateTopicRequest)
    late = Reply(first.request_id, Code.OUTCOME_UNKNOWN, LATE, retry_after_ms=1_000)
    assert not of(stage.receive("a", late), Failed)
    [again] = sent(stage.run_until(stage.ms + 1_500), CreateTopicRequest)
    assert again.creation_id == first.creation_id
    return again.request_id


def test_what_the_broker_does_not_know_counts_as_no_answer(stage: Stage) -> None:
    error = failure(stage.receive("a", Reply(unconfirmed(stage), Code.INVALID_REQUEST, "why")))
    assert isinstance(error, OutcomeUnknown)


def test_nor_is_it_forgotten_when_time_is_over(stage: Stage) -> None:
    """All later attempts are refused, and have done nothing."""
    away = Reply(unconfirmed(stage), Code.COORDINATOR_UNAVAILABLE, "away", retry_after_ms=60_000)
    stage.receive("a", away)
    error = failure(stage.run_until(31_000))
    assert isinstance(error, OutcomeUnknown)
    assert str(error).startswith(LATE)
