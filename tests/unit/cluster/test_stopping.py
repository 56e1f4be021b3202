"""The end of a coordinator whose ZooKeeper hangs."""

from __future__ import annotations

import threading

import pytest

from dueq.cluster import zookeeper
from dueq.cluster.zookeeper import ZooKeeperCoordinator


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
