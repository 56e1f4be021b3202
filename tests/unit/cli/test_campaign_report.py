"""A campaign that is loaded says so, whatever becomes of its report."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

import dueq.campaign
import dueq.spark
from dueq.campaign.report import LOADED, CampaignReport
from dueq.campaign.spec import Spec
from dueq.cli import campaign
from dueq.cli.main import run

SPEC = """
name = "spring"
topic = "campaigns"
[source]
path = "audience.csv"
format = "csv"
[payload]
template = "Good morning!"
[due]
column = "at"
"""


@contextmanager
def connected(*_given: Any) -> Iterator[Any]:
    yield SimpleNamespace(describe=lambda topic: None)


@pytest.mark.parametrize("as_json", [True, False])
def test_a_report_that_cannot_be_written_does_not_hide_that_all_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    spec = tmp_path / "spring.toml"
    spec.write_text(SPEC, encoding="utf-8")
    report = CampaignReport("spring", "campaigns", "spring-1", LOADED, rows=7, messages=7, committed=7)
    monkeypatch.setattr(campaign, "connect", connected)
    monkeypatch.setattr(dueq.campaign, "loaded_before", lambda *_given: None)
    monkeypatch.setattr(dueq.campaign, "run", lambda *_given, **_more: report)
    monkeypatch.setattr(dueq.spark, "spark_session", lambda *_given, **_more: None)
    options = ["--json"] if as_json else []
    assert run(["campaign", "run", str(spec), "--report", "/dev/full", *options]) == 1
    said = capsys.readouterr()
    if as_json:
        assert json.loads(said.out)["state"] == LOADED
    else:
        assert "take it back: dueq campaign cancel spring-1" in said.out
    assert "the report cannot be written into /dev/full: No space left on device" in said.err


@pytest.mark.parametrize("plot", ["[draft]/spring.png", "a[/b].png", ":smile:.png"])
def test_where_the_plan_was_drawn_is_said_letter_by_letter(
    plot: str, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign._print(CampaignReport("spring", "campaigns", "spring-1", LOADED, plot=plot))
    said = capsys.readouterr().out
    assert f"drawn in {plot}\n" in said
    assert "take it back: dueq campaign cancel spring-1" in said


@pytest.mark.parametrize(
    ("past", "left"),
    [
        ("refuse", "the same command loads the rest"),
        ("skip", "the rest cannot be planned again as it was; take it back: dueq campaign cancel a-job"),
    ],
)
def test_who_interrupts_a_load_that_is_not_atomic_hears_what_can_be_done(past: str, left: str) -> None:
    document = tomllib.loads(f'{SPEC}\npast = "{past}"\n[load]\natomic = false\n')
    said = campaign._left_behind((), Spec.of(document, Path("/specs")), "a-job", dry=False)
    assert said == f"what was loaded will be delivered; {left}"
