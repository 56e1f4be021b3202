"""Deleting a topic: the one that the first answer names, and no other, however often the request is repeated."""

from __future__ import annotations

import gc
import json
from collections import OrderedDict
from datetime import UTC, datetime

import pytest

from dueq.client import calls
from dueq.client.core.asking.topics import NO_UID
from dueq.client.core.ports.effects import Completed, Effect, Failed
from dueq.client.core.ports.events import DeleteTopic
from dueq.errors import Disconnected, OutcomeUnknown, TopicNotFound
from dueq.testing import mesh as simulated
from dueq_codecs.messages import Code, DeleteTopicRequest, Reply
from tests.unit.client.stage import TOPIC, Stage, of, sent


@pytest.fixture
def stage() -> Stage:
    made = Stage()
    made.connect()
    return made


def begun(stage: Stage, *named: int) -> DeleteTopicRequest:
    [request] = sent(stage.step(DeleteTopic(1, stage.at_us(30_000), TOPIC, list(named))), DeleteTopicRequest)
    return request


def there_is(stage: Stage, request: DeleteTopicRequest, *uids: int) -> list[Effect]:
    """The topic that has the name is another one; without uids, none has it."""
    document = json.dumps(uids) if uids else ""
    answer = Reply(request.request_id, Code.TOPIC_NOT_FOUND, "there is no such topic", document)
    return stage.receive("a", answer) + stage.run_until(stage.ms + 5)


def named(stage: Stage, *uids: int) -> DeleteTopicRequest:
    """The client has been told which topic there is."""
    [request] = sent(there_is(stage, begun(stage), *uids), DeleteTopicRequest)
    return request


def silent(stage: Stage) -> DeleteTopicRequest:
    """No answer comes in time."""
    [request] = sent(stage.run_until(stage.ms + 4_500), DeleteTopicRequest)
    return request


def test_it_means_no_topic_at_first_and_then_the_one_that_there_is(stage: Stage) -> None:
    first = begun(stage)
    assert (first.topic, first.uid) == (TOPIC, NO_UID)
    [second] = sent(there_is(stage, first, 7, 8), DeleteTopicRequest)
    assert second.uid == 7
    assert of(stage.receive("a", Reply(second.request_id, Code.OK)), Completed)


def test_a_broker_of_an_older_build_deletes_at_once(stage: Stage) -> None:
    assert of(stage.receive("a", Reply(begun(stage).request_id, Code.OK)), Completed)


def test_a_repetition_leaves_a_topic_alone_that_was_made_since(stage: Stage) -> None:
    named(stage, 7)
    repeated = silent(stage)
    assert repeated.uid == 7
    effects = there_is(stage, repeated, 9)
    assert of(effects, Completed)
    assert not sent(effects, DeleteTopicRequest)


def test_a_repetition_that_finds_no_topic_has_deleted_it(stage: Stage) -> None:
    named(stage, 7)
    assert of(there_is(stage, silent(stage)), Completed)


def test_without_a_topic_of_the_name_the_caller_is_told(stage: Stage) -> None:
    [failed] = of(there_is(stage, begun(stage)), Failed)
    assert isinstance(failed.error, TopicNotFound)


def test_a_topic_that_others_made_again_before_any_silence_is_the_one_that_is_meant(stage: Stage) -> None:
    """Whoever named the first one was behind, or somebody else has deleted it: this call has deleted nothing yet."""
    [request] = sent(there_is(stage, named(stage, 7), 9), DeleteTopicRequest)
    assert request.uid == 9


def test_a_silence_before_the_topic_is_named_deletes_nothing(stage: Stage) -> None:
    begun(stage)
    [request] = sent(there_is(stage, silent(stage), 7), DeleteTopicRequest)
    [again] = sent(there_is(stage, request, 9), DeleteTopicRequest)
    assert (request.uid, again.uid) == (7, 9)


def test_an_answer_of_a_topic_before_it_is_asked_for_again(stage: Stage) -> None:
    named(stage, 7)
    there_is(stage, silent(stage), 5)
    [request] = sent(stage.run_until(stage.ms + 1_000), DeleteTopicRequest)
    assert request.uid == 7


def test_a_retry_of_the_call_means_the_same_topic(stage: Stage) -> None:
    call = calls.delete_topic(TOPIC)
    [first] = sent(stage.step(call.build(1, stage.at_us(3_000))), DeleteTopicRequest)
    there_is(stage, first, 7)
    [failed] = of(stage.run_until(stage.ms + 3_500), Failed)
    assert isinstance(failed.error, OutcomeUnknown)
    [repeated] = sent(stage.step(call.build(2, stage.at_us(90_000))), DeleteTopicRequest)
    assert repeated.uid == 7
    assert of(there_is(stage, repeated, 9), Completed)


def test_while_only_refusals_come_nothing_was_done(stage: Stage) -> None:
    stage.receive(
        "a", Reply(named(stage, 7).request_id, Code.COORDINATOR_UNAVAILABLE, "away", retry_after_ms=60_000)
    )
    [failed] = of(stage.run_until(stage.ms + 31_000), Failed)
    assert not isinstance(failed.error, OutcomeUnknown | Disconnected)


def test_who_is_not_told_whether_it_was_deleted_believes_the_topic_that_is_there_afterwards(
    stage: Stage,
) -> None:
    late = Reply(named(stage, 7).request_id, Code.OUTCOME_UNKNOWN, "it may still happen", retry_after_ms=1)
    assert not of(stage.receive("a", late), Failed)
    [again] = sent(stage.run_until(stage.ms + 1_000), DeleteTopicRequest)
    assert again.uid == 7
    assert of(there_is(stage, again, 9), Completed)


def objects(core: object) -> int:
    """How many containers, and objects of its own, a client's core holds."""
    seen: set[int] = set()
    left = [core]
    while left:
        each = left.pop()
        own = type(each).__module__.startswith("dueq.client.core")
        if id(each) not in seen and (own or type(each) in (dict, list, tuple, set, OrderedDict)):
            seen.add(id(each))
            left += gc.get_referents(each)
    return len(seen)


def test_a_client_that_makes_uses_and_deletes_topics_again_and_again_does_not_grow() -> None:
    counts: list[int] = []
    with simulated(datetime(2026, 3, 28, 12, tzinfo=UTC)) as mesh:
        client = mesh.client()
        for number in range(400):
            topic = f"t{number}"
            client.create_topic(topic)
            client.producer(topic).schedule_many([b"x"], [0])
            [message] = client.pull(topic, 1, wait=5)
            message.ack()
            client.delete_topic(topic)
            counts.append(objects(client.connection._runtime._core))
    assert max(counts[200:]) < max(counts[:200]) + 100, counts[::50]
