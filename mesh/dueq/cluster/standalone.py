"""The coordinator of a mesh of one: the same facts, versions and answers, in a file of the data folder.

Beside a store that is not durable there is no file, and the facts end with the process.
The file is replaced as a whole and synced before anything that it says is confirmed. So an answered change
survives a crash at any point. The lock on the data folder keeps other processes away from it.
"""

from __future__ import annotations

import json
import os
import queue
import threading
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import structlog

from dueq.cluster.coordinator import CoordinatorUnavailable, CoordinatorUnreadable, Deliver
from dueq.cluster.znodes import (
    FEATURE_LEVEL,
    FORMAT,
    GROWN_LEVEL,
    TopicRefused,
    already_ended,
    check_feature_level,
    has_ended,
    is_meant,
    new_topic,
    node_fields,
    node_of,
    topic_fields,
    topic_of,
    updated_topic,
    with_ended,
)
from dueq.core.ports.membership import (
    CompareAndSet,
    CompareAndSetDone,
    ConfirmDeleted,
    CoordinatorChanged,
    CoordinatorEvent,
    CoordinatorOrder,
    CoordinatorState,
    CreateTopic,
    DeleteTopic,
    NodeSeen,
    PartitionNode,
    ReadNode,
    Registration,
    RegistrationsSeen,
    SetOutcome,
    Topic,
    TopicOrderDone,
    TopicsSeen,
    UpdateTopic,
)

_log = structlog.get_logger("dueq.cluster")

_STOP_S: Final = 3.0


@dataclass
class _Facts:
    """Everything that the file holds.

    Attributes:
        nodes: version and node by uid.
        ended: ids of the creations of deleted topics; a build that does not know them leaves them out.
        changes: only counts, in memory.
    """

    cluster_id: str
    feature_level: int = FEATURE_LEVEL
    next_uid: int = 1
    topics: dict[str, Topic] = field(default_factory=dict)
    nodes: dict[int, tuple[int, PartitionNode]] = field(default_factory=dict)
    tombstones: set[int] = field(default_factory=set)
    ended: tuple[str, ...] = ()
    changes: int = 0

    def copy(self) -> _Facts:
        return _Facts(
            self.cluster_id, self.feature_level, self.next_uid,
            dict(self.topics), dict(self.nodes), set(self.tombstones), self.ended, self.changes,
        )  # fmt: skip


