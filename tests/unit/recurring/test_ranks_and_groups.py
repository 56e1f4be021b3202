"""Recurrences whose messages have ranks and groups, by the real client and broker with a clock of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from dueq import Client, InvalidRequest, RecurrenceExists, RecurrenceNotFound
from dueq.testing import Mesh, mesh
from dueq_codecs.groups import home_of_group

START = datetime(2026, 3, 28, 12, tzinfo=UTC)


@pytest.fixture
def dueq_mesh() -> Iterator[Mesh]:
    with mesh(START) as found:
        yield found


@pytest.fixture
def client(dueq_mesh: Mesh) -> Client:
    return dueq_mesh.client()


def shown(client: Client, topic: str, count: int) -> list[tuple[str, int, str | None]]:
    """Payload, rank and group of the next messages."""
    found = []
    with client.consumer(topic, credit=1) as consumer:
        while len(found) < count:
            [message] = consumer.receive(1, timeout=3600)
            found.append((message.payload.decode(), message.rank, message.group))
            message.ack()
    return found


def test_each_message_has_the_rank_and_group_that_the_recurrence_says(client: Client) -> None:
    client.create_topic("t", kind="fair")
    client.create_recurrence("t", "plain", every=60, payload=b"plain")
    client.create_recurrence("t", "low", every=60, payload=b"low", rank=9, group="acme.eu")
    client.create_recurrence("t", "high", every=60, payload=b"high", rank=1, group="acme.eu")
    client.create_recurrence("t", "zoo", every=60, payload=b"zoo", group="zoo")
    found = shown(client, "t", 8)
    assert set(found) == {("plain", 0, ""), ("low", 9, "acme.eu"), ("high", 1, "acme.eu"), ("zoo", 0, "zoo")}
    names = [payload for payload, *_ in found]
    assert names.index("high") < names.index("low"), "the smaller rank of the group goes first"
    info = client.recurrence("t", "low")
    assert info is not None
    assert (info.rank, info.group) == (9, "acme.eu")


def test_in_a_priority_topic_ticks_of_one_instant_come_by_rank(client: Client) -> None:
    client.create_topic("t", kind="priority")
    for rank in (7, 3, 5):
        client.create_recurrence("t", f"r{rank}", cron="* * * * *", payload=b"%d" % rank, rank=rank)
    assert [rank for _, rank, _ in shown(client, "t", 6)] == [3, 5, 7, 3, 5, 7]


def test_an_update_gives_messages_to_come_another_rank_and_group(client: Client) -> None:
    client.create_topic("t", kind="fair")
    client.create_recurrence("t", "r", cron="* * * * *", rank=4, group="a")
    assert shown(client, "t", 1) == [("", 4, "a")]
    client.update_recurrence("t", "r", rank=2, group="b.c")
    assert shown(client, "t", 1) == [("", 2, "b.c")]
    client.update_recurrence("t", "r", rank=0, group="")
    assert shown(client, "t", 1) == [("", 0, "")]
    info = client.recurrence("t", "r")
    assert info is not None
    assert (info.rank, info.group) == (0, "")


def test_a_recurrence_lives_where_its_group_does(client: Client) -> None:
    """However its name sounds; and calls by name find it there."""
    client.create_topic("t", kind="fair", partitions=5)
    groups = ["", "acme.eu", "zoo", "b", "x.y"]
    for at, group in enumerate(groups):
        client.create_recurrence("t", f"r{at}", cron="* * * * *", payload=b"%d" % at, group=group or None)
    with pytest.raises(RecurrenceExists):
        client.create_recurrence("t", "r1", every=60, group="acme.us")
    assert sorted(shown(client, "t", 5)) == sorted((str(at), 0, group) for at, group in enumerate(groups))
    assert [info.name for info in client.recurrences("t")] == [f"r{at}" for at in range(5)]
    for at, group in enumerate(groups):
        info = client.recurrence("t", f"r{at}")
        assert info is not None
        assert info.group == group
        client.pause_recurrence("t", info.name)
        client.resume_recurrence("t", info.name)
        client.trigger_recurrence("t", info.name)
        client.update_recurrence("t", info.name, rank=at)
    assert sorted(shown(client, "t", 5))[3] == ("3", 0, "b"), "what was asked for came at once"
    stranger = next(
        name for name in ("c", "d", "e", "f", "g", "h") if home_of_group(name, 5) != home_of_group("zoo", 5)
    )
    with pytest.raises(InvalidRequest, match=f"the home of recurrence 'r2' with group '{stranger}'"):
        client.update_recurrence("t", "r2", group=stranger)
    client.update_recurrence("t", "r2", group="zoo.north")
    client.delete_recurrence("t", "r2")
    with pytest.raises(RecurrenceNotFound):
        client.trigger_recurrence("t", "r2")
    assert client.recurrence("t", "r2") is None


def test_topics_that_have_neither_refuse_them(client: Client) -> None:
    client.create_topic("t")
    client.create_topic("p", kind="priority")
    with pytest.raises(InvalidRequest, match="topic t is of kind timeline: its messages have no ranks"):
        client.create_recurrence("t", "r", every=60, rank=1)
    with pytest.raises(InvalidRequest, match="topic p is of kind priority: its messages have no groups"):
        client.create_recurrence("p", "r", every=60, rank=1, group="a")
    client.create_recurrence("p", "r", every=60, rank=1)
    with pytest.raises(InvalidRequest, match="no groups"):
        client.update_recurrence("p", "r", group="a")
    with pytest.raises(InvalidRequest, match="between 0 and 65535, not 65536"):
        client.update_recurrence("p", "r", rank=65_536)
    with pytest.raises(InvalidRequest, match="has an empty level"):
        client.create_recurrence("t", "r", every=60, group="a..b")
    assert json.dumps([info.name for info in client.recurrences("t")]) == "[]"


def test_an_update_that_names_nothing_is_refused(client: Client) -> None:
    client.create_topic("t")
    client.create_recurrence("t", "r", every=60.0, payload=b"a")
    with pytest.raises(InvalidRequest, match="there is nothing to change: name a term"):
        client.update_recurrence("t", "r")
    [info] = client.recurrences("t")
    assert info.name == "r"
