"""Brokers that are reached by a name."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import zmq

from dueq.client.core.ports.events import Event as CoreEvent
from dueq.client.core.ports.events import LinkLost, LinkReady
from dueq.client.sockets import Sockets
from tests.unit.name_server import NameServer

PATIENCE_MS = 20_000


@pytest.fixture
def port() -> Iterator[int]:
    """Where a broker listens that says nothing."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.setsockopt(zmq.LINGER, 0)
        yield router.bind_to_random_port("tcp://127.0.0.1")


@pytest.fixture
def sockets() -> Iterator[Sockets]:
    wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    with zmq.Context() as context:
        found = Sockets(context, wake)
        yield found
        found.close_all()
    os.close(wake)


def happens(sockets: Sockets, count: int) -> list[CoreEvent]:
    """Wait for so many events."""
    events: list[CoreEvent] = []
    while len(events) < count:
        events += sockets.wait(PATIENCE_MS)[0]
    return events


def test_a_link_that_waits_for_a_name_holds_up_no_other(
    name_server: NameServer, sockets: Sockets, port: int
) -> None:
    """While the name server was silent, a client reached no broker at all."""
    name_server.known["known.example"] = "127.0.0.1"
    sockets.open(1, f"tcp://known.example:{port}")
    sockets.open(2, f"tcp://127.0.0.1:{port}")
    assert happens(sockets, 1) == [LinkReady(2)]
    name_server.answers.set()
    assert happens(sockets, 1) == [LinkReady(1)]


def test_a_name_that_nobody_knows_is_a_lost_link(
    name_server: NameServer, sockets: Sockets, port: int
) -> None:
    sockets.open(1, f"tcp://unknown.example:{port}")
    name_server.answers.set()
    [lost] = happens(sockets, 1)
    assert lost == LinkLost(1, "Name or service not known")


def test_what_cannot_be_a_name_is_a_lost_link(sockets: Sockets) -> None:
    sockets.open(1, f"tcp://{'x' * 70}.example:7400")
    [lost] = happens(sockets, 1)
    assert isinstance(lost, LinkLost)


def test_links_that_are_given_up_meanwhile_stay_so_and_one_lookup_serves_those_after_them(
    name_server: NameServer, sockets: Sockets, port: int
) -> None:
    """A link is tried anew sooner than a name server is given up: threads must not pile up."""
    name_server.known["known.example"] = "127.0.0.1"
    for link in range(1, 20):
        sockets.open(link, f"tcp://known.example:{port}")
        sockets.close(link)
    sockets.open(20, f"tcp://known.example:{port}")
    name_server.answers.set()
    assert happens(sockets, 1) == [LinkReady(20)]
    assert name_server.asked == 1
