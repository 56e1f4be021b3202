"""A topic may be created with settings, which are checked by the broker that gets the request."""

from __future__ import annotations

import pytest

from dueq.core.broker import BrokerCore
from dueq.core.ports.effects import Coordinate, Effect, SendClient
from dueq.core.ports.events import ClientFrameReceived, Route
from dueq.core.ports.membership import (
    CoordinatorChanged,
    CoordinatorState,
    CreateTopic,
    PartitionAssignment,
    Registration,
    RegistrationsSeen,
    Topic,
    TopicsSeen,
)
from dueq.core.turn.settings import CoreSettings
from dueq.instant import Now
from dueq_codecs.messages import Code, CreateTopicRequest, Reply

NOW = Now(1_700_000_000_000_000, 1_000_000)
MINE = b"u" * 16


def created(document: str, partitions: int = 1, level: int = 2, topic: str = "t") -> list[Effect]:
    core = BrokerCore(CoreSettings("b1", 1, "s1", "cluster", "tcp://b1"), [], NOW)
    seen = {
        name: Registration(name, 1, f"s-{name}", f"tcp://{name}", feature_level=level if name == "b2" else 2)
        for name in ("b1", "b2")
    }
    core.step(
        [
            CoordinatorChanged(CoordinatorState.CONNECTED),
            RegistrationsSeen(seen),
            TopicsSeen({}, frozenset()),
        ],
        NOW,
    )
    request = CreateTopicRequest(5, MINE, topic, partitions=partitions, replicas=2, document=document)
    return core.step([ClientFrameReceived(Route(b"client"), request, [])], NOW)


def answered(effects: list[Effect]) -> tuple[Code, str]:
    [reply] = [effect.message for effect in effects if isinstance(effect, SendClient)]
    assert isinstance(reply, Reply)
    return reply.code, reply.text


def test_its_settings_are_of_version_1() -> None:
    effects = created('{"horizon_ms":5000}')
    [order] = [effect.order for effect in effects if isinstance(effect, Coordinate)]
    assert isinstance(order, CreateTopic)
    assert (order.settings.version, order.settings.update, order.settings.horizon_ms) == (1, MINE.hex(), 5000)


@pytest.mark.parametrize("name", [".", ".."])
def test_no_topic_has_the_name_of_a_folder_in_a_url(name: str) -> None:
    """Clients of HTTP resolve it before they ask, encoded or not: a pause of it would meet another."""
    code, text = answered(created("", topic=name))
    assert code is Code.INVALID_REQUEST
    assert f"a topic name is not {name!r}" in text


@pytest.mark.parametrize(
    ("document", "partitions", "text"),
    [
        ("[]", 1, "the settings of a new topic are a JSON object of at most"),
        ("[" * 4_000, 1, "the settings of a new topic are a JSON object of at most 4096 bytes, not [[["),
        ('{"keys":"none"}', 1, "keys is one of free, unique, not 'none'"),
        ('{"remember_ms":5}', 1, "remember_ms is 5, and the topic's keys are free"),
        ('{"rate":5}', 2, "a topic with a rate has 1 partition, not 2: rate is 5"),
    ],
)
def test_bad_settings_are_refused(document: str, partitions: int, text: str) -> None:
    code, said = answered(created(document, partitions))
    assert code == Code.INVALID_REQUEST
    assert said.startswith(text)


def test_a_broker_of_an_older_build_is_named() -> None:
    code, said = answered(created('{"horizon_ms":5000}', level=1))
    assert (code, said.endswith("of an older build: b2")) == (Code.BUSY, True)


@pytest.mark.parametrize(
    ("creation", "exist_ok", "code"),
    [
        (MINE, False, Code.OK),
        (b"o" * 16, True, Code.OK),
        (b"o" * 16, False, Code.COORDINATOR_UNAVAILABLE),
    ],
)
def test_while_no_topic_can_be_created_only_whom_the_present_one_will_do_gets_it(
    creation: bytes, exist_ok: bool, code: Code
) -> None:
    """Another caller would take the topic of somebody else for his own, with its settings and its messages."""
    core = BrokerCore(CoreSettings("b1", 1, "s1", "cluster", "tcp://b1"), [], NOW)
    there = Topic("t", MINE.hex(), "timeline", (PartitionAssignment(8, ("b2",)),), 1, 1)
    away = CoordinatorChanged(CoordinatorState.SUSPENDED)
    request = CreateTopicRequest(5, creation, "t", partitions=1, replicas=1, exist_ok=exist_ok)
    event = ClientFrameReceived(Route(b"client"), request, [])
    effects = core.step([TopicsSeen({"t": there}, frozenset()), away, event], NOW)
    assert answered(effects)[0] == code
