"""ZeroMQ: one ROUTER for clients and peers, one DEALER to each peer (`links`).

Connections guarantee nothing. A frame that cannot be sent at once is dropped; the core repeats frames that
matter. Sending to a client that is gone, or whose queue is full, fails (ROUTER_MANDATORY), and the core is
told. A frame is decoded and believed only on the right connection: a broker's frame on a broker's, a client's on a
client's. Any other frame is answered with an error, counted and logged, and harms nobody else.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

import zmq

from dueq.broker.clocks import Clocks, read_clocks
from dueq.broker.introductions import Identity, Introductions
from dueq.broker.links import Links
from dueq.broker.tuning import Counts, begin_sharing, has_input, put, tune
from dueq.broker.waiting import Waiter
from dueq.core.front.clients import FOR_CONSUMERS
from dueq.core.ports.events import ClientFrameReceived, Event, PeerFrameReceived, Route, RouteLost
from dueq.limits import HEADER_BYTES_MAX
from dueq_codecs.frames import FrameError, decode, encode
from dueq_codecs.messages import (
    BrokerMessage,
    BrowseRequest,
    ChangeRequest,
    ChunkRequest,
    ClientMessage,
    Code,
    ConsumerFrame,
    CreateTopicRequest,
    DeleteTopicRequest,
    Hello,
    InspectRequest,
    LookRequest,
    MetadataRequest,
    PeerFrame,
    PeerMessage,
    Relay,
    Reply,
    Role,
    SnapshotChunk,
    SnapshotRequest,
    UpdateTopicRequest,
    UploadChunk,
    UploadWanted,
)

Frames = Sequence[bytes | memoryview]
_PEER_MESSAGES = (PeerFrame, UploadChunk, UploadWanted, SnapshotRequest, SnapshotChunk, Relay)
_CLIENT_MESSAGES = (
    Hello, MetadataRequest, CreateTopicRequest, DeleteTopicRequest, UpdateTopicRequest, InspectRequest, ChangeRequest,
    ChunkRequest, ConsumerFrame, BrowseRequest, LookRequest,
)  # fmt: skip
_RELAYED = (*_CLIENT_MESSAGES, *FOR_CONSUMERS)
"""What a broker may pass on to another one: requests of its clients, and what has not reached a consumer of its own."""
_FRAMES_PER_TURN = 500
_CLIENT_FRAMES_MAX = 3
"""A client's message has a header and a body at most. Of a longer one we keep no more than this.

