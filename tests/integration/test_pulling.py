"""Messages that are taken without a consumer, from a real mesh: leases that outlive clients and leaders."""

from __future__ import annotations

import asyncio
import threading

import pytest

from dueq import AsyncClient, Client, InvalidRequest, Outcome, StaleLease
from dueq.local import LocalMesh
from tests.integration.ledger import now_ms

pytestmark = pytest.mark.integration


def test_what_is_pulled_outlives_its_client_and_is_settled_by_token(
    mesh: LocalMesh, client: Client, topic: str
) -> None:
    with client.producer(topic) as producer:
        ids = producer.schedule_many([b"1", b"2", b"3"], now_ms())
    with Client(mesh.endpoints[0]) as puller:
        first = puller.pull(topic, 2, 10, 60)
        assert len(first) in (1, 2)
        pulled = {message.id: message for message in first}
        while len(pulled) < 3:
            pulled |= {message.id: message for message in puller.pull(topic, 3 - len(pulled), 10, 60)}
    assert sorted(pulled) == sorted(ids)
    assert [message.attempt for message in pulled.values()] == [1, 1, 1]
    assert client.pull(topic) == []
    leases = [(message.id, message.token) for message in pulled.values()]
    with Client(mesh.endpoints[-1]) as other:
        assert other.settle(topic, leases[:1], "ack") == [Outcome.DONE]
        assert other.settle(topic, leases[:1], "ack") == [Outcome.STALE]
        assert other.settle(topic, leases[1:2], "extend", seconds=5) == [Outcome.DONE]
        assert other.settle(topic, leases[1:2], "release") == [Outcome.DONE]
        (again,) = other.pull(topic, wait=10)
        assert (again.id, again.attempt) == (leases[1][0], 1)
        again.ack()
        assert other.settle(topic, leases[2:], "extend", seconds=0) == [Outcome.DONE]
        (counted,) = other.pull(topic, wait=10)
        assert (counted.id, counted.attempt) == (leases[2][0], 2)
        counted.nack()
        (last,) = other.pull(topic, wait=10)
        with pytest.raises(StaleLease):
            counted.ack()
        last.ack()


def test_a_pull_waits_for_a_message(client: Client, topic: str) -> None:
    found: list[bytes] = []
    waiting = threading.Thread(
        target=lambda: found.extend(message.payload for message in client.pull(topic, wait=30))
    )
    waiting.start()
    with client.producer(topic) as producer:
        producer.schedule(b"late", now_ms() + 700)
    waiting.join()
    assert found == [b"late"]


def test_a_name_gets_back_what_its_earlier_life_had(mesh: LocalMesh, client: Client, topic: str) -> None:
    with client.producer(topic) as producer:
        producer.schedule(b"1", now_ms())
        producer.schedule(b"x" * 600_000, now_ms())
    had = []
    with Client(mesh.endpoints[0]) as puller:
        while len(had) < 2:
            had += puller.pull(
                topic, 5, 10, 60, consumer="worker", held=[(message.id, message.token) for message in had]
            )
    back = client.pull(topic, 5, 10, 60, consumer="worker", held=[(had[0].id, had[0].token)])
    assert [(message.id, message.payload) for message in back] == [(had[1].id, had[1].payload)]
    leases = [(message.id, message.token) for message in had]
    assert client.settle(topic, leases, "release") == [Outcome.DONE, Outcome.STALE]
    assert client.settle(topic, [(back[0].id, back[0].token)], "ack") == [Outcome.DONE]


def test_killed_brokers_take_no_detached_lease_along(mesh: LocalMesh, client: Client, topic: str) -> None:
    with client.producer(topic) as producer:
        producer.schedule(b"1", now_ms())
    (message,) = client.pull(topic, 1, 10, 60)
    for broker in range(len(mesh.pids)):
        mesh.kill(broker)
        mesh.start_broker(broker)
    assert client.pull(topic, wait=12, timeout=60) == []  # longer than a consumer's session
    assert client.settle(topic, [(message.id, message.token)], "ack", timeout=60) == [Outcome.DONE]


def test_both_faces(mesh: LocalMesh, client: Client, topic: str) -> None:
    async def run() -> None:
        async with AsyncClient(mesh.endpoints) as asynchronous:
            async with asynchronous.producer(topic) as producer:
                await producer.schedule(b"1", now_ms())
            (message,) = await asynchronous.pull(topic, wait=10)
            await message.extend(30)
            await message.ack(wait=True)

    asyncio.run(run())


def test_bad_input_is_named(client: Client, topic: str) -> None:
    with pytest.raises(InvalidRequest, match="1000"):
        client.pull(topic, 1_001)
    with pytest.raises(InvalidRequest, match="not 'eat'"):
        client.settle(topic, [], "eat")
    with pytest.raises(InvalidRequest, match="pair of id and token"):
        client.settle(topic, ["abc"], "ack")  # type: ignore[list-item]


def test_what_is_acked_on_receipt_never_comes_again(client: Client, topic: str) -> None:
    with client.producer(topic) as producer:
        producer.schedule(b"1", now_ms())
    with client.consumer(topic, ack="on_receipt") as consumer:
        (message,) = consumer.receive(timeout=10)
        assert client.settle(topic, [(message.id, message.token)], "nack") == [Outcome.STALE]
    assert client.pull(topic) == []
    with pytest.raises(InvalidRequest, match="manual, on_receipt, not 'never'"):
        client.consumer(topic, ack="never")


def test_pulls_find_what_each_leader_has(client: Client, topic: str) -> None:
    with client.producer(topic) as producer:
        ids = set(producer.schedule_many([b"x"] * 60, now_ms()))
    leaders = {part.leader for part in client.describe(topic).placement}
    assert len(leaders) > 1
    while ids:
        pulled = client.pull(topic, 25, 30)
        assert pulled
        for message in pulled:
            ids.remove(message.id)
        assert set(client.settle(topic, [(message.id, message.token) for message in pulled], "ack")) == {
            Outcome.DONE
        }
    assert client.pull(topic) == []
