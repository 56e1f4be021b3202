"""The ROUTER takes anything from anybody and stays whole; real sockets on loopback."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
import zmq

from dueq.broker.sockets import Identity, Sockets
from dueq.core.events import ClientFrameReceived, Event, PeerFrameReceived, RouteLost
from dueq_codecs.frames import decode, encode
from dueq_codecs.messages import (
    Code,
    Hello,
    HelloReply,
    MetadataReply,
    MetadataRequest,
    PeerFrame,
    Reply,
    Role,
)

_DEADLINE_MS = 5_000


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    found = Sockets("tcp://127.0.0.1:*", Identity("b1", 11, "cluster"))
    yield found
    found.close()


Connect = Callable[[], "Caller"]


@pytest.fixture
def connect(sockets: Sockets) -> Iterator[Connect]:
    """Makes connections to the broker."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    callers: list[Caller] = []

    def make() -> Caller:
        callers.append(Caller(context, sockets))
        return callers[-1]

    yield make
    for caller in callers:
        caller.socket.close(0)
    context.term()


class Caller:
    """A raw connection to the broker."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], sockets: Sockets) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(sockets.endpoint)
        self.sockets = sockets

    def send(self, *frames: bytes | memoryview) -> list[Event]:
        """Send frames and return the events that the broker makes of them (or of a request that follows)."""
        self.socket.send_multipart(frames)
        self.socket.send_multipart(encode(MetadataRequest(99)))
        events: list[Event] = []
        while not any(_is_marker(event) for event in events):
            assert self.sockets.router.poll(_DEADLINE_MS), "nothing came"
            events.extend(self.sockets.receive())
        return [event for event in events if not _is_marker(event)]

    def answer(self) -> object:
        """The next frame from the broker."""
        assert self.socket.poll(_DEADLINE_MS), "no answer"
        return decode(self.socket.recv_multipart())[0]


def _is_marker(event: Event) -> bool:
    return (
        isinstance(event, ClientFrameReceived)
        and isinstance(event.message, MetadataRequest)
        and event.message.request_id == 99
    )


def peer_frame(sender: str = "b2", incarnation: int = 22) -> PeerFrame:
    return PeerFrame(sender, incarnation, "b1", 11, 1, 1)


def peer_hello(attach: int = 1, cluster: str = "cluster") -> list[bytes | memoryview]:
    return encode(Hello(Role.BROKER, "b2", cluster, 22, attach))


def test_a_clients_frame_becomes_an_event_with_its_route(sockets: Sockets, connect: Connect) -> None:
    caller = connect()
    (event,) = caller.send(*encode(MetadataRequest(7, "t")))
    assert isinstance(event, ClientFrameReceived)
    assert sockets.to_client(event.route.identity, MetadataReply(7, Code.OK), []) is None
    assert caller.answer() == MetadataReply(7, Code.OK)


def test_random_bytes_are_answered_counted_and_harm_nobody(sockets: Sockets, connect: Connect) -> None:
    chance = random.Random(5)
    caller, other = connect(), connect()
    for _ in range(50):
        assert caller.send(chance.randbytes(chance.randint(0, 200))) == []
        answer = caller.answer()
        assert isinstance(answer, Reply)
        assert answer.code in (Code.BAD_FRAME, Code.WRONG_VERSION)
    assert sum(sockets.counts.bad.values()) == 50
    assert len(other.send(*encode(MetadataRequest(1)))) == 1


def test_every_truncation_of_a_frame_is_refused(sockets: Sockets, connect: Connect) -> None:
    caller = connect()
    whole = bytes(encode(MetadataRequest(1, "topic"))[0])
    for length in range(len(whole)):
        assert caller.send(whole[:length]) == []


def test_an_empty_multipart_and_too_many_parts_are_refused(sockets: Sockets, connect: Connect) -> None:
    caller = connect()
    assert caller.send(b"") == []
    assert caller.send(*encode(MetadataRequest(1)), b"more", b"and more") == []


def test_a_brokers_frame_on_a_clients_session_is_refused(sockets: Sockets, connect: Connect) -> None:
    caller = connect()
    assert caller.send(*encode(peer_frame())) == []
    answer = caller.answer()
    assert isinstance(answer, Reply)
    assert answer.code == Code.BAD_FRAME


def test_an_answer_sent_to_a_broker_is_refused(sockets: Sockets, connect: Connect) -> None:
    caller = connect()
    assert caller.send(*encode(HelloReply(Code.OK))) == []


def test_a_peer_is_heard_after_its_hello_and_only_under_its_own_name(
    sockets: Sockets, connect: Connect
) -> None:
    peer = connect().socket
    peer.send_multipart(peer_hello())
    peer.send_multipart(encode(peer_frame()))
    peer.send_multipart(encode(peer_frame("b3", 33)))
    events: list[Event] = []
    while not events:
        assert sockets.router.poll(_DEADLINE_MS)
        events.extend(sockets.receive())
    assert [type(event) for event in events] == [PeerFrameReceived]
    assert peer.poll(_DEADLINE_MS)
    refused = decode(peer.recv_multipart())[0]
    assert isinstance(refused, Reply)


def test_a_peer_of_another_cluster_is_refused(sockets: Sockets, connect: Connect) -> None:
    caller = connect()
    assert caller.send(*peer_hello(cluster="other")) == []
    answer = caller.answer()
    assert isinstance(answer, Reply)
    assert answer.code == Code.WRONG_CLUSTER


def test_the_later_connection_of_a_peer_counts(sockets: Sockets, connect: Connect) -> None:
    late, early = connect(), connect()
    late.socket.send_multipart(peer_hello(attach=2))
    late.socket.send_multipart(encode(peer_frame()))
    while not any(isinstance(event, PeerFrameReceived) for event in sockets.receive()):
        assert sockets.router.poll(_DEADLINE_MS)
    early.socket.send_multipart(peer_hello(attach=1))
    assert early.send(*encode(peer_frame())) == []


def test_a_client_that_is_gone_is_told_as_a_lost_route(sockets: Sockets) -> None:
    lost = sockets.to_client(b"nobody", MetadataReply(1, Code.OK), [])
    assert isinstance(lost, RouteLost)


def test_a_frame_over_the_limit_ends_that_connection_only(sockets: Sockets, connect: Connect) -> None:
    big, other = connect(), connect()
    big.socket.send(b"x" * (5 << 20))
    assert len(other.send(*encode(MetadataRequest(1)))) == 1
    assert sum(sockets.counts.bad.values()) == 0
