"""Real processes die under traffic: nothing is lost, nothing is early, nothing comes twice while a lease runs."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import threading
from collections.abc import Iterator
from datetime import timedelta
from multiprocessing.synchronize import Event
from typing import Any

import pytest

from dueq import Client, Filter, Message, Outcome
from dueq.errors import DueqError, SnapshotLost
from dueq.local import LocalMesh
from tests.integration.ledger import PATIENCE_S, Ledger, now_ms
from tests.integration.traffic import Traffic

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def one_mesh() -> Iterator[LocalMesh]:
    with LocalMesh() as found:
        yield found


@pytest.fixture
def mesh(one_mesh: LocalMesh) -> LocalMesh:
    """The module's mesh, whole again whatever the test before has left."""
    if one_mesh.zookeeper is None:
        one_mesh.start_zookeeper()
    for number, broker in enumerate(one_mesh.brokers):
        if not broker.running:
            one_mesh.start_broker(number, wait=False)
    one_mesh.wait_ready()
    return one_mesh


def leader_of(client: Client, topic: str, mesh: LocalMesh, partition: int = 0) -> int:
    """The number of the broker that leads a partition."""
    leader = client.describe(topic).placement[partition].leader
    return next(i for i, broker in enumerate(mesh.brokers) if broker.broker_id == leader)


def degraded(client: Client) -> set[str]:
    """The missing replicas, as each broker that answers names them."""
    try:
        brokers: dict[str, dict[str, Any]] = client.status(timeout=5.0)["brokers"]
    except DueqError:
        return {"no answer"}
    return {str(broker.get("degraded", "no answer")) for broker in brokers.values()}


def test_a_leader_killed_under_traffic_costs_no_message(mesh: LocalMesh, client: Client, topic: str) -> None:
    with Traffic(mesh.endpoints, topic) as traffic:
        traffic.go_on()
        victim = leader_of(client, topic, mesh)
        mesh.kill(victim)
        traffic.go_on(200)
        mesh.start_broker(victim)
        traffic.go_on(200)
        traffic.finish()


def _dues(client: Client, topic: str) -> list[int]:
    """Browse a topic whose leaders may still go back to where they were: the snapshots of the former ones are lost."""
    for _ in range(5):
        with contextlib.suppress(SnapshotLost):
            return [message.due for message in client.browse(topic)]
    pytest.fail("leaders go on changing")


