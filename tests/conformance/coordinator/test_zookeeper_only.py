"""What a real ZooKeeper can do to a broker: other brokers, lost connections, lost sessions, lost servers."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl

from dueq.cluster.coordinator import BrokerIdTaken, CoordinatorUnavailable
from dueq.cluster.requests import Procedure, Send
from dueq.cluster.server import ZooKeeperServer
from dueq.cluster.topic_orders import TopicOrder
from dueq.cluster.znodes import encode_registration
from dueq.core.ports.membership import (
    ConfirmDeleted,
    CoordinatorChanged,
    CoordinatorState,
    CreateTopic,
    Member,
    NodeSeen,
    RegistrationsSeen,
    SetOutcome,
    TopicOrderDone,
    UpdateTopic,
)
from dueq_codecs.records import FEATURE_LEVEL
from dueq_codecs.topic_settings import TopicSettings

pytestmark = pytest.mark.integration

LONG_MS = 40_000
"""A session that does not end by itself while a test runs."""


def states(life: Any) -> list[CoordinatorState]:
    return [event.state for event in life.events if isinstance(event, CoordinatorChanged)]


def connected(life: Any, since: int) -> None:
    life.wait(CoordinatorChanged, lambda event: event.state is CoordinatorState.CONNECTED, since)


def answer_of(send: Send) -> Any:
    """Make one request; returns its value, or its error."""
    try:
        return send().get()
    except KazooException as error:
        return error


def finished(procedure: Procedure, sends: Sequence[Send]) -> Any:
    """Make these requests of a procedure and all that follow; returns its result."""
    while True:
        try:
            sends = procedure.send([answer_of(send) for send in sends])
        except StopIteration as stop:
            return stop.value


def through(life: Any, wire: Any) -> Any:
    """Let a life that has not begun yet reach ZooKeeper by a wire."""
    life.coordinator.address = wire.address
    return life


# ---------------------------------------------------------------- several brokers


def test_brokers_see_each_other_come_and_go_at_once(begin_on_zookeeper: Any) -> None:
    begin = begin_on_zookeeper
    first = begin("b1", session_ms=LONG_MS)
    second = begin("b2", store_id="s2", session_ms=LONG_MS)
    both = {"b1": first.registration, "b2": second.registration}
    assert first.coordinator.cluster_id == second.coordinator.cluster_id
    for life in (first, second):
        life.wait(RegistrationsSeen, lambda seen: seen.registrations == both)
    since = first.mark()
    second.coordinator.stop()
    first.wait(RegistrationsSeen, lambda seen: seen.registrations.keys() == {"b1"}, since)


def test_a_change_by_another_broker_is_seen(begin_on_zookeeper: Any) -> None:
    begin = begin_on_zookeeper
    first, second = begin("b1"), begin("b2", store_id="s2")
    topic = first.create("departures").topic
    second.topics(lambda seen: seen.topics == {"departures": topic})
    uid = topic.partitions[0].uid
    for epoch in range(1, 4):
        done = first.set(uid, first.read(uid).version, first.node(epoch))
        second.wait(NodeSeen, lambda seen, done=done: seen.uid == uid and seen.version == done.version)
    since = second.mark()
    assert first.delete("departures").error == ""
    second.topics(lambda seen: not seen.topics and uid in seen.tombstones, since)


def test_two_brokers_that_create_topics_at_once_share_no_uid(begin_on_zookeeper: Any) -> None:
    lives = [begin_on_zookeeper(f"b{i}", store_id=f"s{i}") for i in range(3)]
    dones: list[TopicOrderDone] = []

    def create(life: Any) -> None:
        dones.extend(life.create(f"{life.registration.broker_id}-{n}") for n in range(10))

    threads = [threading.Thread(target=create, args=(life,)) for life in lives]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [done.error for done in dones] == [""] * 30
    assert len({part.uid for done in dones for part in done.topic.partitions}) == 60


def test_a_change_that_is_held_up_before_it_is_written_leaves_a_topic_alone_that_was_made_since(
    begin_on_zookeeper: Any, by_hand: KazooClient
) -> None:
    """The node of the topic made again has the version that the broker read of the one before."""
    life = begin_on_zookeeper("b1")
    before = life.create("departures").topic
    settings = before.settings.changed({"paused": True}, "a" * 32)
    order = UpdateTopic(1, "departures", before.creation_id, settings)
    procedure = TopicOrder(order, 0).attempt(by_hand, life.coordinator._layout)
    read_uid = procedure.send([send().get() for send in next(procedure)])
    write = procedure.send([send().get() for send in read_uid])
    assert life.delete("departures").error == ""
    created = life.create("departures").topic
    assert finished(procedure, write) == TopicOrderDone(1, "", topic=created)


@pytest.mark.parametrize(("partitions", "steps"), [(1, 3), (300, 3), (300, 4), (300, 5)])
def test_a_creation_that_is_held_up_makes_no_topic_that_was_created_and_deleted_meanwhile(
    begin_on_zookeeper: Any,
    by_hand: KazooClient,
    monkeypatch: pytest.MonkeyPatch,
    partitions: int,
    steps: int,
) -> None:
    """Its client has repeated it at another broker, and has deleted the topic. A large topic takes several steps."""
    monkeypatch.setattr("dueq.cluster.new_partitions.TRANSACTION_BYTES", 50_000)
    life = begin_on_zookeeper("b1")
    replicas = (("b1",),) * partitions
    order = CreateTopic(
        1, "departures", "d" * 32, "timeline", replicas, (Member("b1", "s1"),), 1, 1, TopicSettings()
    )
    procedure = TopicOrder(order, 0).attempt(by_hand, life.coordinator._layout)
    held_up = next(procedure)
    for _ in range(steps):
        held_up = procedure.send([answer_of(send) for send in held_up])
    assert life.create("departures", partitions, creation_id="d" * 32).error == ""
    assert life.delete("departures").error == ""
    done = finished(procedure, held_up)
    assert (done.error, done.topic) == ("not_found", None)
    assert life.delete("departures").error == "not_found"


def test_a_topic_that_a_broker_may_not_read_hides_no_other(
    begin_on_zookeeper: Any, by_hand: KazooClient
) -> None:
    life = begin_on_zookeeper("b1")
    path = life.coordinator._layout.topic("arrivals")
    life.create("arrivals")
    by_hand.set_acls(path, [make_digest_acl("somebody", "else", all=True)])
    life.create("departures")
    other = begin_on_zookeeper("b2", store_id="s2")
    other.topics(lambda seen: seen.topics.keys() == {"departures"})
    by_hand.add_auth("digest", "somebody:else")
    by_hand.set_acls(path, OPEN_ACL_UNSAFE)
    other.topics(lambda seen: seen.topics.keys() == {"arrivals", "departures"})


# ---------------------------------------------------------------- one broker, several lives


def test_the_next_life_of_a_store_replaces_the_registration_at_once(begin_on_zookeeper: Any) -> None:
    begin = begin_on_zookeeper
    witness = begin("b2", store_id="s2")
    first = begin("b1", incarnation=1, session_ms=LONG_MS)
    witness.wait(RegistrationsSeen, lambda seen: seen.registrations.get("b1") == first.registration)
    since = witness.mark()
    second = begin("b1", incarnation=2, session_ms=LONG_MS)
    witness.wait(RegistrationsSeen, lambda seen: seen.registrations.get("b1") == second.registration, since)
    gaps = [
        e for e in witness.events[since:] if isinstance(e, RegistrationsSeen) and "b1" not in e.registrations
    ]
    assert gaps == []


def test_what_a_broker_announced_last_is_known_when_it_is_away(begin_on_zookeeper: Any) -> None:
    """By those too that were not there when it was."""
    begin = begin_on_zookeeper
    first = begin("b1")
    first.coordinator.stop()
    second = begin("b2", store_id="s2")
    second.wait(
        RegistrationsSeen,
        lambda seen: (
            "b1" not in seen.registrations and seen.levels == {"b1": FEATURE_LEVEL, "b2": FEATURE_LEVEL}
        ),
    )


def test_a_life_that_was_replaced_gives_in(begin_on_zookeeper: Any) -> None:
    begin = begin_on_zookeeper
    first = begin("b1", incarnation=1)
    uid = first.create("departures").topic.partitions[0].uid
    second = begin("b1", incarnation=2)
    first.wait(CoordinatorChanged, lambda event: event.state is CoordinatorState.LOST)
    assert first.set(uid, 0, first.node(1)).outcome is SetOutcome.REFUSED
    assert second.set(uid, 0, second.node(1)).outcome is SetOutcome.DONE


def test_another_store_under_a_living_brokers_id_is_refused_with_both_names(begin_on_zookeeper: Any) -> None:
    begin = begin_on_zookeeper
    begin("b1", store_id="s1")
    other = begin("b1", store_id="s9", start=False, start_timeout_s=1.5)
    with pytest.raises(BrokerIdTaken, match=r"'b1' is taken .* tcp://b1:7400 .* s1; this one has s9"):
        other.start()


def test_another_store_gets_the_id_when_its_holder_has_gone(begin_on_zookeeper: Any) -> None:
    begin = begin_on_zookeeper
    first = begin("b1", store_id="s1", session_ms=LONG_MS)
    second = begin("b1", store_id="s9", start=False)
    starting = threading.Thread(target=second.start)
    starting.start()
    first.coordinator.stop()
    second.wait(RegistrationsSeen, lambda seen: seen.registrations == {"b1": second.registration})
    starting.join()


def test_a_registration_that_somebody_deletes_is_put_back(
    begin_on_zookeeper: Any, by_hand: KazooClient
) -> None:
    life = begin_on_zookeeper("b1")
    life.wait(RegistrationsSeen, lambda seen: "b1" in seen.registrations)
    since = life.mark()
    by_hand.delete(life.coordinator._layout.broker("b1"))
    life.wait(RegistrationsSeen, lambda seen: not seen.registrations, since)
    life.wait(RegistrationsSeen, lambda seen: "b1" in seen.registrations, since)
    assert states(life) == [CoordinatorState.CONNECTED]


@pytest.mark.parametrize("path", ["topics/x", "brokers/x", "levels/x", "tombstones/9-9", "partitions/1"])
def test_a_node_that_somebody_makes_without_a_value_costs_only_what_it_describes(
    begin_on_zookeeper: Any, by_hand: KazooClient, path: str
) -> None:
    """Every broker of the cluster lost the coordinator each second, as long as there was such a node."""
    life = begin_on_zookeeper("b1")
    assert life.create("t").topic.uid == 1
    root = life.coordinator._layout.root
    by_hand.ensure_path(f"{root}/{path}")
    by_hand.set(f"{root}/{path}", None)
    since = life.mark()
    begin_on_zookeeper("b2", store_id="s2")
    life.wait(RegistrationsSeen, lambda seen: "b2" in seen.registrations, since)
    life.create("after")
    life.topics(lambda seen: {"t", "after"} <= seen.topics.keys(), since)
    assert states(life) == [CoordinatorState.CONNECTED]


def test_a_broker_whose_id_another_one_has_taken_comes_back_when_that_has_gone(
    begin_on_zookeeper: Any, by_hand: KazooClient
) -> None:
    """The other one took it while this one's registration was missing, and this one gave in for good."""
    life = begin_on_zookeeper("b1", store_id="s1")
    life.wait(RegistrationsSeen, lambda seen: "b1" in seen.registrations)
    path = life.coordinator._layout.broker("b1")
    other = replace(life.registration, store_id="s9", incarnation=9)
    exchange = by_hand.transaction()
    exchange.delete(path)
    exchange.create(path, encode_registration(other), ephemeral=True)
    exchange.commit()
    life.wait(CoordinatorChanged, lambda event: event.state is CoordinatorState.LOST)
    since = life.mark()
    by_hand.delete(path)
    connected(life, since)
    life.wait(RegistrationsSeen, lambda seen: seen.registrations == {"b1": life.registration}, since)


