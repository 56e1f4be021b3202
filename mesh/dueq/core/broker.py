"""A broker's core: one door in, one door out.

`step(events, now)` takes everything that one turn of the loop has read and returns everything that is to be done.
Order within a turn: all events first (a paused process must hear before it judges), then timers, then one Persist
for all partitions, then one frame per peer. `push(now)` comes before a turn and lets what is due leave, where that
needs nothing else. `hear(events, now)` begins a turn with what makes answers, so that these leave before its rest.
Nothing here touches a socket, a disk, a thread or a clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from dueq import limits
from dueq.core.delivery.dispatch import TopicDispatcher
from dueq.core.delivery.turns import turns_of
from dueq.core.front.balance import Balance
from dueq.core.front.browsing import Browsing
from dueq.core.front.clients import Clients
from dueq.core.front.deletions import Deletions
from dueq.core.front.gate import Gate
from dueq.core.front.looking import Looking
from dueq.core.front.overviews import Overviews
from dueq.core.front.peer_messages import PeerMessages
from dueq.core.front.peer_watch import PeerWatch
from dueq.core.front.routing import Routing
from dueq.core.front.status import Status
from dueq.core.front.stepping_aside import SteppingAside
from dueq.core.front.summaries import Summaries
from dueq.core.front.topics import Topics
from dueq.core.partition.partition import Partition
from dueq.core.ports.effects import Effect, Exit, Read, SendPeer
from dueq.core.ports.events import (
    ClientFrameReceived,
    Event,
    PeerFrameReceived,
    Persisted,
    RouteLost,
    StoreFailed,
    StorePressure,
)
from dueq.core.ports.membership import (
    CompareAndSetDone,
    CoordinatorChanged,
    NodeSeen,
    RegistrationsSeen,
    Topic,
    TopicOrderDone,
    TopicsSeen,
)
from dueq.core.ports.persistence import (
    ChunkRead,
    DropPartition,
    EntriesRead,
    ExpiredRead,
    HashesRead,
    IndexScanned,
    LogRead,
    NamesRead,
    PageRead,
    PartitionRead,
    PayloadsRead,
    RecoveredPartition,
    RemarkRead,
    SnapshotRead,
)
from dueq.core.turn.context import Context
from dueq.core.turn.deadlines import Deadlines
from dueq.core.turn.metrics import CoreMetrics
from dueq.core.turn.settings import CoreSettings
from dueq.instant import Now

_TICK_US = 50_000
_LEAP_US = 20_000
"""Mesh time that has run so far ahead of deadlines makes messages late."""
_CARE_AT_ONCE = 256
"""Partitions cared for in one tick. Where thousands want it (a broker has died) the turns must stay short all the
same, or heartbeats come late and living brokers are taken for dead."""


class BrokerCore:
    """All that one broker decides.

    Attributes:
        metrics: counters that only grow.
    """

    def __init__(
        self,
        settings: CoreSettings,
        recovered: list[RecoveredPartition],
        now: Now,
        gate: Gate | None = None,
    ) -> None:
        self._ctx = Context(settings)
        self._settings = settings
        self._clock = self._ctx.clock
        self._routing = Routing()
        self._topics = Topics(self._ctx)
        self._partitions: dict[int, Partition] = {}
        self._recovered = {replica.uid: replica for replica in recovered}
        self._dispatchers: dict[str, TopicDispatcher] = {}
        self._deadlines: Deadlines[str] = Deadlines()
        self._deletions = Deletions(self._ctx)
        self._status = Status(
            self._ctx, self._clock, self._topics, self._partitions, self._dispatchers, self._deletions, now
        )
        self._overviews = Overviews(self._ctx, self._status, self._partitions)
        self._summaries = Summaries(
            self._ctx, self._clock, self._status, self._topics, self._partitions, self._dispatchers
        )
        self._browsing = Browsing(self._ctx)
        self._looking = Looking(self._ctx)
        self._clients = Clients(
            self._ctx,
            self._clock,
            self._routing,
            self._topics,
            self._partitions,
            self._dispatchers,
            self._status,
            self._browsing,
            self._looking,
            self._overviews,
            self._summaries,
            gate or Gate(),
        )
        self._peer_messages = PeerMessages(
            self._ctx, self._clock, self._routing, self._partitions, self._clients
        )
        self._balance = Balance(self._ctx, self._partitions, now)
        self._peer_watch = PeerWatch(self._ctx, self._clock, self._topics, self._partitions, self._balance)
        self._stepping_aside = SteppingAside(self._ctx, self._clock, self._partitions)
        self._tick_at_us = now.mono_us
        self._mesh_lead_us = 0  # mesh time less the monotonic clock, the least since all was looked at
        # The rest of the present round through all partitions that want care.
        self._round: deque[int] = deque()
        self._armed_us: int | None = None
        # (mono) When a whole turn is wanted at the latest, what topics want left aside.
        self._whole_us = 0
        self._handlers: dict[type, Callable[[Any, Now], None]] = {
            ClientFrameReceived: self._clients.received,
            RouteLost: self._clients.route_lost,
            PeerFrameReceived: self._peer_messages.received,
            Persisted: self._on_persisted,
            StoreFailed: self._on_store_failed,
            StorePressure: self._on_pressure,
            NamesRead: self._on_read,
            ExpiredRead: self._on_read,
            HashesRead: self._on_read,
            EntriesRead: self._on_read,
            IndexScanned: self._on_read,
            LogRead: self._on_read,
            PayloadsRead: self._on_read,
            ChunkRead: self._on_read,
            RemarkRead: self._on_read,
            SnapshotRead: self._on_read,
            PageRead: self._on_read,
            PartitionRead: self._on_read,
            CoordinatorChanged: self._on_coordinator,
            RegistrationsSeen: self._peer_watch.registrations_seen,
            TopicsSeen: self._on_topics,
            NodeSeen: self._on_node,
            CompareAndSetDone: self._on_set_done,
            TopicOrderDone: self._on_topic_order,
        }

    @property
    def metrics(self) -> CoreMetrics:
        """Counters that only grow."""
        return self._ctx.metrics

    def partition(self, uid: int) -> Partition | None:
        """Return a replica that is held here, for those who check it from outside."""
        return self._partitions.get(uid)

    def gauges(self, now: Now) -> dict[str, Any]:
        """Return values that are measured rather than counted, for the metrics port."""
        return self._status.gauges(now)

    # -------------------------------------------------------------- the turn

    def step(self, events: list[Event], now: Now) -> list[Effect]:
        """Take a turn.

        Args:
            events: everything that has happened since the last turn, oldest first; may be empty.
            now: the instant, read once.

        Returns:
            What to do, in order.
        """
        ctx = self._ctx
        if not self._listen(events, now) and now.mono_us < self._whole_us and self._push(now):
            return ctx.take()
        if now.mono_us >= self._tick_at_us:
            self._tick(now)
        self._dispatch(now)
        for uid in ctx.gathering.take(now):
            ctx.touch(self._partitions[uid])
        while ctx.touched:
            _, partition = ctx.touched.popitem()
            partition.end_turn(now)
        self._looking.work(now)
        self._overviews.work(now)
        self._summaries.work(now)
        self._send_frames(now)
        ctx.close_writes()
        self._whole_us = self._next_whole_us(now)
        self._armed_us = self._deadline_us(now)
        return ctx.take()

    def hear(self, events: list[Event], now: Now) -> list[Effect]:
        """Take in what has happened first; `step`, at the same instant, takes the turn with all that comes after it.

        The effects need not wait for the turn: an answer to a committed request leaves before new requests are looked
        at, and before leases, records, checkpoints and frames are made.
        """
        self._listen(events, now)
        self._whole_us = 0
        return self._ctx.take()

    def _listen(self, events: list[Event], now: Now) -> bool:
        """Look at the clocks, and take in what has happened; returns whether it may want more than a push."""
        self._ctx.turn = now
        gap_us = now.mono_us - self._armed_us if self._armed_us is not None else 0
        if gap_us > limits.PAUSE_MS * 1000:
            self._woke(gap_us, now)
            self._whole_us, self._armed_us = 0, now.mono_us
        held = self._clock.hold
        self._clock.turn(now)
        for event in events:
            self._handlers[type(event)](event, now)
        if held and not self._clock.hold:
            self._look_at_all()
        return bool(events) or held or self._clock.hold

    def push(self, now: Now) -> list[Effect]:
        """Push what was laid out for this instant, before the input of a turn is heard: the input must not delay it.

        It is as if the input had come after the instant. A broker that was paused hears first: until then nothing is
        certain.

        Returns:
            What to do, in order; nothing if nothing is due, or if more than a push is needed, which `step` sees to.
        """
        if self._armed_us is None or self._clock.hold:
            return []
        if not 0 <= now.mono_us - self._armed_us <= limits.PAUSE_MS * 1000:
            return []
        self._ctx.turn = now
        self._clock.turn(now)
        if not self._clock.hold:
            self._push(now)
        return self._ctx.take()

    def _push(self, now: Now) -> bool:
        """Push what was laid out for this instant; returns whether that was all that this turn had to do."""
        for name in self._deadlines.take_due(now.mono_us):
            dispatcher = self._dispatchers.get(name)
            if dispatcher is None:
                continue
            if dispatcher.push(now, self._clock):
                for route, message, bodies in dispatcher.take_sends():
                    self._ctx.reply(route, message, bodies)
                self._deadlines.set(name, dispatcher.next_push_us(now))
            else:
                self._ctx.stir(name)
        if self._ctx.stirred:
            return False
        self._armed_us = self._deadline_us(now)
        return True

    def next_deadline_us(self, now: Now) -> int:
        """Return the monotonic instant (µs) at which `step` must be called even if nothing happens."""
        return now.mono_us if self._armed_us is None else max(self._armed_us, now.mono_us)

    def next_change_ms(self, now: Now) -> int | None:
        """Return the next instant (Unix ms) at which a message is due, a lease ends or a recurrence ticks.

        For a mesh inside a test: it looks at memory only, and takes the clocks to be right. None: there is no such
        instant.
        """
        times = [partition.next_ms(now.wall_ms) for partition in self._partitions.values()]
        for dispatcher in self._dispatchers.values():
            if (end_us := dispatcher.next_end_us()) is not None:
                times.append(now.wall_ms + -(-(end_us - now.mono_us) // 1000))
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def _deadline_us(self, now: Now) -> int:
        """The same, of what there is at the end of a turn: nothing changes between two of them."""
        topics_us = self._deadlines.next_us()
        at_us = self._whole_us if topics_us is None else min(self._whole_us, topics_us)
        return max(at_us, now.mono_us)

    def _next_whole_us(self, now: Now) -> int:
        """Return when a whole turn is wanted at the latest, what topics want left aside."""
        if self._ctx.again or self._ctx.stirred:
            self._ctx.again = False
            return now.mono_us
        at_us = self._tick_at_us if self._ctx.peers else self._lonely_tick_us(now)
        for peer in self._ctx.peers.values():
            if peer.incarnation:
                at_us = peer.ping_at_us if peer.ping_at_us < at_us else at_us
        for due_us in (self._clock.next_deadline_us(), self._ctx.gathering.until_us):
            if due_us is not None and due_us < at_us:
                at_us = due_us
        return at_us

    def _lonely_tick_us(self, now: Now) -> int:
        """Return when the next tick is wanted by a broker that has no peers."""
        if self._ctx.attention or self._round:
            return self._tick_at_us
        alone_us = now.mono_us + self._ctx.settings.alone_us
        times = (self._ctx.checkpoints.next_us(), self._ctx.wake_ups.next_us(), alone_us)
        return max(self._tick_at_us, min(at_us for at_us in times if at_us is not None))

    def _woke(self, gap_us: int, now: Now) -> None:
        """The process was paused: nobody else's silence during the gap counts, and pushes wait for the ISR."""
        self._ctx.metrics.pauses += 1
        self._ctx.confirm_floor_us = now.mono_us
        for peer in self._ctx.peers.values():
            peer.heard_at_us += gap_us
        for partition in self._partitions.values():
            partition.replica.shift(gap_us)
        for dispatcher in self._dispatchers.values():
            dispatcher.shift(gap_us, now)
        self._ctx.log("warning", "process.paused", gap_ms=gap_us // 1000)

    def _follow_clock(self, now: Now) -> None:
        """Deadlines are kept by the monotonic clock. If mesh time has leapt ahead of it, they may be over already."""
        lead_us = self._clock.mesh_now_us(now) - now.mono_us
        if lead_us - self._mesh_lead_us > _LEAP_US:
            self._mesh_lead_us = lead_us
            self._look_at_all()
        self._mesh_lead_us = min(self._mesh_lead_us, lead_us)

    def _look_at_all(self) -> None:
        """Messages that waited for the clocks may be pushed; after a start, elections were waiting, too."""
        for name in self._dispatchers:
            self._ctx.stir(name)
        for uid in self._partitions:
            self._ctx.attend(uid)

    def _dispatch(self, now: Now) -> None:
        """Lease, push, expire: wherever something has changed or its time has come."""
        names = dict.fromkeys(self._deadlines.take_due(now.mono_us))
        names.update(self._ctx.stirred)
        self._ctx.stirred = {}
        for partition in self._ctx.touched.values():
            assert isinstance(partition, Partition)
            if partition.replica.serving:
                names[partition.topic.name] = None
        if not names:
            return
        look_ahead_ms = min(
            max(limits.LOOK_AHEAD_MS_MIN, 3 * self._ctx.metrics.commit_p99_us // 1000),
            limits.LOOK_AHEAD_MS_MAX,
        )
        for name in names:
            dispatcher = self._dispatchers.get(name)
            if dispatcher is None:
                continue
            gathering = self._ctx.gathering
            dispatcher.tick(
                now, self._clock, look_ahead_ms, paused=self._clock.hold, recording=gathering.over
            )
            if gathering.until_us is not None and dispatcher.has_waiting(now):
                gathering.end()  # for the credit that the acks hold
            for route, message, bodies in dispatcher.take_sends():
                self._ctx.reply(route, message, bodies)
            for request in dispatcher.take_reads():
                self._ctx.emit(Read(request))
            self._deadlines.set(name, dispatcher.next_deadline_us(now))

    def _send_frames(self, now: Now) -> None:
        for peer in self._ctx.peers.values():
            if peer.incarnation and peer.wants_frame(now):
                self._ctx.emit(SendPeer(peer.broker_id, peer.build_frame(self._settings, now)))

    # -------------------------------------------------------------- periodic care

    def _tick(self, now: Now) -> None:
        ctx = self._ctx
        self._tick_at_us = now.mono_us + _TICK_US
        self._follow_clock(now)
        self._peer_watch.tick(now)
        self._stepping_aside.tick(now)
        self._balance.tick(now)
        self._browsing.tick(now)
        for uid in ctx.checkpoints.take_due(now.mono_us):
            if (partition := self._partitions.get(uid)) is not None:
                ctx.touch(partition)
        for uid in (
            *ctx.wake_ups.take_due(now.mono_us),
            *ctx.retention.take_due(now.mono_us),
            *ctx.ageing.take_due(now.mono_us),
        ):
            ctx.attend(uid)
        if not self._round:
            self._round.extend(ctx.attention)
            ctx.attention.clear()
            ctx.wanting = len(self._round)
        for _ in range(min(_CARE_AT_ONCE, len(self._round))):
            uid = self._round.popleft()
            partition = self._partitions.get(uid)
            if partition is None:
                continue
            if partition.tick(now):
                ctx.attend(uid)
                ctx.touch(partition)
            if partition.has_asks:
                self._peer_messages.send_asks(partition, now)

    # -------------------------------------------------------------- store and reads

    def _on_persisted(self, event: Persisted, now: Now) -> None:
        self._ctx.wiping = event.wiping
        self._ctx.persisted(event.token, now)

    def _on_read(self, event: Any, now: Now) -> None:
        if self._ctx.read_done(event.token, event, now):
            return
        partition = self._partitions.get(event.uid)
        if partition is not None and isinstance(event, PayloadsRead | ChunkRead):
            readable = partition.payloads_read(event, now)
            self._ctx.stir(partition.topic.name)
            if not readable:
                self._stepping_aside.payload_unreadable(partition, now)

    def _on_store_failed(self, event: StoreFailed, now: Now) -> None:
        self._ctx.log("error", "store.failed", reason=event.reason)
        self._ctx.emit(Exit(event.reason))

    def _on_pressure(self, event: StorePressure, now: Now) -> None:
        if event.inserts_refused != self._ctx.inserts_refused:
            self._ctx.log("warning", "store.pressure_changed", inserts_refused=event.inserts_refused or "no")
        self._ctx.inserts_refused = event.inserts_refused
        self._stepping_aside.pressed(event.hand_over, now)

    # -------------------------------------------------------------- the coordinator

    def _on_coordinator(self, event: CoordinatorChanged, now: Now) -> None:
        if event.state is not self._ctx.coordinator:
            self._ctx.log("info", "coordinator.changed", state=event.state.value)
        self._ctx.coordinator = event.state
        for uid in self._partitions:
            self._ctx.attend(uid)

    def _on_topics(self, event: TopicsSeen, now: Now) -> None:
        named: set[str] = set()
        for name, topic in self._topics.by_name.items():
            if event.topics.get(name) is not topic:  # leaders have told every broker of theirs
                for uid in _uids_of(topic) - _uids_of(event.topics.get(name)):
                    self._routing.forget(uid)
        changed = self._topics.seen(event.topics, event.tombstones)
        # First of all: a topic that was made again under the same name may be of another kind, and is delivered anew.
        for uid in [uid for uid in self._partitions if uid in event.tombstones]:
            self._drop(uid, now)
        for topic in changed:
            for index, assignment in enumerate(topic.partitions):
                named.update(assignment.replicas)
                held = self._partitions.get(assignment.uid)
                if held is not None and held.topic.name != topic.name:
                    self._ctx.log(
                        "error",
                        "partition.of_two_topics",
                        uid=assignment.uid,
                        topics=[held.topic.name, topic.name],
                    )
                elif held is not None:
                    held.topic_changed(topic, now)
                elif (
                    self._settings.broker_id in assignment.replicas
                    and assignment.uid not in event.tombstones  # deleted between two reads
                ):
                    self._open(topic, index, now)
        self._clock.named(named - {self._settings.broker_id}, now)
        for uid in [uid for uid in self._recovered if uid in event.tombstones]:
            del self._recovered[uid]
            self._ctx.unopened.pop(uid, None)
            self._ctx.persist(DropPartition(uid))
        self._deletions.confirm(event.tombstones)
        self._deletions.seen(self._recovered, event.topics)
        self._share_memory()

    def _open(self, topic: Topic, index: int, now: Now) -> None:
        uid = topic.partitions[index].uid
        found = self._recovered.get(uid)
        if found is not None and found.topic not in ("", topic.name):
            return  # an orphan: the coordinator, set back to an older state, has given out the number again
        if found is not None and found.unreadable:
            if uid not in self._ctx.unopened:
                self._ctx.log("error", "partition.stopped", uid=uid, reason=found.unreadable)
            self._ctx.unopened[uid] = found.unreadable
            return
        dispatcher = self._dispatchers.get(topic.name)
        if dispatcher is None:
            dispatcher = TopicDispatcher(
                topic.name,
                self._settings.broker_id,
                self._settings.incarnation,
                self._ctx.metrics,
                self._ctx.new_token,
                turns_of(topic.kind),
            )
            self._dispatchers[topic.name] = dispatcher
        recovered = self._recovered.pop(uid, None)
        if recovered is not None and recovered.damaged:
            self._ctx.log("error", "replica.damaged", uid=uid, reason=recovered.damaged)
        self._partitions[uid] = Partition(self._ctx, topic, index, dispatcher, recovered, now)
        self._ctx.attend(uid)

    def _drop(self, uid: int, now: Now) -> None:
        """Only a tombstone permits deleting a replica."""
        partition = self._partitions.pop(uid)
        partition.close(now)
        self._ctx.attention.pop(uid, None)
        self._ctx.checkpoints.set(uid, None)
        self._ctx.wake_ups.set(uid, None)
        self._ctx.retention.set(uid, None)
        self._ctx.ageing.set(uid, None)
        self._ctx.touched.pop(uid, None)
        self._stepping_aside.forget(uid)
        self._routing.forget(uid)
        for peer in self._ctx.peers.values():
            peer.forget(uid)
        self._ctx.persist(DropPartition(uid))
        name = partition.topic.name
        if not any(other.topic.name == name for other in self._partitions.values()):
            self._dispatchers.pop(name, None)
            self._deadlines.set(name, None)
            self._ctx.metrics.forget(name)
        self._ctx.log("info", "partition.deleted", uid=uid, topic=name)

    def _share_memory(self) -> None:
        """The hot windows of all partitions share one budget, the records that they keep in memory another."""
        count = max(len(self._partitions), 1)
        rows = min(limits.HOT_ROWS_MAX, max(self._settings.hot_rows_total // count, 4))
        # In steps of two, so that another topic hardly ever concerns all the others.
        cached = min(limits.LOG_CACHE_BYTES, limits.LOG_CACHE_TOTAL_BYTES >> (count - 1).bit_length())
        for partition in self._partitions.values():
            partition.hot_rows_max = rows
            if partition.log_cache_bytes != cached:
                partition.keep_cached(cached)

    def _on_node(self, event: NodeSeen, now: Now) -> None:
        if event.node is None:
            return
        self._routing.node_seen(event.uid, event.node)
        partition = self._partitions.get(event.uid)
        if partition is not None:
            partition.replica.node_seen(event.version, event.node, now)
            self._ctx.attend(event.uid)
            self._ctx.touch(partition)

    def _on_set_done(self, event: CompareAndSetDone, now: Now) -> None:
        self._ctx.set_done(event, now)
        partition = self._partitions.get(event.uid)
        if partition is not None:
            self._ctx.touch(partition)

    def _on_topic_order(self, event: TopicOrderDone, now: Now) -> None:
        self._topics.order_done(event)


def _uids_of(topic: Topic | None) -> set[int]:
    return {part.uid for part in topic.partitions} if topic is not None else set()
