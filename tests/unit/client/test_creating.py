"""Making a topic: how many brokers there are is asked first, where nobody says how many replicas."""

from __future__ import annotations

import pytest

from dueq.client.core.events import CreateTopic
from dueq_codecs.messages import (
    BrokerInfo,
    Code,
    CreateTopicRequest,
    MetadataReply,
    MetadataRequest,
)
from tests.unit.client.stage import Stage, endpoint, sent


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
