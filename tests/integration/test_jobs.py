"""Jobs through the SDK and a mesh of three: shown together, dropped together, taken back together."""

from __future__ import annotations

import asyncio
import json
import pickle
from threading import Event

import pytest
from click.testing import CliRunner

from dueq import AsyncClient, Client, JobEnded, JobInfo, JobNotFound
from dueq.cli.main import dueq
from dueq.client.numbered import NumberedProducer
from dueq.errors import InvalidRequest
from dueq.local import LocalMesh
from tests.integration.ledger import PATIENCE_S, now_ms

pytestmark = pytest.mark.integration


def received(client: Client, topic: str, count: int) -> list[bytes]:
    """Take and acknowledge so many messages; return their payloads, sorted."""
    found: list[bytes] = []
    with client.consumer(topic, lease=30.0) as consumer:
        while len(found) < count:
            batch = consumer.receive(count - len(found), timeout=PATIENCE_S)
            assert batch, f"{len(found)} of {count} came"
            found += [message.payload for message in batch]
            consumer.ack(batch)
    return sorted(found)


def watched(client: Client, topic: str, job_id: str, messages: int) -> JobInfo:
    """The job, once so many messages of it are left."""
    pause = Event()
    for _ in range(int(PATIENCE_S * 20)):
        info = client.job(topic, job_id)
        assert info is not None
        if info.messages == messages:
            return info
        pause.wait(0.05)
    raise AssertionError(f"{info} never came to {messages} messages")


def test_what_is_hidden_is_delivered_once_the_job_is_committed_and_loaded_once(
    mesh: LocalMesh, client: Client, topic: str
) -> None:
    """Tasks on other machines load it, twice over; nothing comes before the commit, everything once after it."""
    job = pickle.loads(pickle.dumps(client.begin_job(topic, "campaign", hidden_for=600)))
    payloads, due = [b"%03d" % row for row in range(300)], now_ms()
    for _ in range(2):
        with Client(mesh.endpoints) as other:
            for partition in range(3):
                task = NumberedProducer(other, topic, bytes([partition]) * 16, job)
                task.schedule_many(payloads[partition::3], due, partition)
        assert client.begin_job(topic, "campaign", hidden_for=600) == job
    with client.consumer(topic) as consumer:
        assert consumer.receive(1, timeout=0.3) == []
    assert list(client.browse(topic)) == []
    assert watched(client, topic, "campaign", 300).state == "open"
    client.commit_job(job)
    client.commit_job(job)
    assert received(client, topic, 300) == payloads
    assert client.begin_job(topic, "campaign", hidden_for=600).state == "committed"
    with pytest.raises(JobEnded, match="cancelled"):
        client.abort_job(job)
    with client.producer(topic) as producer, pytest.raises(JobEnded):
        producer.schedule_many([b"late"], now_ms(), job=job)
    assert watched(client, topic, "campaign", 0).state == "committed"


def test_an_aborted_job_leaves_nothing_and_can_be_begun_again(client: Client, topic: str) -> None:
    with client.producer(topic) as producer:
        first = client.begin_job(topic, "load", hidden_for=600)
        producer.schedule_many([b"wrong"] * 50, now_ms(), job=first)
        client.abort_job(first)
        with pytest.raises(JobEnded, match="aborted"):
            client.commit_job(first)
        second = client.begin_job(topic, "load", hidden_for=600)
        assert second.key != first.key
        producer.schedule_many([b"right"], now_ms(), job=second)
        client.commit_job(second)
    assert received(client, topic, 1) == [b"right"]
    assert watched(client, topic, first.key.hex(), 0).state == "aborted"
    assert {info.key for info in client.jobs(topic)} == {first.key.hex(), second.key.hex()}


def test_an_abandoned_job_is_dropped_when_its_time_is_over(client: Client, topic: str) -> None:
    job = client.begin_job(topic, "left", hidden_for=2)
    with client.producer(topic) as producer:
        producer.schedule_many([b"x"] * 10, now_ms(), job=job)
    assert watched(client, topic, "left", 0).state == "aborted"
    with pytest.raises(JobEnded):
        client.commit_job(job)


def test_a_campaign_that_is_not_hidden_is_taken_back_from_the_command_line(
    mesh: LocalMesh, client: Client, topic: str
) -> None:
    job = client.begin_job(topic, "sale")
    with client.producer(topic) as producer:
        producer.schedule_many([b"now"] * 2, now_ms(), job=job)
        producer.schedule_many([b"later"] * 2_500, now_ms() + 3_600_000, job=job)
        producer.schedule(b"of no job", now_ms() + 3_600_000)
    assert received(client, topic, 2) == [b"now"] * 2

    def run(*words: str) -> str:
        done = CliRunner().invoke(dueq, ["job", *words, "--endpoint", mesh.endpoints[0]])
        assert done.exit_code == 0, done.output
        return done.output

    assert "2,500" in run("show", topic, "sale")
    run("cancel", topic, "sale")
    watched(client, topic, "sale", 0)
    shown = json.loads(run("list", topic, "--json"))
    assert [(info["state"], info["messages"], info["cleared"]) for info in shown] == [("cancelled", 0, True)]
    assert client.describe(topic).scheduled == 1
    with pytest.raises(JobNotFound):
        client.cancel_job(topic, "never")
    with pytest.raises(InvalidRequest):
        client.begin_job(topic, "")


def test_jobs_can_be_awaited(mesh: LocalMesh, topic: str) -> None:
    async def run() -> None:
        async with AsyncClient(mesh.endpoints) as client, client.producer(topic) as producer:
            job = await client.begin_job(topic, "async", hidden_for=60)
            await producer.schedule_many([b"x"], now_ms() + 600_000, job=job)
            await client.commit_job(job)
            info = await client.job(topic, "async")
            assert info is not None
            assert (info.state, info.messages) == ("committed", 1)
            await client.cancel_job(topic, "async")
            assert [found.state for found in await client.jobs(topic)] == ["cancelled"]

    asyncio.run(run())
