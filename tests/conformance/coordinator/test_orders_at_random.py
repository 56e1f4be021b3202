"""Orders of topics at random, from two brokers whose connections are cut: what ZooKeeper holds fits together."""

from __future__ import annotations

import uuid
from collections import Counter
from random import Random
from typing import Any

import pytest
from kazoo.client import KazooClient

from dueq.cluster.layout import Layout
from dueq.cluster.znodes import decode_ended, decode_topic, tombstone_uids
from dueq.core.ports.membership import (
    CoordinatorChanged,
    CoordinatorState,
    CreateTopic,
    DeleteTopic,
    Member,
    Topic,
    TopicOrderDone,
    TopicsSeen,
    UpdateTopic,
)
from dueq.core.ports.membership import TopicOrder as Order
from dueq_codecs.topic_settings import TopicSettings

pytestmark = pytest.mark.integration

OWN = (Member("b0", "s0"), Member("b1", "s1"))
NAMES = ("arrivals", "departures")
ORDERS = 120


class Orders:
    """Orders of two topics. Some creations come more than once, at both brokers, and after a deletion."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._ids = {name: [uuid.uuid4().hex for _ in range(3)] for name in NAMES}
        self._token = 0

    def draw(self, topics: dict[str, Topic]) -> Order:
        random = self._random
        self._token += 1
        name, chance = random.choice(NAMES), random.random()
        known = topics.get(name)
        if known is not None and chance < 0.35:
            settings = known.settings.changed({"labels": {"a": str(self._token)}}, uuid.uuid4().hex)
            added = (("b0", "b1"),) * random.choice([0, 3, 40])
            return UpdateTopic(self._token, name, known.creation_id, settings, added, OWN)
        if chance < 0.65:
            creation_id = random.choice([*self._ids[name], uuid.uuid4().hex])
            replicas = (("b0", "b1"),) * random.choice([1, 2, 40])
            return CreateTopic(
                self._token, name, creation_id, "timeline", replicas, OWN, 2, 1, TopicSettings()
            )
        return DeleteTopic(self._token, name)


def known_to(life: Any) -> dict[str, Topic]:
    return next((event.topics for event in reversed(life.events) if isinstance(event, TopicsSeen)), {})


def answered(life: Any, token: int) -> TopicOrderDone:
    return life.wait(TopicOrderDone, lambda done: done.token == token)  # type: ignore[no-any-return]


@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_left_behind_made_twice_or_missing(
    begin_on_zookeeper: Any,
    make_wire: Any,
    by_hand: KazooClient,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    monkeypatch.setattr("dueq.cluster.new_partitions.TRANSACTION_BYTES", 3_000)
    monkeypatch.setattr("dueq.cluster.zookeeper._TOPIC_ORDER_S", 2.0)
    random = Random(seed)
    wires, lives = [make_wire(), make_wire()], []
    for number, wire in enumerate(wires):
        life = begin_on_zookeeper(f"b{number}", store_id=f"s{number}", start=False, session_ms=2_000)
        life.coordinator.address = wire.address
        lives.append(life.start())
    orders, sent = Orders(random), []
    while len(sent) < ORDERS:
        place = random.randrange(2)
        life, wire = lives[place], wires[place]
        if random.random() < 0.1:
            since, there = life.mark(), life.coordinator._state is CoordinatorState.CONNECTED
            wire.cut()
            if there and random.random() < 0.5:
                life.wait(CoordinatorChanged, lambda e: e.state is not CoordinatorState.CONNECTED, since)
            wire.mend()
        order = orders.draw(known_to(life))
        life.coordinator.submit(order)
        sent.append((life, order.token))
        if random.random() < 0.3:
            answered(life, order.token)
    for life, token in sent:
        answered(life, token)
    for life in lives:  # an order of its own ends after those that were given up
        while life.coordinator._topic_orders or life.coordinator._state is not CoordinatorState.CONNECTED:
            life.delete("nothing")
    layout: Layout = lives[0].coordinator._layout
    topics = [
        decode_topic(by_hand.get(layout.topic(name))[0]) for name in by_hand.get_children(layout.topics)
    ]
    named = {part.uid for topic in topics for part in topic.partitions}
    assert {int(uid) for uid in by_hand.get_children(layout.partitions)} == named
    tombstones = [uid for name in by_hand.get_children(layout.tombstones) for uid in tombstone_uids(name)]
    assert named.isdisjoint(tombstones)
    lists = [by_hand.get(f"{layout.ended}/{name}")[0] for name in by_hand.get_children(layout.ended)]
    made = Counter(creation_id for value in lists for creation_id in decode_ended(value))
    made.update(topic.creation_id for topic in topics)
    assert set(made.values()) <= {1}, "one creation makes one topic"
    answers = Counter(e.token for life in lives for e in life.events if isinstance(e, TopicOrderDone))
    assert all(answers[token] == 1 for _, token in sent)
