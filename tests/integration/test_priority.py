"""A priority topic in real processes: what is urgent is next, whatever waits before it and whoever leads."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from dueq import Client, Message, Outcome
from dueq.cli.main import run
from dueq.errors import InvalidRequest, MessageLeased, MessageNotFound
from dueq.local import LocalMesh
from tests.integration.ledger import PATIENCE_S, now_ms

pytestmark = pytest.mark.integration

BACKLOG = 3_000
FAR_MS = 3_600_000


@pytest.fixture(scope="module")
def mesh() -> Iterator[LocalMesh]:
    with LocalMesh() as found:
        yield found


@pytest.fixture
def ranked(client: Client, topic: str) -> str:
    """A priority topic of one partition."""
    name = f"{topic}-ranked"[-80:]
    client.create_topic(name, kind="priority", replicas=3)
    return name


def next_of(client: Client, topic: str, count: int) -> list[Message]:
    """The messages that one consumer gets, one after the other."""
    found: list[Message] = []
    with client.consumer(topic, credit=1) as consumer:
        while len(found) < count:
            (message,) = consumer.receive(1, timeout=PATIENCE_S)
            message.ack(wait=True)
            found.append(message)
    return found


def test_an_urgent_message_behind_a_backlog_is_next_also_when_its_leader_is_killed(
    mesh: LocalMesh, client: Client, ranked: str
) -> None:
    with client.producer(ranked) as producer:
        ids = producer.schedule_many(
            [b"backlog"] * BACKLOG, now_ms(), ranks=[100 + row % 7 for row in range(BACKLOG)]
        )
        urgent = producer.schedule(b"urgent", now_ms(), rank=3)
        [first] = next_of(client, ranked, 1)
        assert (first.id, first.rank, first.payload) == (urgent, 3, b"urgent")

        producer.change(ids[-1], rank=2)
        late = producer.schedule(b"late", now_ms(), rank=1)
        leader = client.describe(ranked).placement[0].leader
        victim = next(number for number, broker in enumerate(mesh.brokers) if broker.broker_id == leader)
        mesh.kill(victim)
        found = next_of(client, ranked, 4)
        assert [(message.id, message.rank) for message in found[:2]] == [(late, 1), (ids[-1], 2)]
        assert [message.rank for message in found[2:]] == [100, 100]
        assert found[1].version > found[2].version, "which was never changed"
        mesh.start_broker(victim)
        mesh.wait_ready()

        chosen = ids[2_000:2_009]
        assert producer.change_many(chosen, ranks=4) == [Outcome.DONE] * 9
        shown = [message.id for message, _ in zip(client.browse(ranked), range(9), strict=False)]
        assert shown == chosen
        with pytest.raises(MessageNotFound, match=urgent):
            producer.change(urgent, rank=1)
        with client.consumer(ranked, credit=1) as consumer:
            (held,) = consumer.receive(1, timeout=PATIENCE_S)
            with pytest.raises(MessageLeased):
                producer.change(held.id, rank=1)


def test_ranks_that_cannot_be_name_themselves_and_change_nothing(
    client: Client, topic: str, ranked: str
) -> None:
    due = now_ms() + FAR_MS
    with client.producer(topic) as producer:
        plain = producer.schedule(b"x", due)
        for attempt in (lambda: producer.schedule(b"x", due, rank=1), lambda: producer.change(plain, rank=1)):
            with pytest.raises(InvalidRequest, match=r"kind timeline: its messages have no ranks"):
                attempt()
    with client.producer(ranked) as producer:
        kept = producer.schedule(b"x", due, rank=65_535)
        for rank, why in ((65_536, "65535, not 65536"), (-1, "not -1"), (True, "not bool"), ("1", "not str")):
            with pytest.raises(InvalidRequest, match=why):
                producer.schedule(b"x", due, rank=rank)  # type: ignore[arg-type]
            with pytest.raises(InvalidRequest, match=why):
                producer.change(kept, rank=rank)  # type: ignore[arg-type]
    assert [(message.id, message.rank) for message in client.browse(ranked)] == [(kept, 65_535)]
    assert client.describe(topic).scheduled == 1


def test_the_command_line_ranks_changes_and_shows(
    mesh: LocalMesh, client: Client, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--endpoint", mesh.endpoints[0]]
    name = f"{topic}-cli"[-80:]

    def said(*words: str) -> list[str]:
        assert run([*words, *where]) == 0
        return capsys.readouterr().out.splitlines()

    assert said("topic", "create", name, "--kind", "priority") == [f"created {name}"]
    assert client.describe(name).partitions == 1
    ids = [
        line
        for rank in ("7", "5", "9")
        for line in said("schedule", name, f"of rank {rank}", "--in", "1h", "--rank", rank)
    ]
    assert said("change", name, ids[2], "--rank", "6") == [f"{ids[2]} changed"]
    documents = [json.loads(line) for line in said("browse", name, "--json")]
    assert [(document["id"], document["rank"]) for document in documents] == [
        (ids[1], 5),
        (ids[2], 6),
        (ids[0], 7),
    ]
    assert documents[1]["version"] > documents[0]["version"]
    assert "rank" in "\n".join(said("browse", name))
    with client.producer(name) as producer:
        producer.move_many(ids, now_ms())
    lines = said("consume", name, "--count", "2", "--credit", "1", "--ranks")
    assert lines == ["5\tof rank 5", "6\tof rank 9"]
    (last,) = said("consume", name, "--count", "1", "--json")
    assert (json.loads(last)["id"], json.loads(last)["rank"]) == (ids[0], 7)
    assert run(["change", name, ids[0], "--rank", "65536", *where]) == 2
    assert "65535" in capsys.readouterr().err
