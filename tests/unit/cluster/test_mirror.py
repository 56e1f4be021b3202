"""Reads of ZooKeeper, and how many there are, as topics come and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog
from kazoo.exceptions import NoAuthError, NoNodeError, SessionExpiredError
from kazoo.protocol.states import EventType, KeeperState, WatchedEvent, ZnodeStat

from dueq.cluster.layout import Layout
from dueq.cluster.mirror import Mirror
from dueq.cluster.requests import Requests
from dueq.cluster.znodes import encode_node, encode_registration, encode_topic
from dueq.core.ports.membership import (
    CoordinatorEvent,
    Member,
    NodeSeen,
    PartitionAssignment,
    PartitionNode,
    Registration,
    RegistrationsSeen,
    Topic,
    TopicsSeen,
)
from dueq.limits import UID_MAX

LAYOUT = Layout("/dueq")
STAT = ZnodeStat(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


class Answer:
    """kazoo's result of one request, there at once."""

    def __init__(self, value: Any = None, exception: Exception | None = None) -> None:
        self.value, self.exception = value, exception

    def rawlink(self, ready: Callable[[Any], None]) -> None:
        ready(self)


class Server:
    """A few nodes, their watches, and what was asked for."""

    def __init__(self) -> None:
        self.nodes: dict[str, bytes] = {LAYOUT.brokers: b"", LAYOUT.topics: b"", LAYOUT.tombstones: b""}
        self.forbidden: set[str] = set()
        self.expired = False
        self.watches: dict[str, set[Callable[[WatchedEvent], None]]] = {}
        self.asked: Counter[str] = Counter()
        self.order: list[str] = []

    def get_children_async(self, path: str, watch: Any = None) -> Answer:
        if self.expired:
            return Answer(exception=SessionExpiredError())
        if path in self.forbidden:
            return Answer(exception=NoAuthError())
        self._note(path, watch)
        return Answer([name[len(path) + 1 :] for name in self.nodes if name.startswith(f"{path}/")])

    def get_async(self, path: str, watch: Any = None) -> Answer:
        if path in self.forbidden:
            return Answer(exception=NoAuthError())
        self._note(path, watch)
        value = self.nodes.get(path)
        return Answer(exception=NoNodeError()) if value is None else Answer((value, STAT))

    def set_async(self, path: str, value: bytes, version: int) -> Answer:
        self.order.append(path)
        return Answer(STAT)

    def sync_async(self, path: str) -> Answer:
        return Answer(path)

    def make(self, name: str, uid: int) -> None:
        topic = Topic(name, "0" * 32, "timeline", (PartitionAssignment(uid, ("b1",)),), 1, 1)
        self.nodes[LAYOUT.topic(name)] = encode_topic(topic)
        self.nodes[LAYOUT.partition(uid)] = encode_node(PartitionNode("b1", 1, 1, (Member("b1", "s1"),)))
        self.fire(LAYOUT.topics)

    def register(self, broker_id: str, level: int = 3) -> None:
        seen = Registration(broker_id, 1, "s1", "tcp://b:7400", feature_level=level)
        self.nodes[LAYOUT.level(broker_id)] = str(level).encode()
        self.nodes[LAYOUT.broker(broker_id)] = encode_registration(seen)
        self.fire(LAYOUT.brokers)

    def leave(self, broker_id: str) -> None:
        del self.nodes[LAYOUT.broker(broker_id)]
        self.fire(LAYOUT.brokers)

    def fire(self, path: str) -> None:
        for watch in self.watches.pop(path, set()):
            watch(WatchedEvent(EventType.CHANGED, KeeperState.CONNECTED, path))

    def _note(self, path: str, watch: Any) -> None:
        self.asked[path] += 1
        self.order.append(path)
        if watch is not None:
            self.watches.setdefault(path, set()).add(watch)


