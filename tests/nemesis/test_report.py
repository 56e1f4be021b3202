"""The report is one page that needs nothing else, and shows everything."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from dueq_chaos.nemesis.conductor import Happening
from dueq_chaos.nemesis.outcome import Outcome
from dueq_chaos.nemesis.report.drawing import Drawing
from dueq_chaos.nemesis.report.lanes import lay_out, rows_of
from dueq_chaos.nemesis.report.page import page, write_report
from dueq_chaos.nemesis.series import Series


def _series(seconds: int = 60) -> Series:
    rates = np.linspace(0, 300, seconds)
    late = np.where(np.arange(seconds) % 7 == 3, np.nan, 20.0)
    return Series(1000.0, rates, rates[::-1], late, late * 3, late * 1000)


def _outcome(**changes: object) -> Outcome:
    values: dict[str, object] = {
        "settings": {"scenarios": "leader-kill", "seed": "7"},
        "impossible": {"clock": "libfaketime is not installed"},
        "happenings": [
            Happening("kill", "processes", "kill -9 b1 (leader)", 1005.0, 1011.0),
            Happening("slow", "network", "delay 50 ms <b2>", 1007.0, 1030.0),
            Happening("pause", "processes", "pause b2", 1050.0),
        ],
        "deaths": [(1020.0, "b3 ended with 75\nNo space left on device")],
        "series": _series(),
        "faults_s": (1000.0, 1060.0),
        "counts": {"messages acknowledged": 12345},
        "verdicts": {"lost": 0, "delivered early": 0},
    }
    return Outcome(**(values | changes))  # type: ignore[arg-type]


def test_the_page_shows_faults_verdict_settings_and_what_is_impossible() -> None:
    found = page(_outcome())
    for text in (
        "kill -9 b1 (leader)", "delay 50 ms &lt;b2&gt;", "b3 ended with 75", "12,345", "delivered early",
        "libfaketime is not installed", "Nothing happened that must not",
    ):  # fmt: skip
        assert text in found


def test_the_page_asks_for_nothing_from_elsewhere() -> None:
    assert not re.search(r"https?:|src=|href=|@import|url\(", page(_outcome()))


def test_what_must_not_happen_is_said_in_the_first_line() -> None:
    found = page(_outcome(verdicts={"lost": 2}, troubles=["b1 ended with 70"], examples=["lost: message 1"]))
    assert "3 things happened that must not" in found
    assert "b1 ended with 70" in found
    assert "lost: message 1" in found


def test_the_picture_is_well_formed_and_without_numbers_that_are_none() -> None:
    svg = Drawing(_outcome()).svg()
    ElementTree.fromstring(svg)
    assert "nan" not in svg


@pytest.mark.parametrize("seconds", [1, 5, 3600])
def test_a_run_of_any_length_without_faults_and_traffic_can_be_drawn(seconds: int) -> None:
    nothing, never = np.zeros(seconds), np.full(seconds, np.nan)
    series = Series(0.0, nothing, nothing, never, never, never)
    ElementTree.fromstring(Drawing(_outcome(series=series, happenings=[], deaths=[])).svg())


def test_a_report_is_written_as_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(_outcome(), path)
    assert path.read_text(encoding="utf-8") == page(_outcome())


def test_neither_bars_nor_labels_of_a_row_overlap() -> None:
    happenings = [
        Happening(
            "kill", "processes", f"kill -9 b{i % 3 + 1} (leader)", i * 1.7, i * 1.7 + (i * 13) % 11 + 0.1
        )
        for i in range(60)
    ]
    bars = lay_out(happenings, 0.0, 10.0, 1000.0)
    assert rows_of(bars)["processes"] == 1 + max(bar.row for bar in bars)
    for row in {bar.row for bar in bars}:
        spans = sorted(
            (min(bar.x, bar.label_x), max(bar.x + bar.width, bar.label_x + 6.1 * len(bar.happening.text)))
            for bar in bars
            if bar.row == row
        )
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))


def test_what_still_lasts_reaches_the_right_edge() -> None:
    (bar,) = lay_out([Happening("pause", "processes", "pause b1", 5.0)], 0.0, 10.0, 100.0)
    assert (bar.x, bar.width) == (50.0, 50.0)
