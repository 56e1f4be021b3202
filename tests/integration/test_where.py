"""Changing all that matches a filter, in a real mesh: each message once, also when leaders are killed meanwhile."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dueq import Client, Filter, InvalidRequest, PassExists
from dueq.cli.main import run
from dueq.local import LocalMesh
from tests.integration.ledger import PATIENCE_S, now_ms

pytestmark = pytest.mark.integration

HOUR_MS = 3_600_000


def dues(client: Client, topic: str) -> dict[str, int]:
    """The due of each message that waits, by key."""
    return {message.key: message.due for message in client.browse(topic)}


def test_what_matches_is_counted_shifted_moved_and_cancelled(
    mesh: LocalMesh, client: Client, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    due = now_ms() + HOUR_MS
    with client.producer(topic) as producer:
        keys = [f"{'even' if row % 2 == 0 else 'odd'}-{row}" for row in range(2_000)]
        producer.schedule_many([b"x"] * 2_000, [due + row for row in range(2_000)], keys=keys)
        producer.schedule(bytes(600_000), due, key="even-long")
    even = Filter(key_prefix="even-")
    assert client.count_where(topic, even) == 1_001
    assert client.count_where(topic, Filter(due_from=due + 10, due_until=due + 20)) == 10
    shifted = client.shift_where(topic, even, by=timedelta(hours=1), name="later")
    shifted.wait()
    assert (shifted.done, dict(shifted.skipped), shifted.left) == (1_001, {}, 0)
    found = dues(client, topic)
    assert all(found[key] == due + row + HOUR_MS * (row % 2 == 0) for row, key in enumerate(keys))
    client.shift_where(topic, even, by=timedelta(hours=1), name="later").wait()
    assert dues(client, topic) == found, "the same pass is not made twice"
    with pytest.raises(PassExists, match="later"):
        client.cancel_where(topic, even, name="later")
    moved = client.move_where(topic, even, to=due + 5 * HOUR_MS, spread=100.0)
    moved.wait()
    instants = sorted(instant for key, instant in dues(client, topic).items() if key.startswith("even-"))
    assert (moved.done, instants[0] >= due + 5 * HOUR_MS, instants[-1] < due + 5 * HOUR_MS + 100_000) == (
        1_001, True, True,
    )  # fmt: skip
    assert instants[-1] - instants[0] > 90_000
    with pytest.raises(InvalidRequest, match="no ranks"):
        client.change_where(topic, even, rank=3)
    arguments = ["where", "cancel", topic, "--key-prefix", "odd-", "--yes", "--endpoint", mesh.endpoints[0]]
    assert run(arguments) == 0
    assert "1,000 cancelled" in capsys.readouterr().out
    assert client.count_where(topic, Filter()) == 1_001


def test_what_is_leased_or_beyond_the_horizon_is_left_and_counted(client: Client, topic: str) -> None:
    client.update_topic(topic, horizon=7_200)
    due = now_ms() + HOUR_MS
    with client.producer(topic) as producer, client.consumer(topic) as consumer:
        producer.schedule_many([b"x"] * 20, [due + row * 60_000 for row in range(20)])
        producer.schedule(b"now", now_ms())
        (message,) = consumer.receive(1, timeout=PATIENCE_S)
        work = client.shift_where(topic, Filter(), by=timedelta(seconds=HOUR_MS // 1000 - 10 * 60))
        work.wait()
        assert work.skipped["leased"] == 1
        assert work.done + work.skipped["horizon"] == 20
        assert 8 <= work.skipped["horizon"] <= 11
        message.ack(wait=True)


def test_ranks_and_groups_are_changed_by_filter(client: Client) -> None:
    name = "where-fair"
    client.create_topic(name, kind="fair")
    with client.producer(name) as producer:
        groups = ["acme.eu", "acme.us", "acmeist"]
        producer.schedule_many([b"x"] * 3, timedelta(hours=1), groups=groups, ranks=9)
    assert client.count_where(name, Filter(group="acme")) == 2
    work = client.change_where(name, Filter(group="acme"), rank=3)
    work.wait()
    assert (work.done, sorted(message.rank for message in client.browse(name))) == (2, [3, 3, 9])
    client.delete_topic(name)