class Following:
    """A mirror on a thread that is the test's; what it wants to do later, the test does."""

    def __init__(self, server: Server | None = None) -> None:
        self.server = server or Server()
        self.events: list[CoordinatorEvent] = []
        self.calls: list[Callable[[], None]] = []
        self.waiting: list[tuple[float, Callable[[], None]]] = []
        self.requests = Requests(self.calls.append)
        self.mirror = Mirror(
            self.server, LAYOUT, self.requests, self.events.append, self.calls.append,
            lambda seconds, call: self.waiting.append((seconds, call)), lambda registrations: None,
        )  # fmt: skip
        self.mirror.refresh()
        self.run()

    def run(self) -> None:
        while self.calls:
            self.calls.pop(0)()

    def pass_time(self) -> None:
        waiting, self.waiting = self.waiting, []
        for _, call in waiting:
            call()
            self.run()

    def topics(self) -> list[str]:
        return sorted([event for event in self.events if isinstance(event, TopicsSeen)][-1].topics)

    def seen(self) -> RegistrationsSeen:
        return [event for event in self.events if isinstance(event, RegistrationsSeen)][-1]


def test_a_new_topic_is_seen_and_its_partition_followed() -> None:
    following = Following()
    following.pass_time()
    following.server.make("a", 1)
    following.run()
    assert following.topics() == ["a"]
    assert [event.uid for event in following.events if isinstance(event, NodeSeen)] == [1]
    following.server.fire(LAYOUT.partition(1))
    following.run()
    assert [event.uid for event in following.events if isinstance(event, NodeSeen)] == [1, 1]


def test_a_watch_that_fires_after_the_session_has_ended_holds_up_no_later_reading() -> None:
    """Its own reading failed, and was taken for one that was still under way: the new session saw no topic."""
    following = Following()
    following.pass_time()
    following.mirror.connection_lost()
    following.requests.connection_lost()
    following.server.expired = True
    following.server.make("a", 1)
    following.server.register("b1")
    following.run()
    following.server.expired = False
    following.mirror.refresh()
    following.run()
    assert following.topics() == ["a"]
    assert following.seen().registrations.keys() == {"b1"}


def test_topics_made_in_a_burst_are_listed_together_and_each_is_read_once() -> None:
    following = Following()
    following.server.make("t0", 1)
    following.run()
    before = following.server.asked[LAYOUT.topics]
    for number in range(1, 100):
        following.server.make(f"t{number}", number + 1)
        following.run()
    following.pass_time()
    assert len(following.topics()) == 100
    assert following.server.asked[LAYOUT.topics] - before <= 3
    assert {following.server.asked[LAYOUT.topic(f"t{number}")] for number in range(100)} == {1}
    assert {following.server.asked[LAYOUT.partition(uid)] for uid in range(1, 101)} == {1}


def test_a_topic_made_anew_under_its_old_name_is_read_and_followed_anew() -> None:
    following = Following()
    following.server.make("a", 1)
    following.pass_time()
    del following.server.nodes[LAYOUT.topic("a")], following.server.nodes[LAYOUT.partition(1)]
    following.server.nodes[LAYOUT.tombstone("1-1")] = b""
    following.server.fire(LAYOUT.topic("a"))
    following.server.make("a", 2)
    following.run()
    following.pass_time()
    seen = [event for event in following.events if isinstance(event, TopicsSeen)][-1]
    assert [part.uid for part in seen.topics["a"].partitions] == [2]
    assert seen.tombstones == frozenset({1})
    assert following.server.asked[LAYOUT.partition(2)] == 1


def test_a_topic_that_changes_while_all_are_listed_is_read_again() -> None:
    """Its watch has fired: nothing else would tell of that change."""

    class Late(Answer):
        """An answer that comes after the news of the change."""

        def rawlink(self, ready: Callable[[Any], None]) -> None:
            server.changes = False
            parts = tuple(PartitionAssignment(uid, ("b1",)) for uid in (1, 2))
            server.nodes[LAYOUT.topic("a")] = encode_topic(Topic("a", "0" * 32, "timeline", parts, 1, 1))
            server.fire(LAYOUT.topic("a"))
            following.calls.append(lambda: ready(self))

    class Changing(Server):
        changes = False

        def get_children_async(self, path: str, watch: Any = None) -> Answer:
            found = super().get_children_async(path, watch)
            return Late(found.value) if path == LAYOUT.tombstones and self.changes else found

    following = Following(server := Changing())
    server.make("a", 1)
    following.pass_time()
    server.changes = True
    server.make("b", 3)
    following.run()
    following.pass_time()
    following.pass_time()
    seen = [event for event in following.events if isinstance(event, TopicsSeen)][-1]
    assert [part.uid for part in seen.topics["a"].partitions] == [1, 2]


