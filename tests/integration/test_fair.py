"""A fair topic in real processes: groups take turns, and what is set for them holds."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from dueq import Client, Message
from dueq.cli.main import run
from dueq.errors import InvalidRequest
from dueq.local import LocalMesh
from tests.integration.ledger import PATIENCE_S, now_ms

pytestmark = pytest.mark.integration

MANY = 2_000


@pytest.fixture
def fair(client: Client, topic: str) -> str:
    """A fair topic of one partition."""
    name = f"{topic}-fair"[-80:]
    client.create_topic(name, kind="fair", replicas=3)
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


def test_groups_take_turns_and_what_is_set_for_them_holds(client: Client, fair: str) -> None:
    with client.producer(fair) as producer:
        producer.schedule_many([b"much"] * MANY, now_ms(), groups="acme.newsletter")
        producer.schedule_many([b"urgent", b"plain"], now_ms(), groups="acme.mail", ranks=[0, 7])
        producer.schedule_many([b"little"] * 4, now_ms(), groups="zoo")
        producer.schedule(b"plain", now_ms() + 3_600_000)
        browsed = Counter(message.group for message in client.browse(fair))
        assert browsed == {"acme.newsletter": MANY, "acme.mail": 2, "zoo": 4, "": 1}
        first = next_of(client, fair, 6)
        assert Counter(message.group.split(".")[0] for message in first if message.group) == {
            "acme": 3,
            "zoo": 3,
        }
        mail = [message.payload for message in first if message.group == "acme.mail"]
        assert mail == [b"urgent", b"plain"][: len(mail)]

        client.set_group(fair, "acme", weight=3)
        producer.schedule_many([b"little"] * 9, now_ms(), groups="zoo")
        turns = Counter(message.group == "zoo" for message in next_of(client, fair, 12))
        assert turns[True] in (3, 4), "three of acme for each of zoo"

        client.set_group(fair, "acme", paused=True)
        client.set_group(fair, "zoo", max_unacked=2)
        with client.consumer(fair, credit=50) as consumer:
            held = consumer.receive(50, timeout=PATIENCE_S)
            while len(held) < 2:
                held += consumer.receive(50, timeout=PATIENCE_S)
            assert [message.group for message in held] == ["zoo", "zoo"]
            held[0].nack(delay=3600.0, wait=True)
            (third,) = consumer.receive(50, timeout=PATIENCE_S)
            assert third.group == "zoo"
        known = {group.name: group for group in client.groups(fair)}
        assert (known["acme"].weight, known["acme"].paused, known["zoo"].max_unacked) == (3, True, 2)
        assert known["acme.newsletter"].messages > MANY // 2


def test_a_rate_holds_back_one_group_and_no_other(client: Client, fair: str) -> None:
    """The limited group delivers its burst, and the rest of it does not hold up the others."""
    client.set_group(fair, "slow", rate=1, burst=3)
    with client.producer(fair) as producer:
        producer.schedule_many([b"s"] * 1_000, now_ms(), groups="slow.a")
        producer.schedule_many([b"f"] * 300, now_ms(), groups="fast")
    began = now_ms()
    found: Counter[str | None] = Counter()
    with client.consumer(fair) as consumer:
        while found["fast"] < 300:
            batch = consumer.receive(1_000, timeout=PATIENCE_S)
            found.update(message.group for message in batch)
            consumer.ack(batch)
    seconds = (now_ms() - began) / 1000
    # Each leader there was begins with the burst.
    assert found["slow.a"] <= 2 * 3 + seconds + 1
    assert found["slow.a"] >= 1


def test_forecasts_and_exports_know_groups_and_ranks(
    mesh: LocalMesh, client: Client, fair: str, tmp_path: Path
) -> None:
    second = (now_ms() // 1_000 + 1_800) * 1_000
    wanted = {b"%d" % row: (row % 3, f"acme.x{row % 40}" if row % 2 else "") for row in range(200)}
    with client.producer(fair) as producer:
        ranks, groups = zip(*wanted.values(), strict=True)
        producer.schedule_many(
            [*wanted], [second + row % 2 * 1_000 for row in range(200)], ranks=ranks, groups=groups
        )
    assert client.forecast(fair, 3_600) == [(second, 100), (second + 1_000, 100)]
    assert client.describe(fair).scheduled == 200
    shown = {each.payload: (each.rank, each.group) for each in client.browse(fair, payloads=True)}
    assert shown == wanted
    pq = pytest.importorskip("pyarrow.parquet")
    assert run(["export", str(tmp_path / "out"), "--topic", fair, "--payloads", "-e", mesh.endpoints[0]]) == 0
    rows = [row for path in (tmp_path / "out/timelines").iterdir() for row in pq.read_table(path).to_pylist()]
    assert {row["payload"]: (row["rank"], row["group"] or "") for row in rows} == wanted


def test_the_command_line_sets_and_lists_groups(
    mesh: LocalMesh, client: Client, fair: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--endpoint", mesh.endpoints[0]]
    for group in ("acme.mail", ""):
        grouped = ["--group", group] if group else []
        assert run(["schedule", fair, f"of {group}", "--in", "0s", *grouped, *where]) == 0
    capsys.readouterr()
    assert run(["consume", fair, "--count", "2", "--credit", "1", "--groups", *where]) == 0
    assert sorted(capsys.readouterr().out.splitlines()) == ["\tof ", "acme.mail\tof acme.mail"]
    assert run(["schedule", fair, "x", "--in", "1h", "--group", "a..b", *where]) == 1
    assert "'a..b' has an empty level" in capsys.readouterr().err
    assert run(["group", "set", fair, "acme", "--rate", "10", "--burst", "20", "--weight", "4", *where]) == 0
    assert run(["group", "list", fair, "--json", *where]) == 0
    (shown,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {name: shown[name] for name in ("name", "rate", "burst", "weight", "max_unacked", "paused")} == {
        "name": "acme", "rate": 10, "burst": 20, "weight": 4, "max_unacked": 0, "paused": False,
    }  # fmt: skip
    with pytest.raises(InvalidRequest, match="rate is 0 to 1000000, not -1"):
        client.set_group(fair, "acme", rate=-1)
