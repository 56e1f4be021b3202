"""Whole runs on real processes: nothing is lost, and everything is put in order afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from dueq_chaos.history.checker import check
from dueq_chaos.history.reading import read_history
from dueq_chaos.nemesis.report.page import page
from dueq_chaos.nemesis.run import Run, Settings, impossible_here, plan_of
from dueq_chaos.nemesis.screen import Screen

pytestmark = pytest.mark.integration


def test_a_leader_killed_and_then_cut_off_costs_no_message(tmp_path: Path) -> None:
    """The scenarios leader-kill and split, one after the other, on one mesh."""
    settings = Settings(("leader-kill", "split"), 16, 7, 200, tmp_path / "run", tmp_path / "history.jsonl")
    impossible = impossible_here()
    wanted = len(plan_of(settings, impossible))
    with (tmp_path / "screen").open("w", encoding="utf-8") as file, Screen(Console(file=file)) as screen:
        outcome = Run(settings, impossible, screen).carry_out()
    assert outcome.good, (outcome.verdicts, outcome.troubles, outcome.examples)
    assert len(outcome.happenings) == wanted
    assert all(happening.end_s is not None for happening in outcome.happenings)
    # How many of each there are is the machine's affair.
    assert outcome.counts["messages acked"] > 50
    assert outcome.counts["pending at the end"] == 0
    assert outcome.counts["ticks that came"] >= outcome.counts["ticks expected"] > 5
    assert outcome.counts["keyed messages that came"] > 5
    assert "kill -9 b" in page(outcome)
    assert check(read_history(settings.history)).clean


def test_ctrl_c_undoes_the_faults_judges_what_is_there_and_exits_with_130(tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "dueq_chaos.cli", "run", "pause-leader", "--duration", "40", "--rate", "50",
        "--data", str(tmp_path / "run"), "--report", str(tmp_path / "report.html"),
    ]  # fmt: skip
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        said: list[str] = []
        for line in process.stdout:
            said.append(line)
            if "begins: pause" in line:
                process.send_signal(signal.SIGINT)
    assert process.returncode == 130, "".join(said)
    assert any("ends: pause" in line for line in said)
    assert "The run was interrupted." in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["no-such-scenario"], "there is no scenario 'no-such-scenario'"),
        (["--duration", "1"], "--duration"),
        (["--data", "."], "is not empty"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_starts(words: list[str], reason: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dueq_chaos.cli", "run", *words],
        capture_output=True, text=True, timeout=300, check=False, cwd=Path(__file__).parent,
    )  # fmt: skip
    assert done.returncode == 2
    assert reason in done.stderr