def test_a_node_that_many_ask_for_while_requests_wait_is_read_once_for_all() -> None:
    following = Following()
    for uid in range(1, 101):
        following.server.make(f"t{uid}", uid)
    following.pass_time()
    before = following.server.asked.copy()
    for _ in range(10):
        for uid in range(1, 101):
            following.mirror.read_node(uid)
    following.run()
    reads = following.server.asked - before
    # Those of which the first question had left at once were asked again, once.
    assert set(reads.values()) <= {1, 2}
    assert sum(reads.values()) < 150
    assert {event.uid for event in following.events if isinstance(event, NodeSeen)} == set(range(1, 101))


def test_a_node_that_is_of_another_name_is_left_out() -> None:
    """It hid the topic of that name. A broker that saw such a registration took itself for an older life."""
    following = Following()
    following.server.make("a", 1)
    following.server.make("b", 2)
    following.server.nodes[LAYOUT.topic("b")] = following.server.nodes[LAYOUT.topic("a")].replace(
        b"[[1,", b"[[2,"
    )
    following.run()
    following.pass_time()
    assert following.topics() == ["a"]
    seen = [event for event in following.events if isinstance(event, TopicsSeen)][-1]
    assert seen.topics["a"].uid == 1


def test_a_topic_that_may_not_be_read_costs_only_itself_and_is_told_once() -> None:
    """It made the whole list fail, so that no topic at all was seen."""
    following = Following()
    following.server.forbidden.add(LAYOUT.topic("a"))
    with structlog.testing.capture_logs() as logs:
        following.server.make("a", 1)
        following.server.make("b", 2)
        following.run()
        for _ in range(3):
            following.pass_time()
    assert following.topics() == ["b"]
    assert [(log["path"], log["reason"]) for log in logs] == [(LAYOUT.topic("a"), "access is refused")]
    following.server.forbidden.clear()
    following.pass_time()
    assert following.topics() == ["a", "b"]


def test_a_list_with_a_node_that_may_not_be_read_is_not_read_more_often_than_each_second() -> None:
    following = Following()
    following.server.forbidden.add(LAYOUT.topic("a"))
    following.server.make("a", 1)
    following.run()
    following.pass_time()
    for uid in range(2, 12):
        following.server.make(f"t{uid}", uid)
        following.run()
        following.pass_time()
    assert sum(seconds >= 1 for seconds, _ in following.waiting) == 1


def test_a_registration_that_may_not_be_read_costs_only_its_broker() -> None:
    following = Following()
    following.server.forbidden |= {LAYOUT.broker("b1"), LAYOUT.level("b3")}
    for broker_id in ("b1", "b2", "b3"):
        following.server.register(broker_id)
        following.run()
    following.server.leave("b3")
    following.run()
    assert following.seen().registrations.keys() == {"b2"}
    assert following.seen().levels == {"b1": 3, "b2": 3, "b3": 0}
    following.server.forbidden.clear()
    following.pass_time()
    assert following.seen().registrations.keys() == {"b1", "b2"}
    assert following.seen().levels == {"b1": 3, "b2": 3, "b3": 3}


def test_levels_that_may_not_be_listed_cost_no_registration() -> None:
    following = Following()
    following.server.forbidden.add(LAYOUT.levels)
    following.server.register("b1")
    following.run()
    assert following.seen().registrations.keys() == {"b1"}


def test_a_lowered_feature_level_is_seen_though_its_broker_came_and_went_unseen() -> None:
    """The level that was known before was kept: a partition could be raised to it while the older build comes back."""
    following = Following()
    following.server.register("b1")
    following.run()
    following.server.leave("b1")
    following.run()
    assert following.seen().levels == {"b1": 3}
    following.server.register("b1", level=2)
    following.server.leave("b1")
    following.run()
    assert following.seen().levels == {"b1": 2}


