"""Consumers with a name: a process that comes back gets its leases back, and of two the later one wins."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from dueq import AsyncMessage, Client, ClientClosed, InvalidRequest, Message, Outcome, Superseded
from dueq.testing import Mesh, amesh, mesh

START = datetime(2026, 3, 28, 12, tzinfo=UTC)


@pytest.fixture
def dueq_mesh() -> Iterator[Mesh]:
    with mesh(START) as found:
        found.client().create_topic("t")
        yield found


def crash(client: Client) -> None:
    """End a process without any goodbye."""
    client.connection.live().stop()


def test_a_process_that_comes_back_gets_what_it_had(dueq_mesh: Mesh) -> None:
    older, newer = dueq_mesh.client(), dueq_mesh.client()
    newer.producer("t").schedule_many([b"a", b"b"], 0)
    with older.consumer("t", name="worker-3") as consumer:
        messages = consumer.receive(timeout=5)
        leases = [(message.id, message.token) for message in messages]
        assert len(leases) == 2
        crash(older)
    with newer.consumer("t", name="worker-3") as consumer:
        before = dueq_mesh.now
        again = consumer.receive(timeout=5)
        assert dueq_mesh.now - before < timedelta(seconds=2)  # its session would last for ten
        assert [(message.payload, message.attempt) for message in again] == [(b"a", 2), (b"b", 2)]
        assert newer.settle("t", leases, "ack") == [Outcome.STALE] * 2  # as the older one would
        consumer.ack(again)
    assert newer.describe("t").leased == 0


def test_another_name_waits_for_the_end_of_the_session(dueq_mesh: Mesh) -> None:
    older, newer = dueq_mesh.client(), dueq_mesh.client()
    newer.producer("t").schedule(b"a", 0)
    older.consumer("t", name="worker-3").receive(timeout=5)
    crash(older)
    with newer.consumer("t", name="worker-4") as consumer:
        assert consumer.receive(timeout=5) == []
        assert len(consumer.receive(timeout=10)) == 1


def test_of_two_processes_the_later_one_wins(dueq_mesh: Mesh) -> None:
    older, newer = dueq_mesh.client(), dueq_mesh.client()
    lost: list[Message] = []
    newer.producer("t").schedule_many([b"a", b"b"], 0)
    first = older.consumer("t", name="worker-3", on_lease_lost=lost.append)
    [held] = first.receive(1, timeout=5)
    with newer.consumer("t", name="worker-3") as second:
        found = second.receive(timeout=10)
        assert sorted(message.payload for message in found) == [b"a", b"b"]
        with pytest.raises(Superseded, match="another process with the name of this consumer has followed"):
            first.receive(timeout=5)
        assert [message.id for message in lost] == [held.id]
        first.close()
        dueq_mesh.advance(15)
        second.ack(found)
    assert newer.describe("t").leased == 0


def test_a_run_ends_when_another_process_follows(dueq_mesh: Mesh) -> None:
    older, newer = dueq_mesh.client(), dueq_mesh.client()
    with (
        pytest.raises(Superseded),
        dueq_mesh.running(older.consumer("t", name="w"), lambda message: None),
        newer.consumer("t", name="w"),
    ):
        dueq_mesh.advance(5)


def test_a_client_has_one_consumer_of_a_name(dueq_mesh: Mesh) -> None:
    client = dueq_mesh.client()
    with (
        client.consumer("t", name="w"),
        pytest.raises(InvalidRequest, match="has an open consumer of that name"),
    ):
        client.consumer("t", name="w").receive(timeout=0)
    client.producer("t").schedule(b"a", 0)
    with client.consumer("t", name="w") as consumer:
        assert len(consumer.receive(timeout=5)) == 1


@pytest.mark.parametrize("name", ["", "x" * 256, 7])
def test_a_name_has_its_limits(dueq_mesh: Mesh, name: str) -> None:
    with pytest.raises(InvalidRequest, match="1 to 255 bytes"):
        dueq_mesh.client().consumer("t", name=name)


def test_tasks_have_names_too() -> None:
    async def run() -> None:
        with amesh(START) as dueq_mesh:
            older, newer = dueq_mesh.client(), dueq_mesh.client()
            await newer.create_topic("t")
            await newer.producer("t").schedule(b"a", 0)
            first = older.consumer("t", name="w")
            [message] = await first.receive(timeout=5)
            async with newer.consumer("t", name="w") as second:
                [again] = await second.receive(timeout=10)
                assert isinstance(again, AsyncMessage)
                assert again.id == message.id
                await again.ack(wait=True)
                with pytest.raises(Superseded):
                    await first.receive(timeout=5)
            await first.close()
            with pytest.raises(ClientClosed):
                await message.ack(wait=True)
            await older.close()
            await newer.close()

    asyncio.run(run())
