"""The judge of the flight day: whatever goes wrong is counted, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dueq.demo.report import Departure, Report, judge

TRUTH: dict[int, int | None] = {1: 1000, 2: 2000, 3: None}
FAIR = [Departure(1, 1, 1000, 1000.2, 1001.0, 1), Departure(2, 2, 2000, 2000.1, 2003.0, 1)]


def judged(departures: list[Departure], **changes: Any) -> Report:
    counts: dict[str, Any] = {
        "scheduled": 3, "moved": 1, "cancelled": 1, "moved_expected": 1, "too_late": 0,
        "killed": "", "spark_seconds": 1.0,
    }  # fmt: skip
    return judge("2013-01-01", TRUTH, departures, **(counts | changes))


def test_a_day_as_it_was_is_good() -> None:
    report = judged(FAIR)
    assert report.good
    assert (report.delivered, report.delivered_expected, report.lost, report.duplicated, report.early) == (
        2,
        2,
        0,
        0,
        0,
    )
    assert report.lateness_max_ms == 3.0


def test_a_missing_departure_is_lost() -> None:
    report = judged(FAIR[:1])
    assert report.lost == 1
    assert not report.good


def test_a_second_delivery_is_a_duplicate_and_hides_no_loss() -> None:
    report = judged([FAIR[0], FAIR[0]])
    assert (report.duplicated, report.lost) == (1, 1)
    assert not report.good


def test_early_is_what_came_before_the_flights_instant_on_either_clock_or_under_an_old_due() -> None:
    for early in (
        replace(FAIR[0], received_at_ms=999.9),
        replace(FAIR[0], released_at_ms=999.9),
        replace(FAIR[0], due_ms=900),
    ):
        report = judged([early, FAIR[1]])
        assert report.early == 1
        assert not report.good


def test_a_cancelled_flight_that_departs_is_a_ghost() -> None:
    report = judged([*FAIR, Departure(3, 1, 500, 501.0, 502.0, 1)])
    assert (report.ghosts, report.duplicated, report.delivered) == (1, 0, 2)
    assert not report.good


def test_counts_that_differ_from_the_data_are_not_good() -> None:
    assert not judged(FAIR, scheduled=2).good
    assert not judged(FAIR, moved=0).good
    assert not judged(FAIR, cancelled=0, too_late=1).good


def test_nothing_delivered_at_all_is_judged_too() -> None:
    report = judged([])
    assert (report.lost, report.lateness_p50_ms) == (2, 0.0)
