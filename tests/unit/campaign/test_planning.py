"""Which plans are refused, without Spark and without a mesh."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

pytest.importorskip("pyspark")

from dueq.campaign import planning
from dueq.campaign.counts import Counts
from dueq.campaign.report import CampaignReport
from dueq.campaign.spec import Spec
from dueq.errors import InvalidRequest

HORIZON = timedelta(hours=1)
LAST_MS = 3_600_000
SPEC = Spec.of(
    {
        "name": "spring", "topic": "t", "source": {"table": "s"}, "payload": {"column": "p"}, "due": {"column": "at"},
        "smoothing": {"window": "1h"},
    },
    Path(),
)  # fmt: skip


def planned(monkeypatch: pytest.MonkeyPatch, last_ms: int) -> CampaignReport:
    """Plan one message at the instant 0 that smoothing lets leave at another one."""
    spreading: Any = MagicMock(last_ms=last_ms)
    monkeypatch.setattr(planning, "F", MagicMock())
    monkeypatch.setattr(
        planning, "topic_of", lambda *_: SimpleNamespace(horizon=HORIZON, payload_bytes_max=9)
    )
    monkeypatch.setattr(planning, "mesh_time_ms", lambda _: 0)
    monkeypatch.setattr(planning, "prepared", MagicMock())
    monkeypatch.setattr(planning, "_counted", lambda *_: CampaignReport("spring", "t", messages=1))
    monkeypatch.setattr(planning, "counted", lambda *_: Counts.nothing())
    monkeypatch.setattr(planning, "spread", lambda *_: spreading)
    with planning.planned(MagicMock(), MagicMock(), (), SPEC, MagicMock()) as plan:
        return plan.report


def test_a_crowd_that_would_be_spread_beyond_the_horizon_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was planned, and the load failed at its last messages: then nothing was loaded, or a part."""
    with pytest.raises(InvalidRequest, match=r"1970-01-01T01:00:00.001Z, beyond the topic's horizon"):
        planned(monkeypatch, LAST_MS + 1)


def test_a_crowd_may_be_spread_up_to_the_horizon(monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned(monkeypatch, LAST_MS).last_ms == LAST_MS