# ---------------------------------------------------------------- a lost connection


def test_what_changed_while_the_connection_was_away_is_seen_after_it(
    begin_on_zookeeper: Any, wire: Any
) -> None:
    begin = begin_on_zookeeper
    other = begin("b2", store_id="s2")
    old = other.create("departures").topic
    uid = old.partitions[0].uid
    life = through(begin("b1", start=False, session_ms=LONG_MS), wire).start()
    life.wait(NodeSeen, lambda seen: seen.uid == uid)
    wire.cut()
    life.wait(CoordinatorChanged, lambda event: event.state is CoordinatorState.SUSPENDED)
    new = other.create("arrivals").topic
    done = other.set(uid, other.read(uid).version, other.node(epoch=1))
    since = life.mark()
    wire.mend()
    connected(life, since)
    life.topics(lambda seen: seen.topics == {"departures": old, "arrivals": new}, since)
    life.wait(NodeSeen, lambda seen: seen == NodeSeen(uid, done.version, other.node(epoch=1)), since)
    assert CoordinatorState.LOST not in states(life)


def test_a_server_that_takes_a_connection_and_says_nothing_does_not_cost_the_session(
    begin_on_zookeeper: Any, wire: Any
) -> None:
    life = through(begin_on_zookeeper("b1", start=False, session_ms=9000), wire).start()
    since = life.mark()
    wire.cut()
    wire.mute()
    assert wire.taken_mute.wait(20)
    wire.mend()
    connected(life, since)
    assert CoordinatorState.LOST not in states(life)


