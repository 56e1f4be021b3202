"""Recurrences through the SDK and a mesh of three: one message a tick, whatever happens to leaders."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import UTC, datetime
from itertools import islice
from threading import Event

import pytest
from click.testing import CliRunner, Result

from dueq import (
    AsyncClient,
    Client,
    InvalidRequest,
    PayloadTooLarge,
    RecurrenceExists,
    RecurrenceInfo,
    RecurrenceNotFound,
    TopicNotFound,
)
from dueq.cli.main import dueq
from dueq.local import LocalMesh
from tests.integration.ledger import PATIENCE_S, now_ms

pytestmark = pytest.mark.integration

BEYOND = "2099-01-01T00:00:00+00:00"


def watched(client: Client, topic: str, name: str, messages: int) -> RecurrenceInfo:
    """The recurrence, once it has made so many messages."""
    pause = Event()
    for _ in range(int(PATIENCE_S * 20)):
        info = client.recurrence(topic, name)
        assert info is not None
        if info.messages >= messages:
            return info
        pause.wait(0.05)
    raise AssertionError(f"{info} has not made {messages} messages")


def dues(client: Client, topic: str, count: int) -> list[int]:
    """The dues of so many messages, acknowledged."""
    found: list[int] = []
    with client.consumer(topic) as consumer:
        while len(found) < count:
            batch = consumer.receive(1, timeout=PATIENCE_S)
            assert batch, f"{len(found)} of {count} came"
            assert batch[0].released_at >= batch[0].due
            found += [message.due for message in batch]
            consumer.ack(batch)
    return found


def test_there_is_one_message_for_each_tick_though_its_leader_is_killed(topic: str) -> None:
    """A mesh of its own, whose leaders die twice; the ticks of every second are all there, each once."""
    with LocalMesh() as mesh, Client(mesh.endpoints) as client:
        client.create_topic(topic, replicas=3)
        start = now_ms() // 1000 * 1000 + 3_000
        client.create_recurrence(topic, "tick", every=1.0, start=start, payload=b"tock")
        found = dues(client, topic, 3)
        for _ in range(2):
            leader = client.describe(topic).placement[0].leader
            victim = next(at for at, broker in enumerate(mesh.brokers) if broker.broker_id == leader)
            mesh.kill(victim)
            found += dues(client, topic, 6)
            mesh.start_broker(victim)
        found += dues(client, topic, 3)
        assert max(Counter(found).values()) == 1
        assert sorted(found) == list(range(start, start + 1000 * len(found), 1000))


def test_a_recurrence_lives_as_it_is_told(client: Client, topic: str) -> None:
    start = now_ms() // 1000 * 1000 + 2_000
    client.create_recurrence(topic, "job", every=1.0, start=start, payload=b"a", jitter=0.2, overlap="skip")
    with pytest.raises(RecurrenceExists, match="'job'"):
        client.create_recurrence(topic, "job", cron="* * * * *")
    assert dues(client, topic, 1)[0] in range(start, start + 201)
    client.pause_recurrence(topic, "job")
    paused = client.recurrence(topic, "job")
    assert paused is not None
    assert (paused.paused, paused.next_ms, paused.unfinished) == (True, 0, 0)
    message_id = client.trigger_recurrence(topic, "job")
    with client.consumer(topic) as consumer:
        [message] = consumer.receive(1, timeout=PATIENCE_S)
        assert (message.id, bytes(message.payload)) == (message_id, b"a")
        message.ack()
    client.update_recurrence(topic, "job", at=[BEYOND_MS], payload=b"b", jitter=0.0)
    client.resume_recurrence(topic, "job")
    info = client.recurrence(topic, "job")
    assert info is not None
    assert (info.at_ms, info.every_ms, info.payload, info.next_ms) == ((BEYOND_MS,), 0, b"b", BEYOND_MS)
    assert (info.start_ms, info.overlap) == (start, "skip")
    client.delete_recurrence(topic, "job")
    assert client.recurrence(topic, "job") is None
    for gone in (client.pause_recurrence, client.trigger_recurrence, client.delete_recurrence):
        with pytest.raises(RecurrenceNotFound, match="'job'"):
            gone(topic, "job")


BEYOND_MS = int(datetime.fromisoformat(BEYOND).astimezone(UTC).timestamp() * 1000)


def test_what_makes_no_sense_is_refused_by_name(client: Client, topic: str) -> None:
    for said, match in (
        ({}, "cron, every or at, and one of them only"),
        ({"cron": "* * * *"}, "it has 4 fields"),
        ({"cron": "0 3 * * *", "zone": "Europe/Atlantis"}, "no time zone 'Europe/Atlantis'"),
        ({"every": 0.5}, "every is 1 to"),
        ({"at": [1]}, "never fires"),
        ({"every": 5.0, "jitter": 5.0}, "not shorter than the 5000 ms"),
        ({"every": 5.0, "missed": "some"}, "missed is one of none, last, all"),
        ({"every": 5.0, "missed": 101}, "from 0 to 100, not 101"),
        ({"every": 5.0, "overlap": "wait"}, "overlap is one of allow, skip"),
        ({"every": 5.0, "start": 2_000, "end": 1_000}, "is not after the start"),
    ):
        with pytest.raises(InvalidRequest, match=match):
            client.create_recurrence(topic, "r", **said)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="1 to 255 bytes"):
        client.create_recurrence(topic, "", every=5.0)
    with pytest.raises(PayloadTooLarge, match="at most 65536 bytes, not 65537"):
        client.create_recurrence(topic, "r", every=5.0, payload=bytes(65_537))
    with pytest.raises(TopicNotFound):
        client.create_recurrence("nowhere", "r", every=5.0)
    client.create_recurrence(topic, "r", at=[BEYOND_MS])
    with pytest.raises(InvalidRequest, match="a zone is that of a cron line"):
        client.update_recurrence(topic, "r", zone="Europe/Berlin")
    assert [info.at_ms for info in client.recurrences(topic)] == [(BEYOND_MS,)]


def test_many_are_listed_by_name_over_all_partitions(mesh: LocalMesh, client: Client, topic: str) -> None:
    names = sorted(f"r{number:04}" for number in range(1_200))

    async def create() -> None:
        async with AsyncClient(mesh.endpoints) as many:
            await asyncio.gather(*(many.create_recurrence(topic, name, at=[BEYOND_MS]) for name in names))
            assert [info.name async for info in many.recurrences(topic)] == names

    asyncio.run(create())
    found = list(client.recurrences(topic))
    assert [info.name for info in found] == names
    assert {info.payload for info in found} == {None}
    assert [info.name for info in islice(client.recurrences(topic), 3)] == names[:3]


def test_the_command_line_does_it_all(mesh: LocalMesh, topic: str) -> None:
    def run(*words: str, code: int = 0) -> Result:
        answer = CliRunner().invoke(dueq, ["cron", *words, "-e", mesh.endpoints[0]])
        assert (answer.exit_code == 0) == (code == 0), answer.output
        return answer

    line = ("--cron", "30 2 29 3 *", "--zone", "Europe/Berlin", "--start", "2026-01-01T00:00:00Z")
    shown = run("create", topic, "n", "hello", *line, "--dry-run").output.splitlines()
    assert len(shown) == 10
    assert "no recurrences" in run("list", topic).output
    assert "next tick" in run("create", topic, "n", "hello", *line).output
    assert json.loads(run("show", topic, "n", "--json").output)["cron"] == "30 2 29 3 *"
    assert "Europe/Berlin" in run("show", topic, "n").output
    run("pause", topic, "n")
    assert json.loads(run("list", topic, "--json").output)["paused"] is True
    run("resume", topic, "n")
    run("update", topic, "n", "--at", BEYOND, "--payload", "later", "--missed", "none")
    assert json.loads(run("show", topic, "n", "--json").output)["missed"] == 0
    assert len(run("trigger", topic, "n").output.strip()) == 26
    run("delete", topic, "n")
    assert isinstance(run("delete", topic, "n", code=1).exception, RecurrenceNotFound)
