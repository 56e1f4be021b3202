"""When: instants and durations, as options say them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

from dueq.client.times import SECONDS_BELOW
from dueq.time_text import UNIT_MS

_Function = TypeVar("_Function", bound=Callable[..., Any])

_DURATION = re.compile(r"(\d+(\.\d+)?(ms|s|m|h|d))+")
_DATE_CHARACTERS = len("2030-01-31")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def parse_instant(text: str, option: str = "--at") -> int | datetime:
    """Read an instant.

    Args:
        text: what was written.
        option: where, for the refusal.

    Returns:
        Unix ms, or an aware datetime.

    Raises:
        click.BadParameter: it is neither, a date without a zone, or looks like seconds.
    """
    if re.fullmatch(r"-?\d{1,20}", text):
        if 0 < int(text) < SECONDS_BELOW:
            raise click.BadParameter(
                f"{text} is before 1973 as Unix milliseconds. Were seconds meant? Then write {text}000. A date has"
                " dashes and a zone: 2030-01-31T09:00:00Z.",
                param_hint=option,
            )
        return int(text)
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r:.80} is neither ISO 8601 (2030-01-31T09:00:00Z) nor Unix milliseconds.",
            param_hint=option,
        ) from None
    if instant.tzinfo is None:
        timed = text if len(text) > _DATE_CHARACTERS else f"{text}T00:00:00"
        raise click.BadParameter(
            f"{text!r} has no time zone: write {timed}Z for UTC, or {timed}+02:00.", param_hint=option
        )
    return instant


def parse_when(text: str, option: str) -> int | datetime | timedelta:
    """Read an instant, or a duration from now. Raises as `parse_instant`."""
    compact = text.replace(" ", "")
    return parse_duration(text, option) if _DURATION.fullmatch(compact) else parse_instant(text, option)


def parse_duration(text: str, option: str = "--in") -> timedelta:
    """Read a duration such as 10s, 250ms or 1h30m.

    Args:
        text: what was written.
        option: where, for the refusal.

    Raises:
        click.BadParameter: it is none.
    """
    compact = text.replace(" ", "")
    parts = _PART.findall(compact)
    if not parts or "".join(number + unit for number, unit in parts) != compact:
        raise click.BadParameter(
            f"{text!r:.80} is not a duration; they look like 250ms, 10s, 1h30m.", param_hint=option
        )
    try:
        return timedelta(milliseconds=sum(float(number) * UNIT_MS[unit] for number, unit in parts))
    except OverflowError:
        raise click.BadParameter(f"{text!r:.80} is too long.", param_hint=option) from None


def instant(_context: click.Context, option: click.Parameter, text: str | None) -> int | datetime | None:
    """Read what an option says, if it is given: an instant."""
    return parse_instant(text, option.opts[0]) if text is not None else None


def duration(_context: click.Context, option: click.Parameter, text: str | None) -> timedelta | None:
    """Read what an option says, if it is given: a duration."""
    return parse_duration(text, option.opts[0]) if text is not None else None


def instant_or_duration(
    _context: click.Context, option: click.Parameter, text: str | None
) -> int | datetime | timedelta | None:
    """Read what an option says, if it is given: an instant, or a duration from now."""
    return parse_when(text, option.opts[0]) if text is not None else None


def due_options(function: _Function) -> _Function:
    """Add `--at` and `--in`; the function gets `at` and `after`, to be given to `chosen_due`."""
    function = click.option(
        "--in", "after", metavar="DURATION", callback=duration,
        help="Due this long from now: 250ms, 10s, 5m, 1h30m, 2d.",
    )(function)  # fmt: skip
    return click.option(
        "--at", metavar="INSTANT", callback=instant,
        help="Due at this instant: ISO 8601 with a zone (2030-01-31T09:00:00Z), or Unix milliseconds.",
    )(function)  # fmt: skip


def chosen_due(at: int | datetime | None, after: timedelta | None) -> int | datetime | timedelta:
    """Return the due that the options named.

    Raises:
        click.UsageError: neither or both were given.
    """
    if at is not None and after is not None:
        raise click.UsageError("Give --at or --in, not both.")
    if at is not None:
        return at
    if after is not None:
        return after
    raise click.UsageError("Say when: --at INSTANT or --in DURATION.")
