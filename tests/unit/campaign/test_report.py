"""The report of a campaign for people."""

from __future__ import annotations

from dueq.campaign.report import LOADED, CampaignReport
from dueq.limits import DUE_MS_MAX


def test_instants_are_told_however_far_ahead_they_are() -> None:
    report = CampaignReport("spring", "t", "j", LOADED, 2, 2, first_ms=1_900_000_000_123, last_ms=DUE_MS_MAX)
    assert dict(report.lines())["first"] == "2030-03-17T17:46:40.123Z"
    assert dict(report.lines())["last"] == f"{DUE_MS_MAX} ms"
