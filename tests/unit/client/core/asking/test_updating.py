"""Changing a topic: on top of the version that it has by then, once, and known by its update id."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dueq.client import topic_changes
from dueq.client.core.asking.topics import NO_UID
from dueq.client.core.ports.effects import Completed, Effect, Failed
from dueq.client.core.ports.events import AwaitSettings, UpdateTopic
from dueq.errors import InvalidRequest, OutcomeUnknown, TopicNotFound
from dueq_codecs.messages import ChangeReply, ChangeRequest, Code, Reply, UpdateTopicRequest
from dueq_codecs.records import RecordKind
from tests.unit.client.stage import TOPIC, Stage, of, sent

MINE = b"u" * 16


@pytest.fixture
def stage() -> Stage:
    made = Stage()
    made.connect()
    return made


def begun(stage: Stage) -> UpdateTopicRequest:
    change = UpdateTopic(1, stage.at_us(30_000), MINE, TOPIC, '{"paused":true}')
    [request] = sent(stage.step(change), UpdateTopicRequest)
    return request


def standing(request: UpdateTopicRequest, version: int, update: bytes, uid: int = 1) -> Reply:
    document = {"version": version, "update": update.hex(), "partitions": [uid, uid + 1]}
    return Reply(request.request_id, Code.OK, document=json.dumps(document))


def of_others(stage: Stage, request: UpdateTopicRequest, version: int, uid: int = 1) -> list[Effect]:
    """Nothing was changed; the topic that has the name stands like this."""
    answer = standing(request, version, b"o" * 16, uid)
    return stage.receive("a", answer) + stage.run_until(stage.ms + 5)


def moved_on(stage: Stage, request: UpdateTopicRequest, version: int, uid: int = 1) -> UpdateTopicRequest:
    """It is sent again, for the topic that there is."""
    [second] = sent(of_others(stage, request, version, uid), UpdateTopicRequest)
    return second


def silent(stage: Stage) -> UpdateTopicRequest:
    """No answer comes in time."""
    [request] = sent(stage.run_until(stage.ms + 4_500), UpdateTopicRequest)
    return request


def test_it_begins_with_version_0_and_goes_on_with_the_one_that_there_is(stage: Stage) -> None:
    first = begun(stage)
    assert (first.version, first.update_id, first.document) == (0, MINE, '{"paused":true}')
    second = moved_on(stage, first, 4)
    assert (second.version, second.update_id) == (4, MINE)
    [done] = of(stage.receive("a", standing(second, 5, MINE)), Completed)
    assert done.value == {"version": 5, "update": MINE.hex(), "partitions": [1, 2]}


@pytest.mark.parametrize("present", [2, 9])
def test_of_an_expected_version_that_there_is_not_the_caller_is_told(stage: Stage, present: int) -> None:
    change = UpdateTopic(1, stage.at_us(30_000), MINE, TOPIC, '{"paused":true}', if_version=4)
    [first] = sent(stage.step(change), UpdateTopicRequest)
    second = moved_on(stage, first, present)
    assert (first.version, second.version) == (4, 4)
    [done] = of(stage.receive("a", standing(second, present, b"o" * 16)), Completed)
    assert done.value["version"] == present


def test_a_broker_that_had_not_heard_of_the_expected_version_is_asked_again(stage: Stage) -> None:
    change = UpdateTopic(1, stage.at_us(30_000), MINE, TOPIC, '{"paused":true}', if_version=4)
    [first] = sent(stage.step(change), UpdateTopicRequest)
    second = moved_on(stage, first, 4)
    again = stage.receive("a", standing(second, 4, b"o" * 16)) + stage.run_until(stage.ms + 1_000)
    [third] = sent(again, UpdateTopicRequest)
    [done] = of(stage.receive("a", standing(third, 5, MINE)), Completed)
    assert done.value["version"] == 5


def test_it_means_no_topic_at_first_and_then_the_one_that_there_is(stage: Stage) -> None:
    first = begun(stage)
    assert (first.uid, moved_on(stage, first, 0, 7).uid) == (NO_UID, 7)


def test_a_topic_that_the_client_knows_is_named_at_once(stage: Stage) -> None:
    stage.leaders = {1: "a", 2: "a"}
    stage.answer_metadata(stage.step(AwaitSettings(9, stage.at_us(30_000), TOPIC, 3, [1, 2])))
    assert begun(stage).uid == 1


def test_a_repetition_leaves_a_topic_alone_that_was_made_since(stage: Stage) -> None:
    moved_on(stage, begun(stage), 0, 7)
    repeated = silent(stage)
    assert repeated.uid == 7
    effects = of_others(stage, repeated, 0, 9)
    [failed] = of(effects, Failed)
    assert isinstance(failed.error, TopicNotFound)
    assert not sent(effects, UpdateTopicRequest)


def test_a_topic_that_others_made_again_before_any_silence_is_the_one_that_is_meant(stage: Stage) -> None:
    """Whoever named the first one was behind, or somebody else has deleted it: nothing has been changed yet."""
    third = moved_on(stage, moved_on(stage, begun(stage), 3, 7), 0, 9)
    assert (third.version, third.uid) == (0, 9)


def test_a_silence_before_the_topic_is_named_changes_nothing(stage: Stage) -> None:
    begun(stage)
    second = moved_on(stage, silent(stage), 0, 7)
    assert (second.uid, moved_on(stage, second, 0, 9).uid) == (7, 9)


def test_an_answer_of_a_topic_before_it_is_asked_for_again(stage: Stage) -> None:
    moved_on(stage, begun(stage), 0, 7)
    assert not of(of_others(stage, silent(stage), 3, 5), Failed)
    [request] = sent(stage.run_until(stage.ms + 1_000), UpdateTopicRequest)
    assert (request.version, request.uid) == (0, 7)


def test_a_retry_of_the_call_means_the_same_topic(stage: Stage) -> None:
    call = topic_changes.store(TOPIC, MINE, {"paused": True})
    [first] = sent(stage.step(call.build(1, stage.at_us(3_000))), UpdateTopicRequest)
    moved_on(stage, first, 0, 7)
    [unknown] = of(stage.run_until(stage.ms + 3_500), Failed)
    assert isinstance(unknown.error, OutcomeUnknown)
    [repeated] = sent(stage.step(call.build(2, stage.at_us(90_000))), UpdateTopicRequest)
    assert repeated.uid == 7
    [failed] = of(of_others(stage, repeated, 0, 9), Failed)
    assert isinstance(failed.error, TopicNotFound)


def test_an_answer_that_cannot_be_read_is_asked_for_again(stage: Stage) -> None:
    request = begun(stage)
    stage.receive("a", Reply(request.request_id, Code.OK, document="[]"))
    assert sent(stage.run_until(stage.ms + 1_000), UpdateTopicRequest)


def test_without_an_answer_the_outcome_is_unknown(stage: Stage) -> None:
    begun(stage)
    [failed] = of(stage.run_until(stage.ms + 31_000), Failed)
    assert isinstance(failed.error, OutcomeUnknown)


@pytest.mark.parametrize(
    ("code", "error"), [(Code.INVALID_REQUEST, InvalidRequest), (Code.TOPIC_NOT_FOUND, TopicNotFound)]
)
def test_a_refusal_is_final(stage: Stage, code: Code, error: type[Exception]) -> None:
    request = begun(stage)
    [failed] = of(stage.receive("a", Reply(request.request_id, code, "why")), Failed)
    assert isinstance(failed.error, error)


def test_each_partition_is_asked_whether_it_is_in_force(stage: Stage) -> None:
    stage.leaders = {1: "a", 2: "a"}
    asked = stage.answer_metadata(stage.step(AwaitSettings(1, stage.at_us(30_000), TOPIC, 3, [1, 2])))
    requests = sent(asked, ChangeRequest)
    assert [(r.kind, r.uid, r.document) for r in requests] == [
        (RecordKind.SETTINGS, 1, '{"version":3}'), (RecordKind.SETTINGS, 2, '{"version":3}'),
    ]  # fmt: skip
    done = np.zeros(1, np.uint8)
    assert not of(
        stage.receive("a", ChangeReply(requests[0].request_id, Code.OK, uid=1, outcomes=done)), Completed
    )
    assert of(
        stage.receive("a", ChangeReply(requests[1].request_id, Code.OK, uid=2, outcomes=done)), Completed
    )
