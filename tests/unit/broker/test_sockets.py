"""Real sockets on loopback: what a connection may say, and what becomes of the rest."""

from __future__ import annotations

import itertools
import os
import random
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from dueq.broker import sockets, tuning
from dueq.broker.introductions import Identity
from dueq.broker.sockets import Sockets
from dueq.broker.waiting import Waiter
from dueq.core.ports.events import ClientFrameReceived, Event, PeerFrameReceived, RouteLost
from dueq.limits import HEADER_BYTES_MAX
from dueq_codecs.envelope import seal
from dueq_codecs.frames import encode
from dueq_codecs.messages import (
    Append,
    ChangeReply,
    ChunkReply,
    Code,
    Hello,
    HelloReply,
    MetadataReply,
    MetadataRequest,
    PeerFrame,
    Push,
    Relay,
    Reply,
    Role,
    SnapshotRequest,
    UploadWanted,
)
from dueq_codecs.records import LogEntry, Record, RecordKind
from tests.unit.broker.stage import CLUSTER, Node, RawClient, broker_hello


@pytest.fixture
def start() -> Iterator[Callable[..., Any]]:
    """Start nodes and clients; they end with the test."""
    started: list[Node | RawClient] = []

    def make(kind: type, *arguments: Any) -> Any:
        started.append(kind(*arguments))
        return started[-1]

    yield make
    for one in reversed(started):
        one.close()


@pytest.fixture
def node(start: Callable[..., Any]) -> Node:
    found: Node = start(Node, "b1")
    return found


@pytest.fixture
def client(start: Callable[..., Any], node: Node) -> RawClient:
    found: RawClient = start(RawClient, node.endpoint)
    return found


def frame(sender: str = "b2", incarnation: int = 1, number: int = 0) -> PeerFrame:
    return PeerFrame(sender, incarnation, "b1", 1, number, 0)


def asked(events: list[Event]) -> list[int]:
    return [
        event.message.request_id
        for event in events
        if isinstance(event, ClientFrameReceived) and isinstance(event.message, MetadataRequest)
    ]


def heard(events: list[Event]) -> list[int]:
    return [
        event.message.sent_mono_us
        for event in events
        if isinstance(event, PeerFrameReceived) and isinstance(event.message, PeerFrame)
    ]


def test_a_client_is_heard_and_answered(node: Node, client: RawClient) -> None:
    client.say(MetadataRequest(7, "t"))
    (event,) = node.receive_until(lambda events: asked(events) == [7])
    assert isinstance(event, ClientFrameReceived)
    assert node.sockets.to_client(event.route.identity, MetadataReply(7, Code.OK)) is None
    assert client.hear() == MetadataReply(7, Code.OK)
    assert (node.sockets.counts.frames_in, node.sockets.counts.frames_out) == (1, 1)


def test_a_request_that_the_core_does_not_see_is_answered_by_the_way_that_it_came(
    node: Node, client: RawClient, start: Callable[..., Any]
) -> None:
    client.say(MetadataRequest(7, "t"))
    (event,) = node.receive_until(lambda events: asked(events) == [7])
    node.sockets.answer(event, Reply(7, Code.BUSY))
    assert client.hear() == Reply(7, Code.BUSY)
    relaying: Node = start(Node, "b2", 5)
    node.sockets.connect("b2", relaying.endpoint)
    relayed = PeerFrameReceived(Relay("b2", 5, b"x", False, MetadataRequest(8)), [])

    def is_answered(events: list[Event]) -> bool:
        node.sockets.answer(relayed, Reply(8, Code.BUSY))
        return bool(events)

    back = relaying.receive_until(is_answered)[0]
    assert isinstance(back, PeerFrameReceived)
    assert back.message == Relay("b1", 1, b"x", True, Reply(8, Code.BUSY))


def test_who_is_not_there_is_a_lost_route(node: Node) -> None:
    lost = node.sockets.to_client(b"nobody", MetadataReply(7, Code.OK))
    assert isinstance(lost, RouteLost)
    assert lost.route.identity == b"nobody"
    assert node.sockets.counts.dropped == 1