def test_a_shift_reaches_each_message_once_though_two_leaders_are_killed(
    mesh: LocalMesh, client: Client, topic: str
) -> None:
    """With SHIFTED_MESSAGES=1000000 it is the long form."""
    count, hour_ms = int(os.environ.get("SHIFTED_MESSAGES", "20000")), 3_600_000
    patience_s = PATIENCE_S * max(count // 100_000, 1)
    due = now_ms() + 24 * hour_ms
    with client.producer(topic) as producer, client.consumer(topic, lease=600.0, credit=1) as consumer:
        producer.schedule_many(
            [b"bulk"] * count,
            range(due, due + count),
            keys=[f"bulk-{row}" for row in range(count)],
            timeout=patience_s,
        )
        producer.schedule(b"held", now_ms(), key="bulk-held")
        [held] = consumer.receive(1, timeout=PATIENCE_S)
        with Traffic(mesh.endpoints, topic) as traffic:
            traffic.go_on()
            shifted = client.shift_where(
                topic, Filter(key_prefix="bulk-"), by=timedelta(hours=1), name="later"
            )
            for partition in (0, 1):
                victim = leader_of(client, topic, mesh, partition)
                mesh.kill(victim)
                traffic.go_on()
                mesh.start_broker(victim)
            shifted.wait(timeout=patience_s)
            assert (shifted.done, dict(shifted.skipped), shifted.left) == (count, {"leased": 1}, 0)
            traffic.finish()
        held.ack(wait=True)
    assert sorted(_dues(client, topic)) == [due + hour_ms + row for row in range(count)]


def test_a_new_leader_knows_which_slots_of_groups_are_taken(
    mesh: LocalMesh, client: Client, topic: str
) -> None:
    name, slots, each = f"{topic}-fair"[-80:], 2, 8
    client.create_topic(name, kind="fair", replicas=3)
    for group in "ab":
        client.set_group(name, group, max_unacked=slots)
    held: dict[str, list[Message]] = {"a": [], "b": []}
    seen: set[bytes] = set()
    with client.producer(name) as producer, client.consumer(name, credit=50, lease=60.0) as consumer:
        for group in held:
            producer.schedule_many([f"{group}{i}".encode() for i in range(each)], now_ms(), groups=group)

        def take(count: int) -> None:
            for message in [consumer.receive(1, timeout=PATIENCE_S)[0] for _ in range(count)]:
                assert message.payload not in seen
                seen.add(message.payload)
                held[message.group].append(message)
                assert len(held[message.group]) <= slots

        take(2 * slots)
        mesh.kill(leader_of(client, name, mesh))
        while len(seen) < 2 * each:
            for group in held:
                held[group].pop().ack(wait=True, timeout=PATIENCE_S)
            take(2)
        for message in (*held["a"], *held["b"]):
            message.ack(wait=True, timeout=PATIENCE_S)
    assert client.describe(name).placement[0].scheduled == 0


def test_a_follower_killed_under_traffic_costs_no_message(mesh: LocalMesh, client: Client) -> None:
    client.create_topic("led-by-one", partitions=1, replicas=3)
    with Traffic(mesh.endpoints, "led-by-one") as traffic:
        traffic.go_on()
        victim = (leader_of(client, "led-by-one", mesh) + 1) % 3
        mesh.kill(victim)
        traffic.go_on(200)
        mesh.start_broker(victim)
        traffic.go_on()
        traffic.finish()
    client.delete_topic("led-by-one")


def test_zookeeper_killed_under_traffic_is_only_a_word_in_the_status(
    mesh: LocalMesh, client: Client, topic: str
) -> None:
    with Traffic(mesh.endpoints, topic) as traffic:
        traffic.go_on()
        mesh.kill_zookeeper()
        traffic.go_on(200)
        traffic.wait(lambda: degraded(client) == {"zookeeper"})
        mesh.start_zookeeper()
        traffic.wait(lambda: degraded(client) == {""})
        traffic.go_on()
        traffic.finish()
    client.create_topic("made-after-zookeeper", partitions=1, replicas=3)
    client.delete_topic("made-after-zookeeper")


def test_all_brokers_killed_under_traffic_cost_no_message(
    mesh: LocalMesh, client: Client, topic: str
) -> None:
    with Traffic(mesh.endpoints, topic) as traffic:
        traffic.go_on()
        for number in range(3):
            mesh.kill(number)
        for number in range(3):
            mesh.start_broker(number, wait=False)
        mesh.wait_ready()
        traffic.go_on(200)
        traffic.finish()


def test_what_was_moved_and_cancelled_before_all_brokers_died_stays_so(
    mesh: LocalMesh, client: Client, topic: str
) -> None:
    ledger = Ledger()
    with client.producer(topic) as producer:
        due = now_ms() + 6_000
        ids = ledger.schedule(producer, [b"%d" % number for number in range(2_000)], due)
        ledger.move(producer, ids[:500], due - 5_900)
        assert ledger.cancel(producer, ids[500:600]) == [Outcome.DONE] * 100
    for number in range(3):
        mesh.kill(number)
    for number in range(3):
        mesh.start_broker(number, wait=False)
    mesh.wait_ready()
    with client.consumer(topic, lease=60.0, credit=1_000) as consumer:
        ledger.collect(consumer)
    ledger.check()


def _hold_and_hang(endpoints: list[str], topic: str, holding: Event) -> None:
    """A consumer process that takes messages and never acknowledges."""
    with Client(endpoints) as client, client.consumer(topic, lease=2.0, credit=50) as consumer:
        held: list[Message] = []
        while len(held) < 20:
            held.extend(consumer.receive(20, timeout=1.0))
        holding.set()
        threading.Event().wait(60)


def test_what_a_killed_consumer_held_comes_again_when_its_leases_have_run_out(
    mesh: LocalMesh, client: Client, topic: str
) -> None:
    spawn = multiprocessing.get_context("spawn")
    ledger = Ledger()
    with client.producer(topic) as producer:
        ledger.schedule(producer, [b"%d" % number for number in range(20)], now_ms())
    holding = spawn.Event()
    child = spawn.Process(target=_hold_and_hang, args=(mesh.endpoints, topic, holding))
    child.start()
    try:
        assert holding.wait(PATIENCE_S)
    finally:
        child.kill()
        child.join(PATIENCE_S)
        child.close()
    with client.consumer(topic, lease=30.0, credit=50) as consumer:
        ledger.collect(consumer)
    ledger.check()
    # 3 where the leader had leased it to the dead once more before it knew.
    attempts = [entry.deliveries[0].attempt for entry in ledger.entries.values()]
    assert set(attempts) <= {2, 3}


def test_a_thousand_cancels_racing_with_delivery_agree_with_what_was_delivered(
    mesh: LocalMesh, client: Client, topic: str
) -> None:
    ledger = Ledger()
    answers: dict[str, Outcome] = {}
    with client.producer(topic) as producer, client.consumer(topic, lease=60.0, credit=300) as consumer:
        start = now_ms() + 500
        ids = ledger.schedule(
            producer, [b"%d" % number for number in range(1_000)], [start + number for number in range(1_000)]
        )

        def cancel() -> None:
            for key in ids:
                (answers[key],) = ledger.cancel(producer, [key])

        racer = threading.Thread(target=cancel)
        racer.start()
        while racer.is_alive():
            ledger.ack(consumer, ledger.receive(consumer, 200, timeout=0.2))
        racer.join(PATIENCE_S)
        ledger.collect(consumer)
    ledger.check()
    delivered = {key for key, entry in ledger.entries.items() if entry.deliveries}
    assert delivered == {key for key, answer in answers.items() if answer is not Outcome.DONE}
    assert set(answers.values()) <= {Outcome.DONE, Outcome.LEASED, Outcome.NOT_FOUND}
