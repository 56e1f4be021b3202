"""What the report says about the machine that it ran on."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from dueq.bench.figures import Figure, Row
from dueq.bench.machine import Machine, Processor
from dueq.bench.report import Report


def test_the_stolen_share_is_that_of_the_time_that_was_wanted() -> None:
    earlier = Processor.read("cpu  100 10 50 9000 7 1 2 40 0 0\n")
    later = Processor.read("cpu  160 10 60 9900 7 2 11 60 0 0\n")
    assert later.stolen_since(earlier) == pytest.approx(20 / (60 + 10 + 1 + 9 + 20))
    assert later.stolen_since(later) == 0.0


def test_a_report_names_the_measurements_of_which_the_host_kept_time_back(tmp_path: Path) -> None:
    figures = [Figure(Row(name, "in words", "ms"), (1.0,)) for name in ("bulk/p50", "single/p50")]
    stolen = {"bulk": 0.31, "single": 0.02}
    report = Report(Machine.find(tmp_path), figures, False, 1.0, stolen=stolen)
    out = StringIO()
    report.print(Console(file=out, width=200))
    told = [line for line in out.getvalue().splitlines() if "host" in line]
    assert len(told) == 1
    assert "bulk 31%" in told[0]
    assert "single" not in told[0]
    assert report.document()["stolen"] == stolen