def test_a_client_that_takes_nothing_is_a_lost_route_and_never_waited_for(
    node: Node, client: RawClient
) -> None:
    client.say(MetadataRequest(7))
    (event,) = node.receive_until(lambda events: asked(events) == [7])
    assert isinstance(event, ClientFrameReceived)
    big = MetadataReply(7, Code.OK, "x" * 20_000)
    lost = None
    for _ in range(10_000):
        lost = lost or node.sockets.to_client(event.route.identity, big)
        if lost:
            break
    assert lost == RouteLost(event.route, big)


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        ([b""], Code.BAD_FRAME),
        ([b"GET / HTTP/1.1"], Code.BAD_FRAME),
        ([random.Random(5).randbytes(400)], Code.BAD_FRAME),
        ([bytes(encode(MetadataRequest(7, "t"))[0])[:-3]], Code.BAD_FRAME),
        ([bytes(encode(MetadataRequest(7, "t"))[0]), b"one frame too many"], Code.BAD_FRAME),
        ([seal(250, b"a kind of tomorrow")], Code.BAD_FRAME),
        ([seal(3, b"", version=9)], Code.WRONG_VERSION),
    ],
    ids=["empty", "http", "random", "cut", "too many", "kind", "version"],
)
def test_bytes_that_are_no_message_are_answered_counted_and_harm_nobody(
    node: Node, client: RawClient, start: Callable[..., Any], frames: list[bytes], code: Code
) -> None:
    client.say_frames(*frames)
    client.say(MetadataRequest(1))
    other: RawClient = start(RawClient, node.endpoint)
    other.say(MetadataRequest(2))
    node.receive_until(lambda events: sorted(asked(events)) == [1, 2])
    reply = client.hear()
    assert isinstance(reply, Reply)
    assert reply.code is code
    assert node.sockets.counts.refused == {code.name.lower(): 1}
    assert node.sockets.counts.take_unsaid() == (1, reply.text)
    assert node.sockets.counts.take_unsaid()[0] == 0


def test_random_bytes_are_answered_one_by_one_and_counted(node: Node, client: RawClient) -> None:
    chance = random.Random(5)
    for _ in range(50):
        client.say_frames(chance.randbytes(chance.randint(0, 200)))
    client.say(MetadataRequest(1))
    assert len(node.receive_until(lambda events: asked(events) == [1])) == 1
    for _ in range(50):
        reply = client.hear()
        assert isinstance(reply, Reply)
        assert reply.code in (Code.BAD_FRAME, Code.WRONG_VERSION)
    assert node.sockets.counts.refused.total() == 50


def test_every_truncation_of_a_frame_is_refused(node: Node, client: RawClient) -> None:
    whole = bytes(encode(MetadataRequest(1, "topic"))[0])
    for length in range(len(whole)):
        client.say_frames(whole[:length])
    client.say(MetadataRequest(2))
    assert len(node.receive_until(lambda events: asked(events) == [2])) == 1
    assert node.sockets.counts.refused == {"bad_frame": len(whole)}


def test_the_later_connection_of_a_peer_counts(
    node: Node, client: RawClient, start: Callable[..., Any]
) -> None:
    client.say(broker_hello("b2", attach=2))
    client.say(frame(number=1))
    node.receive_until(lambda events: heard(events) == [1])
    early: RawClient = start(RawClient, node.endpoint)
    early.say(broker_hello("b2", attach=1))
    early.say(frame(number=2))
    client.say(frame(number=3))
    node.receive_until(lambda events: 3 in heard(events) and node.sockets.counts.refused.total() == 2)
    for _ in range(2):
        reply = early.hear()
        assert isinstance(reply, Reply)
        assert reply.code is Code.BAD_FRAME


