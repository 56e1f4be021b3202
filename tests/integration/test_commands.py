"""Verbs of messages on the command line: versions, replaced headers, passes by name, dead messages by id."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from dueq import Client, Filter
from dueq.cli.main import run
from dueq.local import LocalMesh
from tests.integration.ledger import PATIENCE_S, now_ms

pytestmark = pytest.mark.integration

_FAR_MS = 3_600_000


class Shell:
    """Runs commands against a mesh."""

    def __init__(self, endpoint: str, captured: pytest.CaptureFixture[str]) -> None:
        self._endpoint, self._captured = endpoint, captured

    def __call__(self, *words: str) -> tuple[int, str]:
        """Return the exit code, and all that was printed."""
        code = run([*words, "--endpoint", self._endpoint])
        shown = self._captured.readouterr()
        return code, shown.out + shown.err


@pytest.fixture
def shell(mesh: LocalMesh, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(mesh.endpoints[0], capsys)


def test_a_message_is_changed_only_in_the_version_that_was_seen(
    client: Client, topic: str, shell: Shell
) -> None:
    with client.producer(topic) as producer:
        ids = producer.schedule_many([b"a", b"b"], now_ms() + _FAR_MS)
    version = str(client.get(topic, ids[0]).version)
    assert shell("move", topic, ids[0], "--in", "2h", "--if-version", version)[0] == 0
    for words in (
        ("move", topic, ids[0], "--in", "3h"),
        ("cancel", topic, ids[0]),
        ("trigger", topic, ids[0]),
    ):
        code, said = shell(*words, "--if-version", version)
        assert (code, "it has another version" in said) == (1, True)
    code, said = shell("cancel", topic, *ids, "--if-version", version)
    assert (code, "is for one message, and 2 are named" in said) == (2, True)
    assert len(list(client.browse(topic))) == 2


def test_a_pause_is_shown_until_it_ends(client: Client, topic: str, shell: Shell) -> None:
    client.pause(topic, datetime(2100, 1, 1, tzinfo=UTC))
    assert "paused until 2100-01-01" in shell("topic", "describe", topic)[1]
    client.pause(topic, datetime(2020, 1, 1, tzinfo=UTC))  # it has ended by itself
    assert "paused" not in shell("topic", "describe", topic)[1].replace(topic, "")


def test_what_is_given_back_gets_other_headers(client: Client, topic: str, shell: Shell) -> None:
    with client.producer(topic) as producer:
        producer.schedule(b"a", now_ms(), headers={"tries": "0", "kind": "x"})
    [pulled] = client.pull(topic, 1, PATIENCE_S, 30.0)
    back = ("settle", topic, "nack", pulled.id, str(pulled.token), "--delay", "0s", "--header", "tries=1")
    assert shell(*back) == (0, "done\n")
    [again] = client.pull(topic, 1, PATIENCE_S, 30.0)
    assert (again.id, dict(again.headers)) == (pulled.id, {"tries": "1"})
    code, said = shell("settle", topic, "ack", again.id, str(again.token), "--header", "tries=2")
    assert (code != 0, "headers" in said) == (True, True)
    assert shell("settle", topic, "ack", again.id, str(again.token)) == (0, "done\n")


def test_a_pass_is_shown_and_stopped_by_its_name(client: Client, topic: str, shell: Shell) -> None:
    with client.producer(topic) as producer:
        producer.schedule_many([b"a"] * 3, now_ms() + _FAR_MS)
    client.shift_where(topic, Filter(), by=timedelta(hours=1), name="later").wait()
    assert shell("where", "show", topic, "later") == (0, "later: 3 done; ended\n")
    assert shell("where", "stop", topic, "later") == (0, "later: 3 done; ended\n")
    assert shell("where", "show", topic, "never") == (1, "dueq: nothing is known of pass never\n")


def test_dead_messages_are_named_by_id_or_by_a_filter(client: Client, topic: str, shell: Shell) -> None:
    with client.producer(topic) as producer, client.consumer(topic) as consumer:
        ids = producer.schedule_many([b"a"] * 4, now_ms(), keys=["a-1", "a-2", "b-1", "b-2"])
        for _ in ids:
            consumer.receive(1, timeout=PATIENCE_S)[0].nack(dead=True, wait=True)
    assert shell("dead", "redrive", topic, ids[0]) == (0, f"{ids[0]} redriven\n")
    assert shell("dead", "discard", topic, ids[1], ids[0])[0] == 1
    assert shell("where", "discard", topic, "--key-prefix", "b-", "--yes") == (0, "2 discarded\n")
    assert list(client.browse(topic, state="dead")) == []
    assert shell("dead", "redrive", topic, ids[0], "--spread", "1s")[0] == 2
