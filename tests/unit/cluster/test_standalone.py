"""The stand-in's file: what a crash, a full disk or a strange file does."""

from __future__ import annotations

import os
import queue
import stat
from pathlib import Path
from typing import TypeVar

import pytest

from dueq.cluster.coordinator import CoordinatorUnreadable
from dueq.cluster.standalone import StandaloneCoordinator
from dueq.core.ports.membership import (
    CompareAndSet,
    CompareAndSetDone,
    CoordinatorEvent,
    CreateTopic,
    Member,
    NodeSeen,
    PartitionNode,
    ReadNode,
    Registration,
    SetOutcome,
    TopicOrderDone,
)
from dueq_codecs.topic_settings import TopicSettings

E = TypeVar("E")
REGISTRATION = Registration("b1", 1, "s1", "tcp://b1:7400")
NODE = PartitionNode("b1", 1, 1, (Member("b1", "s1"),))


class Standalone:
    def __init__(self, path: Path | None) -> None:
        self.events: queue.Queue[CoordinatorEvent] = queue.Queue()
        self.coordinator = StandaloneCoordinator(path)
        self.coordinator.start(REGISTRATION, self.events.put)

    def wait(self, kind: type[E]) -> E:
        while True:
            event = self.events.get(timeout=200)
            if isinstance(event, kind):
                return event

    def create(self, token: int, name: str) -> TopicOrderDone:
        own = (Member("b1", "s1"),)
        self.coordinator.submit(
            CreateTopic(token, name, name * 32, "timeline", (("b1",),), own, 1, 1, TopicSettings())
        )
        return self.wait(TopicOrderDone)


def test_what_was_answered_is_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.json"
    standalone = Standalone(path)
    done = standalone.create(1, "a")
    # As after a crash: nobody has stopped the first one.
    again = Standalone(path)
    assert again.create(2, "a").topic == done.topic
    for each in (standalone, again):
        each.coordinator.stop()


def test_a_write_that_fails_leaves_the_outcome_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    standalone = Standalone(tmp_path / "coordinator.json")
    topic = standalone.create(1, "a").topic
    assert topic is not None
    uid = topic.partitions[0].uid

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        standalone.coordinator.submit(CompareAndSet(2, uid, 0, NODE))
        assert standalone.wait(CompareAndSetDone).outcome is SetOutcome.UNKNOWN
        failed = standalone.create(3, "b")
        assert failed.error == "unavailable"
        assert "No space left" in failed.text
        standalone.coordinator.submit(ReadNode(uid))
        standalone.wait(NodeSeen)
    standalone.coordinator.submit(CompareAndSet(4, uid, 0, NODE))
    assert standalone.wait(CompareAndSetDone) == CompareAndSetDone(4, uid, SetOutcome.DONE, 1)
    standalone.coordinator.stop()


INFINITE = '{"format": 1, "topics": [], "cluster_id": "", "feature_level": Infinity}'


@pytest.mark.parametrize("value", ["", "{}", "[]", '{"format": 1}', '{"format": 9}', INFINITE, "[" * 100_000])
def test_a_strange_file_is_refused_and_left_as_it_is(tmp_path: Path, value: str) -> None:
    path = tmp_path / "coordinator.json"
    path.write_text(value)
    with pytest.raises(CoordinatorUnreadable, match=r"coordinator\.json"):
        Standalone(path)
    assert path.read_text() == value


def test_a_half_written_file_beside_it_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "coordinator.json"
    first = Standalone(path)
    cluster_id = first.coordinator.cluster_id
    first.coordinator.stop()
    (tmp_path / "coordinator.json.partial").write_text("{")
    second = Standalone(path)
    assert second.coordinator.cluster_id == cluster_id
    second.coordinator.stop()


def test_nobody_else_may_read_the_file(tmp_path: Path) -> None:
    """Every user of the machine could. Secrets of endpoints are in it, where a broker has no key."""
    path = tmp_path / "coordinator.json"
    path.with_name(path.name + ".partial").touch(0o644)
    before = os.umask(0o022)
    try:
        Standalone(path).coordinator.stop()
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_without_a_file_the_facts_end_with_the_process() -> None:
    standalone, again = Standalone(None), Standalone(None)
    assert standalone.create(1, "a").topic is not None
    assert again.create(2, "a").error == ""
    assert standalone.coordinator.cluster_id != again.coordinator.cluster_id
    for each in (standalone, again):
        each.coordinator.stop()
