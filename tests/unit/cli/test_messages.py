"""Commands about messages, against a mesh inside the test."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from dueq import Backoff, Client
from dueq.cli.main import run
from dueq.testing import Mesh, mesh


@pytest.fixture
def dueq_mesh(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mesh]:
    with mesh() as found:
        monkeypatch.setattr("dueq.cli.options.Client", lambda *args, **options: found.client())
        yield found


@pytest.fixture
def client(dueq_mesh: Mesh) -> Client:
    return dueq_mesh.client()


def test_a_topic_gets_a_backoff_and_shows_its_dead(
    dueq_mesh: Mesh, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    backoff = "--backoff", "2s,factor=3,longest=1h,jitter=0,doublings=4"
    assert run(["topic", "create", "t", "-p", "1", *backoff]) == 0
    assert client.describe("t").backoff == Backoff(2.0, 3.0, 3600.0, 0.0, 4)
    assert run(["topic", "update", "t", "--backoff", "500ms", "--max-attempts", "1"]) == 0
    assert client.describe("t").backoff == Backoff(0.5)
    for wrong in ("1s,faktor=2", "1s,factor=two"):
        assert run(["topic", "update", "t", "--backoff", wrong]) == 2
        assert "is none of factor=…" in capsys.readouterr().err.replace("\n", " ")
    capsys.readouterr()
    assert run(["schedule", "t", "pay", "--in", "0s"]) == 0
    message_id = capsys.readouterr().out.strip()
    with client.consumer("t") as consumer:
        [message] = consumer.receive(timeout=5)
        message.nack(reason="no such card", wait=True)
    assert run(["topic", "describe", "t", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["dead"] == 1
    assert run(["status"]) == 0
    assert "dead" in capsys.readouterr().out
    assert run(["get", "t", message_id, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["state"], found["reason"]) == ("dead", "no such card")
    assert run(["where", "redrive", "t", "--yes"]) == 0
    assert capsys.readouterr().out == "1 redriven\n"
    assert run(["topic", "purge", "t", "--state", "all", "--yes"]) == 0
    assert "1 cancelled" in capsys.readouterr().out


def test_scheduled_messages_expire(
    dueq_mesh: Mesh, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    client.create_topic("t")
    for when in ("10m", "2040-01-01T00:00:00Z", "2208988800000"):
        assert run(["schedule", "t", "x", "--in", "5m", "--expires", when, "--max-attempts", "3"]) == 0
    ids = capsys.readouterr().out.split()
    expires = [client.get("t", message_id).expires for message_id in ids]
    assert 0 <= expires[0] - dueq_mesh.now_ms - 600_000 < 1000
    assert expires[1:] == [2208988800000] * 2
    assert run(["schedule", "t", "x", "--in", "5m", "--expires", "soon"]) == 2


def test_messages_are_pulled_and_settled(
    dueq_mesh: Mesh, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    client.create_topic("t")
    client.producer("t").schedule_many([b"a", b"b"], 0)
    assert run(["pull", "t", "-n", "1", "--wait", "5s", "--lease", "1m", "--consumer", "w", "--json"]) == 0
    taken = json.loads(capsys.readouterr().out)
    assert (taken["payload"], taken["attempt"]) == ("a", 1)
    lease = taken["id"], str(taken["token"])
    assert run(["settle", "t", "extend", *lease, "--for", "2m"]) == 0
    assert run(["settle", "t", "nack", *lease, "--reason", "no such card"]) == 0
    assert run(["settle", "t", "ack", *lease]) == 1
    assert capsys.readouterr().out.split() == ["done", "done", "stale"]
    assert client.get("t", taken["id"]).reason == "no such card"
    assert run(["pull", "t", "--wait", "5s", "--ack", "--keys"]) == 0
    assert sorted(capsys.readouterr().out.splitlines()) == ["\ta", "\tb"]
    assert run(["pull", "t"]) == 0
    assert capsys.readouterr().out == ""
    assert client.describe("t").leased == 0


def test_a_consumer_has_a_name_and_acks_as_it_is_told(
    dueq_mesh: Mesh, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    client.create_topic("t")
    client.producer("t").schedule_many([b"a", b"b"], 0)
    assert run(["consume", "t", "-n", "1", "--name", "w"]) == 0
    assert run(["consume", "t", "-n", "1", "--name", "w", "--ack-on-receipt"]) == 0
    assert sorted(capsys.readouterr().out.splitlines()) == ["a", "b"]
    assert client.describe("t").ready == 0
    assert run(["consume", "t", "--ack-on-receipt", "--no-ack"]) == 2


def test_leased_messages_are_listed_and_detached_ones_stay_leased(
    dueq_mesh: Mesh, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["topic", "create", "t", "-p", "1", "--rate", "50", "--burst", "7"]) == 0
    info = client.describe("t")
    assert (info.rate, info.burst) == (50, 7)
    capsys.readouterr()
    assert run(["leased", "t"]) == 0
    assert capsys.readouterr().out == "no consumer has a message of t\n"
    ids = [client.producer("t").schedule(b"x", 0, key=f"k-{number}") for number in range(2)]
    with client.consumer("t", credit=2) as consumer:
        held = consumer.receive(2)
        assert run(["leased", "t", "--json"]) == 0
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert sorted(each["id"] for each in found) == sorted(ids)
        assert {(each["state"], each["attempt"]) for each in found} == {("leased", 1)}
        assert all(each["lease_ends"] > dueq_mesh.now_ms for each in found)
        assert run(["leased", "t", "--limit", "1"]) == 0
        text = capsys.readouterr().out
        assert f"more: --after {found[0]['id']}" in text
        assert run(["leased", "t", "--after", found[0]["id"], "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["id"] == found[1]["id"]
        for message in held:
            message.ack()