libzmq keeps all of it, as it gives us whole messages only. MAXMSGSIZE limits each frame, and nothing limits how many
frames a message has: one that never ends is kept as long as there is memory.
"""
_BROKER_FRAMES_MAX = (1 << 20) + 1
"""A PeerFrame has a header, and two frames for each record: 128 records of each of 4,096 partitions. An honest broker
that had more to say in one turn would stand still for seconds as it writes them."""
_DROPPED_AT_ONCE = 16
_MORE = int(zmq.RCVMORE)
_NOBLOCK = int(zmq.NOBLOCK)
_BYTES_PER_TURN = 8 << 20
_FRAME_WEIGHT = 2 << 10
"""The time of a frame without bytes, in bytes: a turn takes some thousands of these, and the next one goes on."""
_SOCKETS_MAX = 4096


class Sockets:
    """All sockets of a broker; belongs to the loop's thread.

    Attributes:
        endpoint: what the ROUTER is bound to (with the real port).
        counts: what has come, gone and been refused.
    """

    def __init__(self, listen: str, me: Identity, waiter: Waiter, clocks: Clocks = read_clocks) -> None:
        """Bind.

        Args:
            listen: `tcp://ADDRESS:PORT`; port 0 or *: any that is free.
            me: whose sockets these are; its cluster may be filled in later.
            waiter: learns of every descriptor to wait for.
            clocks: what tells the time.

        Raises:
            OSError: the address is taken, or is none of this machine's.
        """
        begin_sharing()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        self._context.max_sockets = _SOCKETS_MAX
        self._waiter = waiter
        self.counts = Counts()
        self._me = me
        self._introductions = Introductions(me)
        self._links = Links(self._context, me, waiter, self.counts, clocks)
        self._router = self._context.socket(zmq.ROUTER)
        tune(self._router, listen)
        self._router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        try:
            self._router.bind(listen)
        except zmq.ZMQError as error:
            self._router.close(0)
            self._context.term()
            code = error.errno or errno.EINVAL
            # Without what ZeroMQ adds to it: the address once more.
            raise OSError(code, f"cannot listen on {listen}: {zmq.strerror(code)}") from error
        self.endpoint = bytes(self._router.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode()
        self._descriptor = int(self._router.getsockopt(zmq.FD))
        # Whether there may be input that the descriptor does not tell of: whatever is done with a socket takes in what
        # its descriptor would have told.
        self._unsure = True
        # The rest of a message that has too many frames is still to be thrown away.
        self._is_dropping = False
        # Whose message has been taken in part, and its frames so far.
        self._begun: tuple[bytes, list[bytes]] | None = None
        waiter.add(self._descriptor)

    def readable(self) -> bool:
        """Whether there is input now; to be asked before every wait: ZeroMQ's descriptors are edge-triggered."""
        if self._unsure:
            self._unsure = has_input(self._router)
        return self._unsure or self._links.readable()

    # -------------------------------------------------------------- receiving

    def receive(self) -> list[Event]:
        """Take in the frames that have come, up to a bound; the others leave it `readable`."""
        events: list[Event] = []
        if self._unsure or self._waiter.may_be_ready(self._descriptor):
            self._receive(events)
        self._links.hear()
        return events

    def _receive(self, events: list[Event]) -> None:
        self._unsure = True
        weight = 0
        for _ in range(_FRAMES_PER_TURN):
            if not has_input(self._router):
                self._unsure = False
                break
            if self._is_dropping:
                weight += self._drop_some()
            else:
                weight += self._take(events)
            if weight > _BYTES_PER_TURN:
                break
        self.counts.frames_in += len(events)

    def _take(self, events: list[Event]) -> int:
        """Take a connection's next message, or more of the one that was begun, and return what it weighs.

        If it has too many frames, the rest is dropped from now on.
        """
        router, weight = self._router, 0
        identity, frames = self._begun or (router.recv(_NOBLOCK), [])
        self._begun = None
        life = self._introductions.life_of(identity)
        most = _CLIENT_FRAMES_MAX if life is None else _BROKER_FRAMES_MAX
        while router.getsockopt(_MORE):
            if len(frames) >= most:
                self._is_dropping = True
                whose = "no broker's" if life is None else f"the broker {life[0]!r}'s"
                reason = f"a message of more than {most:,} frames on a connection that is {whose}"
                self._refuse(identity, Code.BAD_FRAME, reason)
                return weight
            if weight > _BYTES_PER_TURN:
                self._begun = identity, frames
                return weight
            frames.append(router.recv(_NOBLOCK))
            weight += len(frames[-1]) + _FRAME_WEIGHT
        event = self._accept(identity, frames)
        if event is not None:
            events.append(event)
        return weight

    def _drop_some(self) -> int:
        """Throw a few frames away, and return their bytes: nobody may hold up the loop with millions of them."""
        dropped = 0
        for _ in range(_DROPPED_AT_ONCE):
            dropped += len(self._router.recv(_NOBLOCK))
            if not self._router.getsockopt(_MORE):
                self._is_dropping = False
                break
        return dropped

    def _accept(self, identity: bytes, frames: Frames) -> Event | None:
        """Return what a message is to the core; None if it is nothing, or was refused."""
        try:
            message, bodies = decode(frames)
        except FrameError as error:
            self._refuse(identity, error.code, error.reason, error.request_id)
            return None
        event: Event | None = None
        if isinstance(message, Hello) and message.role == Role.BROKER:
            refusal = self._introductions.accept(identity, message)
        elif isinstance(message, _PEER_MESSAGES):
            refusal = self._not_from_peer(identity, message)
            event = PeerFrameReceived(message, bodies)
        elif isinstance(message, _CLIENT_MESSAGES):
            refusal = self._not_from_client(identity, message) or _too_long(len(frames[0]))
            event = ClientFrameReceived(Route(identity), message, bodies)
        else:
            refusal = Code.BAD_FRAME, f"a {type(message).__name__} is not for a broker"
        if refusal is None:
            return event
        if isinstance(message, _PEER_MESSAGES) and self._is_reconnected(identity, message.sender):
            self.counts.refused["unintroduced"] += 1
            self._answer(identity, *refusal)
        else:
            self._refuse(identity, *refusal, getattr(message, "request_id", 0))
        return None

    def _is_reconnected(self, identity: bytes, sender: str) -> bool:
        """Whether this looks like a peer's link that has reconnected by itself: no news, our answer mends it."""
        return self._introductions.life_of(identity) is None and self._links.has(sender)

    def _not_from_peer(self, identity: bytes, message: PeerMessage) -> tuple[Code, str] | None:
        life, name = self._introductions.life_of(identity), type(message).__name__
        if life is None:
            return Code.BAD_FRAME, f"a {name} on a connection that is no broker's"
        if life != (message.sender, message.incarnation):
            return Code.BAD_FRAME, f"a {name} of {message.sender!r:.80} on the connection of {life[0]!r}"
        if isinstance(message, Relay) and not message.back and not isinstance(message.inner, _RELAYED):
            return Code.BAD_FRAME, f"a {type(message.inner).__name__} is not relayed to a broker"
        return None

    def _not_from_client(self, identity: bytes, message: ClientMessage) -> tuple[Code, str] | None:
        life = self._introductions.life_of(identity)
        if life is None:
            return None
        return Code.BAD_FRAME, f"a {type(message).__name__} on the connection of the broker {life[0]!r}"

    def _refuse(self, identity: bytes, code: Code, reason: str, request_id: int = 0) -> None:
        self.counts.refuse(code.name, reason)
        self._answer(identity, code, reason, request_id)

    def _answer(self, identity: bytes, code: Code, reason: str, request_id: int = 0) -> None:
        self._send(identity, encode(Reply(request_id, code, reason)))

    # -------------------------------------------------------------- sending

    def to_client(self, identity: bytes, message: BrokerMessage, bodies: Frames = ()) -> Event | None:
        """Send to a client; returns RouteLost when it is gone or takes nothing any more."""
        return None if self._send(identity, encode(message, bodies)) else RouteLost(Route(identity), message)

    def answer(self, request: Event, message: BrokerMessage) -> None:
        """Answer a request that the core has not seen, by the way on which it came."""
        if isinstance(request, ClientFrameReceived):
            self.to_client(request.route.identity, message)
        elif isinstance(request, PeerFrameReceived) and isinstance(request.message, Relay):
            me, relay = self._me, request.message
            self.to_peer(relay.sender, Relay(me.broker_id, me.incarnation, relay.identity, True, message))

    def _send(self, identity: bytes, frames: Frames) -> bool:
        self._unsure = True
        try:
            put(self._router, [identity, *frames])
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            self.counts.dropped += 1
            return False
        self.counts.frames_out += 1
        return True

    def to_peer(self, broker_id: str, message: PeerMessage, bodies: Frames = ()) -> None:
        """Send to a peer; dropped when there is no connection or it is full."""
        self._links.send(broker_id, encode(message, bodies))

    def connect(self, broker_id: str, endpoint: str) -> None:
        """Have one fresh connection to a peer."""
        self._links.connect(broker_id, endpoint)

    def close(self) -> None:
        """Close everything at once; frames that have not left yet are dropped."""
        self._links.close()
        self._waiter.remove(self._descriptor)
        self._router.close(0)
        self._context.term()


def _too_long(header_bytes: int) -> tuple[Code, str] | None:
    """Say why a request is too long, or None: its answer may repeat its topic, and has to fit into a frame, too."""
    if header_bytes <= HEADER_BYTES_MAX:
        return None
    return (
        Code.BAD_FRAME,
        f"a request without its bodies has at most {HEADER_BYTES_MAX} bytes, not {header_bytes}",
    )
