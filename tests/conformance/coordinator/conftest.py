"""Lives of brokers, as far as a coordinator sees them, and a real ZooKeeper for them."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from kazoo.client import KazooClient

from dueq.cluster.coordinator import Coordinator
from dueq.cluster.server import ZooKeeperServer
from dueq.cluster.standalone import StandaloneCoordinator
from dueq.cluster.zookeeper import ZooKeeperCoordinator
from dueq.core.ports.membership import (
    CompareAndSet,
    CompareAndSetDone,
    CoordinatorEvent,
    CreateTopic,
    DeleteTopic,
    Member,
    NodeSeen,
    PartitionNode,
    ReadNode,
    Registration,
    TopicOrderDone,
    TopicsSeen,
    UpdateTopic,
)
from dueq_codecs.records import FEATURE_LEVEL
from dueq_codecs.topic_settings import TopicSettings

E = TypeVar("E")
_WAIT_S = 120.0
_tokens = itertools.count(1)
_created: dict[str, str] = {}
"""The creation id of each topic."""


class Life:
    """One life of one broker: its coordinator, and all that this has delivered."""

    def __init__(self, coordinator: Coordinator, registration: Registration) -> None:
        self.coordinator = coordinator
        self.registration = registration
        self.events: list[CoordinatorEvent] = []
        self._changed = threading.Condition()

    def deliver(self, event: CoordinatorEvent) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def start(self) -> Life:
        self.coordinator.start(self.registration, self.deliver)
        return self

    def mark(self) -> int:
        """The place from which `wait` sees only what comes later."""
        return len(self.events)

    def wait(self, kind: type[E], fits: Callable[[E], bool] = lambda event: True, since: int = 0) -> E:
        """Return the first event of a kind that fits, among those delivered and those to come."""
        deadline = time.monotonic() + _WAIT_S
        with self._changed:
            while True:
                for event in self.events[since:]:
                    if isinstance(event, kind) and fits(event):
                        return event
                if not self._changed.wait(deadline - time.monotonic()):
                    raise AssertionError(f"no such {kind.__name__} in {_WAIT_S} s; there were {self.events}")

    def create(self, name: str, partitions: int = 2, creation_id: str = "", **fields: Any) -> TopicOrderDone:
        token = next(_tokens)
        creation_id = _created[name] = creation_id or uuid.uuid4().hex
        own = Member(self.registration.broker_id, self.registration.store_id)
        order: dict[str, Any] = {
            "replicas_of": ((own.broker_id,),) * partitions, "members": (own,), "replicas": 1, "min_isr": 1,
        } | fields  # fmt: skip
        self.coordinator.submit(
            CreateTopic(
                token, name, creation_id, "timeline",
                settings=TopicSettings(), **order,
            )
        )  # fmt: skip
        return self.wait(TopicOrderDone, lambda done: done.token == token)

    def update(self, name: str, settings: TopicSettings, added: int = 0) -> TopicOrderDone:
        """Change the topic that was created last under this name, in whatever life."""
        token = next(_tokens)
        own = Member(self.registration.broker_id, self.registration.store_id)
        order = UpdateTopic(
            token, name, _created.get(name, ""), settings, ((own.broker_id,),) * added, (own,)
        )
        self.coordinator.submit(order)
        return self.wait(TopicOrderDone, lambda done: done.token == token)

    def delete(self, name: str, uid: int = 0) -> TopicOrderDone:
        token = next(_tokens)
        self.coordinator.submit(DeleteTopic(token, name, uid))
        return self.wait(TopicOrderDone, lambda done: done.token == token)

    def send_set(self, uid: int, version: int, node: PartitionNode) -> int:
        token = next(_tokens)
        self.coordinator.submit(CompareAndSet(token, uid, version, node))
        return token

    def set(self, uid: int, version: int, node: PartitionNode) -> CompareAndSetDone:
        return self.set_done(self.send_set(uid, version, node))

    def set_done(self, token: int) -> CompareAndSetDone:
        return self.wait(CompareAndSetDone, lambda done: done.token == token)

    def read(self, uid: int) -> NodeSeen:
        since = self.mark()
        self.coordinator.submit(ReadNode(uid))
        return self.wait(NodeSeen, lambda seen: seen.uid == uid, since)

    def topics(self, fits: Callable[[TopicsSeen], bool], since: int = 0) -> TopicsSeen:
        return self.wait(TopicsSeen, fits, since)

    def node(self, epoch: int) -> PartitionNode:
        me = self.registration
        return PartitionNode(me.broker_id, me.incarnation, epoch, (Member(me.broker_id, me.store_id),))


Begin = Callable[..., Life]


def _require_java() -> None:
    if shutil.which("java") is None and not os.environ.get("CI"):
        pytest.skip("needs Java")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """A real ZooKeeper for the tests of one module."""
    _require_java()
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.stop()


class Wire:
    """A TCP relay to a server that can be cut and mended, and that can take connections without a word."""

    def __init__(self, target: str) -> None:
        host, _, port = target.partition(":")
        self._target = (host, int(port))
        self._open = True
        self._mute = False
        self.taken_mute = threading.Event()
        """A connection was taken that nobody will ever answer."""
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                if not self._open:
                    here.close()
                    continue
                if self._mute:
                    self._sockets.append(here)
                    self.taken_mute.set()
                    continue
                there = socket.create_connection(self._target)
                self._sockets += [here, there]
                for pair in ((here, there), (there, here)):
                    threading.Thread(target=self._copy, args=pair, daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        self._open = False
        for end in self._sockets:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def mute(self) -> None:
        """From now on connections are taken, and nothing more."""
        self._open = self._mute = True

    def mend(self) -> None:
        """From now on connections reach the server; those taken before do not."""
        self._open, self._mute = True, False

    def close(self) -> None:
        self.cut()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._sockets:
            end.close()


@pytest.fixture
def make_wire(server: ZooKeeperServer) -> Iterator[Callable[[], Wire]]:
    """Make wires to the server; they end with the test."""
    wires: list[Wire] = []

    def make() -> Wire:
        wires.append(Wire(server.address))
        return wires[-1]

    yield make
    for wire in wires:
        wire.close()


@pytest.fixture
def wire(make_wire: Callable[[], Wire]) -> Wire:
    return make_wire()


@pytest.fixture
def by_hand(server: ZooKeeperServer) -> Iterator[KazooClient]:
    """A person at the server."""
    client = KazooClient(server.address)
    client.start()
    yield client
    client.stop()
    client.close()


def registration(broker_id: str, incarnation: int, store_id: str) -> Registration:
    return Registration(broker_id, incarnation, store_id, f"tcp://{broker_id}:7400", f"{broker_id}:9100")


@pytest.fixture
def begin_on_zookeeper(server: ZooKeeperServer) -> Iterator[Begin]:
    """Begin lives of brokers of one cluster in ZooKeeper; they end with the test."""
    lives: list[Life] = []
    root = f"/{uuid.uuid4().hex}"

    def begin(
        broker_id: str = "b1",
        incarnation: int = 1,
        store_id: str = "s1",
        *,
        start: bool = True,
        level: int = FEATURE_LEVEL,
        **options: Any,
    ) -> Life:
        coordinator = ZooKeeperCoordinator(server.address + root, **options)
        life = Life(coordinator, replace(registration(broker_id, incarnation, store_id), feature_level=level))
        lives.append(life)
        return life.start() if start else life

    yield begin
    for life in lives:
        life.coordinator.stop()


@pytest.fixture(params=["standalone", pytest.param("zookeeper", marks=pytest.mark.integration)])
def begin(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Begin]:
    """Begin lives of a broker, on every implementation; of the stand-in's, one at a time."""
    if request.param == "zookeeper":
        yield request.getfixturevalue("begin_on_zookeeper")
        return
    lives: list[Life] = []

    def begin(
        broker_id: str = "b1", incarnation: int = 1, store_id: str = "s1", level: int = FEATURE_LEVEL
    ) -> Life:
        coordinator = StandaloneCoordinator(tmp_path / "data" / "coordinator.json")
        mine = replace(registration(broker_id, incarnation, store_id), feature_level=level)
        lives.append(Life(coordinator, mine))
        return lives[-1].start()

    yield begin
    for life in lives:
        life.coordinator.stop()