class StandaloneCoordinator:
    """The in-process stand-in for ZooKeeper, for one broker; see `Coordinator`."""

    def __init__(self, path: str | Path | None) -> None:
        """Take the file; it is read, or made, by `start`. None: nothing is kept, as the store keeps nothing."""
        self._path = Path(path) if path is not None else None
        self._cluster_id = ""
        self._inbox: queue.SimpleQueue[CoordinatorOrder | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    @property
    def cluster_id(self) -> str:
        """The cluster's random id; known once `start` has returned."""
        return self._cluster_id

    def start(self, registration: Registration, deliver: Deliver) -> None:
        """Read the file, deliver CONNECTED and everything there is; see `Coordinator.start`."""
        assert self._thread is None, "a coordinator is started once"
        self.open(registration, deliver)
        self._thread = threading.Thread(target=self._run, name="dueq-coordinator", daemon=True)
        self._thread.start()

    def open(self, registration: Registration, deliver: Deliver) -> None:
        """Do what `start` does, without a thread: orders are for `carry_out` then, not for `submit`."""
        self._deliver = deliver
        try:
            if self._path is not None and self._path.exists():
                self._facts = _read(self._path)
            else:
                self._facts = _Facts(uuid.uuid4().hex, min(FEATURE_LEVEL, registration.feature_level))
                self._save()
        except OSError as error:
            raise CoordinatorUnavailable(f"{self._path} cannot be used: {error}") from error
        check_feature_level(self._facts.cluster_id, self._facts.feature_level, registration)
        self._cluster_id = self._facts.cluster_id
        deliver(CoordinatorChanged(CoordinatorState.CONNECTED))
        deliver(RegistrationsSeen({registration.broker_id: registration}))
        deliver(self._topics_seen())
        for uid, (version, node) in self._facts.nodes.items():
            deliver(NodeSeen(uid, version, node))

    def submit(self, order: CoordinatorOrder) -> None:
        """Take an order; see `Coordinator.submit`."""
        self._inbox.put(order)

    def stop(self) -> None:
        """End; see `Coordinator.stop`."""
        if self._thread is not None:
            self._ended.set()
            self._inbox.put(None)
            if self._thread.is_alive():  # not so if a signal has ended `start` before it was
                self._thread.join(_STOP_S)

    # ------------------------------------------------------------ the worker

    def _run(self) -> None:
        while True:
            orders = [self._inbox.get()]
            while not self._inbox.empty():
                orders.append(self._inbox.get())
            if self._ended.is_set():
                return
            for event in self.carry_out([order for order in orders if order is not None]):
                self._deliver(event)

    def carry_out(self, orders: list[CoordinatorOrder]) -> list[CoordinatorEvent]:
        """Carry out orders with one write; returns the answers."""
        before = self._facts
        self._facts = before.copy()
        events = [event for order in orders for event in self._answers_of(order)]
        if self._facts.changes != before.changes:
            try:
                self._save()
            except OSError as error:
                # Perhaps the file is the new one already: nothing more is known than that.
                _log.error("coordinator.write_failed", path=str(self._path), error=str(error))
                self._facts = before
                events = [event for order in orders for event in self._failed(order, error)]
        return events

    def _save(self) -> None:
        if self._path is not None:
            _write(self._path, self._facts)

    def _answers_of(self, order: CoordinatorOrder) -> list[CoordinatorEvent]:
        if isinstance(order, CompareAndSet):
            return self._compare_and_set(order)
        if isinstance(order, ReadNode):
            return [self._node_seen(order.uid)]
        if isinstance(order, CreateTopic):
            return self._create(order)
        if isinstance(order, UpdateTopic):
            return self._update(order)
        if isinstance(order, ConfirmDeleted):
            return self._confirm_deleted(order)
        return self._delete(order)

    def _confirm_deleted(self, order: ConfirmDeleted) -> list[CoordinatorEvent]:
        """The only broker holds nothing of these any more."""
        gone = self._facts.tombstones & set(order.uids)
        if not gone:
            return []
        self._facts.tombstones -= gone
        self._facts.changes += 1
        return [self._topics_seen()]

    def _compare_and_set(self, order: CompareAndSet) -> list[CoordinatorEvent]:
        version, _ = self._facts.nodes.get(order.uid, (-1, None))
        if version < 0 or version != order.version:
            return [CompareAndSetDone(order.token, order.uid, SetOutcome.BAD_VERSION, order.version)]
        self._facts.nodes[order.uid] = (version + 1, order.node)
        self._facts.changes += 1
        return [
            CompareAndSetDone(order.token, order.uid, SetOutcome.DONE, version + 1),
            self._node_seen(order.uid),
        ]

    def _create(self, order: CreateTopic) -> list[CoordinatorEvent]:
        facts = self._facts
        found = facts.topics.get(order.name)
        if found is not None:
            if found.creation_id == order.creation_id:
                return [TopicOrderDone(order.token, "", topic=found)]
            return [TopicOrderDone(order.token, "exists", f"topic {order.name!r} exists already", found)]
        if has_ended(facts.ended, order):
            return [already_ended(order)]
        try:
            topic, nodes = new_topic(order, facts.next_uid)
        except TopicRefused as refused:
            return [TopicOrderDone(order.token, "unavailable", str(refused))]
        facts.next_uid = max(nodes) + 1
        facts.topics[topic.name] = topic
        facts.nodes.update({uid: (0, node) for uid, node in nodes.items()})
        facts.changes += 1
        done = TopicOrderDone(order.token, "", topic=topic)
        return [done, self._topics_seen(), *(self._node_seen(uid) for uid in nodes)]

    def _update(self, order: UpdateTopic) -> list[CoordinatorEvent]:
        topic = self._facts.topics.get(order.name)
        if topic is None:
            return [TopicOrderDone(order.token, "not_found", f"there is no topic {order.name!r}")]
        facts = self._facts
        try:
            found = updated_topic(topic, order, facts.next_uid)
        except TopicRefused as refused:
            return [TopicOrderDone(order.token, "unavailable", str(refused))]
        if found is None:
            return [TopicOrderDone(order.token, "", topic=topic)]
        changed, nodes = found
        if nodes:
            facts.next_uid = max(nodes) + 1
            facts.feature_level = max(facts.feature_level, GROWN_LEVEL)
        facts.topics[order.name] = changed
        facts.nodes.update({uid: (0, node) for uid, node in nodes.items()})
        facts.changes += 1
        done = TopicOrderDone(order.token, "", topic=changed)
        return [done, self._topics_seen(), *(self._node_seen(uid) for uid in nodes)]

    def _delete(self, order: DeleteTopic) -> list[CoordinatorEvent]:
        topic = self._facts.topics.get(order.name)
        if topic is None or not is_meant(topic, order):
            return [TopicOrderDone(order.token, "not_found", f"there is no topic {order.name!r}", topic)]
        del self._facts.topics[order.name]
        self._facts.ended = with_ended(self._facts.ended, topic)
        for part in topic.partitions:
            self._facts.tombstones.add(part.uid)
            self._facts.nodes.pop(part.uid, None)
        self._facts.changes += 1
        return [TopicOrderDone(order.token, "", topic=topic), self._topics_seen()]

    def _failed(self, order: CoordinatorOrder, error: OSError) -> list[CoordinatorEvent]:
        if isinstance(order, CompareAndSet):
            return [CompareAndSetDone(order.token, order.uid, SetOutcome.UNKNOWN, order.version)]
        if isinstance(order, ReadNode):
            return [self._node_seen(order.uid)]
        if isinstance(order, ConfirmDeleted):
            return []
        return [TopicOrderDone(order.token, "unavailable", f"{self._path} cannot be written: {error}")]

    def _node_seen(self, uid: int) -> NodeSeen:
        version, node = self._facts.nodes.get(uid, (-1, None))
        return NodeSeen(uid, version, node)

    def _topics_seen(self) -> TopicsSeen:
        return TopicsSeen(dict(self._facts.topics), frozenset(self._facts.tombstones))


def _read(path: Path) -> _Facts:
    try:
        fields: dict[str, Any] = json.loads(path.read_bytes())
        if fields["format"] != FORMAT:
            raise CoordinatorUnreadable(
                f"{path} has format {fields['format']}, this build knows only {FORMAT}"
            )
        topics = [topic_of(topic) for topic in fields["topics"]]
        return _Facts(
            cluster_id=str(fields["cluster_id"]),
            feature_level=int(fields["feature_level"]),
            next_uid=int(fields["next_uid"]),
            topics={topic.name: topic for topic in topics},
            nodes={int(uid): (int(version), node_of(node)) for uid, version, node in fields["nodes"]},
            tombstones={int(uid) for uid in fields["tombstones"]},
            ended=tuple(str(creation_id) for creation_id in fields.get("ended", ())),
        )
    except (LookupError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CoordinatorUnreadable(
            f"{path} is damaged ({error!r}): restore it, or set it aside by hand"
        ) from error


def _for_its_owner(path: str, flags: int) -> int:
    """Open a file that nobody else may read: secrets of endpoints are in it."""
    return os.open(path, flags, 0o600)


def _write(path: Path, facts: _Facts) -> None:
    """Replace the file; when this returns, the new one survives a crash."""
    fields = {
        "format": FORMAT,
        "cluster_id": facts.cluster_id,
        "feature_level": facts.feature_level,
        "next_uid": facts.next_uid,
        "topics": [topic_fields(topic) for topic in facts.topics.values()],
        "nodes": [[uid, version, node_fields(node)] for uid, (version, node) in facts.nodes.items()],
        "tombstones": sorted(facts.tombstones),
        "ended": facts.ended,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    partial_path = path.with_name(path.name + ".partial")
    partial_path.unlink(missing_ok=True)  # what a crash has left keeps its mode
    with open(partial_path, "w", encoding="utf-8", opener=_for_its_owner) as file:
        json.dump(fields, file, separators=(",", ":"))
        file.flush()
        os.fsync(file.fileno())
    partial_path.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
