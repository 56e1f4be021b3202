"""Messages of peers, taken apart and handed to the partitions that they concern.

Only frames from the present life of a registered broker are accepted. A frame from an earlier life, or one for an
earlier life of this broker, is dropped (KIP-380).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dueq.core.front.clients import FOR_CONSUMERS, Clients
from dueq.core.front.routing import Routing
from dueq.core.ports.effects import SendClient
from dueq.core.ports.events import ClientFrameReceived, PeerFrameReceived, Route, RouteLost
from dueq.core.turn.context import Context
from dueq.core.turn.mesh_time import MeshTime
from dueq.core.turn.peers import Peer
from dueq.instant import Now
from dueq_codecs.messages import (
    JobAsk,
    JobTell,
    Leadership,
    PeerFrame,
    Relay,
    SnapshotChunk,
    SnapshotRequest,
    UploadChunk,
    UploadWanted,
)

if TYPE_CHECKING:
    from dueq.core.partition.partition import Partition


class PeerMessages:
    """The way in for everything from other brokers."""

    def __init__(
        self,
        ctx: Context,
        clock: MeshTime,
        routing: Routing,
        partitions: dict[int, Partition],
        clients: Clients,
    ) -> None:
        self._ctx, self._clock, self._routing = ctx, clock, routing
        self._partitions, self._clients = partitions, clients

    def received(self, event: PeerFrameReceived, now: Now) -> None:
        """Take one message of a peer."""
        message = event.message
        peer = self._ctx.peers.get(message.sender)
        if peer is None or peer.incarnation != message.incarnation:
            return
        if isinstance(message, PeerFrame):
            self._frame(peer, message, now)
        elif isinstance(message, Relay):
            self._relay(peer, message, now)
        else:
            self._about_partition(peer, message, event.bodies, now)

    def _frame(self, peer: Peer, frame: PeerFrame, now: Now) -> None:
        settings = self._ctx.settings
        if frame.receiver != settings.broker_id or frame.receiver_incarnation != settings.incarnation:
            return
        peer.frame_received(frame, now)
        if frame.echo_wall_us:
            self._clock.observe(
                peer.broker_id,
                frame.echo_wall_us,
                frame.echo_received_wall_us,
                frame.sent_wall_us,
                now.wall_us,
                now,
            )
        for fence in frame.fences:
            if (partition := self._partitions.get(fence.uid)) is not None:
                partition.replica.fenced(fence, now)
        for leadership in frame.leaderships:
            self._leadership(peer, leadership, now)
        for append in frame.appends:
            if (partition := self._partitions.get(append.uid)) is not None:
                partition.append_received(peer, append, now)
        self._answers(peer, frame, now)

    def _leadership(self, peer: Peer, leadership: Leadership, now: Now) -> None:
        """A broker says that it leads; or a follower of ours declines to (`Stopped.decline`)."""
        partition = self._partitions.get(leadership.uid)
        if partition is not None:
            self._ctx.attend(leadership.uid)
            if partition.replica.declined(peer, leadership):
                return
        self._routing.heard(peer.broker_id, leadership)
        if partition is not None and leadership.serving and leadership.epoch >= partition.epoch:
            partition.served_by(peer.broker_id, now)
            self._ctx.stir(partition.topic.name)

    def _answers(self, peer: Peer, frame: PeerFrame, now: Now) -> None:
        for ack in frame.acks:
            if (partition := self._partitions.get(ack.uid)) is not None:
                partition.ack_received(peer, ack, frame.echo_mono_us, now)
        for mismatch in frame.mismatches:
            if (partition := self._partitions.get(mismatch.uid)) is not None:
                partition.replica.mismatch_received(peer, mismatch, now)
        for request in frame.vote_requests:
            if (partition := self._partitions.get(request.uid)) is not None:
                partition.replica.vote_requested(peer, request, now)
        for vote in frame.votes:
            if (partition := self._partitions.get(vote.uid)) is not None:
                partition.replica.vote_received(peer, vote, now)
        for upload_ack in frame.upload_acks:
            if (partition := self._partitions.get(upload_ack.uid)) is not None:
                partition.upload_acked(peer, upload_ack)
        for ask in frame.job_asks:
            if (tell := self._ask(ask, now)) is not None:
                peer.job_tells.append(tell)
        for tell in frame.job_tells:
            self._tell(tell, now)

    def send_asks(self, partition: Partition, now: Now) -> None:
        """Bring the questions of a partition about its jobs to who leads the partitions that decide."""
        for ask in partition.take_asks():
            if (tell := self._ask(ask, now)) is not None:
                self._tell(tell, now)
            elif (peer := self._ctx.peers.get(self._routing.leader_of(ask.uid).broker_id)) is not None:
                peer.job_asks.append(ask)

    def _ask(self, ask: JobAsk, now: Now) -> JobTell | None:
        partition = self._partitions.get(ask.uid)
        return partition.job_asked(ask, now) if partition is not None else None

    def _tell(self, tell: JobTell, now: Now) -> None:
        if (partition := self._partitions.get(tell.uid)) is not None:
            partition.job_told(tell, now)

    def _relay(self, peer: Peer, relay: Relay, now: Now) -> None:
        if relay.back:
            inner: Any = relay.inner
            self._ctx.emit(SendClient(relay.identity, inner, relay.bodies))
        else:
            route = Route(relay.identity, peer.broker_id)
            message: Any = relay.inner
            if isinstance(message, FOR_CONSUMERS):
                self._clients.route_lost(RouteLost(route, message), now)
            else:
                self._clients.received(
                    ClientFrameReceived(route, message, relay.bodies, relay.principal), now
                )

    def _about_partition(
        self,
        peer: Peer,
        message: UploadChunk | UploadWanted | SnapshotRequest | SnapshotChunk,
        bodies: list[bytes | memoryview],
        now: Now,
    ) -> None:
        partition = self._partitions.get(message.uid)
        if partition is None:
            return
        self._ctx.touch(partition)
        if isinstance(message, UploadChunk):
            if bodies:
                partition.upload_received(peer, message, bodies[0], now)
        elif isinstance(message, UploadWanted):
            partition.upload_wanted(peer, message)
        elif isinstance(message, SnapshotRequest):
            partition.snapshot_requested(peer, message, now)
        else:
            partition.snapshot_received(peer, message, bodies[0] if bodies else b"", now)
