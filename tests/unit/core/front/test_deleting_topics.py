"""A topic is deleted if it is the one that the request names."""

from __future__ import annotations

import json

import pytest

from dueq.core.broker import BrokerCore
from dueq.core.ports.effects import Coordinate, Effect, Log, SendClient
from dueq.core.ports.entry import NO_ENTRIES
from dueq.core.ports.events import ClientFrameReceived, Route
from dueq.core.ports.membership import (
    CoordinatorChanged,
    CoordinatorState,
    DeleteTopic,
    PartitionAssignment,
    RegistrationsSeen,
    Topic,
    TopicOrderDone,
    TopicsSeen,
)
from dueq.core.ports.persistence import RecoveredPartition
from dueq.core.turn.settings import CoreSettings
from dueq.instant import Now
from dueq_codecs.messages import Code, DeleteTopicRequest, Reply

NOW = Now(1_700_000_000_000_000, 1_000_000)


def broker() -> BrokerCore:
    """One that knows no topics."""
    core = BrokerCore(CoreSettings("b1", 1, "s1", "cluster", "tcp://b1"), [], NOW)
    core.step([CoordinatorChanged(CoordinatorState.CONNECTED), RegistrationsSeen({})], NOW)
    core.step([TopicsSeen({}, frozenset())], NOW)
    return core


def asked(core: BrokerCore, request: DeleteTopicRequest) -> list[Effect]:
    return core.step([ClientFrameReceived(Route(b"client"), request, [])], NOW)


def answered(effects: list[Effect]) -> Reply:
    [reply] = [effect.message for effect in effects if isinstance(effect, SendClient)]
    assert isinstance(reply, Reply)
    return reply


@pytest.mark.parametrize("name", ["", "a/b", "x" * 256, "x" * 1_500_000])
def test_what_is_no_name_of_a_topic_is_not_asked_for_in_zookeeper(name: str) -> None:
    """A request of more than 1 MiB costs a broker its connection to ZooKeeper."""
    effects = asked(broker(), DeleteTopicRequest(5, name))
    assert not [effect for effect in effects if isinstance(effect, Coordinate)]
    reply = answered(effects)
    assert (reply.code, len(reply.text) < 200) == (Code.TOPIC_NOT_FOUND, True)


@pytest.mark.parametrize("uid", [0, 4])
def test_the_order_names_the_topic_that_is_meant_and_the_answer_the_one_that_there_is(uid: int) -> None:
    core = broker()
    effects = asked(core, DeleteTopicRequest(5, "t", uid))
    [order] = [effect.order for effect in effects if isinstance(effect, Coordinate)]
    assert isinstance(order, DeleteTopic)
    assert (order.name, order.uid) == ("t", uid)

    parts = tuple(PartitionAssignment(number, ("b2",)) for number in (8, 9))
    there = Topic("t", "0" * 32, "timeline", parts, 1, 1)
    effects = core.step([TopicOrderDone(order.token, "not_found", "there is no such topic", there)], NOW)
    reply = answered(effects)
    assert (reply.code, json.loads(reply.document)) == (Code.TOPIC_NOT_FOUND, [8, 9])


def test_a_topic_that_is_heard_of_with_its_tombstone_is_not_opened() -> None:
    core = broker()
    topic = Topic("t", "0" * 32, "timeline", (PartitionAssignment(4, ("b1",)),), 1, 1)
    core.step([TopicsSeen({"t": topic}, frozenset({4}))], NOW)
    assert core.partition(4) is None


@pytest.mark.parametrize(("name", "opened"), [("t", True), ("", True), ("other", False)])
def test_what_the_disk_has_of_another_topic_is_not_opened_as_this_ones(name: str, opened: bool) -> None:
    """A coordinator that was set back gives out numbers again: a topic had the messages of another one."""
    on_disk = RecoveredPartition(4, name, 1, 0, 9, 10, 9, [(1, 9)], [], 0, NO_ENTRIES, {}, b"", [])
    core = BrokerCore(CoreSettings("b1", 1, "s1", "cluster", "tcp://b1"), [on_disk], NOW)
    core.step([CoordinatorChanged(CoordinatorState.CONNECTED), RegistrationsSeen({})], NOW)
    topic = Topic("t", "0" * 32, "timeline", (PartitionAssignment(4, ("b1",)),), 1, 1)
    effects = core.step([TopicsSeen({"t": topic}, frozenset())], NOW)
    assert (core.partition(4) is not None) == opened
    logs = [
        effect.fields for effect in effects if isinstance(effect, Log) and effect.event == "replica.orphaned"
    ]
    assert logs == ([] if opened else [{"uid": 4, "topic": "other"}])


def test_a_partition_that_two_topics_name_stays_with_the_first() -> None:
    """Somebody has copied a node by hand."""
    core = broker()
    parts = (PartitionAssignment(4, ("b1",)),)
    first, second = (Topic(name, "0" * 32, "timeline", parts, 1, 1) for name in ("t", "u"))
    core.step([TopicsSeen({"t": first}, frozenset())], NOW)
    effects = core.step([TopicsSeen({"t": first, "u": second}, frozenset())], NOW)
    partition = core.partition(4)
    assert partition is not None
    assert partition.topic.name == "t"
    assert [e.event for e in effects if isinstance(e, Log)] == ["partition.of_two_topics"]


@pytest.mark.parametrize(
    ("error", "code"), [("unavailable", Code.COORDINATOR_UNAVAILABLE), ("unknown", Code.OUTCOME_UNKNOWN)]
)
def test_only_what_was_refused_is_said_to_have_changed_nothing(error: str, code: Code) -> None:
    core = broker()
    [order] = [
        effect.order
        for effect in asked(core, DeleteTopicRequest(5, "t", 4))
        if isinstance(effect, Coordinate)
    ]
    assert isinstance(order, DeleteTopic)
    reply = answered(core.step([TopicOrderDone(order.token, error, "why")], NOW))
    assert (reply.code, reply.text, reply.retry_after_ms) == (code, "why", 1_000)
