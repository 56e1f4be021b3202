"""Local times as instants, by Spark's own expressions: correct where clocks are set forward or back.

The rule is that of Java and of Python's `fold=0` (PEP 495). A local time that does not exist, because clocks were set
forward over it, counts on in the old offset: 02:30 in a gap from 02:00 to 03:00 is the instant that is called 03:30. A
local time that comes twice, because clocks were set back, is the first of the two, or, where the specification says so,
the second. Quiet hours end at the first instant with that local time that is not before the message is due.

A wall clock's reading is written as a number here: the microseconds since 1970-01-01T00:00 on that clock, "local µs".
Nothing depends on the session's time zone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DateType, StringType

from dueq.campaign.sources import column, type_of
from dueq.campaign.spec import Zone
from dueq.errors import InvalidRequest
from dueq.spark.hints import did_you_mean

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_SECOND_US: Final = 1_000_000
_DAY_US: Final = 86_400 * _SECOND_US
_AFTER_US: Final = 3 * 3600 * _SECOND_US
"""This long after an instant whose local time comes twice, clocks have been set back: no time zone takes back more."""
_OFFSET: Final = "[+-](0[0-9]|1[0-7]):[0-5][0-9]"


def with_instants(frame: DataFrame, local: str, zone: str, made: str) -> DataFrame:
    """Add when a zone's clocks show a local time. Step by step, as Spark would compute nested expressions many times.

    Args:
        frame: has the columns `local` (local µs, null where there is none) and `zone` (names that Spark knows).
        local, zone: their names.
        made: of the new columns: itself (Unix µs of the first instant with this local time), `made`_second (of the
            second one, null where there is none), `made`_gap (clocks were set forward over it).
    """
    shown, second = F.col(local), f"{made}_second"
    first_us = F.unix_micros(F.to_utc_timestamp(F.timestamp_micros(shown), F.col(zone)))
    later_us = F.col(made) + F.lit(_AFTER_US)
    frame = frame.withColumn(made, first_us)
    frame = frame.withColumn(second, shown - (local_us_of(later_us, F.col(zone)) - later_us))
    again = (F.col(second) > F.col(made)) & (local_us_of(F.col(second), F.col(zone)) == shown)
    return frame.withColumns({
        second: F.when(again, F.col(second)), f"{made}_gap": local_us_of(F.col(made), F.col(zone)) != shown,
    })  # fmt: skip


def local_us_of(instant_us: Column, zone: Column) -> Column:
    """Return what a zone's clocks show at an instant (Unix µs)."""
    return F.unix_micros(F.from_utc_timestamp(F.timestamp_micros(instant_us), zone))


def local_us(day: Column, time_s: Column) -> Column:
    """Return local µs of a day (date) and a time of day (seconds after midnight)."""
    return F.unix_date(day).cast("bigint") * F.lit(_DAY_US) + time_s.cast("bigint") * F.lit(_SECOND_US)


def with_quiet_end(
    frame: DataFrame, due_us: str, zone: str, from_s: int, until_s: int, made: str
) -> DataFrame:
    """Add when the quiet hours end that a message would fall into (Unix µs); null when it falls into none.

    Args:
        frame: has the columns `due_us` (Unix µs, null where there is none) and `zone` (names that Spark knows).
        due_us, zone: their names.
        from_s, until_s: seconds after midnight; from_s > until_s: over midnight.
        made: the new column's name.
    """
    shown, of_day, end = f"{made}_shown", f"{made}_of_day", f"{made}_local"
    begin_us, end_us = F.lit(from_s * _SECOND_US), F.lit(until_s * _SECOND_US)
    frame = frame.withColumn(shown, local_us_of(F.col(due_us), F.col(zone)))
    frame = frame.withColumn(of_day, F.pmod(F.col(shown), F.lit(_DAY_US)))
    midnight, time = F.col(shown) - F.col(of_day), F.col(of_day)
    if from_s < until_s:
        ends_at = F.when((time >= begin_us) & (time < end_us), midnight + end_us)
    else:
        ends_at = F.when(time >= begin_us, midnight + end_us + F.lit(_DAY_US)).when(
            time < end_us, midnight + end_us
        )
    frame = with_instants(frame.withColumn(end, ends_at), end, zone, made)
    # Clocks set back inside the window show its end twice, the first time perhaps before the message is due.
    late = F.coalesce(F.col(f"{made}_second"), F.col(due_us))
    ended = F.when(F.col(made) < F.col(due_us), late).otherwise(F.col(made))
    return frame.withColumn(made, ended).drop(shown, of_day, end, f"{made}_second", f"{made}_gap")


def day_of(frame: DataFrame, name: str, role: str) -> Column:
    """Return a column of days: dates, or texts like 2030-01-31 (null where a text is none).

    Raises:
        InvalidRequest: there is no such column, or it is of another type.
    """
    found = column(frame, name, role)
    kind = type_of(frame, found)
    if isinstance(kind, DateType):
        return found
    if isinstance(kind, StringType):
        return F.when(found.rlike(r"^\s*\d{4}-\d{2}-\d{2}\s*$"), F.try_to_date(F.trim(found)))
    raise InvalidRequest(
        f"{role}: the column {name!r} is {kind.simpleString()}; it must be a date, or text like 2030-01-31"
    )


def time_of(frame: DataFrame, name: str, role: str) -> Column:
    """Return a column of times of day in seconds: texts like 09:00 or 09:00:00 (null where a text is none).

    Raises:
        InvalidRequest: there is no such column, or it is of another type.
    """
    found = column(frame, name, role)
    kind = type_of(frame, found)
    if not isinstance(kind, StringType):
        raise InvalidRequest(
            f"{role}: the column {name!r} is {kind.simpleString()}; it must be text like 09:00"
        )
    parts = F.split(F.trim(found), ":")
    total = F.get(parts, 0).try_cast("int") * 3600 + F.get(parts, 1).try_cast("int") * 60
    seconds = F.coalesce(F.get(parts, 2).try_cast("int"), F.lit(0))
    good = found.rlike(r"^\s*([01]?\d|2[0-3]):[0-5]\d(:[0-5]\d)?\s*$")
    return F.when(good, total + seconds)


@dataclass(frozen=True)
class Zones:
    """The time zones that this Spark knows."""

    names: frozenset[str]

    @classmethod
    def of(cls, spark: SparkSession) -> Zones:
        """Ask its Java."""
        told = str(spark._jvm.java.time.ZoneId.getAvailableZoneIds().toString())
        return cls(frozenset(told.strip("[]").split(", ")))

    def known(self, frame: DataFrame, zone: Zone, role: str) -> Column:
        """Return a zone for each row: null where the column names none.

        Raises:
            InvalidRequest: the specification's own zone is unknown, or there is no such column of texts.
        """
        if zone.name:
            if zone.name not in self.names:
                raise InvalidRequest(f"{role}: there is no time zone {zone.name!r}{self._meant(zone.name)}")
            return F.lit(zone.name)
        found = column(frame, zone.column, role)
        kind = type_of(frame, found)
        if not isinstance(kind, StringType):
            raise InvalidRequest(
                f"{role}: the column {zone.column!r} is {kind.simpleString()}; it must be text like Europe/Berlin"
            )
        named = F.trim(found)
        return F.when(named.isin(*sorted(self.names)) | named.rlike(f"^{_OFFSET}$"), named)

    def _meant(self, name: str) -> str:
        return did_you_mean(name, (known for known in self.names if "/" in known or len(known) <= 4))
