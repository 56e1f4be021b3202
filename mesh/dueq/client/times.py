"""Instants and lengths of time that callers give, checked; each refusal names the value and the limit."""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from dueq import limits
from dueq.client.arguments import NO_NUMBERS, count, rows_of, shown
from dueq.errors import InvalidRequest
from dueq.time_text import duration_text, instant_text
from dueq_codecs.records import ATTEMPTS_MAX, NO_U16, NO_U32, NO_U64, U16, U32, U64
from dueq_codecs.rules import first_expired

Column = TypeVar("Column", U16, U64)
Due = int | datetime | timedelta
Seconds = float | timedelta
Expiries = Due | Iterable[Due | None]
"""One instant for all rows, or one (or None) each."""
SECONDS_BELOW: Final = 10**11
"""An int below this is a date before 1973 in milliseconds, but a plausible date in seconds."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FINER_THAN_US: Final = ("ns", "ps", "fs", "as")
_BYTES_LIKE: Final = (bytes, bytearray, memoryview)
_NO_ROWS: Final = (str, *_BYTES_LIKE)
"""What can be iterated and has no value for each row: the bytes of a text are no instants."""
_warned = False
_PACKAGE: Final = f"{Path(__file__).parents[1]}{os.sep}"


def whole_ms_column(dues: U64, rows: int) -> U64:
    """Check instants that are already a column of Unix ms.

    Raises:
        InvalidRequest: not one per row, not unsigned 64-bit, or one too late.
    """
    if dues.dtype != np.uint64 or len(dues) != rows:
        raise InvalidRequest(
            f"{rows} rows need {rows} due instants of uint64, not {len(dues)} of {dues.dtype}"
        )
    wrong = np.flatnonzero(dues > np.uint64(limits.DUE_MS_MAX))
    if len(wrong):
        row = int(wrong[0])
        raise InvalidRequest(
            f"row {row}: due is an instant from 0 to {limits.DUE_MS_MAX} (Unix ms), not {int(dues[row])}"
        )
    return dues


def due_column(dues: Due | Iterable[Due], rows: int, mesh_us: Callable[[], int]) -> U64:
    """Check instants and return them in Unix ms, rounded up.

    Args:
        dues: one per row, or a single one for all.
        rows: how many there must be.
        mesh_us: mesh time now, Unix µs; asked at most once, for timedeltas.

    Raises:
        InvalidRequest: a bool, float, naive datetime, negative or too late instant, or a wrong count.
    """
    if isinstance(dues, _NO_ROWS) or not isinstance(dues, Iterable):
        return np.full(rows, due_ms(dues, mesh_us), np.uint64)  # type: ignore[arg-type]
    listed: list[Any] = (
        _of_array(dues) if isinstance(dues, np.ndarray) else list(rows_of(dues, "due instants"))
    )
    if len(listed) != rows:
        raise InvalidRequest(f"{rows} rows need {rows} due instants, not {len(listed)}")
    if listed and set(map(type, listed)) == {int}:
        whole: list[int] = listed
        low = min(whole)
        if low >= 0 and max(whole) <= limits.DUE_MS_MAX:
            if low < SECONDS_BELOW:
                warn_of_seconds(min((due for due in whole if due), default=0))
            return np.array(whole, np.uint64)
    once = _Once(mesh_us)
    column = []
    for row, due in enumerate(listed):
        try:
            column.append(due_ms(due, once))
        except InvalidRequest as error:
            raise InvalidRequest(f"row {row}: {error}") from None
    return np.array(column, np.uint64)


def window_column(window: Seconds | Sequence[Seconds | None] | None, due: U64) -> U32:
    """Check a window and return it for each row, ms; empty when there is none.

    Args:
        window: how much later each may be due, seconds, or one for each row; None or 0: no later.
        due: of each row, Unix ms.

    Raises:
        InvalidRequest: it is no number, too long, or ends too late; or a wrong count.
    """
    if window is None:
        return NO_U32
    many = isinstance(window, Sequence) and not isinstance(window, _BYTES_LIKE)
    given: Iterable[Any] = window if many else [window]  # type: ignore[assignment]
    each = [duration_ms(0 if one is None else one, "window", 0, limits.WINDOW_MS_MAX) for one in given]
    widths = np.array(each if many else each * len(due), np.uint32)
    if len(widths) != len(due):
        raise InvalidRequest(f"{len(due)} rows need {len(due)} windows, or one for all, not {len(widths)}")
    if not widths.any():
        return NO_U32
    last = due + widths
    row = int(last.argmax())
    if int(last[row]) > limits.DUE_MS_MAX:
        raise InvalidRequest(
            f"a window of {widths[row]} ms ends at {last[row]} ms, beyond {limits.DUE_MS_MAX}"
        )
    return widths


def held(dues: Due | Iterable[Due]) -> Due | Sequence[Due]:
    """Return instants that can be iterated more than once."""
    if isinstance(dues, np.ndarray):
        return _of_array(dues)
    if isinstance(dues, Sequence) or not isinstance(dues, Iterable):
        return dues
    return list(rows_of(dues, "due instants"))


def held_ends(
    expires: Expiries | None, max_attempts: int | Iterable[int | None] | None
) -> tuple[Due | Sequence[Due | None] | None, int | Sequence[int | None] | None]:
    """Return how messages end, in what can be iterated more than once."""
    return _held_rows(expires, "expires"), _held_rows(max_attempts, "max_attempts")


def _held_rows(value: Any, what: str) -> Any:
    if isinstance(value, _NO_ROWS) or not isinstance(value, Iterable):
        return value
    return list(rows_of(value, what))


def _of_array(dues: np.ndarray[Any, Any]) -> list[Any]:
    """Return the values of an array. Of what is in nanoseconds, as times of pandas are, NumPy would make ints."""
    rows_of(dues, "due instants")  # an array of no dimension has none
    values: list[Any] = (_in_us(dues) if dues.dtype.kind in "mM" else dues).tolist()
    return values


def _in_us(dues: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return instants or lengths of NumPy in µs.

    Raises:
        InvalidRequest: one is so far away that its µs need more than 64 bits: NumPy would go round without a word.
    """
    column = dues.astype(f"{dues.dtype.kind}8[us]")
    unit, step = np.datetime_data(dues.dtype)
    if unit in _FINER_THAN_US:
        went_round = np.abs(dues.astype(np.int64)) > ((1 << 63) - 1) // step
    else:
        went_round = column.astype(dues.dtype) != dues
    wrong = np.flatnonzero(went_round & ~np.isnat(dues))
    if len(wrong):
        given = dues.flat[wrong[0]]
        raise InvalidRequest(
            f"row {wrong[0]}: due is an instant from 0 to {limits.DUE_MS_MAX} (Unix ms), not {given}"
        )
    return column


