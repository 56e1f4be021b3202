"""What a broker does when there are very many topics: no more per topic than it must."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dueq import limits
from dueq.core.broker import BrokerCore
from dueq.core.front import overviews
from dueq.core.front.overviews import AT_ONCE
from dueq.core.front.status import GAUGES_AT_ONCE
from dueq.core.ports.effects import Coordinate, Effect, Persist, SendClient, SendPeer
from dueq.core.ports.events import ClientFrameReceived, Event, PeerFrameReceived, Route
from dueq.core.ports.membership import (
    CoordinatorChanged,
    CoordinatorState,
    CreateTopic,
    Member,
    NodeSeen,
    PartitionAssignment,
    PartitionNode,
    Registration,
    RegistrationsSeen,
    Topic,
    TopicsSeen,
)
from dueq.core.ports.persistence import CreatePartition
from dueq.core.turn.settings import CoreSettings
from dueq.instant import Now
from dueq_codecs.messages import (
    CreateTopicRequest,
    InspectRequest,
    MetadataReply,
    MetadataRequest,
    PeerFrame,
    Reply,
)

NOW = Now(1_700_000_000_000_000, 1_000_000)
BROKERS = ("b1", "b2", "b3")


def topic(uid: int) -> Topic:
    return Topic(f"t{uid}", f"{uid:032x}", "timeline", (PartitionAssignment(uid, BROKERS),), 3, 2)


def topics(count: int) -> dict[str, Topic]:
    return {made.name: made for made in map(topic, range(1, count + 1))}


def broker() -> BrokerCore:
    core = BrokerCore(CoreSettings("b1", 1, "s1", "cluster", "tcp://b1"), [], NOW)
    registrations = {name: Registration(name, 1, f"s-{name}", f"tcp://{name}", "", 1) for name in BROKERS}
    core.step([CoordinatorChanged(CoordinatorState.CONNECTED), RegistrationsSeen(registrations)], NOW)
    return core


def measured(peer: str) -> PeerFrameReceived:
    """A frame by which the peer's clock is measured: who has just started stands for nothing before."""
    at_us = NOW.wall_us
    return PeerFrameReceived(
        PeerFrame(peer, 1, "b1", 1, NOW.mono_us, at_us, NOW.mono_us - 100, at_us - 100, at_us - 50), []
    )


def orders(effects: list[Effect], kind: type) -> list[object]:
    return [
        effect.order
        for effect in effects
        if isinstance(effect, Coordinate) and isinstance(effect.order, kind)
    ]


def opened(effects: list[Effect]) -> list[int]:
    return [
        write.uid
        for effect in effects
        if isinstance(effect, Persist)
        for write in effect.writes
        if isinstance(write, CreatePartition)
    ]


def test_a_new_topic_among_many_is_the_only_one_that_is_opened() -> None:
    core, known = broker(), topics(50)
    assert len(opened(core.step([TopicsSeen(known, frozenset())], NOW))) == 50
    more = known | {"t51": topic(51)}
    assert opened(core.step([TopicsSeen(more, frozenset())], NOW)) == [51]


def test_where_a_broker_has_died_that_led_very_many_its_heirs_are_elected_some_at_a_time() -> None:
    """One turn for all would be so long that heartbeats come late, and living brokers are taken for dead."""
    core, known = broker(), topics(600)
    members = tuple(Member(name, f"s-{name}") for name in BROKERS if name != "b1")
    isr = (Member("b1", "s1"), *members)
    nodes = [NodeSeen(uid, 1, PartitionNode("b2", 99, 1, isr)) for uid in range(1, 601)]
    core.step([TopicsSeen(known, frozenset()), *nodes, measured("b3")], NOW)
    asked = []
    for ms in range(50, 400, 50):
        now = Now(NOW.wall_us + ms * 1000, NOW.mono_us + ms * 1000)
        frames = [effect.message for effect in core.step([], now) if isinstance(effect, SendPeer)]
        to_b3 = [frame for frame in frames if isinstance(frame, PeerFrame) and frame.receiver == "b3"]
        asked.append(sum(len(frame.vote_requests) for frame in to_b3))
    assert sum(asked) >= 600
    assert 0 < max(asked) <= 256


def test_topics_ordered_at_once_begin_at_different_brokers() -> None:
    """Before any of them is known: all would be led by one broker."""
    core = broker()
    requests = [
        CreateTopicRequest(number, bytes([number]) * 16, f"t{number}", "timeline", 1, 3, 0, 0, 0, False)
        for number in range(1, 7)
    ]
    events = [ClientFrameReceived(Route(b"client"), request, []) for request in requests]
    found = orders(core.step([*events], NOW), CreateTopic)
    firsts = [order.replicas_of[0][0] for order in found if isinstance(order, CreateTopic)]
    assert sorted(firsts) == ["b1", "b1", "b2", "b2", "b3", "b3"]


