"""The end of a coordinator whose ZooKeeper hangs, or that a signal ends while it is being started."""

from __future__ import annotations

import threading

import pytest
from kazoo.client import KazooClient

from dueq.cluster import zookeeper
from dueq.cluster.standalone import StandaloneCoordinator
from dueq.cluster.zookeeper import ZooKeeperCoordinator
from dueq.core.ports.membership import Registration

REGISTRATION = Registration("b1", 7, "s1", "tcp://b1:1")


class Hanging:
    """A client of kazoo's that waits for a silent server; it cannot be closed before it has stopped."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.answers = threading.Event()

    def stop(self) -> None:
        self.calls.append("stop")
        if len(self.calls) == 1:
            self.answers.wait(30.0)

    def close(self) -> None:
        self.calls.append("close")


def test_who_stops_it_twice_does_not_close_under_what_is_still_stopping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker does: kazoo raised an error then, whose traceback was the last word of an end in order."""
    monkeypatch.setattr(zookeeper, "_STOP_S", 0.01)
    coordinator, client = ZooKeeperCoordinator("127.0.0.1:1"), Hanging()
    coordinator._client = client
    coordinator._thread = threading.Thread(target=coordinator._run)
    coordinator._thread.start()
    coordinator.stop()
    coordinator.stop()
    client.answers.set()
    for thread in threading.enumerate():
        if thread.name == "dueq-coordinator-close":
            thread.join()
    coordinator._thread.join()
    assert client.calls == ["stop", "close"]


def test_a_machine_that_gives_no_thread_does_not_keep_it_from_closing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error ended the end of the broker: the store was closed while its threads went on writing."""
    coordinator, client = ZooKeeperCoordinator("127.0.0.1:1"), Hanging()
    client.answers.set()
    coordinator._client = client
    coordinator._thread = threading.Thread(target=coordinator._run)
    coordinator._thread.start()

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    coordinator.stop()
    assert client.calls == ["stop", "close"]


@pytest.mark.parametrize("kind", ["standalone", "zookeeper"])
def test_a_signal_before_the_thread_runs_ends_it_in_order(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last word of such an end was a traceback: a thread cannot be joined before it was started."""
    coordinator = StandaloneCoordinator(None) if kind == "standalone" else ZooKeeperCoordinator("127.0.0.1:1")

    def told(thread: threading.Thread) -> None:
        raise SystemExit(0)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", told)
        with pytest.raises(SystemExit):
            coordinator.start(REGISTRATION, lambda event: None)
    coordinator.stop()


def test_a_signal_while_kazoo_is_being_started_ends_it_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """kazoo wakes its thread by a socket, which it makes only then: AttributeError."""
    errors: list[object] = []
    monkeypatch.setattr(threading, "excepthook", errors.append)
    coordinator = ZooKeeperCoordinator("127.0.0.1:1")
    start = KazooClient.start_async

    def told(client: KazooClient) -> None:
        def raised() -> None:
            raise SystemExit(0)

        client._connection.start = raised
        start(client)

    monkeypatch.setattr(KazooClient, "start_async", told)
    with pytest.raises(SystemExit):
        coordinator.start(REGISTRATION, lambda event: None)
    coordinator.stop()
    assert not errors
    assert not coordinator._client.handler.running
