"""Unique keys, as callers see them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from datetime import timedelta

import pytest

from dueq import AsyncClient, Client, InvalidRequest, KeyTaken, MessageLeased, MessageNotFound, PartialFailure
from dueq.local import LocalMesh
from dueq.time_text import instant_text

HOUR = timedelta(hours=1)


@pytest.fixture
def keyed(client: Client, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic of the test's own with unique keys: three partitions on every broker."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", request.node.name)[:80] + "-keyed"
    client.create_topic(name, partitions=3, replicas=3, keys="unique")
    yield name
    client.delete_topic(name)


def test_a_key_names_one_message(client: Client, keyed: str) -> None:
    producer = client.producer(keyed)
    first = producer.schedule(b"one", HOUR, key="order-1")
    due = client.get(keyed, first).due
    with pytest.raises(
        KeyTaken, match=f"its key names message {first} already, due at {instant_text(due)}"
    ) as error:
        producer.schedule(b"two", HOUR, key="order-1")
    assert (error.value.present, error.value.due) == (first, due)
    assert producer.schedule(b"two", HOUR, key="order-1", on_duplicate="keep") == first
    second = producer.schedule(b"two", HOUR, key="order-1", on_duplicate="replace")
    assert second != first
    with pytest.raises(MessageNotFound):
        client.get(keyed, first)
    found = client.get(keyed, key="order-1", payload=True)
    assert (found.id, found.key, found.payload, found.state) == (second, "order-1", b"two", "waiting")
    assert client.describe(keyed).scheduled == 1
    assert producer.schedule(b"no key", HOUR) != producer.schedule(b"no key", HOUR)


def test_many_rows_are_answered_one_by_one(client: Client, keyed: str) -> None:
    producer = client.producer(keyed)
    keys = [f"k{number}" for number in range(40)]
    ids = producer.schedule_many([b"x"] * 40, HOUR, keys=keys)
    assert len(set(ids)) == 40
    mixed = [*keys[:3], "new", None, "new"]
    kept = producer.schedule_many([b"y"] * 6, HOUR, keys=mixed, on_duplicate="keep")
    assert kept[:3] == ids[:3]
    assert kept[3] == kept[5]
    with pytest.raises(PartialFailure, match=r"4 of 5 rows were refused, the first: its key names") as error:
        producer.schedule_many([b"z"] * 5, HOUR, keys=[*keys[:3], "other", "new"])
    refused = [isinstance(outcome, KeyTaken) for outcome in error.value.outcomes]
    assert refused == [True, True, True, False, True]
    assert client.get(keyed, key="other").id == error.value.outcomes[3]
    with pytest.raises(KeyTaken):
        error.value.retry()
    streamed = list(producer.schedule_stream(iter([b"s"] * 3), HOUR, keys=keys[:3], on_duplicate="keep"))
    assert streamed == ids[:3]
    with pytest.raises(PartialFailure, match="the stream ended at row 0: its key names message"):
        list(producer.schedule_stream(iter([b"s"] * 3), HOUR, keys=[*keys[:2], "streamed"]))
    iterated = producer.schedule_many(iter([b"s"] * 3), HOUR, keys=keys[:3], on_duplicate="keep")
    assert list(iterated) == ids[:3]


def test_changes_by_key(client: Client, keyed: str) -> None:
    producer = client.producer(keyed)
    message_id = producer.schedule(b"", HOUR, key="a")
    producer.move(due=2 * HOUR, key="a")
    found = client.get(keyed, key="a", linearizable=True)
    assert found.id == message_id
    producer.move(due=3 * HOUR, key="a", if_version=found.version)
    producer.cancel(key="a")
    with pytest.raises(MessageNotFound, match=f"the key 'a' names no message of '{keyed}'"):
        producer.cancel(key="a")
    with pytest.raises(MessageNotFound):
        client.get(keyed, key="a")
    assert producer.schedule(b"again", HOUR, key="a") != message_id


def test_a_message_that_is_delivered_is_not_replaced(client: Client, keyed: str) -> None:
    producer = client.producer(keyed)
    message_id = producer.schedule(b"now", 0, key="a")
    with client.consumer(keyed, credit=1) as consumer:
        message = next(iter(consumer))
        assert (message.id, message.key) == (message_id, "a")
        with pytest.raises(
            MessageLeased, match=f"its key names message {message_id}, which is with a consumer"
        ):
            producer.schedule(b"other", HOUR, key="a", on_duplicate="replace")
        assert client.get(keyed, key="a").state == "leased"
        consumer.ack([message])
    assert producer.schedule(b"other", HOUR, key="a") != message_id


def test_a_finished_message_is_remembered(client: Client, topic: str) -> None:
    name = f"{topic}-remembering"
    client.create_topic(name, keys="unique", remember=3600.0)
    assert client.describe(name).remember == HOUR
    producer = client.producer(name)
    message_id = producer.schedule(b"", HOUR, key="a")
    producer.cancel(key="a")
    for does in ("refuse", "replace"):
        with pytest.raises(KeyTaken) as error:
            producer.schedule(b"", HOUR, key="a", on_duplicate=does)
        assert error.value.present == message_id
    assert producer.schedule(b"", HOUR, key="a", on_duplicate="keep") == message_id
    client.update_topic(name, remember=0)
    client.delete_topic(name)


def test_what_cannot_be_is_said(client: Client, keyed: str, topic: str) -> None:
    producer, free = client.producer(keyed), client.producer(topic)
    with pytest.raises(InvalidRequest, match="on_duplicate is one of refuse, keep, replace, not 'reject'"):
        producer.schedule(b"", HOUR, key="a", on_duplicate="reject")
    with pytest.raises(InvalidRequest, match="on_duplicate is 'keep', and the message has no key"):
        producer.schedule(b"", HOUR, on_duplicate="keep")
    with pytest.raises(InvalidRequest, match="are free, and on_duplicate is for unique ones"):
        free.schedule(b"", HOUR, key="a", on_duplicate="keep")
    with pytest.raises(InvalidRequest, match="are free, so 'a' does not name one message"):
        client.get(topic, key="a")
    with pytest.raises(InvalidRequest, match="no message is named: give its id, or its key"):
        producer.cancel()
    with pytest.raises(InvalidRequest, match="a key has 1 to 255 bytes of UTF-8, not 0: ''"):
        client.get(keyed, key="")
    with pytest.raises(InvalidRequest, match="keys is one of free, unique, not 'both'"):
        client.create_topic("no-such", keys="both")
    with pytest.raises(InvalidRequest, match=r"remember is 0 to .* seconds, not 2678400\.0"):
        client.create_topic("no-such", keys="unique", remember=31 * 24 * 3600.0)


def test_groups_of_a_fair_topic_have_keys_of_their_own(client: Client, topic: str) -> None:
    name = f"{topic}-fair"
    client.create_topic(name, kind="fair", partitions=3, keys="unique")
    producer = client.producer(name)
    ids = producer.schedule_many([b""] * 3, HOUR, keys=["a"] * 3, groups=["x", "y.z", "w"])
    assert client.get(name, key="a", group="y").id == ids[1]
    with pytest.raises(InvalidRequest, match="name the group of 'a'"):
        client.get(name, key="a")
    with pytest.raises(InvalidRequest, match="row 0: a message with a key has a group in the fair topic"):
        producer.schedule(b"", HOUR, key="a")
    producer.cancel(key="a", group="w")
    client.delete_topic(name)


def test_the_asyncio_face(mesh: LocalMesh, keyed: str) -> None:
    async def run() -> None:
        async with AsyncClient(mesh.endpoints) as client:
            producer = client.producer(keyed)
            first = await producer.schedule(b"", HOUR, key="a")
            assert await producer.schedule(b"", HOUR, key="a", on_duplicate="keep") == first
            await producer.move(due=2 * HOUR, key="a")
            assert (await client.get(keyed, key="a")).id == first
            await producer.cancel(key="a")

    asyncio.run(run())