@pytest.mark.parametrize(
    "message",
    [
        frame(),
        UploadWanted("b2", 1, 5, 6),
        SnapshotRequest("b2", 1, 5, 1, 0, 0),
        Relay("b2", 1, b"x", False, MetadataRequest(5)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_brokers_frame_on_a_clients_connection_is_refused(
    node: Node, client: RawClient, message: Any
) -> None:
    client.say(message)
    client.say(MetadataRequest(1))
    events = node.receive_until(lambda events: asked(events) == [1])
    assert len(events) == 1
    reply = client.hear()
    assert isinstance(reply, Reply)
    assert reply.code is Code.BAD_FRAME


@pytest.mark.parametrize("message", [HelloReply(Code.OK), ChunkReply(9, Code.OK), MetadataReply(9, Code.OK)])
def test_what_only_brokers_answer_is_refused(node: Node, client: RawClient, message: Any) -> None:
    client.say(message)
    client.say(MetadataRequest(1))
    events = node.receive_until(lambda events: asked(events) == [1])
    assert len(events) == 1
    reply = client.hear()
    assert isinstance(reply, Reply)
    assert (reply.code, reply.request_id) == (Code.BAD_FRAME, getattr(message, "request_id", 0))


def test_after_its_hello_a_broker_is_heard_under_its_own_name_only(node: Node, client: RawClient) -> None:
    client.say(broker_hello("b2", incarnation=4))
    client.say(frame("b2", 4, number=1))
    client.say(frame("b3", 4, number=2))
    client.say(frame("b2", 5, number=3))
    client.say(frame("b2", 4, number=4))
    node.receive_until(lambda events: heard(events) == [1, 4])
    assert node.sockets.counts.refused == {"bad_frame": 2}


@pytest.mark.parametrize("inner", [Reply(4, Code.OK), MetadataReply(4, Code.OK), ChangeReply(4, Code.OK)])
def test_a_broker_relays_nothing_but_what_others_ask_or_consumers_have_missed(
    node: Node, client: RawClient, inner: Any
) -> None:
    """The request of a client was looked up by its kind, and the broker ended."""
    client.say(broker_hello("b2"))
    client.say(Relay("b2", 1, b"x", False, inner))
    client.say(Relay("b2", 1, b"x", False, MetadataRequest(5)))
    client.say(Relay("b2", 1, b"x", False, Push("t", bytes(16), 1, 1, 1, 0)))
    client.say(Relay("b2", 1, b"x", True, inner))
    client.say(frame(number=7))
    events = node.receive_until(lambda events: heard(events) == [7])
    relayed = [event.message.inner for event in events if isinstance(event.message, Relay)]  # type: ignore[union-attr]
    assert [type(each) for each in relayed] == [MetadataRequest, Push, type(inner)]
    assert node.sockets.counts.refused["bad_frame"] == 1


@pytest.mark.parametrize("message", [MetadataRequest(3), Hello(Role.CLIENT, "00")])
def test_a_clients_frame_on_a_brokers_connection_is_refused(
    node: Node, client: RawClient, message: Any
) -> None:
    client.say(broker_hello("b2"))
    client.say(message)
    client.say(frame(number=1))
    events = node.receive_until(lambda events: heard(events) == [1])
    assert len(events) == 1
    reply = client.hear()
    assert isinstance(reply, Reply)
    assert (reply.code, reply.request_id) == (Code.BAD_FRAME, getattr(message, "request_id", 0))


def test_a_frame_that_is_too_long_ends_its_connection_and_no_other(
    node: Node, client: RawClient, start: Callable[..., Any]
) -> None:
    other: RawClient = start(RawClient, node.endpoint)
    other.say(MetadataRequest(1))
    node.receive_until(lambda events: asked(events) == [1])
    client.say_frames(bytes(5 << 20))
    other.say(MetadataRequest(2))
    node.receive_until(lambda events: asked(events) == [2])
    late: RawClient = start(RawClient, node.endpoint)
    late.say(MetadataRequest(3))
    node.receive_until(lambda events: asked(events) == [3])
    assert node.sockets.counts.refused == {}, "it was never taken in"


def test_a_request_whose_answer_might_not_fit_into_a_frame_is_refused(node: Node, client: RawClient) -> None:
    """A peer that relays the answer would lose its connection to this broker."""
    client.say(MetadataRequest(7, "x" * (HEADER_BYTES_MAX - 100)))
    client.say(MetadataRequest(8, "x" * HEADER_BYTES_MAX))
    client.say(MetadataRequest(9))
    node.receive_until(lambda events: asked(events) == [7, 9])
    refused = client.hear()
    assert isinstance(refused, Reply)
    assert (refused.request_id, refused.code) == (8, Code.BAD_FRAME)


def _meet(node: Node, peer: Node) -> None:
    """Have a peer connect, and send until it is heard."""
    peer.sockets.connect("b1", node.endpoint)

    def send_again(events: list[Event]) -> bool:
        peer.sockets.receive()
        peer.sockets.to_peer("b1", frame(number=5))
        return 5 in heard(events)

    node.receive_until(send_again)


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as found:
            found.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_two_brokers_hear_each_other_from_the_first_frame_that_is_sent(
    node: Node, start: Callable[..., Any]
) -> None:
    peer: Node = start(Node, "b2")
    _meet(node, peer)
    assert node.sockets.counts.refused == {}


def test_a_broker_listens_at_an_address_of_ipv6_and_is_reached_there(start: Callable[..., Any]) -> None:
    """Such an address was accepted as a setting, and then there was no such device."""
    if not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    node: Node = start(Node, "b1", 1, CLUSTER, "tcp://[::1]:0")
    peer: Node = start(Node, "b2")
    assert node.endpoint.startswith("tcp://[::1]:")
    _meet(node, peer)


def test_a_peer_that_has_forgotten_us_is_told_again_who_we_are(start: Callable[..., Any]) -> None:
    """A link that reconnects by itself is a stranger to the other side."""
    peer: Node = start(Node, "b2")
    first = Node("b1")
    peer.sockets.connect("b1", first.endpoint)

    def sends_to(node: Node) -> Callable[[list[Event]], bool]:
        def holds(events: list[Event]) -> bool:
            peer.sockets.receive()
            peer.sockets.to_peer("b1", frame(number=5))
            return 5 in heard(events)

        return holds

    first.receive_until(sends_to(first))
    first.sockets._introductions._life_of.clear()
    first.sockets._introductions._latest.clear()
    first.receive_until(sends_to(first))
    assert first.sockets.counts.refused["bad_frame"] > 0
    first.close()


def test_a_hello_that_is_refused_is_not_repeated_without_end(node: Node, start: Callable[..., Any]) -> None:
    stranger: Node = start(Node, "b2", 1, "another cluster")
    stranger.sockets.connect("b1", node.endpoint)

    def refused(events: list[Event]) -> bool:
        stranger.sockets.to_peer("b1", frame(number=5))
        stranger.sockets.receive()
        return stranger.sockets.counts.refused["wrong_cluster"] > 0

    assert heard(node.receive_until(refused)) == []
    said = node.sockets.counts.refused["wrong_cluster"]
    for _ in range(50):
        stranger.sockets.receive()
        assert heard(node.sockets.receive()) == []
    assert node.sockets.counts.refused["wrong_cluster"] <= said + 1


def test_a_link_that_reconnects_is_no_news_in_the_log(node: Node, start: Callable[..., Any]) -> None:
    client: RawClient = start(RawClient, node.endpoint)
    node.sockets.connect("b2", "tcp://127.0.0.1:9")
    client.say(frame("b2"))
    node.receive_until(lambda events: node.sockets.counts.refused["unintroduced"] == 1)
    assert node.sockets.counts.take_unsaid()[0] == 0
    reply = client.hear()
    assert isinstance(reply, Reply)
    assert reply.code is Code.BAD_FRAME


def test_a_new_connection_replaces_the_old_one(node: Node, start: Callable[..., Any]) -> None:
    peer: Node = start(Node, "b2")
    for number in (1, 2):
        peer.sockets.connect("b1", node.endpoint)

        def send_again(events: list[Event], number: int = number) -> bool:
            peer.sockets.receive()
            peer.sockets.to_peer("b1", frame(number=number))
            return number in heard(events)

        node.receive_until(send_again)


def test_a_peer_gets_nothing_that_was_sent_before_it_was_there(node: Node, start: Callable[..., Any]) -> None:
    """It may be another life of it, and what was sent may have been meant for the one before."""
    before = Node("b2")
    before.close()
    node.sockets.connect("b2", before.endpoint)
    node.sockets.to_peer("b2", frame("b1", number=1))
    assert node.sockets.counts.frames_out == 0
    peer: Node = start(Node, "b2", 2, CLUSTER, before.endpoint)

    def send_again(events: list[Event]) -> bool:
        node.sockets.receive()
        node.sockets.to_peer("b2", frame("b1", number=2))
        return 2 in heard(events)

    assert 1 not in heard(peer.receive_until(send_again))


def test_an_endpoint_that_is_none_is_counted_and_harms_nobody(node: Node) -> None:
    node.sockets.connect("b2", "tcp://nonsense")
    node.sockets.to_peer("b2", frame())
    assert node.sockets.counts.refused == {"bad_endpoint": 1}
    assert "b2" in node.sockets.counts.take_unsaid()[1]


@pytest.fixture
def no_descriptors() -> Iterator[Callable[[], None]]:
    """Take all descriptors that this process may have; returns what gives them back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 2, hard))
    held: list[int] = []
    with suppress(OSError):
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))

    def give_back() -> None:
        while held:
            os.close(held.pop())
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    yield give_back
    give_back()


def test_a_link_for_which_there_is_no_descriptor_is_made_when_there_is_one(
    start: Callable[..., Any], node: Node, request: pytest.FixtureRequest
) -> None:
    """Clients can take all of a broker's descriptors: the next peer that was started anew ended the broker."""
    peer: Node = start(Node, "b2")
    give_back = request.getfixturevalue("no_descriptors")
    peer.sockets.connect("b1", node.endpoint)
    peer.sockets.to_peer("b1", frame())
    give_back()
    assert "b1" in peer.sockets.counts.take_unsaid()[1]

    def send_again(events: list[Event]) -> bool:
        peer.sockets.to_peer("b1", frame(number=7))
        return 7 in heard(events)

    node.receive_until(send_again)


def test_an_address_that_is_taken_is_an_error_that_names_it(node: Node) -> None:
    waiter = Waiter()
    with pytest.raises(OSError, match=node.endpoint.removeprefix("tcp://")):
        Sockets(node.endpoint, Identity("b9", 1), waiter)
    waiter.close()


def test_input_that_a_send_has_taken_notice_of_is_read(node: Node, client: RawClient) -> None:
    client.say(MetadataRequest(1))
    (event,) = node.receive_until(lambda events: asked(events) == [1])
    assert isinstance(event, ClientFrameReceived)
    identity = event.route.identity
    node.waiter.wait(0.001)
    for number in range(2, 100):
        client.say(MetadataRequest(number))
        # The send may take in what the descriptor would have told of.
        node.sockets.to_client(identity, MetadataReply(number, Code.OK))
        events = node.receive_until(lambda events, number=number: asked(events) == [number])  # type: ignore[misc]
        assert asked(events) == [number]


def test_a_message_of_very_many_frames_is_thrown_away_unread_and_in_many_turns(
    node: Node, client: RawClient, start: Callable[..., Any]
) -> None:
    """No message of a client has more than a body; the loop would take seconds for what anybody may send."""
    many = 100_000
    client.say_frames(*encode(MetadataRequest(7)), *[b""] * many)
    client.say(MetadataRequest(1))
    other: RawClient = start(RawClient, node.endpoint)
    other.say(MetadataRequest(2))
    turns = []

    def both_are_heard(events: list[Event]) -> bool:
        turns.append(len(events))
        return sorted(asked(events)) == [1, 2]

    node.receive_until(both_are_heard)
    assert len(turns) > 10
    reply = client.hear()
    assert isinstance(reply, Reply)
    assert reply.code is Code.BAD_FRAME
    assert node.sockets.counts.refused == {"bad_frame": 1}


def test_a_message_of_too_many_frames_of_a_broker_is_thrown_away_in_many_turns(
    node: Node, start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may say the Hello of a broker."""
    monkeypatch.setattr(sockets, "_BROKER_FRAMES_MAX", 20_000)
    peer: RawClient = start(RawClient, node.endpoint)
    peer.say(broker_hello("b2", 1))
    peer.say_frames(*encode(frame(number=1)), *[b""] * 100_000)
    peer.say(frame(number=2))
    turns = []

    def the_later_one_is_heard(events: list[Event]) -> bool:
        turns.append(len(events))
        return heard(events) == [2]

    node.receive_until(the_later_one_is_heard)
    assert len(turns) > 10
    reply = peer.hear()
    assert isinstance(reply, Reply)
    assert reply.code is Code.BAD_FRAME
    assert "more than 20,000 frames" in reply.text
    assert node.sockets.counts.refused == {"bad_frame": 1}


def test_a_long_message_of_a_broker_is_taken_in_many_turns_and_heard(
    node: Node, client: RawClient, start: Callable[..., Any]
) -> None:
    """A turn is as short as ever; what others send meanwhile does not get into it."""
    peer: RawClient = start(RawClient, node.endpoint)
    peer.say(broker_hello("b2", 1))
    entries = [LogEntry(Record(RecordKind.BARRIER, 1, 1, number, 1), b"") for number in range(1, 20_001)]
    said = replace(frame(number=1), appends=[Append(1, 1, 0, 0, 0, entries)])
    peer.say(said)
    client.say(MetadataRequest(7))
    turns = []

    def both_are_heard(events: list[Event]) -> bool:
        turns.append(len(events))
        return heard(events) == [1] and asked(events) == [7]

    events = node.receive_until(both_are_heard)
    assert len(turns) > 10
    (message,) = (event.message for event in events if isinstance(event, PeerFrameReceived))
    assert encode(message) == encode(said)
    assert not node.sockets.counts.refused


def test_a_turn_takes_in_so_many_bytes_and_the_next_one_goes_on(
    node: Node, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a turn would last as long as whoever sends the longest frames likes."""
    monkeypatch.setattr(sockets, "_BYTES_PER_TURN", 1_000)
    for _ in range(20):
        client.say_frames(bytes(400))
    counts = [0]

    def all_have_come(events: list[Event]) -> bool:
        counts.append(node.sockets.counts.refused["bad_frame"])
        return counts[-1] == 20

    node.receive_until(all_have_come)
    assert max(later - sooner for sooner, later in itertools.pairwise(counts)) <= 3


def test_a_broker_may_send_as_many_frames_as_it_has_entries(node: Node, start: Callable[..., Any]) -> None:
    peer: RawClient = start(RawClient, node.endpoint)
    peer.say(broker_hello("b2", 1))
    entries = [LogEntry(Record(RecordKind.BARRIER, 1, 1, number, 1), b"") for number in range(1, 50)]
    peer.say(replace(frame(), appends=[Append(1, 1, 0, 0, 0, entries)]))
    node.receive_until(lambda events: heard(events) == [0])
    assert not node.sockets.counts.refused


def test_a_connection_that_says_nothing_is_closed(
    monkeypatch: pytest.MonkeyPatch, start: Callable[..., Any]
) -> None:
    """It holds a descriptor, of which there are so many."""
    monkeypatch.setattr(tuning, "_HANDSHAKE_MS", 200)
    node: Node = start(Node, "b1")
    host, _, port = node.endpoint.removeprefix("tcp://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as silent:
        while silent.recv(1024):  # first comes the greeting, then the end
            pass
