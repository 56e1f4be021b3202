"""`dueq-chaos` and its `check`: what people and programs get to see."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dueq_chaos.cli import run
from tests.unit.history.scribe import Scribe


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    scribe = Scribe()
    scribe.schedule("m", 1_000)
    scribe.deliver("m", 1_000, 1_000.5)
    scribe.settle("ack", "m", 1_100, 1_105)
    return scribe.write(tmp_path / "clean.jsonl")


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    scribe = Scribe()
    for number in range(5):
        scribe.schedule(f"lost-{number}", 1_000)
    scribe.schedule("early", 1_000, until=5)
    scribe.note(900, "broker b2 is killed")
    scribe.deliver("early", 1_000, 900)
    scribe.settle("ack", "early", 1_100, 1_105)
    return scribe.write(tmp_path / "wrong.jsonl")


def test_help_names_every_command_without_importing_any(capsys: pytest.CaptureFixture[str]) -> None:
    code = "import sys; from dueq_chaos.cli import run; run(['--help']); print(sorted(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    text, modules = out.rsplit("\n[", 1)
    for name in ("sim", "run", "check"):
        assert f"  {name} " in text
    assert "dueq_chaos." in modules
    for heavy in ("dueq_chaos.sim", "dueq_chaos.nemesis", "dueq_chaos.history", "rich"):
        assert f"'{heavy}" not in modules
    assert run(["check", "--help"]) == 0
    assert "--clock-ms" in capsys.readouterr().out


def test_a_mistyped_command_gets_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["chekc", "history.jsonl"]) == 2
    assert "Did you mean 'check'" in capsys.readouterr().err


def test_a_clean_history_exits_with_0(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(clean)]) == 0
    out = capsys.readouterr().out
    assert "Nothing happened that must not happen." in out
    assert "lateness p50 0.500 ms" in out
    assert "clocks 50 ms" in out


def test_findings_are_told_as_stories_and_exit_with_1(
    wrong: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check", str(wrong), "--examples", "2"]) == 1
    out = capsys.readouterr().out
    assert "lost-0: lost: acknowledged, never delivered" in out
    assert "lost-2: lost" not in out
    assert "and 3 more lost" in out
    story = out[out.index("early: delivered early: it left its leader 100.000 ms before") :]
    for part in (
        "p schedule due +1000 ms → done",
        "broker b2 is killed",
        "c receives it: token 1",
        "c ack token 1",
    ):
        assert part in story
        story = story[story.index(part) :]
    assert f"{wrong}:" in story


def test_json_holds_the_same(wrong: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(wrong), "--json", "--examples", "1"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["clean"] is False
    assert document["counts"]["acknowledged"] == 6
    assert document["verdicts"]["lost"]["messages"] == 5
    [example] = document["verdicts"]["delivered early"]["examples"]
    assert example["id"] == "early"
    assert [event["who"] for event in example["story"]] == ["p", "", "c", "c"]


def test_a_wider_benefit_of_the_doubt_can_be_given(wrong: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(wrong), "--grace", "59.5", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["verdicts"]["lost"]["messages"] == 0


def test_an_unreadable_file_exits_with_2_and_names_the_line(
    clean: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = clean.read_text().splitlines(keepends=True)
    clean.write_text("".join([*lines[:2], "{oops\n", *lines[2:]]))
    assert run(["check", str(clean)]) == 2
    assert f"{clean}:3: not JSON" in capsys.readouterr().err
    assert run(["check", str(clean.parent / "none.jsonl")]) == 2


def test_a_cut_last_line_is_tolerated_and_said(clean: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clean.write_bytes(clean.read_bytes() + b'{"event": "inv')
    assert run(["check", str(clean)]) == 0
    assert "the last line was cut off" in capsys.readouterr().out


def test_an_empty_history_is_clean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_text('{"dueq_history": 1}\n')
    assert run(["check", str(path)]) == 0