def test_partitions_beyond_one_look_get_into_the_gauges_in_the_next_ones() -> None:
    core, count = broker(), GAUGES_AT_ONCE * 2 + 1
    core.step([TopicsSeen(topics(count), frozenset())], NOW)
    sizes = [len(core.gauges(NOW)["partitions"]) for _ in range(4)]
    assert sizes == [GAUGES_AT_ONCE, GAUGES_AT_ONCE * 2, count, count]


def test_a_deleted_partition_leaves_the_gauges() -> None:
    core = broker()
    core.step([TopicsSeen(topics(3), frozenset())], NOW)
    assert [part["uid"] for part in core.gauges(NOW)["partitions"]] == [1, 2, 3]
    left = {name: made for name, made in topics(3).items() if name != "t2"}
    core.step([TopicsSeen(left, frozenset({2}))], NOW)
    assert [part["uid"] for part in core.gauges(NOW)["partitions"]] == [1, 3]


def status(events: list[Event], core: BrokerCore) -> list[tuple[int, dict[str, Any]]]:
    """Take turns until every question is answered: per answer, in which turn it came."""
    found, turn = [], 0
    while turn == 0 or core.next_deadline_us(NOW) == NOW.mono_us:
        for effect in core.step(events if turn == 0 else [], NOW):
            if isinstance(effect, SendClient) and isinstance(effect.message, Reply):
                found.append((turn, json.loads(effect.message.document)))
        turn += 1
        if len(found) == len(events):
            break
    return found


def asks(count: int) -> list[Event]:
    return [
        ClientFrameReceived(Route(bytes([number])), InspectRequest(number, "status"), [])
        for number in range(count)
    ]


def test_the_status_of_a_few_partitions_is_there_in_the_same_turn() -> None:
    core = broker()
    core.step([TopicsSeen(topics(3), frozenset())], NOW)
    ((turn, document),) = status(asks(1), core)
    assert turn == 0
    assert sorted(part["uid"] for part in document["partitions"]) == [1, 2, 3]
    assert set(document) >= {"broker", "brokers", "topics", "partitions", "consumers"}


def test_the_status_of_very_many_takes_several_turns_and_is_made_once_for_all_who_ask() -> None:
    core = broker()
    core.step([TopicsSeen(topics(AT_ONCE * 3), frozenset())], NOW)
    answers = status(asks(2), core)
    assert [turn for turn, _ in answers] == [2, 2]
    assert all(len(document["partitions"]) == AT_ONCE * 3 for _, document in answers)


def test_what_does_not_fit_into_a_frame_is_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    core = broker()
    core.step([TopicsSeen(topics(50), frozenset())], NOW)
    monkeypatch.setattr(overviews, "_BYTES_MAX", 8_000)
    ((_, document),) = status(asks(1), core)
    assert 0 < len(document["partitions"]) < 50
    assert document["partitions_left_out"] == 50 - len(document["partitions"])


def listed(core: BrokerCore, request: MetadataRequest) -> MetadataReply:
    [sent] = [
        effect.message
        for effect in core.step([ClientFrameReceived(Route(b"c"), request, [])], NOW)
        if isinstance(effect, SendClient)
    ]
    assert isinstance(sent, MetadataReply)
    return sent


def test_all_topics_are_told_some_at_a_time_in_the_order_of_their_names() -> None:
    core, known = broker(), topics(2 * limits.METADATA_TOPICS + 50)
    core.step([TopicsSeen(known, frozenset())], NOW)
    pages = [listed(core, MetadataRequest(1))]
    while pages[-1].more:
        pages.append(listed(core, MetadataRequest(1, after=pages[-1].topics[-1].name)))
    assert [len(page.topics) for page in pages] == [limits.METADATA_TOPICS, limits.METADATA_TOPICS, 50]
    assert [told.name for page in pages for told in page.topics] == sorted(known)
    assert not listed(core, MetadataRequest(2, "t7")).more


def test_few_topics_of_many_partitions_are_told_one_by_one() -> None:
    core = broker()
    parts = tuple(PartitionAssignment(uid, BROKERS) for uid in range(1, limits.METADATA_PARTITIONS + 1))
    known = {name: Topic(name, name * 32, "timeline", parts, 3, 2) for name in "ab"}
    core.step([TopicsSeen(known, frozenset())], NOW)
    first = listed(core, MetadataRequest(1))
    assert ([told.name for told in first.topics], first.more) == (["a"], True)
    rest = listed(core, MetadataRequest(1, after="a"))
    assert ([told.name for told in rest.topics], rest.more) == (["b"], False)
