"""Looking at single messages of a real mesh: in both faces, on the command line, linearizably, and long ones."""

from __future__ import annotations

import asyncio
import json
import os

import pytest

from dueq import AsyncClient, Client, InvalidRequest, MessageLeased, MessageNotFound, Outcome, VersionDiffers
from dueq.cli.main import run
from dueq.local import LocalMesh
from tests.integration.ledger import PATIENCE_S, now_ms

pytestmark = pytest.mark.integration

_FAR_MS = 3_600_000


def test_a_message_is_shown_as_it_waits_is_moved_and_is_held(
    mesh: LocalMesh, client: Client, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    due, long = now_ms() + _FAR_MS, os.urandom(700_000)
    with client.producer(topic) as producer:
        short_id = producer.schedule(b"short", due, key="order-42", headers={"a": "b"})
        long_id = producer.schedule(long, due)
        found = client.get(topic, short_id, payload=True)
        assert (found.state, found.key, found.headers, found.due) == ("waiting", "order-42", {"a": "b"}, due)
        assert (found.payload, found.size, found.attempt, found.holder) == (b"short", 5, 0, "")
        assert client.get(topic, long_id).payload is None
        assert client.get(topic, long_id, payload=True, linearizable=True).payload == long
        producer.move(short_id, due + 5)
        moved = client.get(topic, short_id, linearizable=True)
        assert (moved.due, moved.version > found.version) == (due + 5, True)
        _asynchronously(mesh, topic, short_id, due + 5)
        assert run(["get", topic, short_id, "--json", "--payload", "--endpoint", mesh.endpoints[0]]) == 0
        assert json.loads(capsys.readouterr().out)["payload"] == "short"
        _while_it_is_held(client, topic)
        producer.cancel(short_id)
    with pytest.raises(MessageNotFound, match=short_id):
        client.get(topic, short_id, linearizable=True)
    with pytest.raises(InvalidRequest):
        client.get(topic, "no id")


def _asynchronously(mesh: LocalMesh, topic: str, message_id: str, due: int) -> None:
    async def read() -> int:
        # One endpoint only: the question is relayed to the leader.
        async with AsyncClient(mesh.endpoints[0]) as client:
            return (await client.get(topic, message_id, linearizable=True)).due

    assert asyncio.run(read()) == due


def _while_it_is_held(client: Client, topic: str) -> None:
    with client.producer(topic) as producer, client.consumer(topic) as consumer:
        message_id = producer.schedule(b"now", now_ms())
        (message,) = consumer.receive(1, timeout=PATIENCE_S)
        held = client.get(topic, message_id)
        assert (held.state, held.attempt, len(held.holder), held.token) == ("leased", 1, 32, message.token)
        assert held.lease_ends is not None
        assert held.lease_ends > held.due
        message.ack(wait=True)
        with pytest.raises(MessageNotFound):
            client.get(topic, message_id)


def test_a_triggered_message_is_delivered_at_once(
    mesh: LocalMesh, client: Client, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with client.producer(topic) as producer, client.consumer(topic) as consumer:
        ids = producer.schedule_many([b"a", b"b", b"c"], now_ms() + _FAR_MS)
        before = client.get(topic, ids[0]).version
        with pytest.raises(VersionDiffers, match="it has version"):
            client.trigger(topic, ids[0], if_version=before + 1_000)
        client.trigger(topic, ids[0], if_version=before)
        (message,) = consumer.receive(1, timeout=PATIENCE_S)
        assert (message.id, message.payload, message.due <= now_ms() + PATIENCE_S) == (ids[0], b"a", True)
        with pytest.raises(MessageLeased):
            client.trigger(topic, ids[0])
        message.nack(dead=True, reason="no", wait=True)
        assert client.trigger_many(topic, [ids[0], ids[1]]) == [Outcome.DEAD, Outcome.DONE]
        assert consumer.receive(1, timeout=PATIENCE_S)[0].id == ids[1]
        assert run(["trigger", topic, ids[2], "--endpoint", mesh.endpoints[0]]) == 0
        assert capsys.readouterr().out == f"{ids[2]} due now\n"
        assert consumer.receive(1, timeout=PATIENCE_S)[0].id == ids[2]
        assert run(["trigger", topic, ids[0], "--endpoint", mesh.endpoints[0]]) == 1
        assert "dead" in capsys.readouterr().out


def test_a_triggered_message_of_a_paused_topic_is_delivered_and_no_other(client: Client, topic: str) -> None:
    with client.producer(topic) as producer, client.consumer(topic) as consumer:
        client.pause(topic)
        ids = producer.schedule_many([b"a", b"b", b"c"], [0, now_ms() + _FAR_MS, 0])
        client.trigger(topic, ids[1])
        assert [message.id for message in consumer.receive(3, timeout=PATIENCE_S)] == ids[1:2]
        client.trigger(topic, ids[2])
        assert [message.id for message in consumer.receive(3, timeout=PATIENCE_S)] == ids[2:]
        assert client.get(topic, ids[0]).state == "waiting"


def test_a_change_that_expects_another_version_changes_nothing(client: Client, topic: str) -> None:
    due = now_ms() + _FAR_MS
    with client.producer(topic) as producer:
        ids = producer.schedule_many([b"a", b"b"], due)
        before = client.get(topic, ids[0]).version
        producer.move(ids[0], due + 1, if_version=before)
        with pytest.raises(VersionDiffers, match="it has version") as refused:
            producer.move(ids[0], due + 2, if_version=before)
        present = client.get(topic, ids[0], linearizable=True)
        assert (present.due, refused.value.present) == (due + 1, present.version)
        with pytest.raises(VersionDiffers):
            producer.cancel(ids[0], if_version=before)
        found = producer.cancel_many(ids, if_versions=[before, None])
        assert found == [Outcome.CHANGED, Outcome.DONE]
        with pytest.raises(InvalidRequest, match="version"):
            producer.cancel(ids[0], if_version=0)
        producer.cancel(ids[0], if_version=present.version)
