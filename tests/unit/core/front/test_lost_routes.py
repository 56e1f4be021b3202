"""A frame that could not be sent: only topics that the client consumes hear of it, and they look at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dueq.core.front import clients as module
from dueq.core.front.clients import Clients
from dueq.core.front.gate import Gate
from dueq.core.ports.events import ClientFrameReceived, Route, RouteLost
from dueq.instant import Now
from dueq_codecs.messages import (
    BrokerMessage,
    Code,
    ConsumerAction,
    ConsumerFrame,
    ConsumerReply,
    Push,
    Reply,
)

NOW = Now(1, 1)
ALICE, BOB = Route(b"a"), Route(b"b", "b2")


class Dispatcher:
    """Remembers of which lost frames it heard, who consumes, and how often that was looked at."""

    def __init__(self) -> None:
        self.lost: list[tuple[Route, BrokerMessage]] = []
        self.consumers: set[Route] = set()
        self.looks = 0

    def consumer_frame(self, route: Route, frame: ConsumerFrame, now: Now) -> None:
        self.consumers.add(route)

    def route_lost(self, route: Route, unsent: BrokerMessage, now: Now) -> None:
        self.lost.append((route, unsent))

    def routes(self) -> set[Route]:
        self.looks += 1
        return self.consumers


class Stirred:
    """The part of a broker's context that is wanted here."""

    def __init__(self) -> None:
        self.settings = SimpleNamespace(broker_id="b1")
        self.peers: dict[str, Any] = {}
        self.stirred: dict[str, None] = {}

    def stir(self, topic: str) -> None:
        self.stirred[topic] = None


@pytest.fixture
def topics() -> dict[str, Dispatcher]:
    return {name: Dispatcher() for name in ("arrivals", "departures", "idle")}


@pytest.fixture
def clients(topics: dict[str, Dispatcher]) -> Clients:
    ctx: Any = Stirred()
    none: Any = None
    dispatchers: Any = topics
    return Clients(ctx, none, none, none, {}, dispatchers, none, none, none, none, none, Gate())


def consume(clients: Clients, route: Route, topic: str) -> None:
    frame = ConsumerFrame(ConsumerAction.BEAT, topic, b"c" * 16, 1, 1, 1, 1, 1)
    clients.received(ClientFrameReceived(route, frame, []), NOW)


def test_topics_that_the_client_consumes_hear_of_it_and_look_at_once(
    clients: Clients, topics: dict[str, Dispatcher]
) -> None:
    """What was to be pushed to it is for others, who must not wait until something else happens."""
    for topic in ("arrivals", "departures"):
        consume(clients, ALICE, topic)
    consume(clients, BOB, "arrivals")
    clients._ctx.stirred.clear()
    unsent = Reply(1, Code.OK)
    clients.route_lost(RouteLost(ALICE, unsent), NOW)
    assert {name: found.lost for name, found in topics.items()} == {
        "arrivals": [(ALICE, unsent)], "departures": [(ALICE, unsent)], "idle": [],
    }  # fmt: skip
    assert sorted(clients._ctx.stirred) == ["arrivals", "departures"]


def test_who_hangs_up_before_a_thousand_answers_costs_a_look_at_each_topic_once(
    clients: Clients, topics: dict[str, Dispatcher]
) -> None:
    consume(clients, ALICE, "arrivals")
    for number in range(1_000):
        clients.route_lost(RouteLost(ALICE, Reply(number, Code.OK)), NOW)
        clients.route_lost(RouteLost(BOB, Reply(number, Code.OK)), NOW)
    assert [len(found.lost) for found in topics.values()] == [1, 0, 0]


def test_the_topic_of_each_unsent_push_hears_of_it(clients: Clients, topics: dict[str, Dispatcher]) -> None:
    consume(clients, ALICE, "arrivals")
    pushes: list[BrokerMessage] = [
        Push("arrivals", b"c" * 16, 1, number, 1, 1, leader="b1") for number in range(3)
    ]
    for push in pushes:
        clients.route_lost(RouteLost(ALICE, push), NOW)
    assert [push for _, push in topics["arrivals"].lost] == pushes
    gone = ConsumerReply("deleted", b"c" * 16, 1, 1, leader="b1")
    clients.route_lost(RouteLost(ALICE, gone), NOW)


def test_clients_that_left_are_forgotten(
    clients: Clients, topics: dict[str, Dispatcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SWEEP_FROM", 8)
    clients._sweep_from = 8
    consume(clients, ALICE, "departures")
    for number in range(1_000):
        passing = Route(b"%d" % number)
        consume(clients, passing, "arrivals")
        topics["arrivals"].consumers.discard(passing)
    assert len(clients._consumed) <= 16
    clients.route_lost(RouteLost(ALICE, Reply(1, Code.OK)), NOW)
    assert len(topics["departures"].lost) == 1


def test_where_many_clients_stay_those_that_left_are_looked_for_ever_more_seldom(
    clients: Clients, topics: dict[str, Dispatcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each frame of a consumer would cost a look at all the others."""
    monkeypatch.setattr(module, "_SWEEP_FROM", 8)
    clients._sweep_from = 8
    for number in range(1_000):
        consume(clients, Route(b"%d" % number), "arrivals")
    assert 1 < topics["arrivals"].looks < 10
