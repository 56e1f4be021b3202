"""ZeroMQ: one ROUTER for clients and peers, one DEALER to each peer.

Connections promise nothing. A DEALER reconnects by itself, and the other side then sees a new identity that has not
said Hello: whatever it answers makes us say Hello again. A frame that cannot be sent at once is dropped; what matters
is resent by the core. Who sends to a client that is gone learns it from EHOSTUNREACH (ROUTER_MANDATORY).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import zmq

from dueq.core.events import ClientFrameReceived, Event, PeerFrameReceived, Route, RouteLost
from dueq.limits import FRAME_BYTES_MAX
from dueq_codecs.frames import FrameError, decode, encode
from dueq_codecs.messages import (
    BrokerMessage,
    ChangeRequest,
    ChunkRequest,
    Code,
    ConsumerFrame,
    CreateTopicRequest,
    DeleteTopicRequest,
    Hello,
    InspectRequest,
    MetadataRequest,
    PeerFrame,
    PeerMessage,
    Relay,
    Reply,
    Role,
    SnapshotChunk,
    SnapshotRequest,
    UploadChunk,
    UploadWanted,
)

Frames = Sequence[bytes | memoryview]
_PEER_MESSAGES = (PeerFrame, UploadChunk, UploadWanted, SnapshotRequest, SnapshotChunk, Relay)
_CLIENT_MESSAGES = (
    Hello, MetadataRequest, CreateTopicRequest, DeleteTopicRequest, InspectRequest, ChangeRequest, ChunkRequest,
    ConsumerFrame,
)  # fmt: skip
_FRAMES_PER_TURN = 1_000
_BYTES_PER_TURN = 8 << 20
_HIGH_WATER = 2_000


@dataclass
class Identity:
    """Who this process is, to its peers."""

    broker_id: str
    incarnation: int
    cluster_id: str


@dataclass
class Counts:
    """What the sockets count for the metrics."""

    frames_in: int = 0
    frames_out: int = 0
    dropped: int = 0
    bad: dict[str, int] = field(default_factory=dict)


class _PeerLink:
    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self.socket = socket
        self.attach = 0


class Sockets:
    """All sockets of a broker; belongs to the loop's thread.

    Attributes:
        endpoint: what the ROUTER is bound to (with the real port).
        refusals: why frames were refused since the last look, for the log.
        peers: every broker that was ever connected to.
    """

    def __init__(self, listen: str, identity: Identity) -> None:
        self._me = identity
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        self._context.max_sockets = 4096
        self.router = self._context.socket(zmq.ROUTER)
        _tune(self.router)
        self.router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self.router.bind(listen)
        self.endpoint = self.router.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode()  # type: ignore[union-attr]
        self._fd = int(self.router.getsockopt(zmq.FD))
        self._links: dict[str, _PeerLink] = {}
        # ROUTER identity -> (broker id, incarnation) of an accepted Hello, and the reverse.
        self._peer_of: dict[bytes, tuple[str, int]] = {}
        self._identity_of: dict[str, tuple[int, int, bytes]] = {}
        self.counts = Counts()
        self.peers: set[str] = set()
        self.refusals: list[str] = []

    # -------------------------------------------------------------- waiting

    def descriptors(self) -> list[int]:
        """What to wait on; edge-triggered, so `readable` must be asked first."""
        return [self._fd, *(int(link.socket.getsockopt(zmq.FD)) for link in self._links.values())]

    def readable(self) -> bool:
        """Whether there is input now."""
        return _has_input(self.router) or any(_has_input(link.socket) for link in self._links.values())

    # -------------------------------------------------------------- receiving

    def receive(self) -> list[Event]:
        """Take in what has come, up to a bound."""
        events: list[Event] = []
        weight = 0
        for _ in range(_FRAMES_PER_TURN):
            try:
                identity, *frames = self.router.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            weight += sum(map(len, frames))
            event = self._accept(identity, frames)
            if event is not None:
                events.append(event)
            if weight > _BYTES_PER_TURN:
                break
        self.counts.frames_in += len(events)
        self._hear_links()
        return events

    def _accept(self, identity: bytes, frames: Frames) -> Event | None:
        try:
            message, bodies = decode(frames)
        except FrameError as error:
            self._refuse(identity, error.request_id, error.code, error.reason)
            return None
        if isinstance(message, Hello) and message.role == Role.BROKER:
            self._hello(identity, message)
            return None
        peer = self._peer_of.get(identity)
        if isinstance(message, _PEER_MESSAGES):
            if peer != (message.sender, message.incarnation):
                self._refuse(
                    identity, 0, Code.BAD_FRAME, "a broker's frame on a connection that is not a broker's",
                    expected=self._is_new_connection(message.sender, identity),
                )  # fmt: skip
                return None
            return PeerFrameReceived(message, bodies)
        if peer is not None:
            self._refuse(identity, 0, Code.BAD_FRAME, "a client's frame on a broker's connection")
            return None
        if not isinstance(message, _CLIENT_MESSAGES):
            self._refuse(
                identity, 0, Code.BAD_FRAME, f"{type(message).__name__} is not something that clients say"
            )
            return None
        return ClientFrameReceived(Route(identity), message, bodies)

    def _is_new_connection(self, sender: str, identity: bytes) -> bool:
        """Whether a peer's link has just reconnected: our answer makes it say Hello again."""
        return identity not in self._peer_of and sender in self.peers

    def _refuse(
        self, identity: bytes, request_id: int, code: Code, reason: str, *, expected: bool = False
    ) -> None:
        if expected:
            self._send(identity, encode(Reply(request_id, code, reason)))
            return
        self.counts.bad[code.name.lower()] = self.counts.bad.get(code.name.lower(), 0) + 1
        self.refusals.append(reason)
        self._send(identity, encode(Reply(request_id, code, reason)))

    def _hello(self, identity: bytes, hello: Hello) -> None:
        """A peer says who it is; of two connections of one life, the later attach counts."""
        if hello.cluster_id != self._me.cluster_id:
            self._refuse(identity, 0, Code.WRONG_CLUSTER, f"this is not cluster {hello.cluster_id}")
            return
        known = self._identity_of.get(hello.name)
        if known is not None:
            incarnation, attach, old = known
            if incarnation == hello.incarnation and attach > hello.attach:
                return
            self._peer_of.pop(old, None)
        self._identity_of[hello.name] = (hello.incarnation, hello.attach, identity)
        self._peer_of[identity] = (hello.name, hello.incarnation)

    def _hear_links(self) -> None:
        """A peer answers on our link to it only when it does not know who we are: say it again."""
        for link in self._links.values():
            heard = False
            while True:
                try:
                    link.socket.recv_multipart(zmq.NOBLOCK)
                    heard = True
                except zmq.Again:
                    break
            if heard:
                self._say_hello(link)

    # -------------------------------------------------------------- sending

    def to_client(self, identity: bytes, message: BrokerMessage, bodies: Frames) -> Event | None:
        """Send to a client; RouteLost when it is gone or takes nothing any more."""
        if self._send(identity, encode(message, bodies)):
            return None
        return RouteLost(Route(identity))

    def _send(self, identity: bytes, frames: Frames) -> bool:
        try:
            self.router.send_multipart([identity, *frames], zmq.NOBLOCK, copy=False)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            self.counts.dropped += 1
            return False
        self.counts.frames_out += 1
        return True

    def to_peer(self, broker_id: str, message: PeerMessage, bodies: Frames) -> None:
        """Send to a peer; dropped when there is no connection or it is full."""
        link = self._links.get(broker_id)
        if link is None:
            return
        try:
            link.socket.send_multipart(encode(message, bodies), zmq.NOBLOCK, copy=False)
            self.counts.frames_out += 1
        except zmq.Again:
            self.counts.dropped += 1

    def connect(self, broker_id: str, endpoint: str) -> None:
        """Have one fresh connection to a peer."""
        attach = time.time_ns()
        self.disconnect(broker_id)
        self.peers.add(broker_id)
        socket = self._context.socket(zmq.DEALER)
        _tune(socket)
        # Nothing is kept for a peer that is not there: a later life must not be told what an earlier one was.
        socket.setsockopt(zmq.IMMEDIATE, 1)
        socket.connect(endpoint)
        link = self._links[broker_id] = _PeerLink(socket)
        link.attach = attach
        self._say_hello(link)

    def _say_hello(self, link: _PeerLink) -> None:
        link.attach += 1
        hello = Hello(
            Role.BROKER, self._me.broker_id, self._me.cluster_id, self._me.incarnation, link.attach,
            sent_wall_us=time.time_ns() // 1000,
        )  # fmt: skip
        try:
            link.socket.send_multipart(encode(hello), zmq.NOBLOCK)
        except zmq.Again:
            self.counts.dropped += 1

    def disconnect(self, broker_id: str) -> None:
        """Close the connection to a peer."""
        link = self._links.pop(broker_id, None)
        if link is not None:
            link.socket.close(0)

    def close(self) -> None:
        """Close everything at once."""
        for broker_id in list(self._links):
            self.disconnect(broker_id)
        self.router.close(0)
        self._context.term()


def _has_input(socket: zmq.Socket[bytes]) -> bool:
    return bool(int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN)


def _tune(socket: zmq.Socket[bytes]) -> None:
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, _HIGH_WATER)
    socket.setsockopt(zmq.RCVHWM, _HIGH_WATER)
    socket.setsockopt(zmq.MAXMSGSIZE, FRAME_BYTES_MAX)
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    socket.setsockopt(zmq.HEARTBEAT_IVL, 2_000)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 10_000)
    socket.setsockopt(zmq.RECONNECT_IVL, 50)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1_000)
