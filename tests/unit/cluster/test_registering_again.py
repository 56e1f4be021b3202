"""A broker whose registration is missing, is refused, or belongs to a cluster that ZooKeeper does not hold any more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import structlog
from kazoo.exceptions import NoAuthError, NodeExistsError, NoNodeError, RuntimeInconsistency
from kazoo.protocol.states import ZnodeStat

from dueq.cluster.coordinator import BrokerIdTaken, CoordinatorUnreadable
from dueq.cluster.layout import Layout
from dueq.cluster.registering import check_cluster, prepare, register
from dueq.cluster.requests import Ended, Procedure
from dueq.cluster.znodes import encode_cluster, encode_registration
from dueq.cluster.zookeeper import ZooKeeperCoordinator
from dueq.core.ports.membership import CoordinatorState, Registration

REGISTRATION = Registration("b1", 1, "s1", "tcp://b1:7400", feature_level=3)
LAYOUT = Layout("/dueq")


class Desk:
    """A coordinator that believes in its connection, without threads; the test ends what it begins."""

    def __init__(self) -> None:
        self.coordinator = coordinator = ZooKeeperCoordinator("127.0.0.1:1")
        self.begun: list[Ended] = []
        coordinator._client = type("Client", (), {"connected": False})()
        coordinator._deliver = lambda event: None
        coordinator._registration = REGISTRATION
        coordinator._requests = self  # type: ignore[assignment]
        coordinator._mirror = type("Mirror", (), {"connection_lost": lambda self: None})()  # type: ignore[assignment]
        coordinator._state = CoordinatorState.CONNECTED

    def run(self, procedure: Procedure, ended: Ended) -> None:
        procedure.close()
        self.begun.append(ended)

    def connection_lost(self) -> None:
        pass

    def pass_time(self) -> None:
        timers, self.coordinator._timers = self.coordinator._timers, []
        for _, _, call in timers:
            call()


def test_a_registration_that_is_refused_is_tried_once_a_second_however_often_it_is_missed() -> None:
    """Each reading of the registrations that did not show it began another one, and each of these tried again."""
    desk = Desk()
    for _ in range(5):
        desk.coordinator._registrations_read({})
        assert len(desk.begun) == 1
    desk.begun[0](None, NoAuthError())
    for _ in range(5):
        desk.coordinator._registrations_read({})
    assert (len(desk.begun), len(desk.coordinator._timers)) == (1, 1)
    desk.pass_time()
    assert len(desk.begun) == 2
    desk.begun[1]("path", None)
    desk.coordinator._registrations_read({})
    assert len(desk.begun) == 3


def test_a_new_connection_registers_at_once_whatever_was_under_way() -> None:
    desk = Desk()
    desk.coordinator._registrations_read({})
    desk.begun[0](None, NoAuthError())
    desk.coordinator._lose(CoordinatorState.SUSPENDED)
    desk.coordinator._on_state("CONNECTED")
    assert len(desk.begun) == 2


def test_a_broker_that_is_away_for_long_says_why_that_may_be() -> None:
    """A server that was restored from an older backup hangs up on whoever has seen newer states, without a word."""
    desk = Desk()
    with structlog.testing.capture_logs() as logs:
        desk.coordinator._lose(CoordinatorState.SUSPENDED)
        desk.coordinator._on_state("CONNECTED")
        desk.pass_time()
        assert not logs
        desk.coordinator._lose(CoordinatorState.SUSPENDED)
        desk.coordinator._lose(CoordinatorState.LOST)
        desk.pass_time()
    [log] = logs
    assert (log["event"], "restart the brokers" in log["hint"]) == ("zookeeper.away", True)


def checked(cluster: bytes | None) -> None:
    """Look whether ZooKeeper holds cluster "mine"."""

    class Client:
        def get_async(self, path: str) -> Any:
            assert path == LAYOUT.cluster

    procedure = check_cluster(Client(), LAYOUT, REGISTRATION, "mine")
    next(procedure)
    with pytest.raises(StopIteration):
        procedure.send([NoNodeError() if cluster is None else (cluster, None)])


@pytest.mark.parametrize(
    ("cluster", "why"),
    [
        (None, "holds no cluster at /dueq, and this broker is of cluster mine"),
        (encode_cluster("other"), "holds cluster other at /dueq, and this broker is of cluster mine"),
        (encode_cluster("mine", 4), "cluster mine is at feature level 4, broker b1 knows only 3"),
    ],
)
def test_a_broker_does_not_register_in_another_cluster(cluster: bytes | None, why: str) -> None:
    """ZooKeeper was emptied or exchanged while the broker lived, and another mesh has begun there."""
    with pytest.raises(CoordinatorUnreadable, match=why):
        checked(cluster)


def test_a_broker_registers_again_in_its_own_cluster() -> None:
    checked(encode_cluster("mine", 3))


def answered(procedure: Procedure, rounds: int = 20) -> Any:
    """Answer all requests of a procedure at once; returns its result."""
    sends = next(procedure)
    for _ in range(rounds):
        try:
            sends = procedure.send([send() for send in sends])
        except StopIteration as stop:
            return stop.value
    raise AssertionError("it goes on and on")


class Occupied:
    """ZooKeeper with a registration of an earlier life, which it refuses to delete."""

    client_id = (7, b"")

    def create_async(self, path: str, value: bytes, **options: bool) -> Any:
        return NodeExistsError()

    def set_async(self, path: str, value: bytes) -> Any:
        return None

    def get_async(self, path: str) -> Any:
        earlier = replace(REGISTRATION, incarnation=0)
        return encode_registration(earlier), ZnodeStat(0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0)

    def transaction(self) -> Any:
        refused = [NoAuthError(), RuntimeInconsistency()]
        return type(
            "Transaction",
            (),
            {
                "delete": lambda self, path, version: None,
                "create": lambda self, path, value, ephemeral: None,
                "commit_async": lambda self: refused,
            },
        )()


def test_a_registration_that_may_not_be_replaced_is_an_error() -> None:
    """The same transaction was sent again and again, as fast as ZooKeeper answered, and nothing said why."""
    with pytest.raises(NoAuthError):
        answered(register(Occupied(), LAYOUT, REGISTRATION))


class Taken(Occupied):
    """ZooKeeper in which another store has our id, and a level is announced for it."""

    def __init__(self) -> None:
        self.level = b"2"

    def set_async(self, path: str, value: bytes) -> Any:
        if path == LAYOUT.level("b1"):
            self.level = value

    def get_async(self, path: str) -> Any:
        other = replace(REGISTRATION, store_id="s2", feature_level=2)
        return encode_registration(other), ZnodeStat(0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0)


def test_a_broker_whose_id_is_taken_announces_no_level_for_it() -> None:
    """When the other one was down, partitions reached a level at which its older build stopped."""
    taken = Taken()
    with pytest.raises(BrokerIdTaken):
        answered(register(taken, LAYOUT, REGISTRATION))
    assert taken.level == b"2"


class OwnNode(Occupied):
    """ZooKeeper with our own registration, made in some session."""

    def __init__(self, session: int) -> None:
        self._session = session

    def get_async(self, path: str) -> Any:
        return encode_registration(REGISTRATION), ZnodeStat(0, 0, 0, 0, 0, 0, 0, self._session, 0, 0, 0)


def test_the_own_registration_counts_if_it_is_of_the_present_session() -> None:
    """The answer to a create may be lost. But what an earlier session has made goes with that session."""
    assert answered(register(OwnNode(7), LAYOUT, REGISTRATION)) == LAYOUT.broker("b1")
    with pytest.raises(NoAuthError):  # it is to be replaced, which is refused here
        answered(register(OwnNode(6), LAYOUT, REGISTRATION))


class Fenced:
    """ZooKeeper in which a broker may create nodes below `/shared/dueq` only, or nowhere.

    It looks at the rights for the parent before it looks for the node (`pRequest2TxnCreate`).
    """

    def __init__(self, *, below: bool) -> None:
        self._below = below

    def create_async(self, path: str, value: bytes) -> Any:
        return NodeExistsError() if self._below and path.startswith("/shared/dueq/") else NoAuthError()

    def get_async(self, path: str) -> Any:
        return encode_cluster("mine"), None


def test_folders_above_the_cluster_that_are_there_need_not_be_writable() -> None:
    """No broker could start where an administrator had made the root, and locked what is above it."""
    layout = Layout("/shared/dueq")
    assert answered(prepare(Fenced(below=True), layout, REGISTRATION)) == "mine"
    with pytest.raises(NoAuthError):
        answered(prepare(Fenced(below=False), layout, REGISTRATION))


def test_an_error_without_a_text_is_named() -> None:
    """kazoo's have none, and so the log gave an empty reason, once a second."""
    desk = Desk()
    with structlog.testing.capture_logs() as logs:
        desk.coordinator._registration_failed(NoAuthError())
    assert [log["reason"] for log in logs] == ["NoAuthError()"]


def test_what_is_due_does_not_wait_until_nothing_else_happens() -> None:
    """Thousands of nodes change, say, while a registration is to be tried again."""
    coordinator = ZooKeeperCoordinator("127.0.0.1:1")
    calls = 0

    def busy() -> None:
        nonlocal calls
        calls += 1
        if calls < 100_000:
            coordinator._inbox.put(busy)
        else:
            coordinator._end()

    coordinator._inbox.put(busy)
    coordinator._later(0.0, coordinator._end)
    coordinator._run()
    assert calls < 100_000
