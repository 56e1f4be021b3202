"""How fast a load for a later day goes beside deliveries."""

from __future__ import annotations

import pytest

from dueq.broker.pacing import IDLE_US, LATE_US, ROWS_PER_S_AT_FIRST, ROWS_PER_S_MIN, Pace


class Broker:
    """Pushes every 5 ms and takes all that the pace lets in, but no more than it could by itself."""

    def __init__(self, could_per_s: int = 50_000) -> None:
        self.pace = Pace()
        self.now_us = 10_000_000
        self.could_per_s = could_per_s

    def go_on(self, seconds: float, late_us: int) -> int:
        """Go on for so long, each push so late; returns how many rows were taken."""
        taken = 0
        for _ in range(round(seconds * 200)):
            self.now_us += 5_000
            self.pace.pushed(late_us, self.now_us)
            for _ in range(self.could_per_s // 200 // 50):
                if not self.pace.wait_us(self.now_us):
                    self.pace.took(50, self.now_us)
                    taken += 50
        return taken


def test_where_pushes_are_on_time_there_is_no_limit() -> None:
    broker = Broker()
    assert broker.go_on(1, LATE_US) == 50_000
    assert broker.pace.rows_per_s is None


def test_where_they_are_late_less_is_let_in_but_never_nothing() -> None:
    broker = Broker()
    rates = [broker.go_on(0.5, LATE_US + 1) * 2 for _ in range(12)]
    assert rates[1] < 0.8 * rates[0]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == pytest.approx(ROWS_PER_S_MIN, rel=0.1)


def test_when_they_are_on_time_again_it_gets_faster_until_there_is_no_limit() -> None:
    broker = Broker()
    broker.go_on(2, LATE_US + 1)
    slow = broker.go_on(0.2, 0)
    assert broker.go_on(1, 0) > 5 * 1.2 * slow
    broker.go_on(10, 0)
    assert broker.pace.rows_per_s is None


def test_it_finds_the_rate_at_which_pushes_are_on_time() -> None:
    broker = Broker()
    for _ in range(50):
        busy = broker.pace.rows_per_s is None or broker.pace.rows_per_s > 20_000
        broker.go_on(0.1, LATE_US + 1 if busy else 0)
    assert broker.go_on(1, 0) < 50_000
    rates = []
    for _ in range(50):
        busy = broker.pace.rows_per_s is None or broker.pace.rows_per_s > 20_000
        rates.append(10 * broker.go_on(0.1, LATE_US + 1 if busy else 0))
    assert 10_000 < sum(rates) / len(rates) < 22_000


def test_without_deliveries_there_is_no_limit() -> None:
    broker = Broker()
    broker.go_on(1, LATE_US + 1)
    assert broker.pace.rows_per_s is not None
    assert broker.pace.wait_us(broker.now_us + IDLE_US) == 0
    assert broker.pace.rows_per_s is None


def test_late_pushes_without_a_load_slow_nothing() -> None:
    broker = Broker(could_per_s=0)
    broker.go_on(1, LATE_US + 1)
    assert broker.pace.rows_per_s is None


def deliver(broker: Broker, seconds: float) -> None:
    """Push on time, and load nothing."""
    could_per_s, broker.could_per_s = broker.could_per_s, 0
    broker.go_on(seconds, 0)
    broker.could_per_s = could_per_s


def test_a_load_that_begins_beside_deliveries_begins_slowly_and_soon_has_no_limit() -> None:
    broker = Broker()
    deliver(broker, 2)
    assert broker.go_on(0.1, 0) < 2 * ROWS_PER_S_AT_FIRST * 0.1
    broker.go_on(1.5, 0)
    assert broker.pace.rows_per_s is None
    assert broker.go_on(0.1, 0) == 5_000


def test_a_load_that_pauses_begins_slowly_again() -> None:
    broker = Broker()
    deliver(broker, 2)
    broker.go_on(3, 0)
    deliver(broker, 2)
    assert broker.go_on(0.1, 0) < 2 * ROWS_PER_S_AT_FIRST * 0.1


def test_once_pushes_were_late_it_does_not_get_faster_as_it_did_at_first() -> None:
    broker = Broker()
    deliver(broker, 2)
    broker.go_on(0.2, 0)
    broker.go_on(0.5, LATE_US + 1)
    slow = broker.go_on(0.2, 0)
    assert broker.go_on(0.2, 0) < 1.5 * slow


def test_a_load_beside_few_deliveries_begins_without_a_limit() -> None:
    pace = Pace()
    for at_us in range(0, 3_000_000, 100_000):
        pace.pushed(0, 10_000_000 + at_us)
    assert pace.wait_us(13_000_000) == 0
    assert pace.rows_per_s is None


def test_few_pushes_are_judged_over_a_longer_time() -> None:
    pace = Pace()
    for at_us in range(0, 400_000, 50_000):
        pace.pushed(LATE_US + 1, 10_000_000 + at_us)
        pace.took(100, 10_000_000 + at_us)
        assert pace.rows_per_s is None
    pace.pushed(LATE_US + 1, 10_500_000)
    assert pace.rows_per_s is not None
