"""A simulated ZooKeeper: linearizable nodes with versions, sessions that expire, answers that get lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from dueq.cluster.znodes import already_ended, has_ended, is_meant, updated_topic, with_ended
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
    Member,
    NodeSeen,
    PartitionAssignment,
    PartitionNode,
    ReadNode,
    Registration,
    RegistrationsSeen,
    SetOutcome,
    Topic,
    TopicOrder,
    TopicOrderDone,
    TopicsSeen,
    UpdateTopic,
)
from dueq_chaos.sim.environment.world import World

_SESSION_US = 3_000_000
_TOLD_US = (1_000, 400_000)
"""How long after waking a broker may take to hear that its session has expired."""
LATE_US = (0, 2_000_000)


class Session:
    """One broker life's connection to the coordinator.

    Attributes:
        asleep: the broker's process stands still: it sends no sign of life, and reads nothing.
        sleeps: how often it has fallen asleep.
        unread: what watches have told of while it slept: it learns that something has changed, and has to read it.
    """

    def __init__(
        self,
        coordinator: SimCoordinator,
        registration: Registration,
        deliver: Callable[[CoordinatorEvent], None],
    ) -> None:
        self.coordinator, self.registration, self.deliver = coordinator, registration, deliver
        self.connected = False
        self.closed = False
        self.lost_at_us: int | None = None
        self.told_lost_us = 0
        self.watched_us = 0
        self.asleep = False
        self.sleeps = 0
        self.unread: list[Callable[[], CoordinatorEvent]] = []

    def submit(self, order: CoordinatorOrder) -> None:
        """Carry out an order after a while."""
        self.coordinator.order(self, order)


class SimCoordinator:
    """The nodes, and the connected sessions.

    Attributes:
        nodes: uid -> (version, node).
        levels: the feature level that each broker announced last.
        tombstones: uid -> brokers that have not deleted yet what they held.
        ended: the ids of the creations of deleted topics.
        unreachable: broker ids that cannot reach it.
        lose_answer_share: of orders whose outcome stays unknown to who asked (half of them happen).
        watch_us: how late what a watch saw may arrive; in order within a session.
        late_us: longest delay with which a request is still carried out whose answer was lost.
        slow_us: longest further delay of every request and answer.
        changed: called with a partition's uid when its node was changed.
        made: called with each new topic.
        buried: called with a deleted partition's uid when its tombstone is removed.
        unregistered: called with a broker's id when its registration has gone.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.nodes: dict[int, tuple[int, PartitionNode]] = {}
        self.topics: dict[str, Topic] = {}
        self.tombstones: dict[int, set[str]] = {}
        self.ended: tuple[str, ...] = ()
        self.registrations: dict[str, Registration] = {}
        self.levels: dict[str, int] = {}
        self.unreachable: dict[str, None] = {}
        self.lose_answer_share = 0.0
        self.late_us = LATE_US
        self.watch_us = 3_000
        self.slow_us = 0
        self.changed: Callable[[int], None] = lambda uid: None
        self.unregistered: Callable[[str], None] = lambda broker_id: None
        self.buried: Callable[[int], None] = lambda uid: None
        self.made: Callable[[Topic], None] = lambda topic: None
        self._chance = Random(world.seed * 0x27D4EB2F + 109)
        """Whether creations and deletions get lost; of its own, so that all else is as it was without that."""
        self._sessions: list[Session] = []
        self._next_uid = 1

    # -------------------------------------------------------------- sessions

    def connect(self, registration: Registration, deliver: Callable[[CoordinatorEvent], None]) -> Session:
        """Begin a broker's session; its events come later."""
        session = Session(self, registration, deliver)
        self._sessions.append(session)
        self._world.after(self._delay(), lambda: self._try_connect(session))
        return session

    def _delay(self) -> int:
        return self._world.random.randint(300, 3_000 + self.slow_us)

    def _try_connect(self, session: Session) -> None:
        if session.closed or session.connected:
            return
        if session.asleep or session.registration.broker_id in self.unreachable:
            self._world.after(100_000, lambda: self._try_connect(session))
            return
        session.connected = True
        session.lost_at_us = None
        self.registrations[session.registration.broker_id] = session.registration
        self.levels[session.registration.broker_id] = session.registration.feature_level
        session.deliver(CoordinatorChanged(CoordinatorState.CONNECTED))
        session.deliver(self._registrations_seen())
        session.deliver(self._topics_seen())
        for uid, (version, node) in self.nodes.items():
            session.deliver(NodeSeen(uid, version, node))
        self._announce_registrations()

    def _registrations_seen(self) -> RegistrationsSeen:
        return RegistrationsSeen(dict(self.registrations), dict(self.levels))

    def close(self, session: Session, *, goodbye: bool) -> None:
        """The broker's life has ended; without a goodbye its registration lasts until the session times out."""
        session.closed = True
        if goodbye:
            self._expire(session)
        else:
            self._world.after(_SESSION_US, lambda: self._expire(session))

    def _expire(self, session: Session) -> None:
        broker_id = session.registration.broker_id
        if (
            self.registrations.get(broker_id) == session.registration and not session.connected
        ) or session.closed:
            if self.registrations.get(broker_id) == session.registration:
                self._unregister(broker_id)
            if session in self._sessions and session.closed:
                self._sessions.remove(session)

    def cut_off(self, broker_id: str, told_after_us: int = 0) -> None:
        """The broker cannot reach the coordinator; its session ends there, which it cannot know.

        Args:
            broker_id: who.
            told_after_us: how long it goes on believing that it is connected.
        """
        self.unreachable[broker_id] = None
        for session in self._of(broker_id):
            if session.connected:
                session.connected = False
                session.lost_at_us = self._world.now_us
                session.told_lost_us = self._world.now_us + told_after_us
                self._world.at(session.told_lost_us, lambda session=session: self._suspend(session))  # type: ignore[misc]
                self._world.after(_SESSION_US, lambda session=session: self._session_timeout(session))  # type: ignore[misc]

    @staticmethod
    def _suspend(session: Session) -> None:
        if not session.connected and not session.closed:
            session.deliver(CoordinatorChanged(CoordinatorState.SUSPENDED))

    def _session_timeout(self, session: Session) -> None:
        if session.connected or session.closed or session.lost_at_us is None:
            return
        broker_id = session.registration.broker_id
        if self.registrations.get(broker_id) == session.registration:
            self._unregister(broker_id)

    def _unregister(self, broker_id: str) -> None:
        del self.registrations[broker_id]
        self._announce_registrations()
        self.unregistered(broker_id)

    def reconnect(self, broker_id: str) -> None:
        """The broker can reach it again."""
        self.unreachable.pop(broker_id, None)
        for session in self._of(broker_id):
            self._world.after(self._delay(), lambda session=session: self._try_connect(session))  # type: ignore[misc]

    def _of(self, broker_id: str) -> list[Session]:
        return [s for s in self._sessions if s.registration.broker_id == broker_id and not s.closed]

    # -------------------------------------------------------------- brokers that stand still

    def fell_asleep(self, session: Session) -> None:
        """The broker's process stands still: after the session's time it is expired, which it cannot know."""
        session.asleep = True
        session.sleeps += 1
        sleep = session.sleeps

        def expire() -> None:
            if session.asleep and session.sleeps == sleep and session.connected and not session.closed:
                session.connected = False
                session.lost_at_us = self._world.now_us
                session.told_lost_us = 1 << 62
                session.unread.clear()
                self._session_timeout(session)

        self._world.after(_SESSION_US, expire)

    def woke(self, session: Session) -> None:
        """It goes on: reads what watches have told of; hears of an expired session soon, and begins another."""
        session.asleep = False
        unread, session.unread = session.unread, []
        if session.connected:
            self._world.after(self._delay(), lambda: self._watch_all(session, tuple(unread)))
        elif session.told_lost_us == 1 << 62:
            session.told_lost_us = self._world.now_us + self._world.random.randint(*_TOLD_US)
            self._world.at(session.told_lost_us, lambda: self._suspend(session))
            self._world.at(session.told_lost_us + self._delay(), lambda: self._try_connect(session))

    # -------------------------------------------------------------- telling

    def _announce(self, *events: Callable[[], CoordinatorEvent]) -> None:
        """Watches fire late, show what is there by then, and what they saw arrives later still, in order."""
        for session in self._sessions:
            self._world.after(self._delay(), lambda session=session: self._watch_all(session, events))  # type: ignore[misc]

    def _watch_all(self, session: Session, events: tuple[Callable[[], CoordinatorEvent], ...]) -> None:
        for event in events:
            self._watch(session, event)

    def _watch(self, session: Session, event: Callable[[], CoordinatorEvent]) -> None:
        if not session.connected or session.closed:
            return
        if session.asleep:
            session.unread.append(event)
            return
        seen, late_us = event(), 0
        if self.watch_us > 3_000:
            late_us = self._world.random.randint(0, self.watch_us)
        session.watched_us = max(session.watched_us, self._world.now_us + late_us)

        def tell() -> None:
            if session.connected and not session.closed:
                session.deliver(seen)

        self._world.at(session.watched_us, tell)

    def _announce_registrations(self) -> None:
        self._announce(self._registrations_seen)

    def _announce_topics(self) -> None:
        self._announce(self._topics_seen)

    def _announce_node(self, uid: int) -> None:
        self._announce(lambda: self._node_seen(uid))

    def _topics_seen(self) -> TopicsSeen:
        return TopicsSeen(dict(self.topics), frozenset(self.tombstones))

    def _node_seen(self, uid: int) -> NodeSeen:
        version, node = self.nodes.get(uid, (-1, None))
        return NodeSeen(uid, version, node)

    # -------------------------------------------------------------- orders

    def order(self, session: Session, order: CoordinatorOrder) -> None:
        """Carry out an order of a session."""
        if session.closed:
            return
        if not session.connected:
            if self._world.now_us < session.told_lost_us:
                self._lose(session, order)
            else:
                self._refuse(session, order)
            return
        self._world.after(self._delay(), lambda: self._execute(session, order))

    def _refuse(self, session: Session, order: CoordinatorOrder) -> None:
        if isinstance(order, CompareAndSet):
            self._later(session, CompareAndSetDone(order.token, order.uid, SetOutcome.REFUSED, -1))
        elif isinstance(order, TopicOrder):
            self._later(session, TopicOrderDone(order.token, "unavailable", "not connected"))

    def _lose(self, session: Session, order: CoordinatorOrder) -> None:
        """The broker does not know yet that its requests go nowhere."""
        if isinstance(order, CompareAndSet):
            event: CoordinatorEvent = CompareAndSetDone(order.token, order.uid, SetOutcome.UNKNOWN, -1)
        elif isinstance(order, TopicOrder):
            event = TopicOrderDone(order.token, "unknown", "the connection was lost")
        else:
            return
        self._world.at(session.told_lost_us, lambda: None if session.closed else session.deliver(event))

    def _later(self, session: Session, event: CoordinatorEvent) -> None:
        def tell() -> None:
            if not session.closed:
                session.deliver(event)

        self._world.after(self._delay(), tell)

    def _execute(self, session: Session, order: CoordinatorOrder) -> None:
        if isinstance(order, CompareAndSet):
            self._compare_and_set(session, order)
        elif isinstance(order, ReadNode):
            if session.connected:
                self._later(session, self._node_seen(order.uid))
        elif isinstance(order, CreateTopic):
            self._create(session, order)
        elif isinstance(order, UpdateTopic):
            self._update(session, order)
        elif isinstance(order, ConfirmDeleted):
            self._confirm_deleted(session, order)
        else:
            self._delete(session, order)

    def _compare_and_set(self, session: Session, order: CompareAndSet) -> None:
        random = self._world.random
        lost = random.random() < self.lose_answer_share or not session.connected
        if lost:
            self._later(session, CompareAndSetDone(order.token, order.uid, SetOutcome.UNKNOWN, -1))
            if random.random() < 0.5:
                # It is still on its way, and may come through much later.
                def late() -> None:
                    self._set(order)

                self._world.after(random.randint(*self.late_us), late)
            return
        version = self._set(order)
        outcome = SetOutcome.DONE if version is not None else SetOutcome.BAD_VERSION
        self._later(session, CompareAndSetDone(order.token, order.uid, outcome, version or -1))

    def _set(self, order: CompareAndSet) -> int | None:
        version, _ = self.nodes.get(order.uid, (-1, None))
        if version != order.version:
            return None
        self.nodes[order.uid] = (version + 1, order.node)
        node = order.node
        self._world.tell(
            "zookeeper", f"p{order.uid} v{version + 1}: leader {node.leader or '-'} epoch {node.epoch}"
            f" isr {[member.broker_id for member in node.isr]}",
        )  # fmt: skip
        self._announce_node(order.uid)
        self.changed(order.uid)
        return version + 1

    def create(self, order: CreateTopic) -> Topic | None:
        """Create a topic, or return the one of that name; None: the order has made one before, which was deleted."""
        known = self.topics.get(order.name)
        if known is None and not has_ended(self.ended, order):
            stores = {member.broker_id: member for member in order.members}
            parts = []
            for replicas in order.replicas_of:
                uid, self._next_uid = self._next_uid, self._next_uid + 1
                parts.append(PartitionAssignment(uid, replicas))
                isr = tuple(stores.get(name, Member(name, "")) for name in replicas)
                self.nodes[uid] = (0, PartitionNode("", 0, 0, isr))
            known = self.topics[order.name] = Topic(
                order.name, order.creation_id, order.kind, tuple(parts), order.replicas, order.min_isr,
                order.settings,
            )  # fmt: skip
            self.made(known)
            self._announce(self._topics_seen, *(partial(self._node_seen, part.uid) for part in parts))
        return known

    def _is_lost(
        self, session: Session, order: CreateTopic | DeleteTopic, late: Callable[[], object]
    ) -> bool:
        """Whether an order's answer gets lost; then it is carried out late, or not at all."""
        chance = self._chance
        if chance.random() >= self.lose_answer_share:
            return False
        self._later(session, TopicOrderDone(order.token, "unknown", "the connection was lost"))
        if chance.random() < 0.5:

            def come() -> None:
                late()

            self._world.after(chance.randint(*self.late_us), come)
        return True

    def _create(self, session: Session, order: CreateTopic) -> None:
        if self._is_lost(session, order, lambda: self.create(order)):
            return
        known = self.create(order)
        if known is None:
            self._later(session, already_ended(order))
            return
        mine = known.creation_id == order.creation_id
        self._later(session, TopicOrderDone(order.token, "" if mine else "exists", "", known))

    def _update(self, session: Session, order: UpdateTopic) -> None:
        """Change a topic if it is of the version before; the answer may get lost, and the change come late."""
        random = self._world.random
        if random.random() < self.lose_answer_share:
            self._later(session, TopicOrderDone(order.token, "unknown", "the connection was lost"))
            if random.random() < 0.5:

                def late() -> None:
                    self._change(order)

                self._world.after(random.randint(*self.late_us), late)
            return
        topic = self._change(order)
        self._later(session, TopicOrderDone(order.token, "" if topic else "not_found", "", topic))

    def _change(self, order: UpdateTopic) -> Topic | None:
        topic = self.topics.get(order.name)
        found = updated_topic(topic, order, self._next_uid) if topic is not None else None
        if found is not None:
            topic, nodes = found
            self._next_uid += len(nodes)
            self.topics[order.name] = topic
            self.nodes |= {uid: (0, node) for uid, node in nodes.items()}
            self._world.tell("zookeeper", f"{order.name}: {topic.settings.encode()}, added {list(nodes)}")
            self._announce(self._topics_seen, *(partial(self._node_seen, uid) for uid in nodes))
        return topic

    def _confirm_deleted(self, session: Session, order: ConfirmDeleted) -> None:
        if self._world.random.random() < self.lose_answer_share:
            return
        before = len(self.tombstones)
        for uid in order.uids:
            waiting = self.tombstones.get(uid)
            if waiting is not None:
                waiting.discard(session.registration.broker_id)
                if not waiting:
                    del self.tombstones[uid]
                    self.buried(uid)
        if len(self.tombstones) != before:
            self._announce_topics()

    def delete(self, name: str) -> bool:
        """Delete a topic; returns whether it was there."""
        topic = self.topics.pop(name, None)
        if topic is not None:
            self.ended = with_ended(self.ended, topic)
            for part in topic.partitions:
                self.tombstones[part.uid] = set(part.replicas)
                self.nodes.pop(part.uid, None)
            self._announce_topics()
        return topic is not None

    def _delete(self, session: Session, order: DeleteTopic) -> None:
        if self._is_lost(session, order, lambda: self._end(order)):
            return
        topic = self.topics.get(order.name)
        gone = self._end(order)
        self._later(session, TopicOrderDone(order.token, "" if gone else "not_found", topic=topic))

    def _end(self, order: DeleteTopic) -> bool:
        """Delete the topic that an order means; returns whether it was there."""
        topic = self.topics.get(order.name)
        return topic is not None and is_meant(topic, order) and self.delete(order.name)
