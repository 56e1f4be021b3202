"""When: instants and durations as HTTP says them.

An instant is RFC 3339 with a zone, Unix ms, or a duration from now. A duration is a text such as `90s` or `1h30m`, or
a number of seconds. Answers have RFC 3339 in UTC with milliseconds.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Final

from dueq import limits
from dueq.gateway.problems import Unfit

SECONDS_BELOW: Final = 10**11
"""A number below this is a date before 1973 in milliseconds, but a plausible date in seconds."""

_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST_SAID_MS: Final = 253_402_300_799_999
_DATE: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,18}))?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART: Final = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)(ms|s|m|h|d)", re.ASCII)
_FORMS: Final = (
    "RFC 3339 with a zone (2030-01-31T09:00:00Z), Unix milliseconds, or a duration from now (90s, 1h30m)"
)

Instant = int | str
Duration = int | float | str


def duration(value: Duration, where: str, most_ms: int = limits.DUE_MS_MAX) -> timedelta:
    """Read a duration.

    Args:
        value: a text such as 250ms, 90s or 1h30m, or seconds.
        where: in the request, for the refusal.
        most_ms: the longest.

    Raises:
        Unfit: it is none, or longer.
    """
    _check_length(value, where)
    ms = _duration_ms(value)
    if ms is None:
        raise Unfit(
            f"{where} is a duration such as 90s, 250ms or 1h30m, not {value!r:.80}", value, None, where
        )
    if ms > most_ms:
        raise Unfit(
            f"{where} is at most {most_ms / 1000:g} seconds, not {value!r:.80}", value, most_ms / 1000, where
        )
    return timedelta(milliseconds=ms)


def seconds(value: Duration, where: str, most_ms: int = limits.DUE_MS_MAX) -> float:
    """Read a duration, as seconds; raises as `duration`."""
    return duration(value, where, most_ms).total_seconds()


def difference(value: Duration, where: str) -> timedelta:
    """Read a duration that may be negative; raises as `duration`."""
    if isinstance(value, str):
        text = value.strip()
        return -duration(text[1:], where) if text.startswith("-") else duration(text, where)
    return -duration(-value, where) if value < 0 else duration(value, where)


def instant_ms(value: Instant, now_us: int, where: str) -> int:
    """Read an instant, as Unix ms, rounded up: nothing is ever early.

    Args:
        value: RFC 3339, Unix ms, or a duration from now.
        now_us: mesh time, Unix µs.
        where: in the request, for the refusal.

    Raises:
        Unfit: it is none of these, before 1970 or too late; or Unix ms that look like seconds.
    """
    _check_length(value, where)
    if isinstance(value, str):
        ms = _of_text(value.strip(), now_us, where)
    elif isinstance(value, int) and not isinstance(value, bool):
        ms = _checked_unit(value, where)
    else:
        raise Unfit(f"{where} is {_FORMS}, not {value!r:.80}", value, None, where)
    if not 0 <= ms <= limits.DUE_MS_MAX:
        text = f"{where} {value!r:.80} is {ms} in Unix ms, outside 0 … {limits.DUE_MS_MAX}: is its unit milliseconds?"
        raise Unfit(text, value, limits.DUE_MS_MAX, where)
    return ms


def chosen_ms(due: Instant | None, delay: Duration | None, now_us: int, where: str) -> int:
    """Return the instant that one of two arguments names, as Unix ms; now, if neither is given.

    Raises:
        Unfit: both are given, or what is given is no instant or duration.
    """
    if due is not None and delay is not None:
        raise Unfit(f"{where} has due or delay, not both", due, None, where)
    if due is not None:
        return instant_ms(due, now_us, f"{where}.due")
    after = duration(delay if delay is not None else 0, f"{where}.delay")
    return instant_ms(-(-(now_us + after // _MICROSECOND) // 1000), now_us, f"{where}.delay")


def text(ms: int) -> str:
    """Return an instant as answers have it: RFC 3339; after the year 9999, Unix ms."""
    if ms > _LATEST_SAID_MS:
        return str(ms)
    found = _EPOCH + timedelta(milliseconds=ms)
    return f"{found:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def ms_of(at: datetime) -> int:
    """Return an instant of the SDK as Unix ms, exactly: a float of seconds may be a millisecond less."""
    return (at - _EPOCH) // timedelta(milliseconds=1)


def of_time(at: datetime) -> str:
    """Return an instant of the SDK as answers have it."""
    return text(ms_of(at))


def text_or_none(ms: int) -> str | None:
    """Return an instant as answers have it; None for 0, which is none."""
    return text(ms) if ms else None


def _check_length(value: object, where: str) -> None:
    """Refuse a text that is longer than any instant, before its parts are looked for.

    A body may be one such text: to read a million parts held up every other client for seconds.
    """
    if isinstance(value, str) and len(text := value.strip()) > limits.GATEWAY_WHEN_CHARS_MAX:
        most = limits.GATEWAY_WHEN_CHARS_MAX
        raise Unfit(
            f"{where} has at most {most} characters, not {len(text)}: {text[:80]!r:.80}", value, most, where
        )


def _of_text(value: str, now_us: int, where: str) -> int:
    if re.fullmatch(r"-?[0-9]{1,20}", value):
        return _checked_unit(int(value), where)
    found = _DATE.fullmatch(value)
    if found is None:
        ms = _duration_ms(value)
        if ms is None:
            raise Unfit(f"{where} is {_FORMS}, not {value!r:.80}", value, None, where)
        return math.ceil(now_us / 1000 + ms)
    day, clock, fraction, zone = found.groups()
    try:
        whole = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in 'Zz' else zone}") - _EPOCH
    except (ValueError, OverflowError) as error:
        raise Unfit(f"{where} {value!r:.80} is no date: {error}", value, None, where) from None
    part_ms = -(-int(fraction) * 1000 // 10 ** len(fraction)) if fraction else 0
    return whole // timedelta(milliseconds=1) + part_ms


def _checked_unit(value: int, where: str) -> int:
    if 0 < value < SECONDS_BELOW:
        text = f"{where} {value} is before 1973 in Unix milliseconds: were seconds meant? Then say {value}000"
        raise Unfit(text, value, SECONDS_BELOW, where)
    return value


def _duration_ms(value: Duration) -> int | None:
    """Milliseconds, rounded up, of the decimal number that stands there; None if it is no duration."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return math.ceil(Fraction(str(value)) * 1000) if 0 <= value < 1e15 else None
    compact = value.strip()
    parts = _PART.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        return None
    return math.ceil(sum(Fraction(number) * _UNIT_MS[unit] for number, unit in parts))
