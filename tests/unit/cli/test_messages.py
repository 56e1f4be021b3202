"""Commands about messages, against a mesh inside the test."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest

from dueq import Backoff, Client, NotLeader, Outcome, PartialFailure, Producer
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
    said = capsys.readouterr()
    assert said.out.split() == ["done", "done"]
    assert said.err.startswith(f"dueq: the lease {lease[1]} of {lease[0]} is over")
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


def test_describe_shows_the_settings_that_were_given(
    dueq_mesh: Mesh, capsys: pytest.CaptureFixture[str]
) -> None:
    given = (
        "--keys unique --remember 1h30m --max-attempts 3 --expired dead --dead-retention 2d --backoff 500ms"
    )
    assert run(["topic", "create", "t", "-p", "1", *given.split(), "--label", "owner=me"]) == 0
    assert run(["topic", "create", "plain", "-p", "1"]) == 0
    capsys.readouterr()
    assert run(["topic", "describe", "t"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:8] == [
        "keys unique",
        "remember 1h30m",
        "max-attempts 3",
        "backoff 500ms,factor=2,longest=1h,jitter=0.1",
        "expired dead",
        "dead-retention 2d",
        "label owner: me",
    ]
    assert run(["topic", "describe", "plain"]) == 0
    assert "part" in capsys.readouterr().out.splitlines()[2]


def test_a_taken_key_is_named_and_said_to_be_finished(
    dueq_mesh: Mesh, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["topic", "create", "t", "-p", "1", "--keys", "unique", "--remember", "1h"]) == 0
    schedule = ["schedule", "t", "x", "--at", "2040-01-01T00:00:00Z", "--key", "order-7"]
    assert run(schedule) == 0
    message_id = capsys.readouterr().out.split()[-1]
    assert run(schedule) == 1
    text = f"dueq: KeyTaken: key 'order-7' of t names message {message_id}, due at 2040-01-01T00:00:00.000Z"
    assert capsys.readouterr().err == f"{text}\n"
    assert run(["cancel", "t", "--key", "order-7"]) == 0
    assert run(schedule) == 1
    finished = ", which is finished: the key stays taken for as long as the topic remembers it"
    assert capsys.readouterr().err == f"{text}{finished}\n"


def test_where_asks_only_where_somebody_can_answer_and_something_matches(
    dueq_mesh: Mesh, client: Client, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", StringIO())
    client.create_topic("t", max_attempts=1)
    assert run(["where", "cancel", "t"]) == 0
    assert capsys.readouterr().out == "0 cancelled\n"
    assert run(["dead", "redrive", "t"]) == run(["dead", "discard", "t"]) == 0
    assert capsys.readouterr().out == "0 redriven\n0 discarded\n"
    client.producer("t").schedule(b"a", 2208988800000)
    assert run(["where", "move", "t", "--in", "1h", "--dry-run", "--yes"]) == 0
    assert capsys.readouterr().out == "1 message of t would be moved\n"
    assert run(["where", "cancel", "t"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "1 message of t would be cancelled; nobody can be asked here: say --yes." in said
    assert run(["where", "count", "t"]) == run(["where", "count", "t", "--state", "dead"]) == 0
    assert capsys.readouterr().out == "1\n0\n"


def test_tables_are_never_cut_in_a_pipe(
    dueq_mesh: Mesh, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    client.create_topic("t", max_attempts=1)
    name, key = "n" * 90, "k" * 100
    message_id = client.producer("t").schedule(b"a", 2208988800000, key=key)
    assert run(["cron", "create", "t", name, "x", "--every", "1h"]) == 0
    assert run(["browse", "t"]) == run(["cron", "list", "t"]) == 0
    out = capsys.readouterr().out
    assert f"{message_id}  2040-01-01T00:00:00.000Z  {key}" in out
    assert f"{name}  every 1h" in out
    assert run(["get", "t", message_id]) == 0
    fields = {line.split()[0] for line in capsys.readouterr().out.splitlines()[3:] if line.strip()}
    assert {"id", "key", "due"} <= fields
    assert not fields & {"expires", "died_at", "headers", "attempt"}
    assert run(["cron", "show", "t", name]) == 0
    assert "missed ticks made up for  last" in capsys.readouterr().out


def test_a_recurrence_that_is_created_is_json_too(
    dueq_mesh: Mesh, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    client.create_topic("t")
    assert run(["cron", "create", "t", "n", "x", "--every", "1h", "--json"]) == 0
    created = json.loads(capsys.readouterr().out)
    assert (created["name"], created["every_ms"], created["payload"]) == ("n", 3_600_000, "eA==")


def test_a_job_whose_name_is_no_text_is_refused(dueq_mesh: Mesh, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["job", "show", "t", "\udcff"]) == 1
    assert "InvalidRequest: a job id is" in capsys.readouterr().err


def test_texts_of_others_are_shown_as_they_are_and_command_no_terminal(
    dueq_mesh: Mesh, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    client.create_topic("t", labels={"owner": "a\x1b[2Jb"})
    client.create_topic("f", "fair", 1)
    client.create_recurrence("t", "[/red]:smile:", every=3600, headers={"x": "[bold]"})
    message_id = client.producer("t").schedule(
        b"\x1b]0;owned\x07", 2208988800000, key="[/red]\x1b[31mk\u202e"
    )
    client.producer("f").schedule(b"x", 2208988800000, group="[/]" + "g" * 120)
    client.set_endpoint("e", "t", "https://[::1]/[/red]")
    for words, shown in (
        (["cron", "list", "t"], "[/red]:smile:"),
        (["cron", "show", "t", "[/red]:smile:"], "x=[bold]"),
        (["group", "list", "f"], "[/]" + "g" * 120),
        (["endpoint", "list"], "https://[::1]/[/red]"),
        (["endpoint", "show", "e"], "https://[::1]/[/red]"),
        (["browse", "t", "--payloads"], "[/red] [31mk"),
        (["get", "t", message_id, "--payload"], "[/red] [31mk"),
        (["topic", "describe", "t"], "label owner: a [2Jb"),
        (["status"], "f"),
    ):
        assert run(words) == 0
        out = capsys.readouterr().out
        assert shown in out
        assert not {"\x1b", "\x07", "\u202e"} & set(out)


def test_a_recurrence_is_shown_where_the_rules_of_its_zone_are_not(
    dueq_mesh: Mesh, client: Client, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(name: str) -> ZoneInfo:
        raise ZoneInfoNotFoundError(name)

    client.create_topic("t")
    client.create_recurrence("t", "n", cron="0 3 * * *", zone="Europe/Berlin")
    monkeypatch.setattr("dueq.cli.cron.ZoneInfo", unknown)
    assert run(["cron", "show", "t", "n"]) == 0
    out = capsys.readouterr().out
    assert "(Europe/Berlin)" in out
    assert ":00:00.000Z" in out


def test_ids_of_what_is_scheduled_are_printed_though_other_rows_are_refused(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client.create_topic("t", partitions=1, keys="unique")
    client.producer("t").schedule(b"", 2208988800000, key="b")
    (tmp_path / "keys").write_text("a\nb\nc\n")
    assert run(["schedule", "t", f"@{tmp_path / 'keys'}", "--body", "hello", "--in", "1h"]) == 1
    said = capsys.readouterr()
    assert [client.get("t", message_id).key for message_id in said.out.split()] == ["a", "c"]
    assert "1 of 3 rows were refused" in said.err


@pytest.mark.parametrize("command", ["cancel", "move", "change", "trigger", "redrive", "discard"])
def test_what_became_of_each_message_is_said_though_some_could_not_be_asked(
    command: str, client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise PartialFailure("1 of 2 rows failed", [Outcome.DONE, NotLeader("between two leaders")])

    client.create_topic("t", partitions=1, kind="priority")
    first, second = client.producer("t").schedule_many([b"a", b"b"], [2208988800000] * 2)
    monkeypatch.setattr(Client if command == "trigger" else Producer, f"{command}_many", fail)
    more = {"move": ["--in", "2h"], "change": ["--rank", "1"]}.get(command, [])
    named = ["dead", command] if command in ("redrive", "discard") else [command]
    assert run([*named, "t", first, second, *more]) == 1
    done, failed = capsys.readouterr().out.splitlines()
    assert done.startswith(first)
    assert failed == f"{second} failed: between two leaders"


def test_what_became_of_each_key_is_said_though_a_later_one_cannot_be(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    client.create_topic("t", partitions=1, keys="unique")
    client.producer("t").schedule(b"", 2208988800000, key="a")
    assert run(["cancel", "t", "--key", "a", "--key", 2_000 * "b", "--key", "c", "--json"]) == 1
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["outcome"] for each in found] == ["done", "failed", "failed"]
    assert "2000" in found[1]["error"] or "2,000" in found[1]["error"]
    assert run(["cancel", "t", "--key", 2_000 * "b", "--key", "c"]) == 1


def test_a_pull_that_prints_for_longer_than_its_leases_fails(
    dueq_mesh: Mesh, client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def slowly(*_: object) -> str:
        dueq_mesh.advance(2)
        return "printed"

    client.create_topic("t")
    client.producer("t").schedule_many([b"a", b"b"], 0)
    assert run(["pull", "t", "-n", "1", "--lease", "10s", "--ack"]) == 0
    monkeypatch.setattr("dueq.cli.pull.line", slowly)
    assert run(["pull", "t", "-n", "1", "--lease", "1s", "--ack"]) == 1
    assert "the leases of 1 of 1 message were over" in capsys.readouterr().err
    assert client.describe("t").ready == 1


def test_what_is_dead_and_what_matches_is_told_to_programs(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    client.create_topic("t")
    assert run(["dead", "list", "t", "--json"]) == 0
    assert capsys.readouterr().out == ""
    client.producer("t").schedule(b"a", 0, key="é")
    with client.consumer("t") as consumer:
        [message] = consumer.receive(timeout=5)
        message.nack(dead=True, reason="no such card", wait=True)
    assert run(["dead", "list", "t", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["key"], found["reason"], found["attempt"]) == ("é", "no such card", 1)
    assert found["died_at"] > 0
    assert run(["where", "count", "t", "--state", "dead", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"count": 1}
    assert run(["where", "discard", "t", "--name", "gone", "--yes"]) == 0
    capsys.readouterr()
    assert run(["where", "show", "t", "gone", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown == {"name": "gone", "done": 1, "skipped": {}, "left": 0, "ended": True}
    assert run(["where", "show", "t", "never", "--json"]) == 1


def test_a_slip_in_the_end_of_a_pause_is_said_of_its_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["endpoint", "pause", "e", "--until", "soon"]) == 2
    assert "Invalid value for --until: 'soon'" in capsys.readouterr().err


def test_a_period_is_shown_as_it_was_given(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    client.create_topic("t")
    for name, every in (("a", "30d"), ("b", "20m34s567ms"), ("c", "1m30s")):
        assert run(["cron", "create", "t", name, "--every", every]) == 0
    capsys.readouterr()
    assert run(["cron", "list", "t"]) == 0
    out = capsys.readouterr().out
    assert all(f"every {every} " in out for every in ("30d", "20m34s567ms", "1m30s"))


def test_a_recurrence_that_cannot_be_shown_was_made_nevertheless(
    dueq_mesh: Mesh, client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise NotLeader("nobody leads p1")

    client.create_topic("t")
    with monkeypatch.context() as patch:
        patch.setattr(Client, "recurrence", fail)
        assert run(["cron", "create", "t", "nightly", "x", "--every", "1d"]) == 0
        assert capsys.readouterr().out == "created nightly; next tick unknown: nobody leads p1\n"
        assert run(["cron", "update", "t", "nightly", "--payload", "y"]) == 0
        assert run(["cron", "create", "t", "hourly", "x", "--every", "1h", "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "updated nightly; next tick unknown: nobody leads p1\nnull\n"
    assert shown.err == "dueq: created hourly; next tick unknown: nobody leads p1\n"
    assert {found.name for found in client.recurrences("t")} == {"hourly", "nightly"}


def test_the_soonest_of_a_fair_topic_come_first_whatever_their_groups(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its partitions show one group after the other."""
    client.create_topic("f", kind="fair", partitions=2)
    producer = client.producer("f")
    producer.schedule_many([b""] * 40, timedelta(days=1), groups=[f"a{row % 4}" for row in range(40)])
    soon = [producer.schedule(b"", timedelta(minutes=n), group=f"z{n}") for n in (1, 2, 3)]
    assert run(["browse", "f", "--limit", "3", "--json"]) == 0
    assert [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()] == soon


@pytest.mark.parametrize("words", [["status", "--every"], ["consume", "t", "--drain"]])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e9", "-1"])
def test_lengths_of_time_have_bounds(
    words: list[str], value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, value]) == 2
    assert "is not in the range" in capsys.readouterr().err


class Typed(StringIO):
    """What somebody types at a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "words",
    [["topic", "delete", "t"], ["topic", "purge", "t"], ["where", "cancel", "t"], ["dead", "discard", "t"]],
)
def test_a_no_changes_nothing_and_says_so(
    words: list[str],
    dueq_mesh: Mesh,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    client.create_topic("t")
    client.producer("t").schedule_many([b"waits"], timedelta(hours=1))
    client.producer("t").schedule_many([b"dies"], 0)
    with client.consumer("t") as consumer:
        consumer.receive(timeout=5)[0].nack(dead=True, wait=True)
    monkeypatch.setattr("sys.stdin", Typed("n\n"))
    assert run(words) == 1
    assert capsys.readouterr().err == "dueq: nothing was changed\n"
    info = client.describe("t")
    assert (info.scheduled, info.dead) == (1, 1)
    monkeypatch.setattr("sys.stdin", Typed(""))
    assert run(words) == 130, "without an answer it is as after Ctrl-C"
