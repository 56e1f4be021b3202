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
from dueq_codecs.groups import GroupRefused, check_group
from dueq_codecs.meta import MetaRefused, packed_headers

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
    """Check terms as a whole, as of now.

    Raises:
        InvalidRequest: a value is outside its limits, or the terms never fire from now on.
    """
    given = [name for name in ("cron", "every_ms", "at_ms") if getattr(terms, name)]
    if len(given) != 1:
        raise InvalidRequest(
            f"a recurrence has either cron, every or at, not {' and '.join(given) or 'none of them'}"
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
        raise InvalidRequest(f"the recurrence never fires after now ({now_ms}): {_said(terms)}")
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
        raise InvalidRequest(
            f"cron line {line!r}: {str(error).lower()}; it has five fields, or six with the seconds first"
        ) from None


def _check_instants(terms: Terms) -> None:
    if len(terms.at_ms) > limits.RECURRENCE_INSTANTS_MAX:
        raise InvalidRequest(
            f"at has at most {limits.RECURRENCE_INSTANTS_MAX} instants, not {len(terms.at_ms)}"
        )
    for earlier, later in pairwise(terms.at_ms):
        if earlier >= later:
            raise InvalidRequest(f"the instants of at ascend; {later} follows {earlier}")
    for instant in (*terms.at_ms, terms.start_ms, terms.end_ms):
        if not 0 <= instant <= limits.DUE_MS_MAX:
            raise InvalidRequest(f"an instant is 0 to {limits.DUE_MS_MAX} (Unix ms), not {instant}")
    if terms.end_ms and terms.end_ms <= terms.start_ms:
        raise InvalidRequest(f"the end {terms.end_ms} is not after the start {terms.start_ms}")


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