def test_a_tombstone_of_a_topic_that_is_there_permits_nothing() -> None:
    """Somebody makes one by hand, and is wrong by one digit: the data of living topics would be deleted everywhere."""
    following = Following()
    following.server.make("a", 1)
    following.server.make("b", 2)
    following.server.nodes[LAYOUT.tombstone("2-4")] = b""
    following.server.fire(LAYOUT.tombstones)
    following.run()
    for _ in range(2):
        following.pass_time()
    seen = [event for event in following.events if isinstance(event, TopicsSeen)][-1]
    assert (seen.topics.keys(), seen.tombstones) == ({"a", "b"}, frozenset({3, 4}))
    del following.server.nodes[LAYOUT.topic("b")]
    following.server.fire(LAYOUT.topic("b"))
    following.run()
    following.pass_time()
    seen = [event for event in following.events if isinstance(event, TopicsSeen)][-1]
    assert (seen.topics.keys(), seen.tombstones) == ({"a"}, frozenset({2, 3, 4}))


def test_a_tombstone_of_millions_is_told_and_left() -> None:
    """A typing error. Each broker counted all of its partitions one by one, and ran out of memory."""
    following = Following()
    following.server.make("a", 1)
    following.server.nodes[LAYOUT.tombstone(f"2-{UID_MAX}")] = b""
    following.server.nodes[LAYOUT.tombstone("5-4")] = b""
    following.server.nodes[LAYOUT.tombstone("7-7")] = b""
    following.server.fire(LAYOUT.tombstones)
    with structlog.testing.capture_logs() as logs:
        following.run()
        following.pass_time()
    seen = [event for event in following.events if isinstance(event, TopicsSeen)][-1]
    assert (seen.topics.keys(), seen.tombstones) == ({"a"}, frozenset({7}))
    assert {log["path"] for log in logs} == {LAYOUT.tombstone(f"2-{UID_MAX}"), LAYOUT.tombstone("5-4")}


def test_a_node_that_somebody_waits_for_is_read_until_zookeeper_shows_it() -> None:
    """The port promises an answer while the connection lasts."""
    following = Following()
    following.server.forbidden.add(LAYOUT.partition(7))
    for _ in range(3):
        following.mirror.read_node(7)
        following.run()
    assert len(following.waiting) == 2, "one for the node, and the pause between two lists"
    following.pass_time()
    assert not [event for event in following.events if isinstance(event, NodeSeen)]
    following.server.forbidden.clear()
    following.pass_time()
    assert [event.uid for event in following.events if isinstance(event, NodeSeen)] == [7]


def test_a_partition_s_node_that_cannot_be_read_is_told_once() -> None:
    """Each refusal was told again a second later, of thousands of partitions at once."""
    following = Following()
    path = LAYOUT.partition(1)
    following.server.forbidden.add(path)
    with structlog.testing.capture_logs() as logs:
        following.server.make("a", 1)
        following.run()
        for _ in range(3):
            following.pass_time()
            following.mirror.read_node(1)
            following.run()
        following.server.forbidden.clear()
        following.server.nodes[path] = b"damaged"
        for _ in range(3):
            following.pass_time()
            following.mirror.read_node(1)
            following.run()
        following.server.make("a", 1)
        following.server.fire(path)
        following.run()
        following.server.forbidden.add(path)
        following.server.fire(path)
        following.run()
    refused, damaged = "access is refused", "this is not a partition node: b'damaged'"
    assert [(log.get("path"), log.get("reason")) for log in logs] == [
        (path, refused),
        (path, damaged),
        (path, refused),
    ]


def test_a_change_of_a_leader_does_not_wait_for_the_topics_to_be_read() -> None:
    """All brokers read everything after an outage of ZooKeeper, and partitions need leaders then."""
    following = Following()
    for uid in range(1, 501):
        following.server.make(f"t{uid}", uid)
    following.pass_time()
    following.mirror.connection_lost()
    following.requests.connection_lost()
    following.server.order.clear()
    following.mirror.refresh()
    for _ in range(20):
        following.calls.pop(0)()
    send = partial(following.server.set_async, "a set", b"", 3)
    following.requests.submit(send, lambda value, error: None, urgent=True)
    following.run()
    assert following.server.order.index("a set") < 200
    assert following.server.asked[LAYOUT.topic("t500")] == 2