def test_a_name_that_cannot_be_looked_up_for_a_while_does_not_cost_the_connection_for_good(
    begin_on_zookeeper: Any, wire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kazoo's thread ended. The broker went on without ZooKeeper for the rest of its life, and nobody saw it."""
    refused = threading.Event()

    def refuse(*_: object) -> None:
        refused.set()
        raise OSError(errno.EMFILE, "Too many open files")

    life = through(begin_on_zookeeper("b1", start=False, session_ms=LONG_MS), wire).start()
    since = life.mark()
    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", refuse)
        wire.cut()
        assert refused.wait(20)
    wire.mend()
    connected(life, since)
    assert CoordinatorState.LOST not in states(life)


def test_a_lost_session_registers_again_as_the_same_life(begin_on_zookeeper: Any, wire: Any) -> None:
    begin = begin_on_zookeeper
    witness = begin("b2", store_id="s2")
    life = through(begin("b1", start=False, session_ms=1000), wire).start()
    witness.wait(RegistrationsSeen, lambda seen: "b1" in seen.registrations)
    since, own = witness.mark(), life.mark()
    wire.cut()
    witness.wait(RegistrationsSeen, lambda seen: "b1" not in seen.registrations, since)
    assert life.set(1, 0, life.node(1)).outcome is SetOutcome.REFUSED
    wire.mend()
    connected(life, own)
    witness.wait(RegistrationsSeen, lambda seen: seen.registrations.get("b1") == life.registration, since)
    assert states(life) == [
        CoordinatorState.CONNECTED, CoordinatorState.SUSPENDED, CoordinatorState.LOST, CoordinatorState.CONNECTED,
    ]  # fmt: skip


def test_a_topic_ordered_while_the_connection_is_away_is_created_after_it(
    begin_on_zookeeper: Any, wire: Any
) -> None:
    life = through(begin_on_zookeeper("b1", start=False, session_ms=LONG_MS), wire).start()
    wire.cut()
    life.wait(CoordinatorChanged, lambda event: event.state is CoordinatorState.SUSPENDED)
    own = Member("b1", "s1")
    order = CreateTopic(-5, "departures", "c" * 32, "timeline", (("b1",),), (own,), 1, 1, TopicSettings())
    life.coordinator.submit(order)
    wire.mend()
    assert life.wait(TopicOrderDone, lambda done: done.token == -5).error == ""


# ---------------------------------------------------------------- a lost server


def test_a_killed_server_suspends_and_its_restart_brings_everything_back(
    server: ZooKeeperServer, begin_on_zookeeper: Any
) -> None:
    begin = begin_on_zookeeper
    lives = [begin("b1", session_ms=LONG_MS), begin("b2", store_id="s2", session_ms=LONG_MS)]
    topic = lives[0].create("departures").topic
    uid = topic.partitions[0].uid
    lives[0].set(uid, 0, lives[0].node(epoch=1))
    marks = [life.mark() for life in lives]
    server.kill()
    for life, since in zip(lives, marks, strict=True):
        life.wait(CoordinatorChanged, lambda event: event.state is CoordinatorState.SUSPENDED, since)
        assert life.set(uid, 1, life.node(epoch=2)).outcome is SetOutcome.REFUSED
    server.start()
    both = {life.registration.broker_id: life.registration for life in lives}
    for life, since in zip(lives, marks, strict=True):
        connected(life, since)
        life.wait(RegistrationsSeen, lambda seen: seen.registrations == both, since)
        life.topics(lambda seen: seen.topics == {"departures": topic}, since)
        life.wait(NodeSeen, lambda seen: seen == NodeSeen(uid, 1, lives[0].node(epoch=1)), since)
        assert CoordinatorState.LOST not in states(life)
    done = lives[1].set(uid, 1, lives[1].node(epoch=2))
    assert done.outcome is SetOutcome.DONE
    lives[0].wait(NodeSeen, lambda seen: seen.uid == uid and seen.version == done.version)


def test_a_compare_and_set_that_was_under_way_when_the_server_died_has_an_unknown_outcome(
    server: ZooKeeperServer, begin_on_zookeeper: Any
) -> None:
    life = begin_on_zookeeper("b1")
    uid = life.create("departures").topic.partitions[0].uid
    life.read(uid)
    since = life.mark()
    server.pause()
    token = life.send_set(uid, 0, life.node(epoch=1))
    server.kill()
    assert life.set_done(token).outcome is SetOutcome.UNKNOWN
    server.start()
    connected(life, since)
    seen = life.read(uid)
    assert seen in (NodeSeen(uid, 1, life.node(epoch=1)), NodeSeen(uid, 0, life.wait(NodeSeen).node))
    assert life.set(uid, seen.version, life.node(epoch=2)).outcome is SetOutcome.DONE


def test_a_stop_is_quick_when_the_server_hangs(server: ZooKeeperServer, begin_on_zookeeper: Any) -> None:
    life = begin_on_zookeeper("b1")
    server.pause()
    try:
        stopping = threading.Thread(target=life.coordinator.stop)
        stopping.start()
        stopping.join(10)
        assert not stopping.is_alive()
    finally:
        server.resume()


def test_nobody_at_the_address_is_said_with_the_address(begin_on_zookeeper: Any) -> None:
    life = begin_on_zookeeper("b1", start=False, start_timeout_s=0.5)
    life.coordinator.address = "127.0.0.1:1"
    with pytest.raises(CoordinatorUnavailable, match=r"127\.0\.0\.1:1 did not .* within 0\.5 s: .* refused"):
        life.start()


def test_a_name_that_nobody_knows_is_said(begin_on_zookeeper: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was said that ZooKeeper did not answer."""

    def refuse(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    life = begin_on_zookeeper("b1", start=False, start_timeout_s=0.5)
    life.coordinator.address = "zk1.example:2181"
    with pytest.raises(CoordinatorUnavailable, match=r"Cannot resolve zk1\.example: .* not known"):
        life.start()


# ---------------------------------------------------------------- size


def test_a_tombstone_stays_until_all_that_had_a_replica_have_confirmed(
    begin_on_zookeeper: Any,
) -> None:
    lives = [
        begin_on_zookeeper(name, number, f"s{number}") for number, name in enumerate(("b1", "b2", "b3"), 1)
    ]
    members = tuple(Member(life.registration.broker_id, life.registration.store_id) for life in lives)
    made = lives[0].create(
        "departures", replicas_of=(("b1", "b2"), ("b2", "b1")), members=members, replicas=2
    )
    uids = tuple(part.uid for part in made.topic.partitions)
    lives[0].delete("departures")
    for life in lives:
        life.topics(lambda seen: seen.tombstones == set(uids))
    lives[2].coordinator.submit(ConfirmDeleted(uids))
    lives[0].coordinator.submit(ConfirmDeleted(uids[:1]))
    lives[0].coordinator.submit(ConfirmDeleted(uids))
    for life in (lives[0], lives[2]):
        for _ in range(4):
            life.read(uids[0])  # answered in order, so what was ordered before has ended
    late = begin_on_zookeeper("b4", 4, "s4")
    assert late.topics(lambda seen: True).tombstones == set(uids)
    since = late.mark()
    lives[1].coordinator.submit(ConfirmDeleted(uids))
    late.topics(lambda seen: not seen.tombstones, since)


def test_the_largest_topic_fits(begin_on_zookeeper: Any) -> None:
    brokers = [f"broker-{i}" for i in range(3)]
    done = begin_on_zookeeper("b1").create(
        "departures",
        replicas_of=(tuple(brokers),) * 1024,
        members=tuple(Member(name, "0" * 32) for name in brokers),
        replicas=3,
    )
    assert done.error == ""
    assert len(done.topic.partitions) == 1024


def test_a_topic_too_large_for_one_transaction_is_whole_when_it_is_seen(begin_on_zookeeper: Any) -> None:
    brokers = [f"{i}{'x' * 80}" for i in range(5)]
    life = begin_on_zookeeper("b1")
    done = life.create(
        "departures",
        replicas_of=(tuple(brokers),) * 1024,
        members=tuple(Member(name, "0" * 32) for name in brokers),
        replicas=5,
    )
    assert done.error == ""
    for part in done.topic.partitions:
        assert life.wait(NodeSeen, lambda seen, uid=part.uid: seen.uid == uid).node is not None
    assert life.delete("departures").error == ""
    assert life.create("arrivals").topic.partitions[0].uid == done.topic.partitions[-1].uid + 1
