"""Changing a topic: on top of the version that it has by then, once, and known by its update id."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dueq.client.core.ports.effects import Completed, Failed
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


def standing(request: UpdateTopicRequest, version: int, update: bytes) -> Reply:
    document = {"version": version, "update": update.hex(), "partitions": [1, 2]}
    return Reply(request.request_id, Code.OK, document=json.dumps(document))


def test_it_begins_with_version_0_and_goes_on_with_the_one_that_there_is(stage: Stage) -> None:
    first = begun(stage)
    assert (first.version, first.update_id, first.document) == (0, MINE, '{"paused":true}')
    moved_on = stage.receive("a", standing(first, 4, b"o" * 16)) + stage.run_until(stage.ms + 5)
    [second] = sent(moved_on, UpdateTopicRequest)
    assert (second.version, second.update_id) == (4, MINE)
    [done] = of(stage.receive("a", standing(second, 5, MINE)), Completed)
    assert done.value == {"version": 5, "update": MINE.hex(), "partitions": [1, 2]}


@pytest.mark.parametrize("present", [2, 9])
def test_of_an_expected_version_that_there_is_not_the_caller_is_told(stage: Stage, present: int) -> None:
    change = UpdateTopic(1, stage.at_us(30_000), MINE, TOPIC, '{"paused":true}', if_version=4)
    [request] = sent(stage.step(change), UpdateTopicRequest)
    assert request.version == 4
    [done] = of(stage.receive("a", standing(request, present, b"o" * 16)), Completed)
    assert done.value["version"] == present


def test_a_broker_that_had_not_heard_of_the_expected_version_is_asked_again(stage: Stage) -> None:
    change = UpdateTopic(1, stage.at_us(30_000), MINE, TOPIC, '{"paused":true}', if_version=4)
    [request] = sent(stage.step(change), UpdateTopicRequest)
    moved_on = stage.receive("a", standing(request, 4, b"o" * 16)) + stage.run_until(stage.ms + 1_000)
    [second] = sent(moved_on, UpdateTopicRequest)
    [done] = of(stage.receive("a", standing(second, 5, MINE)), Completed)
    assert done.value["version"] == 5


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
