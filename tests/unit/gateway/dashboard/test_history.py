"""Deliveries of the last minutes, computed from the brokers' counts."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi")

from dueq import limits
from dueq.client.statistics import StatisticsRow
from dueq.gateway.dashboard.history import History

BOUNDS = (1.0, 10.0, 100.0)
HOUR = 3_600_000


def row(
    delivered: int, lateness: tuple[int, ...] = (0, 0, 0, 0), broker: str = "b1", hour: int = 0
) -> StatisticsRow:
    return StatisticsRow(broker, "mail", hour * HOUR, delivered, 0, BOUNDS, lateness, {})


def test_what_came_before_the_first_look_is_of_no_second() -> None:
    history = History()
    history.take(10_000, [row(500)])
    assert (history.seconds(), history.since_ms) == ([], 10_000)


def test_what_came_between_two_looks_is_spread_over_their_seconds() -> None:
    history = History()
    history.take(10_000, [row(500)])
    history.take(12_000, [row(520)])
    assert history.seconds() == [(10, 10.0), (11, 10.0)]
    assert history.seconds("other") == []
    assert history.delivered()["mail"] == 20


def test_after_a_long_pause_nothing_is_said_of_single_seconds() -> None:
    history = History()
    history.take(10_000, [row(1)])
    history.take(11_000, [row(2)])
    history.take(200_000, [row(900)])
    history.take(201_000, [row(903)])
    assert history.seconds() == [(10, 1.0), (200, 3.0)]
    assert history.since_ms == 200_000


def test_a_broker_that_is_seen_for_the_first_time_has_not_delivered_all_that_at_once() -> None:
    history = History()
    history.take(10_000, [row(5)])
    history.take(11_000, [row(5), row(7000, broker="b2")])
    history.take(12_000, [row(5), row(7003, broker="b2")])
    assert history.seconds() == [(11, 3.0)]


def test_counts_that_went_back_with_a_killed_broker_are_no_deliveries() -> None:
    history = History()
    history.take(10_000, [row(50)])
    history.take(11_000, [row(20)])
    history.take(12_000, [row(24)])
    assert history.seconds() == [(11, 4.0)]


def test_a_broker_that_was_away_for_a_while_goes_on_where_it_was() -> None:
    history = History()
    history.take(10_000, [row(50)])
    history.take(11_000, [])
    history.take(12_000, [row(53)])
    assert history.delivered()["mail"] == 3


def test_a_new_hour_begins_at_nothing() -> None:
    history = History()
    history.take(HOUR - 1000, [row(50)])
    history.take(HOUR + 1000, [row(52), row(4, hour=1)])
    assert history.delivered()["mail"] == 6


def test_lateness_is_that_of_the_last_minute() -> None:
    history = History()
    history.take(0, [row(0)])
    history.take(1000, [row(10, (0, 0, 0, 10))])
    history.take(70_000 - 29_000, [row(10, (0, 0, 0, 10))])
    history.take(70_000, [row(110, (98, 1, 1, 10))])
    late = history.lateness("mail")
    assert (late.count, late.half_ms, late.most_ms, late.worst_ms) == (100, 1.0, 10.0, 100.0)
    assert history.lateness("other").count == 0


def test_only_the_last_minutes_stay() -> None:
    history = History()
    for second in range(2 * limits.DASHBOARD_PAST_S):
        history.take(second * 1000, [row(second)])
    assert len(history.seconds()) <= limits.DASHBOARD_PAST_S + 2
