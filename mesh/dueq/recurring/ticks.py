"""The instants at which a recurrence fires: the only place where they are computed, and a function of its arguments.

A cron line is read as Debian's cron reads it, through `cronsim`. It means the wall clock of its zone, which is set
twice a year in many zones. Two kinds of lines behave differently on these days, and a line with seconds behaves as the
same line without:

* A line of *fixed times* (none of its fields for second, minute and hour begins with `*`) fires once for each of its
  times. A time that the clock leaps over fires at the end of the leap. A time that comes twice fires the first time.
* Any other line goes by time as it passes: `*/15 * * * *` fires every fifteen minutes, whatever the clock is set to.

The rules of zones come from the system or from the `tzdata` package. Two brokers may have different rules for a date in
the future. That does no harm: the leader computes, and what it has computed is in the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from hashlib import blake2b
from itertools import takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim

from dueq.recurring.terms import Terms

_FIXED_FIELDS = 3
"""Of a line with seconds: those that say a time of day."""
_MINUTE = timedelta(minutes=1)
_LEAP_S_MAX = 3 * 3600
"""Times that come twice come again within this long."""
_LAST_S = 253_370_764_800
"""Beginning of the year 9999, Unix seconds: dates end there."""


def next_tick(terms: Terms, anchor_ms: int, after_ms: int) -> int:
    """Return the first tick after an instant, Unix ms; 0: there is none.

    Args:
        terms: of the recurrence.
        anchor_ms: the instant from which a period counts: `start_ms`, or that of the creation.
        after_ms: Unix ms.
    """
    after_ms = max(after_ms, terms.start_ms - 1)
    if terms.cron:
        tick = _next_of_line(terms.cron, terms.zone, after_ms // 1000) * 1000
    elif terms.every_ms:
        tick = anchor_ms + max((after_ms - anchor_ms) // terms.every_ms + 1, 0) * terms.every_ms
    else:
        tick = next((at for at in terms.at_ms if at > after_ms), 0)
    return tick if not terms.end_ms or tick < terms.end_ms else 0


def ticks_after(terms: Terms, anchor_ms: int, after_ms: int) -> Iterator[int]:
    """Yield the ticks after an instant, ascending."""
    while tick := next_tick(terms, anchor_ms, after_ms):
        yield tick
        after_ms = tick


def first_made_up(terms: Terms, anchor_ms: int, tick_ms: int, until_ms: int, name: str) -> int:
    """Return the first missed tick that is made up for, or the first that was not missed; 0: there is neither.

    Args:
        terms: of the recurrence; the latest `missed` of the missed ticks are made up for.
        anchor_ms: as in `next_tick`.
        tick_ms: the first missed tick.
        until_ms: ticks whose messages are due after this instant are not missed.
        name: of the recurrence.
    """
    # Jitter may bring messages in another order than their ticks. Up to this instant, all ticks are missed.
    edge_ms = max(until_ms - terms.jitter_ms, tick_ms - 1)
    close = list(takewhile(lambda tick: tick <= until_ms, ticks_after(terms, anchor_ms, edge_ms)))
    missed = [tick for tick in close if due_of(terms, name, tick) <= until_ms]
    still_open = [tick for tick in close if tick not in missed]
    first_open = still_open[0] if still_open else next_tick(terms, anchor_ms, until_ms)
    if len(missed) >= terms.missed:
        made_up = missed[-terms.missed] if terms.missed else 0
    elif edge_ms < tick_ms:
        made_up = missed[0] if missed else 0
    else:
        made_up = _last_but(terms, anchor_ms, tick_ms, edge_ms, terms.missed - len(missed))
    return min(filter(None, (made_up, first_open)), default=0)


def _last_but(terms: Terms, anchor_ms: int, tick_ms: int, until_ms: int, count: int) -> int:
    """Return the first of the last so many ticks up to an instant, but no earlier one than this tick."""

    def enough_after(after_ms: int) -> bool:
        for _ in range(count):
            after_ms = next_tick(terms, anchor_ms, after_ms)
            if not after_ms or after_ms > until_ms:
                return False
        return True

    if not enough_after(tick_ms):
        return tick_ms
    low_ms, high_ms = tick_ms, until_ms
    while high_ms - low_ms > 1:
        middle_ms = (low_ms + high_ms) // 2
        if enough_after(middle_ms):
            low_ms = middle_ms
        else:
            high_ms = middle_ms
    return next_tick(terms, anchor_ms, low_ms)


def due_of(terms: Terms, name: str, tick_ms: int) -> int:
    """Return when the message of a tick is due: up to `jitter_ms` later, always the same for one name and tick."""
    if not terms.jitter_ms:
        return tick_ms
    drawn = blake2b(b"%d " % tick_ms + name.encode(), digest_size=8).digest()
    return tick_ms + int.from_bytes(drawn, "big") % (terms.jitter_ms + 1)


@lru_cache(64)
def zone_of(name: str) -> tzinfo:
    """Return a time zone.

    Raises:
        ZoneInfoNotFoundError, ValueError: there is none of this name.
    """
    return UTC if name == "UTC" else ZoneInfo(name)


@lru_cache(8192)
def _next_of_line(line: str, zone_name: str, after_s: int) -> int:
    """Return the first tick of a cron line after an instant, Unix seconds; 0: there is none within fifty years."""
    if after_s >= _LAST_S:
        return 0
    zone = zone_of(zone_name)
    try:
        if zone is not UTC and _has_fixed_times(line):
            return _next_fixed(line, zone, after_s)
        return _next_in_passing(line, zone, after_s)
    except (StopIteration, OverflowError, ValueError):
        return 0  # never again, or not before dates end


def _has_fixed_times(line: str) -> bool:
    parts = line.split()
    return not any(part.startswith("*") for part in parts[: _FIXED_FIELDS - (len(parts) == 5)])


def _next_fixed(line: str, zone: tzinfo, after_s: int) -> int:
    """Go through the times of a line as a clock shows them that is never set."""
    wall = datetime.fromtimestamp(after_s, zone).replace(tzinfo=None)
    return next(tick_s for wall in CronSim(line, wall) if (tick_s := _instant_of(wall, zone)) > after_s)


def _instant_of(wall: datetime, zone: tzinfo) -> int:
    """Return the first instant at which the clocks of a zone show this or, if they leap over it, a later time."""
    while True:
        instant = wall.replace(tzinfo=zone).astimezone(UTC)
        if instant.astimezone(zone).replace(tzinfo=None) == wall:
            return int(instant.timestamp())
        wall = wall.replace(second=0) + _MINUTE


def _next_in_passing(line: str, zone: tzinfo, after_s: int) -> int:
    """Go from one setting of the clocks to the next; in between they show what a clock shows that is never set.

    `CronSim` could do that with a zone, and goes astray where clocks are set by half an hour.
    """
    from_s = after_s + 1
    while True:
        offset_s = _offset_s(zone, from_s)
        wall = datetime.fromtimestamp(from_s - 1 + offset_s, UTC).replace(tzinfo=None)
        tick_s = int(next(CronSim(line, wall)).replace(tzinfo=UTC).timestamp()) - offset_s
        near_s = max(from_s, tick_s - _LEAP_S_MAX)
        set_at_s = _set_at_s(zone, from_s, min(tick_s, from_s + _LEAP_S_MAX)) or _set_at_s(
            zone, from_s, tick_s
        )
        if set_at_s:
            from_s = set_at_s
        elif _offset_s(zone, near_s) != offset_s:
            from_s = near_s  # they were set and set back: this may be the second time of one that comes twice
        else:
            return tick_s


def _set_at_s(zone: tzinfo, from_s: int, until_s: int) -> int:
    """Return an instant at which clocks were set between two others that show different offsets; 0: they do not."""
    offset_s = _offset_s(zone, from_s)
    if _offset_s(zone, until_s) == offset_s:
        return 0
    while until_s - from_s > 1:
        middle_s = (from_s + until_s) // 2
        if _offset_s(zone, middle_s) == offset_s:
            from_s = middle_s
        else:
            until_s = middle_s
    return until_s


def _offset_s(zone: tzinfo, at_s: int) -> int:
    """Return by how much the clocks of a zone are ahead of UTC."""
    offset = datetime.fromtimestamp(at_s, zone).utcoffset()
    return int(offset.total_seconds()) if offset is not None else 0
