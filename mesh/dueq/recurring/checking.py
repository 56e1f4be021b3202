"""Whether the terms of a recurrence make sense; each refusal names the value and the limit."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice, pairwise
from zoneinfo import ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from dueq import limits
from dueq.errors import InvalidRequest
from dueq.recurring.terms import Terms
from dueq.recurring.ticks import next_tick, ticks_after, zone_of
from dueq.time_text import instant_text
from dueq_codecs.groups import GroupRefused, check_group
from dueq_codecs.meta import MetaRefused, packed_headers

_FIELDS = (
    ("second", "second", "0 to 59", "{} * * * * *"),
    ("minute", "minute", "0 to 59", "{} * * * *"),
    ("hour", "hour", "0 to 23", "* {} * * *"),
    ("day", "day-of-month", "1 to 31, L or LW", "* * {} * *"),
    ("month", "Bad month", "1 to 12, or JAN to DEC", "* * * {} *"),
    ("weekday", "day-of-week", "0 to 7, or SUN to SAT (MON#1, 5L)", "* * * * {}"),
)
"""Of a cron line with seconds: what each field is called here and by the library, what it takes, and it alone."""
OVERLAPS = ("allow", "skip")
_GAPS_LOOKED_AT = 64
"""Gaps between ticks that are compared with the jitter: a day of a line that fires every half an hour."""


def check_name(name: str) -> None:
    """Check the name of a recurrence.

    Raises:
        InvalidRequest: it is empty, too long, holds what cannot be shown, or stands for a folder in a URL.
    """
    if (
        not isinstance(name, str)
        or not 1 <= len(name.encode(errors="replace")) <= limits.RECURRENCE_NAME_BYTES_MAX
    ):
        raise InvalidRequest(
            f"the name of a recurrence is a str of 1 to {limits.RECURRENCE_NAME_BYTES_MAX} bytes, not {name!r:.80}"
        )
    if not name.isprintable():
        raise InvalidRequest(f"the name of a recurrence has printable characters only, not {name!r:.80}")
    if name in (".", ".."):
        raise InvalidRequest(f"the name of a recurrence is not {name!r}, which is a folder in a URL")


def check_payload(payload: bytes, topic: str, payload_bytes_max: int) -> str:
    """Return why a payload is too long for a recurrence of a topic; "" if it is not."""
    longest = min(payload_bytes_max or limits.PAYLOAD_BYTES_MAX, limits.RECURRENCE_PAYLOAD_BYTES_MAX)
    if len(payload) <= longest:
        return ""
    return f"a recurrence of {topic!r} has a payload of at most {longest} bytes, not {len(payload)}"


def check_terms(terms: Terms, anchor_ms: int, now_ms: int) -> None:
    """Check terms as a whole, as of now; 0: for all of time.

    Raises:
        InvalidRequest: a value is outside its limits, or the terms never fire from now on.
    """
    given = [name for name in ("cron", "every_ms", "at_ms") if getattr(terms, name)]
    if len(given) != 1:
        named = " and ".join(name.removesuffix("_ms") for name in given)
        raise InvalidRequest(
            f"a recurrence has cron, every or at, and one of them only: {named or 'none'} given"
        )
    if terms.cron:
        _check_line(terms.cron, terms.zone)
    elif terms.zone != "UTC":
        raise InvalidRequest(
            f"a zone is that of a cron line; there is a zone {terms.zone!r:.80} and no cron line"
        )
    if terms.every_ms:
        _within("every", terms.every_ms, limits.EVERY_MS_MIN, limits.EVERY_MS_MAX)
    _check_instants(terms)
    _within("jitter", terms.jitter_ms, 0, limits.JITTER_MS_MAX)
    _within("missed", terms.missed, 0, limits.MISSED_TICKS_MAX, "ticks")
    if terms.overlap not in OVERLAPS:
        raise InvalidRequest(f"overlap is one of {', '.join(OVERLAPS)}, not {terms.overlap!r:.80}")
    try:
        packed_headers(terms.headers)
    except MetaRefused as refused:
        raise InvalidRequest(str(refused)) from None
    _within("rank", terms.rank, 0, limits.RANK_MAX, "in a recurrence")
    try:
        check_group(terms.group)
    except GroupRefused as refused:
        raise InvalidRequest(str(refused)) from None
    if not next_tick(terms, anchor_ms, now_ms):
        when = f" after now ({instant_text(now_ms)})" if now_ms else ""
        raise InvalidRequest(f"the recurrence never fires{when}: {_said(terms)}")
    if terms.jitter_ms:
        _check_jitter(terms, anchor_ms, now_ms)


@lru_cache(4096)
def _check_line(line: str, zone: str) -> None:
    """Check a cron line and its zone; both are the same in very many recurrences."""
    if len(line) > limits.CRON_LINE_MAX:
        raise InvalidRequest(f"a cron line has at most {limits.CRON_LINE_MAX} characters, not {len(line)}")
    try:
        zone_of(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidRequest(
            f"there is no time zone {zone!r:.80}; names are such as 'Europe/Berlin'"
        ) from None
    try:
        CronSim(line, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        raise InvalidRequest(f"cron line {line!r}: {_fault_of_line(line, str(error))}") from None


def _fault_of_line(line: str, said: str) -> str:
    """Return what is wrong with a cron line, of which the library says only the kind of field."""
    fields = line.split()
    if len(fields) not in (len(_FIELDS) - 1, len(_FIELDS)):
        count = f"{len(fields)} field{'' if len(fields) == 1 else 's'}"
        return f"it has {count}, not 5 (minute, hour, day, month, weekday), or 6 with the seconds first"
    for text, (name, bad, takes, plain) in zip(reversed(fields), reversed(_FIELDS), strict=False):
        if said.endswith(bad):
            try:
                CronSim(plain.format(text), datetime(2000, 1, 1, tzinfo=UTC))
            except CronSimError:
                return f"the {name} is {text!r}; it takes {takes}"
            return f"no month that it names has a day {text}"
    return said.lower()


def _check_instants(terms: Terms) -> None:
    if len(terms.at_ms) > limits.RECURRENCE_INSTANTS_MAX:
        raise InvalidRequest(
            f"at has at most {limits.RECURRENCE_INSTANTS_MAX} instants, not {len(terms.at_ms)}"
        )
    for earlier, later in pairwise(terms.at_ms):
        if earlier >= later:
            raise InvalidRequest(
                f"the instants of at ascend; {instant_text(later)} follows {instant_text(earlier)}"
            )
    for instant in (*terms.at_ms, terms.start_ms, terms.end_ms):
        if not 0 <= instant <= limits.DUE_MS_MAX:
            raise InvalidRequest(f"an instant is 0 to {limits.DUE_MS_MAX} (Unix ms), not {instant}")
    if terms.end_ms and terms.end_ms <= terms.start_ms:
        raise InvalidRequest(
            f"the end {instant_text(terms.end_ms)} is not after the start {instant_text(terms.start_ms)}"
        )


def _check_jitter(terms: Terms, anchor_ms: int, now_ms: int) -> None:
    """No message may be due later than that of the following tick."""
    ticks = islice(ticks_after(terms, anchor_ms, now_ms), _GAPS_LOOKED_AT)
    shortest_ms = min(
        (later - earlier for earlier, later in pairwise(ticks)), default=limits.JITTER_MS_MAX + 1
    )
    if terms.jitter_ms >= shortest_ms:
        raise InvalidRequest(
            f"a jitter of {terms.jitter_ms} ms is not shorter than the {shortest_ms} ms between two ticks"
        )


def _within(what: str, value: int, least: int, most: int, unit: str = "ms") -> None:
    if not least <= value <= most:
        raise InvalidRequest(f"{what} is {least} to {most} {unit}, not {value}")


def _said(terms: Terms) -> str:
    return ", ".join(f"{name} {value!r:.80}" for name, value in terms.document().items())
