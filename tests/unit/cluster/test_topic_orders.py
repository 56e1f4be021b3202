"""Orders of topics where the nodes in ZooKeeper contradict each other."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError
from kazoo.protocol.states import ZnodeStat

from dueq.cluster.layout import Layout
from dueq.cluster.requests import Procedure
from dueq.cluster.topic_orders import TopicOrder
from dueq.cluster.znodes import encode_cluster
from dueq.core.ports.membership import (
    CreateTopic,
    DeleteTopic,
    Member,
    Topic,
    TopicOrderDone,
    UpdateTopic,
)
from dueq.core.ports.membership import TopicOrder as Order
from dueq_codecs.topic_settings import TopicSettings

LAYOUT = Layout("/dueq")
MEMBERS = (Member("b1", "s1"),)
STEPS_MAX = 100


class Transaction:
    def __init__(self, server: Server) -> None:
        self._server = server
        self._operations: list[Callable[[dict[str, tuple[bytes, int]]], None]] = []

    def create(self, path: str, value: bytes) -> None:
        def apply(nodes: dict[str, tuple[bytes, int]]) -> None:
            if path in nodes:
                raise NodeExistsError
            nodes[path] = value, 0

        self._operations.append(apply)

    def set_data(self, path: str, value: bytes, version: int) -> None:
        def apply(nodes: dict[str, tuple[bytes, int]]) -> None:
            if nodes[path][1] != version:
                raise BadVersionError
            nodes[path] = value, version + 1

        self._operations.append(apply)

    def check(self, path: str, version: int) -> None:
        def apply(nodes: dict[str, tuple[bytes, int]]) -> None:
            if path not in nodes:
                raise NoNodeError
            if version not in (-1, nodes[path][1]):
                raise BadVersionError

        self._operations.append(apply)

    def delete(self, path: str, version: int = -1) -> None:
        def apply(nodes: dict[str, tuple[bytes, int]]) -> None:
            if nodes.pop(path, None) is None:
                raise NoNodeError

        self._operations.append(apply)

    def commit_async(self) -> list[Any]:
        self._server.behind = None
        nodes = dict(self._server.nodes)
        for operation in self._operations:
            try:
                operation(nodes)
            except KazooException as error:
                return [error]
        self._server.nodes = nodes
        return [None] * len(self._operations)


class Server:
    """The nodes of a cluster without topics.

    Attributes:
        behind: what it shows until it has heard of the rest, as a server of an ensemble may; None: it is up to date.
    """

    def __init__(self) -> None:
        self.behind: dict[str, tuple[bytes, int]] | None = None
        self.nodes: dict[str, tuple[bytes, int]] = {
            LAYOUT.next_uid: (b"1", 0),
            LAYOUT.cluster: (encode_cluster("abc"), 0),
        }

    def get_async(self, path: str) -> Any:
        nodes = self.nodes if self.behind is None else self.behind
        if path not in nodes:
            raise NoNodeError
        value, version = nodes[path]
        return value, ZnodeStat(0, 0, 0, 0, version, 0, 0, 0, 0, 0, 0)

    def exists_async(self, path: str) -> Any:
        return self.get_async(path)[1] if path in self.nodes else None

    def sync_async(self, path: str) -> str:
        self.behind = None
        return path

    def transaction(self) -> Transaction:
        return Transaction(self)

    def delete_async(self, path: str) -> None:
        if self.nodes.pop(path, None) is None:
            raise NoNodeError

    def carry_out(self, order: Order) -> TopicOrderDone:
        done = self.finished(TopicOrder(order, time.monotonic() + 10).attempt(self, LAYOUT))
        assert isinstance(done, TopicOrderDone)
        return done

    def finished(self, procedure: Procedure, answers: list[Any] | None = None) -> Any:
        for _ in range(STEPS_MAX):
            try:
                sends = next(procedure) if answers is None else procedure.send(answers)
            except StopIteration as stop:
                return stop.value
            answers = [answer_of(send) for send in sends]
        pytest.fail("it asks ZooKeeper without end")

    def partitions(self) -> set[int]:
        """The uids of all nodes."""
        return {
            int(path.rpartition("/")[2]) for path in self.nodes if path.startswith(f"{LAYOUT.partitions}/")
        }


def answer_of(send: Callable[[], Any]) -> Any:
    try:
        return send()
    except KazooException as error:
        return error


def create(name: str, partitions: int = 1) -> CreateTopic:
    return CreateTopic(
        1, name, name * 32, "timeline", (("b1",),) * partitions, MEMBERS, 1, 1, TopicSettings()
    )


def update(topic: Topic, added: int = 0) -> UpdateTopic:
    settings = topic.settings.changed({"labels": {"a": "b"}}, "a" * 32)
    return UpdateTopic(1, topic.name, topic.creation_id, settings, (("b1",),) * added, MEMBERS)


@pytest.fixture
def server() -> Server:
    return Server()


def made(server: Server) -> Topic:
    done = server.carry_out(create("t"))
    assert done.topic is not None
    return done.topic


def test_topics_are_made_changed_and_deleted(server: Server) -> None:
    topic = made(server)
    assert server.carry_out(update(topic, added=1)).error == ""
    assert server.carry_out(DeleteTopic(1, "t")).error == ""
    assert server.nodes.keys() >= {LAYOUT.tombstone("1-2")}


def test_a_server_that_is_behind_decides_nothing(server: Server) -> None:
    before = dict(server.nodes)
    topic = made(server)
    server.behind = before
    settings = topic.settings.changed({"labels": {"a": "b"}}, "a" * 32)
    assert server.carry_out(update(topic)) == TopicOrderDone(1, "", topic=replace(topic, settings=settings))
    server.behind = before
    assert server.carry_out(create("t")).error == ""
    server.behind = before
    assert server.carry_out(replace(create("t"), creation_id="b" * 32)).error == "exists"
    server.behind = before
    assert server.carry_out(DeleteTopic(1, "t")).error == ""


def test_a_topic_that_is_deleted_can_be_created_where_a_server_still_shows_it(server: Server) -> None:
    topic = made(server)
    before = dict(server.nodes)
    server.carry_out(DeleteTopic(1, "t"))
    server.behind = before
    done = server.carry_out(replace(create("t"), creation_id="b" * 32))
    assert (done.error, done.topic and done.topic.uid) == ("", topic.uid + 1)


def test_a_topic_whose_partition_is_there_already_is_refused(server: Server) -> None:
    """A counter that was restored from a backup, say. Brokers asked ZooKeeper again and again, for ever."""
    server.nodes[LAYOUT.partition(1)] = b"", 0
    done = server.carry_out(create("t"))
    assert (done.error, done.text) == (
        "unavailable",
        "topic 't' cannot be created: ZooKeeper says NodeExistsError()",
    )


def test_partitions_that_are_there_already_are_not_added(server: Server) -> None:
    topic = made(server)
    server.nodes[LAYOUT.partition(2)] = b"", 0
    done = server.carry_out(update(topic, added=1))
    assert "cannot be changed: ZooKeeper says NodeExistsError()" in done.text


def test_a_topic_without_its_partition_is_not_changed(server: Server) -> None:
    topic = made(server)
    del server.nodes[LAYOUT.partition(1)]
    done = server.carry_out(update(topic))
    assert "cannot be changed: ZooKeeper says NoNodeError()" in done.text
    assert "cannot be deleted" in server.carry_out(DeleteTopic(1, "t")).text


# ---------------------------------------------------------------- nodes of partitions that no topic names


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three nodes fit into a transaction, so that five take two before the one with the topic."""
    monkeypatch.setattr("dueq.cluster.new_partitions.TRANSACTION_BYTES", 1_000)


