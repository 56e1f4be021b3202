"""The command line's manners, without a mesh."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from dueq import __version__
from dueq.cli.main import run
from dueq.cli.options import endpoints


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that is taken, but where nobody answers."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.strip() == f"dueq {__version__}"


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    for name in (
        "up",
        "broker",
        "topic",
        "schedule",
        "consume",
        "move",
        "trigger",
        "change",
        "cancel",
        "browse",
        "forecast",
        "export",
        "status",
    ):
        assert f"  {name} " in out
        assert run([name, "--help"]) == 0


@pytest.mark.parametrize("words", [["extend", "id", "7"], ["ack", "id", "7", "--for", "2m"]])
def test_settle_names_its_flag_before_it_asks_anybody(
    words: list[str], closed_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["settle", "t", *words, "-e", f"tcp://127.0.0.1:{closed_port}", "--timeout", "0.1"]) == 2
    assert "--for" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["http://x/", "x:7480", "x y", ""])
def test_a_gateway_takes_no_name_that_no_request_can_have(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["gateway", "--host", name, "--listen", "nowhere"]) == 2
    assert "--host" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["mesh.example.net", "my_host", "10.1.2.3", "[fd00::1]"])
def test_a_gateway_takes_names_and_addresses(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["gateway", "--host", name, "--listen", "nowhere"]) == 1
    assert "--host" not in capsys.readouterr().err


def test_a_mistyped_command_gets_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["shedule", "t", "x"]) == 2
    assert "Did you mean 'schedule'" in capsys.readouterr().err
    assert run(["topic", "creat", "t"]) == 2
    assert "Did you mean 'create'" in capsys.readouterr().err
    for word, command in (("recurrence", "cron"), ("pause", "topic pause"), ("redrive", "dead redrive")):
        assert run([word, "t"]) == 2
        assert f"Did you mean '{command}'" in capsys.readouterr().err


def test_an_option_before_the_command_is_told_where_it_belongs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--endpoint", "tcp://127.0.0.1:7400", "status"]) == 2
    assert "Options come behind the command: dueq COMMAND --endpoint" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"), [([], "created t\n"), (["--exist-ok"], "t exists\n")], ids=["new", "perhaps there"]
)
def test_only_a_topic_that_is_surely_new_is_said_to_be_created(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        import_module("dueq.cli.topic"),
        "connect",
        lambda *_: nullcontext(SimpleNamespace(create_topic=lambda *_, **__: None)),
    )
    assert run(["topic", "create", "t", *words]) == 0
    assert capsys.readouterr().out == said


@pytest.mark.parametrize("verb", ["create", "update"])
def test_topics_are_created_and_changed_by_the_same_options(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["topic", verb, "--help"]) == 0
    out = capsys.readouterr().out
    for name in (
        "payload-bytes-max",
        "horizon",
        "remember",
        "max-attempts",
        "backoff",
        "expired",
        "dead-retention",
        "label",
    ):
        assert f"--{name} " in out


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["topic", "create", "t", "--horizon", "3y"], "--horizon"),
        (["topic", "update", "t", "--backoff", "1s,factor=x"], "--backoff"),
        (["topic", "pause", "t", "--until", "tomorrow"], "--until"),
        (["schedule", "t", "x", "--in", ""], "--in"),
        (["schedule", "t", "x", "--in", "1s", "--expires", "later"], "--expires"),
    ],
)
def test_an_instant_or_a_duration_that_is_none_is_refused_by_the_option(
    arguments: list[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert f"Invalid value for {option}: " in capsys.readouterr().err


def test_a_mistyped_option_gets_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["status", "--jsn"]) == 2
    assert "--json" in capsys.readouterr().err


def test_an_option_that_has_another_name_here_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schedule", "t", "x", "--due", "5s"]) == 2
    assert "Did you mean '--at' or '--in'?" in capsys.readouterr().err
    assert run(["change", "x", "--priority", "3"]) == 2
    assert "Did you mean '--rank'?" in capsys.readouterr().err


def test_the_help_of_an_export_needs_no_pyarrow(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "dueq.cli.parquet", raising=False)
    assert run(["export", "--help"]) == 0
    assert run(["export", str(tmp_path / "new")]) == 1
    assert "needs the package pyarrow: pip install 'dueq[spark]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["schedule", "t", "x"], "Say when"),
        (["schedule", "t", "x", "--in", "soon"], "not a duration"),
        (["schedule", "t", "x", "--at", "2030-01-01T00:00:00"], "no time zone"),
        (["schedule", "t", "x", "--at", "1700000000000", "--in", "1s"], "not both"),
        (["schedule", "t", "x", "--lines", "--in", "1s"], "--lines reads"),
        (["move", "t", "--in", "1s"], "ID"),
        (["status", "--endpoint", "localhost"], "not an endpoint"),
        (["status", "--endpoint", "tcp://127.0.0.1:65536"], "a port of 1 to 65535, not 65536"),
        (["status", "--endpoint", "tcp://127.0.0.1:0"], "a port of 1 to 65535, not 0"),
        (["status", "--timeout", "nan"], "nan is not in the range"),
        (["consume", "t", "--idle", "nan"], "nan is not in the range"),
        (["consume", "t", "--lease", "nan"], "nan is not in the range"),
        (
            ["partition", "recover", "t", "0", "--zookeeper", "z:1", "--timeout", "nan"],
            "nan is not in the range",
        ),
        (["up", "--no-zookeeper", "--brokers", "3"], "--brokers 1"),
    ],
)
def test_wrong_usage_is_2_and_says_what_is_wrong(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    assert why in capsys.readouterr().err


def test_no_broker_is_one_line_on_standard_error_and_1(
    closed_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["topic", "list", "--endpoint", f"tcp://127.0.0.1:{closed_port}", "--timeout", "0.2"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("dueq: Disconnected: ")
    assert len(captured.err.strip().splitlines()) == 1


def test_endpoints_come_from_flags_then_environment_then_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUEQ_ENDPOINTS", "tcp://a:1, tcp://b:2")
    assert endpoints(("tcp://c:3",)) == ["tcp://c:3"]
    assert endpoints(()) == ["tcp://a:1", "tcp://b:2"]
    monkeypatch.delenv("DUEQ_ENDPOINTS")
    assert endpoints(()) == ["tcp://127.0.0.1:7400"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["up", "--store", "redis"], "there is no store 'redis'; there are leveldb, memory"),
        (["up", "--store", "memory", "--data", "somewhere"], "--store memory keeps nothing, so it takes no --data"),
        (["broker", "--id", "b1", "--no-zookeeper", "--store", "redis"], "there are leveldb, memory"),
        (["broker", "--id", "b1", "--no-zookeeper"], "the setting 'data' is missing"),
        (["broker", "--id", "b1", "--no-zookeeper", "--data", ""], "data is a path, not nothing"),
    ],
)  # fmt: skip
def test_a_store_that_cannot_be_is_a_wrong_usage(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run(arguments) == 2
    assert text in " ".join(capsys.readouterr().err.split())


def in_a_shell(command: str, redirected: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "dueq.cli.main", *command.split()]
    return subprocess.run(
        ["sh", "-c", f"{shlex.join(words)} {redirected}"], stderr=subprocess.PIPE, text=True, check=False
    )


@pytest.mark.parametrize("command", ["--version", "broker --help"])
def test_a_full_disk_is_one_line_on_standard_error_and_1(command: str) -> None:
    ended = in_a_shell(command, ">/dev/full")
    assert (ended.returncode, ended.stderr) == (1, "dueq: No space left on device\n")


def test_a_file_that_cannot_be_used_is_one_line_on_standard_error_and_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / ("x" * 300)
    assert run(["export", str(folder)]) == 1
    assert capsys.readouterr().err == f"dueq: {folder}: File name too long\n"


def test_closed_standard_streams_are_as_empty_ones(closed_port: int) -> None:
    mesh = f"--endpoint tcp://127.0.0.1:{closed_port} --timeout 0.2"
    assert in_a_shell("--help", ">&-").returncode == 0
    for command in (f"topic delete t {mesh}", f"schedule t --in 1s {mesh}", f"browse t {mesh}"):
        ended = in_a_shell(command, "<&- >&-")
        assert ended.returncode == 1
        assert ended.stderr.startswith("dueq: Disconnected: ")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["schedule", "t", "x", "--at", "9" * 5000], "Invalid value for --at"),
        (
            ["cron", "create", "t", "n", "--every", "1h", "--dry-run", "--missed", "9" * 5000],
            "missed is one of",
        ),
        (["schedule", "t", "--body", "-", "--in", "1s"], "standard input"),
    ],
)
def test_words_that_cannot_be_are_refused_in_a_few_lines(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) in (1, 2)
    said = capsys.readouterr().err
    assert why in said
    assert len(said) < 1000


def test_a_campaign_writes_nothing_over_its_specification(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark")
    spec = tmp_path / "spring.toml"
    spec.write_text(
        'name="a"\ntopic="t"\nsource={path="x",format="csv"}\npayload={body="x"}\ndue={column="d"}\n'
    )
    for option in ("--report", "--plot"):
        assert run(["campaign", "plan", str(spec), option, str(spec)]) == 2
        assert "is the specification: name another file" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "ascii:surrogateescape"])
def test_what_the_encoding_of_the_output_lacks_is_escaped_as_in_json(encoding: str) -> None:
    program = (
        "import json\n"
        "from dueq.cli.main import _open_standard_streams\n"
        "_open_standard_streams()\n"
        "print(json.dumps('é€😀●', ensure_ascii=False))"
    )
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, env=environment, check=False, timeout=60
    )
    assert (done.returncode, json.loads(done.stdout.decode("latin-1"))) == (0, "é€😀●"), done.stderr
