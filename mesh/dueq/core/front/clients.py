"""Requests of clients: sessions, metadata, topics, changes, consumers.

Every request passes the gate (`gate.py`) before a handler sees it, here and again at the broker that it is relayed to.
A broker that does not lead the partition relays the frame to the leader (`Relay`), and its answer to the client. So a
client needs to reach only one broker. A relayed frame is never relayed again. A frame that cannot be sent to a consumer
goes back to its leader, so that others get the messages.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import nsmallest
from typing import TYPE_CHECKING, Any, Final

from dueq import limits
from dueq.core.delivery.dispatch import TopicDispatcher
from dueq.core.front.browsing import Browsing
from dueq.core.front.gate import Gate, passage_of
from dueq.core.front.looking import Looking
from dueq.core.front.overviews import Overviews
from dueq.core.front.routing import Routing
from dueq.core.front.status import Status
from dueq.core.front.summaries import Summaries
from dueq.core.front.topics import Topics
from dueq.core.partition.requests import Refusal
from dueq.core.ports.events import ClientFrameReceived, Route, RouteLost
from dueq.core.ports.membership import CoordinatorState
from dueq.core.turn.context import Context
from dueq.core.turn.mesh_time import MeshTime
from dueq.instant import Now
from dueq_codecs.messages import (
    BrokerInfo,
    BrowseReply,
    BrowseRequest,
    ChangeReply,
    ChangeRequest,
    ChunkReply,
    ChunkRequest,
    Code,
    ConsumerFrame,
    ConsumerReply,
    CreateTopicRequest,
    DeleteTopicRequest,
    Hello,
    HelloReply,
    InspectRequest,
    LookReply,
    LookRequest,
    MetadataReply,
    MetadataRequest,
    PartitionInfo,
    Push,
    PushChunk,
    Relay,
    Reply,
    TopicInfo,
    UpdateTopicRequest,
)

if TYPE_CHECKING:
    from dueq.core.partition.partition import Partition
    from dueq.core.ports.membership import Topic

Bodies = list[bytes | memoryview]

FOR_CONSUMERS: Final = (Push, PushChunk, ConsumerReply)
"""Messages from a leader to consumers."""
_SWEEP_FROM: Final = 1024
"""With fewer routes than this, those of clients that left are not cleared."""


_ToLeader = ChangeRequest | ChunkRequest | BrowseRequest | LookRequest
"""Requests to the leader of a partition."""
_REPLIES: Final[dict[type, type[ChangeReply | ChunkReply | BrowseReply | LookReply]]] = {
    ChangeRequest: ChangeReply,
    ChunkRequest: ChunkReply,
    BrowseRequest: BrowseReply,
    LookRequest: LookReply,
}


class Clients:
    """The way in for everything from clients."""

    def __init__(
        self,
        ctx: Context,
        clock: MeshTime,
        routing: Routing,
        topics: Topics,
        partitions: dict[int, Partition],
        dispatchers: dict[str, TopicDispatcher],
        status: Status,
        browsing: Browsing,
        looking: Looking,
        overviews: Overviews,
        summaries: Summaries,
        gate: Gate,
    ) -> None:
        self._ctx, self._clock, self._routing, self._topics = ctx, clock, routing, topics
        self._partitions, self._dispatchers, self._status = partitions, dispatchers, status
        self._browsing, self._looking = browsing, looking
        self._overviews, self._summaries, self._gate = overviews, summaries, gate
        # The topics of which consumers have spoken by each route; those of clients that left are cleared later.
        self._consumed: dict[Route, dict[str, None]] = {}
        self._sweep_from = _SWEEP_FROM
        self._handlers: dict[type, Callable[[Any, ClientFrameReceived, Now], None]] = {
            Hello: self._on_hello,
            MetadataRequest: self._on_metadata,
            CreateTopicRequest: self._on_create,
            DeleteTopicRequest: self._on_delete,
            UpdateTopicRequest: self._on_update,
            InspectRequest: self._on_inspect,
            ChangeRequest: self._on_change,
            ChunkRequest: self._on_chunk,
            ConsumerFrame: self._on_consumer,
            BrowseRequest: self._on_browse,
            LookRequest: self._on_look,
        }

    def received(self, event: ClientFrameReceived, now: Now) -> None:
        """Take one frame of a client, if the gate admits it."""
        message = event.message
        passage = passage_of(message, event.bodies)
        if passage is not None and (refusal := self._gate.admit(event.principal, passage)) is not None:
            self._turn_away(event, refusal)
            return
        self._handlers[type(message)](message, event, now)

    def _turn_away(self, event: ClientFrameReceived, refusal: Refusal) -> None:
        """Answer what the gate does not admit, in the words of its kind."""
        message, route = event.message, event.route
        if isinstance(message, ConsumerFrame):
            self._refuse_consumer(route, message, refusal.code, refusal.text)
        elif isinstance(message, _ToLeader):
            self._refuse_change(route, message, refusal)
        elif isinstance(message, MetadataRequest):
            self._ctx.metrics.errors[refusal.code.name.lower()] += 1
            self._ctx.reply(route, MetadataReply(message.request_id, refusal.code, refusal.text))
        elif not isinstance(message, Hello):
            self._refuse(route, message.request_id, refusal)

    # -------------------------------------------------------------- sessions and reading

    def _on_hello(self, hello: Hello, event: ClientFrameReceived, now: Now) -> None:
        settings = self._ctx.settings
        reply = HelloReply(
            Code.OK, cluster_id=settings.cluster_id, broker_id=settings.broker_id, incarnation=settings.incarnation,
            echo_wall_us=hello.sent_wall_us,
        )  # fmt: skip
        if self._knows_the_time():
            reply.received_wall_us = reply.sent_wall_us = now.wall_us
            reply.mesh_offset_us = self._clock.offset_of_mesh_us(now)
        if hello.cluster_id and hello.cluster_id != settings.cluster_id:
            reply.code = Code.WRONG_CLUSTER
            reply.text = f"this is cluster {settings.cluster_id}, not {hello.cluster_id}"
        elif not hello.protocol_min <= reply.protocol <= hello.protocol_max:
            reply.code = Code.WRONG_VERSION
            reply.text = (
                f"protocol {reply.protocol} is spoken here, not {hello.protocol_min}–{hello.protocol_max}"
            )
        self._ctx.reply(event.route, reply)

    def _knows_the_time(self) -> bool:
        """Whether a majority of the brokers has been compared: one that has just started may be an hour off."""
        brokers = self._topics.registrations
        known = sum(
            broker_id == self._ctx.settings.broker_id or self._clock.offset_us(broker_id) is not None
            for broker_id in brokers
        )
        return known > len(brokers) // 2

    def _on_metadata(self, request: MetadataRequest, event: ClientFrameReceived, now: Now) -> None:
        brokers = tuple(
            BrokerInfo(seen.broker_id, seen.endpoint, seen.incarnation)
            for _, seen in sorted(self._topics.registrations.items())
        )
        if request.brokers_only:
            self._ctx.reply(event.route, MetadataReply(request.request_id, Code.OK, "", brokers))
            return
        if request.topic and request.topic not in self._topics.by_name:
            missing = self._no_topic(request.topic)
            self._ctx.reply(
                event.route, MetadataReply(request.request_id, missing.code, missing.text, brokers)
            )
            return
        old = (
            ""
            if self._ctx.coordinator is CoordinatorState.CONNECTED
            else "ZooKeeper is away: this may be old"
        )
        names = [request.topic] if request.topic else self._names_after(request.after)
        infos, partitions = [], 0
        for name in names[: limits.METADATA_TOPICS]:
            infos.append(self._topic_info(self._topics.by_name[name]))
            partitions += len(infos[-1].partitions)
            if partitions >= limits.METADATA_PARTITIONS:
                break
        more = len(infos) < len(names)
        self._ctx.reply(
            event.route, MetadataReply(request.request_id, Code.OK, old, brokers, tuple(infos), more)
        )

    def _names_after(self, name: str) -> list[str]:
        """The next names of topics, one more than fit into an answer."""
        return nsmallest(
            limits.METADATA_TOPICS + 1, (other for other in self._topics.by_name if other > name)
        )

    def _no_topic(self, name: str) -> Refusal:
        """Why a topic is not known. A broker that has not read them yet, or may lag, cannot say that there is none."""
        if not self._topics.read:
            return Refusal(Code.COORDINATOR_UNAVAILABLE, "this broker has not read the topics yet", 200)
        if self._ctx.coordinator is not CoordinatorState.CONNECTED:
            text = f"ZooKeeper is away: whether there is a topic {name!r:.300} is not known here"
            return Refusal(Code.COORDINATOR_UNAVAILABLE, text, 1000)
        return Refusal(Code.TOPIC_NOT_FOUND, f"there is no topic {name!r:.300}")

    def _topic_info(self, topic: Topic) -> TopicInfo:
        settings = topic.settings
        return TopicInfo(
            topic.name, topic.kind, topic.replicas, topic.min_isr, settings.payload_bytes_max, settings.horizon_ms,
            tuple(self._partition_info(part.uid, part.replicas) for part in topic.partitions),
            settings.encode() if settings.version else "",
            topic.home_partitions if topic.home_partitions < len(topic.partitions) else 0,
        )  # fmt: skip

    def _partition_info(self, uid: int, replicas: tuple[str, ...]) -> PartitionInfo:
        partition = self._partitions.get(uid)
        if partition is not None and partition.replica.is_leader:
            me, serving = self._ctx.settings.broker_id, partition.replica.serving
            return PartitionInfo(uid, me, partition.epoch, serving, replicas)
        seen = self._routing.leader_of(uid)
        leader = seen.broker_id if seen.broker_id != self._ctx.settings.broker_id else ""
        return PartitionInfo(uid, leader, seen.epoch, bool(leader) and seen.stage == 1, replicas)

    def _on_inspect(self, request: InspectRequest, event: ClientFrameReceived, now: Now) -> None:
        me, route = self._ctx.settings.broker_id, event.route
        if request.broker not in ("", me):
            if not self._relay(event, request.broker, now):
                text = f"{request.broker:.300} is out of reach from {me}"
                self._ctx.reply(route, Reply(request.request_id, Code.NOT_LEADER, text))
            return
        if request.topic and request.topic not in self._topics.by_name:
            missing = self._no_topic(request.topic)
            self._ctx.reply(route, Reply(request.request_id, missing.code, missing.text))
            return
        if request.what == "status":
            self._overviews.ask(route, request.request_id, request.topic)
            return
        if request.what == "summary":
            self._summaries.ask(route, request.request_id)
            return
        if request.what == "forecast" and not 1 <= request.seconds <= limits.FORECAST_SECONDS_MAX:
            text = f"a forecast is of 1 to {limits.FORECAST_SECONDS_MAX} seconds, not {request.seconds}"
            self._ctx.reply(route, Reply(request.request_id, Code.INVALID_REQUEST, text))
            return
        if request.what.startswith("endpoints") and self._status.degraded():
            # Another broker knows of those that were changed or deleted since.
            text = "ZooKeeper is away: endpoints are not told, since they may be old"
            self._ctx.reply(route, Reply(request.request_id, Code.COORDINATOR_UNAVAILABLE, text))
            return
        document = self._status.document(request, now)
        if document is None:
            names = "status, summary, catalogue, describe, forecast, hours, statistics, jobs, pass, recurrences, groups"
            text = f"{request.what!r:.80} cannot be inspected; there are {names}, endpoints"
            self._ctx.reply(route, Reply(request.request_id, Code.INVALID_REQUEST, text))
        else:
            self._ctx.reply(route, Reply(request.request_id, Code.OK, document=document))

    # -------------------------------------------------------------- topics

    def _on_create(self, request: CreateTopicRequest, event: ClientFrameReceived, now: Now) -> None:
        if (refusal := self._topics.create(event.route, request)) is not None:
            self._refuse(event.route, request.request_id, refusal)

    def _on_delete(self, request: DeleteTopicRequest, event: ClientFrameReceived, now: Now) -> None:
        if (refusal := self._topics.delete(event.route, request)) is not None:
            self._refuse(event.route, request.request_id, refusal)

    def _on_update(self, request: UpdateTopicRequest, event: ClientFrameReceived, now: Now) -> None:
        known = self._topics.by_name.get(request.topic)
        if known is None:
            refusal: Refusal | None = self._no_topic(request.topic)
        else:
            refusal = self._topics.update(event.route, request, known)
        if refusal is not None:
            self._refuse(event.route, request.request_id, refusal)

    def _refuse(self, route: Route, request_id: int, refusal: Refusal) -> None:
        self._ctx.metrics.errors[refusal.code.name.lower()] += 1
        reply = Reply(request_id, refusal.code, refusal.text, retry_after_ms=refusal.retry_after_ms)
        self._ctx.reply(route, reply)

    # -------------------------------------------------------------- changes

    def _on_change(self, request: ChangeRequest, event: ClientFrameReceived, now: Now) -> None:
        refusal = self._wrong_place(request, event, now)
        if refusal is not None and refusal.code == Code.OK:
            refusal = self._partitions[request.uid].request(event.route, request, event.bodies, now)
        if refusal is not None:
            self._refuse_change(event.route, request, refusal)

    def _on_chunk(self, request: ChunkRequest, event: ClientFrameReceived, now: Now) -> None:
        refusal = self._wrong_place(request, event, now)
        if refusal is not None and refusal.code == Code.OK:
            refusal = self._partitions[request.uid].chunk(event.route, request, event.bodies, now)
            self._ctx.touch(self._partitions[request.uid])
        if refusal is not None:
            self._refuse_change(event.route, request, refusal)

    def _on_browse(self, request: BrowseRequest, event: ClientFrameReceived, now: Now) -> None:
        refusal = self._wrong_place(request, event, now)
        if refusal is not None and refusal.code == Code.OK:
            refusal = self._browsing.requested(event.route, request, self._partitions[request.uid], now)
        if refusal is not None:
            self._refuse_change(event.route, request, refusal)

    def _on_look(self, request: LookRequest, event: ClientFrameReceived, now: Now) -> None:
        refusal = self._wrong_place(request, event, now)
        if refusal is not None and refusal.code == Code.OK:
            refusal = self._looking.requested(event.route, request, self._partitions[request.uid], now)
        if refusal is not None:
            self._refuse_change(event.route, request, refusal)

    def _refuse_change(self, route: Route, request: _ToLeader, refusal: Refusal) -> None:
        self._ctx.metrics.errors[refusal.code.name.lower()] += 1
        make = _REPLIES[type(request)]
        reply = make(request.request_id, refusal.code, refusal.text, retry_after_ms=refusal.retry_after_ms)
        if refusal.code == Code.NOT_LEADER:
            reply.leader = self._routing.leader_of(request.uid).broker_id
        self._ctx.reply(route, reply)

    def _wrong_place(self, request: _ToLeader, event: ClientFrameReceived, now: Now) -> Refusal | None:
        """Return OK where this broker leads, None where the frame was sent on, else why it is refused."""
        name, uid = request.topic, request.uid
        partition = self._partitions.get(uid)
        if partition is not None and partition.topic.name != name:
            return _not_of(uid, name)
        if partition is not None and partition.replica.is_leader:
            return Refusal(Code.OK, "")
        topic = self._topics.by_name.get(name)
        if uid in self._topics.tombstones:
            return Refusal(Code.TOPIC_NOT_FOUND, f"the topic of partition {uid} was deleted")
        if topic is not None and _excludes(topic, uid):
            return _not_of(uid, name)
        if self._relay(event, self._routing.leader_of(uid).broker_id, now):
            return None
        return Refusal(Code.NOT_LEADER, f"partition {uid} is not led here", 50)

    def _relay(self, event: ClientFrameReceived, leader: str, now: Now) -> bool:
        """Send a client's frame on to the leader, if that is within reach and the frame was not relayed before."""
        peer = self._ctx.peers.get(leader)
        if event.route.via or peer is None or not peer.registered or self._ctx.is_silent(peer, now):
            return False
        settings = self._ctx.settings
        relay = Relay(
            settings.broker_id, settings.incarnation, event.route.identity, False, event.message, event.bodies,
            event.principal,
        )  # fmt: skip
        self._ctx.send(leader, relay, [])
        return True

    # -------------------------------------------------------------- consumers

    def route_lost(self, event: RouteLost, now: Now) -> None:
        """A frame could not be sent: have its consumers attach again; what a peer sent by us goes back to it."""
        settings, unsent = self._ctx.settings, event.unsent
        topics = self._consumed.pop(event.route, {})
        if isinstance(unsent, FOR_CONSUMERS):
            topics[unsent.topic] = None
        for name in topics:
            dispatcher = self._dispatchers.get(name)
            if dispatcher is not None:
                dispatcher.route_lost(event.route, unsent, now)
                self._ctx.stir(name)
        if event.route.via or not isinstance(unsent, FOR_CONSUMERS) or unsent.leader == settings.broker_id:
            return
        if unsent.leader in self._ctx.peers:
            bodies: Bodies = [] if isinstance(unsent, ConsumerReply) else [b""]
            relay = Relay(
                settings.broker_id, settings.incarnation, event.route.identity, False, unsent, bodies
            )
            self._ctx.send(unsent.leader, relay, [])

    def _on_consumer(self, frame: ConsumerFrame, event: ClientFrameReceived, now: Now) -> None:
        me, route = self._ctx.settings.broker_id, event.route
        if frame.leader and frame.leader != me:
            if not self._relay(event, frame.leader, now):
                self._refuse_consumer(
                    route, frame, Code.NOT_LEADER, f"{frame.leader:.300} is out of reach from {me}"
                )
            return
        dispatcher = self._dispatchers.get(frame.topic)
        if dispatcher is None:
            if frame.topic in self._topics.by_name:
                self._refuse_consumer(
                    route, frame, Code.NOT_LEADER, f"no partition of {frame.topic!r:.300} is here"
                )
            else:
                missing = self._no_topic(frame.topic)
                self._refuse_consumer(route, frame, missing.code, missing.text)
            return
        if len(frame.consumer_id) != 16:
            self._refuse_consumer(route, frame, Code.INVALID_REQUEST, "a consumer id has 16 bytes")
            return
        self._consumed.setdefault(route, {})[frame.topic] = None
        dispatcher.consumer_frame(route, frame, now)
        self._ctx.stir(frame.topic)
        if len(self._consumed) >= self._sweep_from:
            self._forget_routes()

    def _forget_routes(self) -> None:
        """Keep the routes by which somebody consumes."""
        self._consumed = {}
        for name, dispatcher in self._dispatchers.items():
            for route in dispatcher.routes():
                self._consumed.setdefault(route, {})[name] = None
        self._sweep_from = max(2 * len(self._consumed), _SWEEP_FROM)

    def _refuse_consumer(self, route: Route, frame: ConsumerFrame, code: Code, text: str) -> None:
        self._ctx.metrics.errors[code.name.lower()] += 1
        reply = ConsumerReply(
            frame.topic, frame.consumer_id, frame.attach, frame.number, code, text,
            leader=self._ctx.settings.broker_id,
        )  # fmt: skip
        self._ctx.reply(route, reply)


def _not_of(uid: int, name: str) -> Refusal:
    """The topic that the client means was deleted, and it has not heard of the one that has the name since."""
    return Refusal(Code.TOPIC_NOT_FOUND, f"partition {uid} is not of topic {name!r:.300}")


def _excludes(topic: Topic, uid: int) -> bool:
    """Whether a partition is certainly not of this topic. One with a larger uid may be, if the topic was deleted and
    created again.
    """
    uids = [partition.uid for partition in topic.partitions]
    return uid not in uids and uid < max(uids, default=0)