def interrupted(server: Server, order: Order, steps: int) -> tuple[TopicOrder, list[Callable[[], Any]]]:
    """Take so many steps of an order; returns it, and what it would ask for next, if it has not ended."""
    pending = TopicOrder(order, time.monotonic() + 10)
    procedure = pending.attempt(server, LAYOUT)
    try:
        sends = next(procedure)
        for _ in range(steps):
            sends = procedure.send([answer_of(send) for send in sends])
    except StopIteration:
        return pending, []
    procedure.close()
    return pending, list(sends)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("steps", range(10))
@pytest.mark.parametrize("order", ["create", "update"])
@pytest.mark.parametrize("come", ["never", "before", "after"])
def test_an_order_that_is_given_up_leaves_no_partition_without_a_topic_and_no_topic_without_its_partitions(
    server: Server, order: str, steps: int, come: str
) -> None:
    """The requests that are under way when the connection is lost may be carried out, or not."""
    topic = made(server)
    other = create("other", 5) if order == "create" else update(topic, added=5)
    pending, under_way = interrupted(server, other, steps)
    if come == "before":
        for send in under_way:
            answer_of(send)
    server.finished(pending.partitions.clear(server, LAYOUT))
    if come == "after":
        for send in under_way:
            answer_of(send)
    shown = server.carry_out(create("other")), server.carry_out(replace(create("t"), creation_id="b" * 32))
    named = {part.uid for done in shown if done.topic is not None for part in done.topic.partitions}
    assert server.partitions() == named or (come == "after" and server.partitions() > named)
    assert topic.uid in named


@pytest.mark.usefixtures("small")
def test_a_topic_that_is_deleted_while_it_grows_leaves_no_partition(server: Server) -> None:
    topic = made(server)
    pending = TopicOrder(update(topic, added=5), time.monotonic() + 10)
    procedure = pending.attempt(server, LAYOUT)
    sends = next(procedure)
    for _ in range(5):
        sends = procedure.send([answer_of(send) for send in sends])
    assert server.partitions() > {topic.uid}
    server.carry_out(DeleteTopic(1, "t"))
    done = server.finished(procedure, [answer_of(send) for send in sends])
    assert done.error == "not_found"
    assert server.partitions() == set()


@pytest.mark.parametrize("steps", range(8))
@pytest.mark.parametrize("earlier", [False, True], ids=["first", "later"])
def test_a_creation_that_is_slow_does_not_make_a_topic_again_that_was_deleted_meanwhile(
    server: Server, monkeypatch: pytest.MonkeyPatch, steps: int, earlier: bool
) -> None:
    """Its client has repeated it at another broker, which was faster."""
    monkeypatch.setattr("dueq.cluster.layout._ENDED_NODES", 1)
    if earlier:  # else the list of deleted topics is made by the deletion
        server.carry_out(create("u"))
        server.carry_out(DeleteTopic(1, "u"))
    slow = TopicOrder(create("t"), time.monotonic() + 10).attempt(server, LAYOUT)
    try:
        sends = next(slow)
        for _ in range(steps):
            sends = slow.send([answer_of(send) for send in sends])
        answers = [answer_of(send) for send in sends]
    except StopIteration:
        return  # it was not that slow
    made(server)
    server.carry_out(DeleteTopic(1, "t"))
    with contextlib.suppress(KazooException):
        server.finished(slow, answers)
    assert server.carry_out(DeleteTopic(1, "t")).error == "not_found"
