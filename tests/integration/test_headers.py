"""Headers in real processes: what a producer says of a message is shown wherever the message is."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest

from dueq import AsyncClient, Client
from dueq.cli.main import run
from dueq.errors import InvalidRequest
from dueq.local import LocalMesh
from tests.integration.ledger import PATIENCE_S, now_ms

pytestmark = pytest.mark.integration

CSV = {"content_type": "text/csv", "größe": "ü" * 100}
FAR = timedelta(hours=1)


def receive(client: Client, topic: str, count: int) -> dict[bytes, tuple[str, dict[str, str]]]:
    """The headers and keys of as many messages, by payload."""
    found: dict[bytes, tuple[str, dict[str, str]]] = {}
    with client.consumer(topic) as consumer:
        while len(found) < count:
            for message in consumer.receive(count, timeout=PATIENCE_S):
                found[message.payload] = (message.key, message.headers)
                message.ack(wait=True)
    return found


def test_headers_reach_consumers_also_beside_keys_and_before_long_payloads(
    client: Client, topic: str, mesh: LocalMesh
) -> None:
    long = bytes(600_000)
    with client.producer(topic) as producer:
        producer.schedule(b"one", now_ms(), headers=CSV)
        producer.schedule(b"two", now_ms(), key="k")
        producer.schedule(long, now_ms(), key="long", headers={"a": ""})
        producer.schedule_many([b"3", b"4"], now_ms(), headers=[{"n": "3"}, None], keys=[None, "four"])
        rows = (b"%d" % number for number in range(5, 9))
        producer.schedule_many(rows, now_ms(), headers={"all": "of them"})
    expected = {b"one": ("", CSV), b"two": ("k", {}), long: ("long", {"a": ""})}
    expected |= {b"3": ("", {"n": "3"}), b"4": ("four", {})}
    expected |= {b"%d" % number: ("", {"all": "of them"}) for number in range(5, 9)}
    assert receive(client, topic, len(expected)) == expected


def test_headers_that_cannot_be_are_refused_and_nothing_is_scheduled(client: Client, topic: str) -> None:
    with (
        client.producer(topic) as producer,
        pytest.raises(InvalidRequest, match=r"row 1: the value of header .a. has 20000 bytes, over 16384"),
    ):
        producer.schedule_many([b"a", b"b"], now_ms(), headers=[None, {"a": "v" * 20_000}])
    assert client.describe(topic).scheduled == 0


def test_browsing_and_exports_show_headers_without_reading_payloads(
    client: Client, topic: str, mesh: LocalMesh, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with client.producer(topic) as producer:
        producer.schedule_many([b"a", b"b" * 300_000, b"c"], FAR, headers=[CSV, {"x": "y"}, None])
    for payloads in (False, True):
        shown = sorted(client.browse(topic, payloads=payloads), key=lambda each: each.size)
        assert [each.size for each in shown] == [1, 1, 300_000]
        assert sorted((each.headers for each in shown[:2]), key=len) == [{}, CSV]
        assert shown[2].headers == {"x": "y"}
    mesh_options = ["--endpoint", mesh.endpoints[0]]
    assert run(["browse", topic, "--json", *mesh_options]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted((line["headers"] for line in lines), key=len) == [{}, {"x": "y"}, CSV]
    pq = pytest.importorskip("pyarrow.parquet")
    assert run(["export", str(tmp_path / "out"), "--topic", topic, *mesh_options]) == 0
    rows = [row for path in (tmp_path / "out/timelines").iterdir() for row in pq.read_table(path).to_pylist()]
    found = [dict(row["headers"] or ()) for row in rows]
    assert sorted(found, key=len) == [{}, {"x": "y"}, CSV]


def test_a_recurrence_gives_its_headers_to_each_message(client: Client, topic: str) -> None:
    client.create_recurrence(topic, "r", every=3600, payload=b"p", headers={"a": "1"})
    found = client.recurrence(topic, "r")
    assert found is not None
    assert found.headers == {"a": "1"}
    client.trigger_recurrence(topic, "r")
    assert receive(client, topic, 1) == {b"p": ("", {"a": "1"})}
    client.update_recurrence(topic, "r", headers={}, payload=b"q")
    client.trigger_recurrence(topic, "r")
    assert receive(client, topic, 1) == {b"q": ("", {})}


def test_the_asyncio_face_and_the_command_line_have_headers_too(
    client: Client, topic: str, mesh: LocalMesh, capsys: pytest.CaptureFixture[str]
) -> None:
    async def schedule() -> None:
        async with AsyncClient(mesh.endpoints) as found, found.producer(topic) as producer:
            await producer.schedule(b"async", now_ms(), headers={"from": "asyncio"})
            async with found.consumer(topic) as consumer:
                (message,) = await consumer.receive(1, timeout=PATIENCE_S)
                assert message.headers == {"from": "asyncio"}
                await message.ack(wait=True)

    asyncio.run(schedule())
    mesh_options = ["--endpoint", mesh.endpoints[0]]
    said = ["--header", "a=b=c", "--header", "content_type=text/plain"]
    assert run(["schedule", topic, "hello", "--in", "0s", *said, *mesh_options]) == 0
    capsys.readouterr()
    assert run(["consume", topic, "--count", "1", "--headers", *mesh_options]) == 0
    assert capsys.readouterr().out == '{"a": "b=c", "content_type": "text/plain"}\thello\n'
    assert run(["schedule", topic, "x", "--in", "0s", "--header", "nothing", *mesh_options]) == 2
    assert "a header is NAME=VALUE, not 'nothing'" in capsys.readouterr().err


def test_a_nack_replaces_headers_for_the_next_delivery(client: Client, topic: str) -> None:
    with client.producer(topic) as producer, client.consumer(topic) as consumer:
        message_id = producer.schedule(b"one", now_ms(), key="k", headers=CSV)
        (first,) = consumer.receive(1, timeout=PATIENCE_S)
        with pytest.raises(InvalidRequest, match="is a str, not int"):
            first.nack(headers={"a": 1})  # type: ignore[dict-item]
        first.nack(headers={"tries": "1"}, delay=3600.0, wait=True)
        assert client.get(topic, message_id).headers == {"tries": "1"}
        assert [(each.key, each.headers) for each in client.browse(topic)] == [("k", {"tries": "1"})]
        client.trigger(topic, message_id)
        (second,) = consumer.receive(1, timeout=PATIENCE_S)
        assert (second.key, second.headers, second.payload) == ("k", {"tries": "1"}, b"one")
        client.settle(topic, [(message_id, second.token)], "nack", headers={}, delay=0.0)
        (third,) = consumer.receive(1, timeout=PATIENCE_S)
        assert (third.headers, third.attempt) == ({}, 3)
        consumer.nack([third], delay=0.0)
        (fourth,) = consumer.receive(1, timeout=PATIENCE_S)
        assert fourth.headers == {}