def is_relative(dues: Due | Sequence[Due | None] | None) -> bool:
    """Return whether any of them counts from now."""
    if isinstance(dues, Sequence) and not isinstance(dues, str):
        return any(issubclass(kind, timedelta) for kind in set(map(type, dues)))
    return isinstance(dues, timedelta)


def check_expiries(expires: U64, due: U64, window: U32) -> None:
    """Refuse messages that could never be delivered.

    Args:
        expires: of each row, Unix ms; 0: never. Empty: none expires.
        due: of each row, Unix ms.
        window: how much later each may be due, ms; empty: no later.

    Raises:
        InvalidRequest: a message expires when it is due, or before, or before its window ends.
    """
    row = first_expired(expires, due, window)
    if row is not None:
        width = int(window[row]) if len(window) else 0
        what = "the end of its window" if width else "its due instant"
        raise InvalidRequest(
            f"row {row}: expires {instant_text(int(expires[row]))} is not after {what}, "
            f"{instant_text(int(due[row]) + width)}"
        )


class EndColumns(NamedTuple):
    """How messages end, a value per row; empty: as the topic says."""

    expires: U64
    attempts_max: U16


_AS_THE_TOPIC_SAYS: Final = EndColumns(NO_U64, NO_U16)


def end_columns(
    expires: Due | Sequence[Due | None] | None,
    max_attempts: int | Sequence[int | None] | None,
    rows: int,
    mesh_us: Callable[[], int],
) -> EndColumns:
    """Check how messages end, one value for all or one for each, and return that for each row.

    Raises:
        InvalidRequest: the instant is none, or the number is outside its limits.
    """
    if expires is None and max_attempts is None:
        return _AS_THE_TOPIC_SAYS
    until = _each(expires, "expires", rows, NO_U64, lambda each: end_ms(each, mesh_us, "expires"))
    most = _each(max_attempts, "max_attempts", rows, NO_U16, _attempts)
    return EndColumns(until if until.any() else NO_U64, most if most.any() else NO_U16)


def _each(given: Any, what: str, rows: int, none: Column, checked: Callable[[Any], int]) -> Column:
    """Return a value for each row, 0 where there is none; `none` where nothing is given."""
    if given is None:
        return none
    if isinstance(given, _NO_ROWS) or not isinstance(given, Sequence):
        return np.full(rows, checked(given), none.dtype)
    if len(given) != rows:
        raise InvalidRequest(f"{rows} rows need {rows} {what}, not {len(given)}")
    return np.array([0 if each is None else checked(each) for each in given], none.dtype)


def _attempts(most: int) -> int:
    return count(most, "max_attempts", 1, ATTEMPTS_MAX)


