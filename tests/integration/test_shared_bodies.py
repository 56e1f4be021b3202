"""One body for many messages: over a real mesh, in both faces, through deliveries, browsing and death."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from pathlib import Path

import pytest

from dueq import AsyncClient, Client, Filter, InvalidRequest, PayloadTooLarge
from dueq.cli.main import run
from dueq.limits import BODY_BYTES_MAX
from dueq.local import LocalMesh
from tests.integration.ledger import PATIENCE_S, now_ms

pytestmark = pytest.mark.integration

_FAR_MS = 3_600_000


def test_messages_with_one_body_are_delivered_whole(mesh: LocalMesh, client: Client, topic: str) -> None:
    text = os.urandom(20_480)
    with client.producer(topic) as producer, client.consumer(topic) as consumer:
        body = producer.body(text)
        ids = producer.schedule_many([body] * 3_000, now_ms(), keys=[f"k{row}" for row in range(3_000)])
        ids += [producer.schedule(body, now_ms(), headers={"lang": "de"})]
        ids += [asyncio.run(_asynchronously(mesh, topic, text))]
        found: dict[str, tuple[bytes, str, dict[str, str]]] = {}
        while len(found) < 3_002:
            for message in consumer.receive(500, timeout=PATIENCE_S):
                found[message.id] = message.payload, message.key, dict(message.headers)
                message.ack()
        assert found.keys() == set(ids)
        assert {payload for payload, _, _ in found.values()} == {text}
        assert sorted(key for _, key, _ in found.values() if key) == sorted(f"k{row}" for row in range(3_000))
        assert found[ids[-2]][2] == {"lang": "de"}
        assert producer.close_body(body) == 3


def test_recurrences_make_messages_of_one_body(mesh: LocalMesh, client: Client, topic: str) -> None:
    text, other = os.urandom(100_000), b"another"
    with client.producer(topic) as producer, client.consumer(topic) as consumer:
        body = producer.body(text)
        for name in ("a", "b"):
            client.create_recurrence(topic, name, every=3600.0, payload=body, headers={"of": name})
        info = client.recurrence(topic, "a")
        assert info is not None
        assert (info.payload, info.payload_bytes, info.body) == (None, len(text), body.name.hex())
        producer.close_body(body)  # it stays, as recurrences have it
        made = {name: client.trigger_recurrence(topic, name) for name in ("a", "b")}
        found = [consumer.receive(1, timeout=PATIENCE_S)[0] for _ in made]
        assert {message.headers["of"]: message.id for message in found} == made
        assert {message.payload for message in found} == {text}
        client.update_recurrence(topic, "a", payload=other)
        words = ["cron", "update", topic, "b", "--body", "third", "--endpoint", mesh.endpoints[0]]
        assert run(words) == 0
        made = {name: client.trigger_recurrence(topic, name) for name in ("a", "b")}
        found = [consumer.receive(1, timeout=PATIENCE_S)[0] for _ in made]
        assert {message.id: message.payload for message in found} == {made["a"]: other, made["b"]: b"third"}
        changed = client.recurrence(topic, "a")
        assert changed is not None
        assert (changed.payload, changed.body) == (other, "")


async def _asynchronously(mesh: LocalMesh, topic: str, text: bytes) -> str:
    async with AsyncClient(mesh.endpoints[0]) as client, client.producer(topic) as producer:
        return await producer.schedule(producer.body(text), now_ms())


def test_it_is_shown_dies_and_is_redriven_with_its_messages(client: Client, topic: str) -> None:
    text = b"dear customer" * 1_000
    with client.producer(topic) as producer, client.consumer(topic) as consumer:
        body = producer.body(text)
        [far] = producer.schedule_many([body], now_ms() + _FAR_MS, keys=["far"])
        now = producer.schedule(body, now_ms())
        shown = client.get(topic, far, payload=True, linearizable=True)
        assert (shown.payload, shown.size, shown.key) == (text, len(text), "far")
        assert [waits.payload for waits in client.browse(topic, payloads=True)] == [text]
        assert [waits.key for waits in client.browse(topic)] == ["far"]
        (message,) = consumer.receive(1, timeout=PATIENCE_S)
        message.nack(dead=True, reason="no", wait=True)
        assert producer.close_body(body) == 2
        assert client.get(topic, now, payload=True).payload == text
        client.redrive_where(topic, Filter(state="dead")).wait()
        (message,) = consumer.receive(1, timeout=PATIENCE_S)
        assert (message.id, message.payload) == (now, text)
        message.ack(wait=True)
        client.trigger(topic, far)
        (message,) = consumer.receive(1, timeout=PATIENCE_S)
        assert message.payload == text
        message.ack(wait=True)
        assert producer.close_body(body) == 0, "it went with the last of them"


def test_streams_change_bodies_as_they_go(client: Client, topic: str) -> None:
    with client.producer(topic) as producer, client.consumer(topic) as consumer:
        first, second = producer.body(b"first" * 99), producer.body(b"second" * 99)
        payloads = [first, b"own", second, second, first]
        ids = list(producer.schedule_stream(iter(payloads), timedelta(0)))
        found = {}
        while len(found) < 5:
            for message in consumer.receive(5, timeout=PATIENCE_S):
                found[message.id] = message.payload
                message.ack()
        expected = [each if isinstance(each, bytes) else each.data for each in payloads]
        assert [found[message_id] for message_id in ids] == expected
        with pytest.raises(InvalidRequest, match="row 1: all rows"):
            producer.schedule_many([first, second], timedelta(0))


def test_what_cannot_be_a_body_is_refused(client: Client, topic: str) -> None:
    with client.producer(topic) as producer:
        for wrong in (b"", "text"):
            with pytest.raises(InvalidRequest, match="shared body"):
                producer.body(wrong)  # type: ignore[arg-type]
        with pytest.raises(PayloadTooLarge, match=f"{BODY_BYTES_MAX} bytes"):
            producer.body(bytes(BODY_BYTES_MAX + 1))
        client.update_topic(topic, payload_bytes_max=10)
        with pytest.raises(PayloadTooLarge):
            producer.schedule(producer.body(bytes(11)), timedelta(hours=1))
        with pytest.raises(PayloadTooLarge):
            client.create_recurrence(topic, "r", every=60.0, payload=producer.body(bytes(11)))


def test_the_command_line_has_a_key_a_line(
    mesh: LocalMesh, client: Client, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys, text = tmp_path / "keys", tmp_path / "text"
    keys.write_text("anna\nbert\n")
    text.write_text("we have moved")
    words = [
        "schedule",
        topic,
        f"@{keys}",
        "--body",
        f"@{text}",
        "--in",
        "1h",
        "--endpoint",
        mesh.endpoints[0],
    ]
    assert run(words) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    shown = {waits.key: waits.payload for waits in client.browse(topic, payloads=True)}
    assert shown == {"anna": b"we have moved", "bert": b"we have moved"}
    assert run([*words, "--lines"]) == 2
    keys.write_bytes(b"\xff\n")
    assert run(words) == 1
    assert "is not Unicode text" in capsys.readouterr().err
