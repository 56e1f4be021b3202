"""What messages can do, with the real client and broker in one process."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from dueq import Backoff, Client, InvalidRequest
from dueq.limits import DUE_MS_MAX
from dueq.testing import Mesh, mesh

START = datetime(2026, 3, 28, 12, tzinfo=UTC)


@pytest.fixture
def dueq_mesh() -> Iterator[Mesh]:
    with mesh(START) as found:
        yield found


@pytest.fixture
def client(dueq_mesh: Mesh) -> Client:
    found = dueq_mesh.client()
    found.create_topic("t", max_attempts=2, backoff=Backoff(first=1.0, jitter=0.0))
    return found


def fail(client: Client, reason: str, attempts: int) -> None:
    with client.consumer("t", credit=1) as consumer:
        for _ in range(attempts):
            [message] = consumer.receive(1, timeout=60)
            message.nack(reason=reason, wait=True)


@pytest.mark.parametrize("iterated", [False, True])
def test_many_messages_expire_and_die_as_each_says(dueq_mesh: Mesh, client: Client, iterated: bool) -> None:
    payloads, expires, attempts = [b"a", b"b"], [None, timedelta(minutes=1)], [7, None]
    producer = client.producer("t")
    if iterated:
        ids = list(
            producer.schedule_many(
                iter(payloads), timedelta(0), expires=iter(expires), max_attempts=iter(attempts)
            )
        )
    else:
        ids = producer.schedule_many(payloads, timedelta(0), expires=expires, max_attempts=attempts)
    found = [client.get("t", message_id) for message_id in ids]
    assert [message.expires for message in found] == [0, dueq_mesh.now_ms + 60_000]
    dueq_mesh.advance(3600)
    with client.consumer("t") as consumer:
        [message] = consumer.receive()
        assert message.payload == b"a"
        message.ack()


def test_one_value_is_for_all_rows_of_a_stream(dueq_mesh: Mesh, client: Client) -> None:
    until = dueq_mesh.now + timedelta(hours=1)
    rows = client.producer("t").schedule_stream([b"a", b"b"], timedelta(0), expires=until, max_attempts=1)
    for message_id in rows:
        assert client.get("t", message_id).expires == until.timestamp() * 1000
    fail(client, "no", 1)
    assert client.describe("t").dead == 1


def test_columns_are_as_long_as_there_are_rows(client: Client) -> None:
    producer = client.producer("t")
    with pytest.raises(InvalidRequest, match="2 rows need 2 expires, not 1"):
        producer.schedule_many([b"a", b"b"], 0, expires=[timedelta(1)])
    with pytest.raises(InvalidRequest, match="2 rows need 2 max_attempts, not 3"):
        producer.schedule_many([b"a", b"b"], 0, max_attempts=[1, 2, 3])
    with pytest.raises(InvalidRequest, match="row 1: there is a payload, but no max_attempts"):
        list(producer.schedule_stream([b"a", b"b"], 0, max_attempts=[1]))


def test_a_message_says_why_it_was_given_back(dueq_mesh: Mesh, client: Client) -> None:
    message_id = client.producer("t").schedule(b"a", 0)
    assert client.get("t", message_id).reason == ""
    fail(client, "no such card", 1)
    waiting = client.get("t", message_id)
    assert (waiting.state, waiting.reason) == ("waiting", "no such card")
    dueq_mesh.advance(3600)  # a checkpoint has brought it to the store
    assert client.get("t", message_id).reason == "no such card"
    fail(client, "no such bank", 1)
    dead = client.get("t", message_id)
    assert (dead.state, dead.reason) == ("dead", "no such bank")


def test_a_purge_of_all_is_about_waiting_and_dead_messages(dueq_mesh: Mesh, client: Client) -> None:
    client.producer("t").schedule_many([b"a", b"b"], timedelta(0), max_attempts=1)
    fail(client, "no", 1)
    client.producer("t").schedule(b"c", timedelta(hours=1))
    assert client.describe("t").dead == 1
    done = client.purge("t", "all")
    assert (done.done, done.left, done.progress.ended) == (3, 0, True)
    info = client.describe("t")
    assert (info.scheduled, info.ready, info.dead) == (0, 0, 0)
    with pytest.raises(InvalidRequest, match="waiting, dead, all, not 'leased'"):
        client.purge("t", "leased")


def test_what_expires_before_it_can_be_delivered_is_refused(dueq_mesh: Mesh, client: Client) -> None:
    producer = client.producer("t")
    with pytest.raises(InvalidRequest, match=r"row 1: expires 2\S+Z is not after its due instant, 2\S+Z"):
        producer.schedule_many([b"a", b"b"], timedelta(minutes=5), expires=[None, timedelta(minutes=4)])
    with pytest.raises(InvalidRequest, match=r"^expires .*Z is not after the end of its window"):
        producer.schedule(b"a", timedelta(0), window=60, expires=timedelta(seconds=50))
    assert client.describe("t").scheduled == 0


def test_a_pause_until_after_the_year_9999_leaves_topics_readable(client: Client) -> None:
    client.pause("t", DUE_MS_MAX)
    [info] = client.topics()
    assert client.describe("t").paused_until == info.paused_until == datetime.max.replace(tzinfo=UTC)
