"""Meshes whose brokers write nothing: what survives a broker's end, what does not, and a memory that is full."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dueq import Client, Message
from dueq.errors import DiskFull, NotLeader, TopicNotFound
from dueq.local import LocalMesh
from tests.integration.ledger import PATIENCE_S, now_ms
from tests.integration.traffic import Traffic
from tests.integration.waiting import until

pytestmark = pytest.mark.integration


def in_sync(client: Client, topic: str) -> set[frozenset[str]]:
    """The ISR of each partition."""
    return {frozenset(part.isr) for part in client.describe(topic).placement}


def receive(client: Client, topic: str, count: int) -> list[Message]:
    found: list[Message] = []
    deadline = time.monotonic() + PATIENCE_S
    with client.consumer(topic, lease=30.0, credit=256) as consumer:
        while len(found) < count and time.monotonic() < deadline:
            batch = consumer.receive(count, timeout=1.0)
            if batch:
                consumer.ack(batch)
            found.extend(batch)
    return found


@pytest.fixture(scope="module")
def mesh() -> Iterator[LocalMesh]:
    """Three brokers whose stores are in memory; the tests kill them, and leave them up."""
    with LocalMesh(store="memory") as found:
        yield found


def test_brokers_that_die_in_turn_come_back_as_strangers_and_nothing_is_lost(mesh: LocalMesh) -> None:
    with Client(mesh.endpoints, timeout=PATIENCE_S) as client:
        everybody = {frozenset(broker.broker_id for broker in mesh.brokers)}
        client.create_topic("busy", partitions=3, replicas=3)
        client.create_topic("later", partitions=3, replicas=3)
        payloads = [b"%d" % number * 50 for number in range(2_000)]
        with client.producer("later") as producer:
            ids = producer.schedule_many(payloads, [now_ms() + 86_400_000] * len(payloads))
        with Traffic(mesh.endpoints, "busy") as traffic:
            for number in range(3):
                traffic.go_on()
                mesh.kill(number)
                traffic.go_on()
                mesh.start_broker(number)
                for topic in ("busy", "later"):
                    until(
                        lambda topic=topic: in_sync(client, topic) == everybody, f"three in sync of {topic}"
                    )  # type: ignore[misc]
            traffic.go_on()
            traffic.finish()
        assert client.describe("later").scheduled == len(payloads)
        with client.producer("later") as producer:
            producer.move_many(ids, [now_ms() + 500] * len(ids))
        assert sorted(message.payload for message in receive(client, "later", len(ids))) == sorted(payloads)
        for broker in mesh.brokers:
            assert not broker.data.exists()
        for topic in ("busy", "later"):
            client.delete_topic(topic)


def test_when_all_have_ended_nothing_is_left_and_the_topic_says_so(mesh: LocalMesh) -> None:
    with Client(mesh.endpoints, timeout=PATIENCE_S) as client:
        client.create_topic("t", partitions=1, replicas=3)
        with client.producer("t") as producer:
            producer.schedule(b"x", now_ms() + 600_000)
        for number in range(3):
            mesh.kill(number)
        for number in range(3):
            mesh.start_broker(number, wait=False)
        mesh.wait_ready()
        assert not client.describe("t").placement[0].serving
        with client.producer("t") as producer, pytest.raises(NotLeader):
            producer.schedule(b"x", now_ms(), timeout=1)
        client.delete_topic("t")
        client.create_topic("t", partitions=1, replicas=3)
        with client.producer("t") as producer:
            producer.schedule(b"new", now_ms())
        assert [message.payload for message in receive(client, "t", 1)] == [b"new"]


def test_a_single_broker_begins_anew_and_leaves_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "mesh"
    with LocalMesh(folder, brokers=1, zookeeper=False, store="memory") as mesh:
        with Client(mesh.endpoints, timeout=PATIENCE_S) as client:
            client.create_topic("t", partitions=2, replicas=1)
            with client.producer("t") as producer:
                producer.schedule(b"x", now_ms() + 600_000)
        mesh.stop_broker(0)
        mesh.start_broker(0)
        # It is another mesh now: a client of the old one would be refused.
        with Client(mesh.endpoints, timeout=PATIENCE_S) as client, pytest.raises(TopicNotFound):
            client.describe("t")
        assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == [
            "b1.log", "mesh.json", "mesh.lock",
        ]  # fmt: skip


def test_a_full_memory_refuses_inserts_takes_acks_and_takes_inserts_again() -> None:
    small = ["--store-memory-bytes", str(32 << 20)]
    with (
        LocalMesh(brokers=1, zookeeper=False, arguments=small, store="memory") as mesh,
        Client(mesh.endpoints, timeout=PATIENCE_S) as client,
    ):
        client.create_topic("t", partitions=1, replicas=1)
        with client.producer("t") as producer:
            later = producer.schedule(b"y", now_ms() + 600_000)
            keys = []
            refused: DiskFull | None = None
            while refused is None and len(keys) < 300:
                chunk = random.Random(len(keys)).randbytes(1 << 18)
                try:
                    keys.append(producer.schedule(chunk, now_ms() + 1_000, timeout=3))
                except DiskFull as error:
                    refused = error
            assert "memory store is nearly full" in str(refused)
            producer.cancel(later)
            assert {message.id for message in receive(client, "t", len(keys))} == set(keys)
            producer.schedule(b"there is room again", now_ms())
        assert mesh.brokers[0].running