def due_ms(due: Due, mesh_us: Callable[[], int], what: str = "due") -> int:
    """Check one instant and return it in Unix ms, rounded up (never early).

    Raises:
        InvalidRequest: a bool, float, naive datetime, negative or too late instant.
    """
    if isinstance(due, Integral) and not isinstance(due, NO_NUMBERS):
        due_int = int(due)
        warn_of_seconds(due_int)
    elif isinstance(due, datetime):
        if due.tzinfo is None or due.utcoffset() is None:
            raise InvalidRequest(
                f"{what} {due!r} is a naive datetime: give it a time zone, such as datetime.UTC"
            )
        due_int = -((_EPOCH - due) // timedelta(milliseconds=1))
    elif isinstance(due, timedelta):
        due_int = -(-(mesh_us() + due // _MICROSECOND) // 1000)
    else:
        raise InvalidRequest(
            f"{what} is an int (Unix ms), an aware datetime or a timedelta from now, not {type(due).__name__}:"
            f" {due!r:.80}"
        )
    return _within(due, due_int, what)


def end_ms(end: Due, mesh_us: Callable[[], int], what: str) -> int:
    """Check the instant at which something ends and return it as `due_ms` does, but at least 1: 0 stands for no end."""
    return max(due_ms(end, mesh_us, what), 1)


def instant_ms(value: int | datetime, what: str) -> int:
    """Check an instant of a range and return it in Unix ms, rounded up.

    Raises:
        InvalidRequest: it is neither an int nor an aware datetime, or outside 0 … 2^48−1 ms.
    """
    if isinstance(value, Integral) and not isinstance(value, NO_NUMBERS):
        found = int(value)
    elif isinstance(value, datetime) and value.utcoffset() is not None:
        found = -((_EPOCH - value) // timedelta(milliseconds=1))
    else:
        raise InvalidRequest(f"{what} is an int (Unix ms) or an aware datetime, not {value!r:.80}")
    return _within(value, found, what)


def moment(unix_ms: int) -> datetime:
    """Return Unix ms as an aware datetime; what lies beyond the year 9999 as the last instant before."""
    try:
        return _EPOCH + timedelta(milliseconds=unix_ms)  # exact, as a float of seconds would not be
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _within(given: Due, unix_ms: int, what: str) -> int:
    if not 0 <= unix_ms <= limits.DUE_MS_MAX:
        also = "" if isinstance(given, Integral) else f", which is {given}"
        raise InvalidRequest(
            f"{what} is an instant from 0 to {limits.DUE_MS_MAX} (Unix ms), not {shown(unix_ms)}{also}"
        )
    return unix_ms


class _Once:
    """Mesh time, read when it is first needed and then kept: one call, one now."""

    def __init__(self, mesh_us: Callable[[], int]) -> None:
        self._mesh_us = mesh_us
        self._value: int | None = None

    def __call__(self) -> int:
        if self._value is None:
            self._value = self._mesh_us()
        return self._value


def warn_of_seconds(due: int) -> None:
    """Warn, once in a process, that an instant (Unix ms) looks like seconds."""
    global _warned
    if 0 < due < SECONDS_BELOW and not _warned:
        _warned = True
        warnings.warn(
            f"due {due} is before 1973 as Unix milliseconds: were seconds meant? It is delivered at once.",
            UserWarning,
            stacklevel=_levels_inside(),
        )


def _levels_inside() -> int:
    """Return how many levels above the warning the code of the caller is, which is not of this package."""
    frame, levels = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, levels = frame.f_back, levels + 1
    return levels


def duration_ms(value: Seconds, what: str, low_ms: int, high_ms: int) -> int:
    """Check a duration in seconds (or a timedelta) and return ms, rounded up.

    16.1 is 16,100 ms, though the binary fraction is a little more than that.

    Raises:
        InvalidRequest: it is no number, or outside low … high.
    """
    if isinstance(value, timedelta):
        # A timedelta of the greatest length has no negative one.
        whole, rest = divmod(value, timedelta(milliseconds=1))
        duration = whole + bool(rest) if whole >= 0 else -1
    elif isinstance(value, Real) and not isinstance(value, NO_NUMBERS) and 0 <= value <= high_ms:
        duration = math.ceil(Fraction(repr(float(value))) * 1000)
    else:
        duration = -1
    if not low_ms <= duration <= high_ms:
        if isinstance(value, timedelta):
            low, high = (duration_text(timedelta(milliseconds=limit)) for limit in (low_ms, high_ms))
            raise InvalidRequest(f"{what} is {low} to {high}, not {duration_text(value)}")
        raise InvalidRequest(
            f"{what} is {Decimal(low_ms) / 1000} to {Decimal(high_ms) / 1000} seconds, not {shown(value)}"
        )
    return duration


def timeout_s(value: float | None, default: float) -> float:
    """Check a time-out in seconds; None means the default.

    Raises:
        InvalidRequest: it is no number or negative.
    """
    if value is None:
        return default
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if not isinstance(value, Real) or isinstance(value, NO_NUMBERS) or not value >= 0:
        raise InvalidRequest(f"timeout is a number of seconds, 0 or more, not {shown(value)}")
    return float(min(value, 365 * 86_400.0))
