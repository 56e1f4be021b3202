"""A change of a topic is checked by the broker that gets it, and ordered on top of the version that it names."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dueq.core.broker import BrokerCore
from dueq.core.ports.effects import Coordinate, Effect, SendClient
from dueq.core.ports.events import ClientFrameReceived, Route
from dueq.core.ports.membership import (
    CoordinatorChanged,
    CoordinatorState,
    PartitionAssignment,
    Registration,
    RegistrationsSeen,
    Topic,
    TopicOrderDone,
    TopicsSeen,
    UpdateTopic,
)
from dueq.core.turn.settings import CoreSettings
from dueq.instant import Now
from dueq_codecs.messages import Code, Reply, UpdateTopicRequest
from dueq_codecs.topic_settings import AS_CREATED

NOW = Now(1_700_000_000_000_000, 1_000_000)
MINE = b"u" * 16
SETTINGS = AS_CREATED.changed({"horizon_ms": 9}, "a" * 32)


def broker(level: int = 2, partitions: int = 2, earlier: tuple[str, ...] = ()) -> BrokerCore:
    """b1, which knows version 1 of a topic whose replicas are at b2 and b3."""
    core = BrokerCore(CoreSettings("b1", 1, "s1", "cluster", "tcp://b1"), [], NOW)
    parts = tuple(PartitionAssignment(uid, ("b2", "b3")) for uid in range(4, 4 + partitions))
    topic = Topic("t", "0" * 32, "timeline", parts, 2, 2, SETTINGS, earlier_updates=earlier)
    seen = {
        name: Registration(name, 1, f"s-{name}", f"tcp://{name}", feature_level=level if name == "b3" else 2)
        for name in ("b1", "b2", "b3")
    }
    events = [
        CoordinatorChanged(CoordinatorState.CONNECTED), RegistrationsSeen(seen), TopicsSeen({"t": topic}, frozenset()),
    ]  # fmt: skip
    core.step([*events], NOW)
    return core


def asked(
    core: BrokerCore, document: str = '{"paused":true}', version: int = 1, partitions: int = 0, uid: int = 0
) -> list[Effect]:
    request = UpdateTopicRequest(5, MINE, "t", version, document, partitions, uid)
    return core.step([ClientFrameReceived(Route(b"client"), request, [])], NOW)


def ordered(effects: list[Effect]) -> UpdateTopic:
    [order] = [effect.order for effect in effects if isinstance(effect, Coordinate)]
    assert isinstance(order, UpdateTopic)
    return order


def answered(effects: list[Effect]) -> Reply:
    [reply] = [effect.message for effect in effects if isinstance(effect, SendClient)]
    assert isinstance(reply, Reply)
    return reply


def test_it_orders_the_next_version_and_says_how_the_topic_stands() -> None:
    core = broker()
    order = ordered(asked(core))
    assert (order.name, order.settings) == ("t", SETTINGS.changed({"paused": True}, MINE.hex()))
    changed = Topic("t", "0" * 32, "timeline", (PartitionAssignment(4, ("b2",)),), 1, 1, order.settings)
    reply = answered(core.step([TopicOrderDone(order.token, "", topic=changed)], NOW))
    assert json.loads(reply.document) == {"version": 2, "update": MINE.hex(), "partitions": [4]}


def test_an_older_version_is_answered_with_the_present_one() -> None:
    reply = answered(asked(broker(), version=0))
    assert (reply.code, json.loads(reply.document)["version"]) == (Code.OK, 1)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("uid", [3, 5, 9])
def test_a_change_of_another_topic_of_the_name_is_answered_with_the_one_that_there_is(
    version: int, uid: int
) -> None:
    """No two topics have the same first partition."""
    effects = asked(broker(), version=version, uid=uid)
    assert not [effect for effect in effects if isinstance(effect, Coordinate)]
    reply = answered(effects)
    assert (reply.code, json.loads(reply.document)) == (
        Code.OK,
        {"version": 1, "update": "a" * 32, "partitions": [4, 5]},
    )


def test_a_change_that_names_the_topic_is_ordered() -> None:
    assert ordered(asked(broker(), uid=4)).settings.paused


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_change_that_was_stored_before_others_is_answered_as_done(version: int) -> None:
    """Its answer was lost, and somebody changed the topic before it was repeated."""
    effects = asked(broker(earlier=("b" * 32, MINE.hex())), version=version)
    assert not [effect for effect in effects if isinstance(effect, Coordinate)]
    assert json.loads(answered(effects).document) == {
        "version": 1,
        "update": MINE.hex(),
        "partitions": [4, 5],
    }


def test_a_change_that_turns_out_to_be_stored_already_is_answered_as_done() -> None:
    core = broker()
    order = ordered(asked(core))
    parts = (PartitionAssignment(4, ("b2",)),)
    found = Topic("t", "0" * 32, "timeline", parts, 1, 1, SETTINGS, earlier_updates=(MINE.hex(),))
    reply = answered(core.step([TopicOrderDone(order.token, "", topic=found)], NOW))
    assert json.loads(reply.document)["update"] == MINE.hex()


def test_of_a_version_that_it_has_not_heard_of_the_coordinator_says_how_the_topic_stands() -> None:
    """The order cannot make a version: the coordinator has the one before it, or a later one."""
    order = ordered(asked(broker(), version=2))
    assert order.settings.version == 1


def test_a_broker_of_an_older_build_is_named() -> None:
    reply = answered(asked(broker(level=1)))
    assert reply.code == Code.BUSY
    assert reply.text.endswith("of an older build: b3")


def test_added_partitions_are_placed_and_their_stores_named() -> None:
    order = ordered(asked(broker(), "{}", partitions=4))
    assert [len(replicas) for replicas in order.added] == [2, 2]
    assert [member.broker_id for member in order.members] == ["b1", "b2", "b3"]


@pytest.mark.parametrize(
    ("document", "partitions", "text"),
    [
        ("[]", 0, "a JSON object of at most 4096 bytes, not []"),
        ("[" * 4_000, 0, "nested more than 32 deep"),
        ("x" * 5_000, 0, "a JSON object of at most 4096 bytes"),
        ('{"paused":"yes"}', 0, "paused is true or false, not 'yes'"),
        ("{}", 1, "topic 't' has 2 partitions, and never fewer: not 1"),
        ("{}", 1025, "a topic has 1 to 1024 partitions, not 1025"),
        ('{"rate":5}', 0, "a topic with a rate has 1 partition, not 2: rate is 5"),
    ],
)
def test_bad_input_is_refused_with_the_value_and_the_limit(document: str, partitions: int, text: str) -> None:
    effects = asked(broker(), document, partitions=partitions)
    reply = answered(effects)
    assert (reply.code, text in reply.text) == (Code.INVALID_REQUEST, True), reply.text
    assert not [effect for effect in effects if isinstance(effect, Coordinate)]


def test_a_limited_topic_gets_no_more_partitions() -> None:
    reply = answered(asked(broker(partitions=1), '{"rate":5}', partitions=2))
    assert "has 1 partition, not 2" in reply.text
    assert ordered(asked(broker(partitions=1), '{"rate":5}')).settings.rate == 5


def test_a_broker_that_is_not_registered_just_now_adds_no_partitions() -> None:
    """Its session has expired, perhaps with those of others: it does not know where they could be."""
    core = broker()
    others = {
        name: Registration(name, 1, f"s-{name}", f"tcp://{name}", feature_level=2) for name in ("b2", "b3")
    }
    core.step([RegistrationsSeen(others)], NOW)
    assert answered(asked(core, "{}", partitions=4)).code == Code.COORDINATOR_UNAVAILABLE
    assert ordered(asked(core)).added == ()


def endpoint(disabled: str = "", name: str = "hook") -> dict[str, object]:
    return {
        "name": name, "version": 1, "url": "https://example.com/hook", "timeout_ms": 15_000, "in_flight": 64,
        "headers": {}, "filter": {}, "disabled": disabled, "targets": False,
        "secrets": [["whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", 0]],
    }  # fmt: skip


def test_a_new_endpoint_has_a_name_of_its_own_and_one_of_two_that_share_a_name_can_be_changed() -> None:
    """Two may have come to one name at once: a receiver that is gone must be left alone all the same."""
    core = broker()
    known = core._topics.by_name["t"]
    others = {
        name: replace(known, name=name, settings=SETTINGS.changed({"endpoint": endpoint()}, "a" * 32))
        for name in ("t", "other")
    }
    core.step([TopicsSeen({"t": known, "other": others["other"]}, frozenset())], NOW)
    reply = answered(asked(core, json.dumps({"endpoint": endpoint()})))
    assert (reply.code, "is of topic 'other'" in reply.text) == (Code.INVALID_REQUEST, True)
    core.step([TopicsSeen(others, frozenset())], NOW)
    order = ordered(asked(core, json.dumps({"endpoint": endpoint("HTTP 410")}), version=2))
    assert order.settings.endpoint is not None
    assert order.settings.endpoint["disabled"] == "HTTP 410"
