"""Looking at what waits, through a real mesh: every face, the command line, keys and long payloads."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import UTC, datetime

import pytest

from dueq import AsyncClient, Client, ScheduledMessage
from dueq.cli.main import run
from dueq.local import LocalMesh
from tests.integration.ledger import PATIENCE_S, now_ms

pytestmark = pytest.mark.integration

_FAR_MS = 3_600_000
_ROWS = 1_500


def test_what_waits_is_shown_with_its_keys_and_nothing_is_touched(
    mesh: LocalMesh,
    client: Client,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    due = now_ms() + _FAR_MS
    long = os.urandom(700_000)
    with client.producer(topic) as producer:
        payloads = [b"%d" % row for row in range(_ROWS)]
        dues = [due + row for row in range(_ROWS)]
        ids = producer.schedule_many(payloads, dues, keys=[f"key {row}" for row in range(_ROWS)])
        ids.append(producer.schedule(long, due + _ROWS, key="a long one"))
        ids.append(producer.schedule(b"no key", due + _ROWS + 1))
    expected = dict(zip(ids, [*payloads, long, b"no key"], strict=True))

    found = {message.id: message for message in client.browse(topic, payloads=True)}
    assert {message_id: message.payload for message_id, message in found.items()} == expected
    assert [found[message_id].key for message_id in ids[-3:]] == [f"key {_ROWS - 1}", "a long one", ""]
    assert found[ids[-2]].size == len(long)
    assert all(message.due == message.waits_until for message in found.values())
    _in_a_range(client, topic, due)
    _asynchronously(mesh, topic, expected)
    _on_the_command_line(mesh, topic, ids, due, monkeypatch, capsys)
    assert client.describe(topic).scheduled == len(ids)

    with client.producer(topic) as producer, client.consumer(topic) as consumer:
        producer.move(ids[-2], now_ms())
        (message,) = consumer.receive(1, timeout=PATIENCE_S)
        assert (message.id, message.key, message.payload) == (ids[-2], "a long one", long)
        assert ids[-2] not in {shown.id for shown in client.browse(topic)}
        message.ack(wait=True)
    _in_the_statistics(client, topic, len(ids))


def _in_the_statistics(client: Client, topic: str, rows: int) -> None:
    """Every broker counts what it leads; the one delivery may be repeated, but not its first push."""
    found = [row for row in client.statistics() if row.topic == topic]
    assert sum(sum(row.scheduled.values()) for row in found) == rows
    assert sum(sum(row.lateness_counts) for row in found) == 1
    assert sum(row.delivered - row.redelivered for row in found) == 1
    assert {row.hour % _FAR_MS for row in found} == {0}


def _in_a_range(client: Client, topic: str, due: int) -> None:
    start = datetime.fromtimestamp((due + 100) / 1000, UTC)
    rows = list(client.browse(topic, start=start, end=due + 110))
    assert sorted(row.waits_until for row in rows) == list(range(due + 100, due + 110))
    for partition in range(3):
        pages = list(client.browse_pages(topic, partition))
        assert len({(page.applied, page.stamp_ms, page.epoch) for page in pages}) == 1
        waits = [instant for page in pages for instant in page.waits_until.tolist()]
        assert waits == sorted(waits)
        shown = [message.id for page in pages for message in page.messages()]
        assert shown == [message.id for message in client.browse(topic, partitions=[partition])]


def _asynchronously(mesh: LocalMesh, topic: str, expected: dict[str, bytes]) -> None:
    async def read() -> list[ScheduledMessage]:
        # One endpoint only: pages of the others are relayed or asked for where the broker says.
        async with AsyncClient(mesh.endpoints[0]) as client:
            return [message async for message in client.browse(topic)]

    found = asyncio.run(read())
    assert {message.id for message in found} == expected.keys()
    assert {message.payload for message in found} == {None}


def _on_the_command_line(
    mesh: LocalMesh,
    topic: str,
    ids: list[str],
    due: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    where = ["--endpoint", mesh.endpoints[1]]
    assert run(["browse", topic, "--limit", "3", *where]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if line.strip().startswith("01")] == ids[:3]
    assert "key 2" in "".join(lines)
    assert run(["browse", topic, "--from", str(due + _ROWS), "--payloads", "--json", *where]) == 0
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [document["id"] for document in documents] == ids[-2:]
    assert documents[1]["payload"] == "no key"
    assert run(["browse", topic, "--until", str(due), *where]) == 0
    assert f"nothing waits in {topic} in that time" in capsys.readouterr().out
