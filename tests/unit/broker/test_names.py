"""Peers that are reached by a name."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from dueq.broker import names
from dueq.core.ports.events import Event as CoreEvent
from dueq.core.ports.events import PeerFrameReceived
from dueq_codecs.messages import PeerFrame
from tests.unit.broker.stage import Node
from tests.unit.name_server import NameServer


@pytest.fixture
def nodes() -> Iterator[tuple[Node, Node]]:
    """A broker, and the peer that is to reach it."""
    found = Node("b1"), Node("b2")
    yield found
    for node in found:
        node.close()


def by_name(node: Node, name: str) -> str:
    return f"tcp://{name}:{node.endpoint.rpartition(':')[2]}"


def sends(peer: Node, number: int) -> Callable[[list[CoreEvent]], bool]:
    """Let a peer send until its frame of this number has come."""

    def holds(events: list[CoreEvent]) -> bool:
        peer.sockets.receive()
        peer.sockets.to_peer("b1", PeerFrame("b2", 1, "b1", 1, number, 0))
        messages = [event.message for event in events if isinstance(event, PeerFrameReceived)]
        return any(isinstance(m, PeerFrame) and m.sent_mono_us == number for m in messages)

    return holds


def test_a_peer_is_reached_by_its_name_as_soon_as_that_is_known(
    name_server: NameServer, nodes: tuple[Node, Node]
) -> None:
    node, peer = nodes
    name_server.known["b1.example"] = "127.0.0.1"
    peer.sockets.connect("b1", by_name(node, "b1.example"))
    peer.sockets.to_peer("b1", PeerFrame("b2", 1, "b1", 1, 1, 0))
    assert peer.sockets.counts.dropped == 1
    name_server.answers.set()
    node.receive_until(sends(peer, 2))
    assert name_server.asked == 1


def test_a_name_that_is_not_answered_for_is_asked_for_once(
    name_server: NameServer, nodes: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The core wants a fresh connection every few seconds: threads must not pile up."""
    monkeypatch.setattr(names, "_AGAIN_US", 0)
    node, peer = nodes
    for _ in range(10):
        peer.sockets.connect("b1", by_name(node, "b1.example"))
        peer.sockets.to_peer("b1", PeerFrame("b2", 1, "b1", 1, 1, 0))
        name_server.wait_asked()
    assert name_server.asked == 1


def test_a_peer_that_has_moved_is_reached_at_the_next_connection(
    name_server: NameServer, nodes: tuple[Node, Node]
) -> None:
    node, peer = nodes
    name_server.answers.set()
    name_server.known["b1.example"] = "127.0.0.99"
    endpoint = by_name(node, "b1.example")
    peer.sockets.connect("b1", endpoint)
    name_server.wait_asked()
    name_server.known["b1.example"] = "127.0.0.1"

    def again(events: list[CoreEvent]) -> bool:
        peer.sockets.connect("b1", endpoint)
        return name_server.asked > 1

    node.receive_until(again)
    node.receive_until(sends(peer, 3))


def test_a_name_that_nobody_knows_is_told_and_asked_for_again(
    name_server: NameServer, nodes: tuple[Node, Node]
) -> None:
    node, peer = nodes
    name_server.answers.set()
    peer.sockets.connect("b1", by_name(node, "b1.example"))

    def told(events: list[CoreEvent]) -> bool:
        peer.sockets.to_peer("b1", PeerFrame("b2", 1, "b1", 1, 1, 0))
        return peer.sockets.counts.refused["no_address"] == 1

    node.receive_until(told)
    assert "b1.example" in peer.sockets.counts.take_unsaid()[1]
    name_server.known["b1.example"] = "127.0.0.1"
    node.receive_until(sends(peer, 4))
    assert peer.sockets.counts.refused["no_address"] == 1
