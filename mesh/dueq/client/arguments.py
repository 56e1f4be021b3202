"""Arguments of callers, checked before anything is sent; each refusal names the value and the limit."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from numbers import Integral, Real
from typing import Any, Final, NamedTuple

import numpy as np

from dueq import ids, limits
from dueq.client.core.ports.shared_body import SharedBody
from dueq.errors import InvalidRequest
from dueq_codecs.groups import GroupRefused, check_group
from dueq_codecs.meta import KEY_BYTES_MAX, Meta, MetaRefused, packed_headers, prefix_of
from dueq_codecs.records import ATTEMPTS_MAX, NO_U16, NO_U32, NO_U64, REASON_BYTES_MAX, U16, U32, U64, Fate

Payload = bytes | bytearray | memoryview | SharedBody
Due = int | datetime | timedelta
Seconds = float | timedelta
Expiries = Due | Iterable[Due | None]
"""One instant for all rows, or one (or None) each."""
Headers = Mapping[str, str] | Iterable[Mapping[str, str] | None]
"""One mapping for all rows, or one (or None) each."""

ENDPOINTS_VARIABLE: Final = "DUEQ_ENDPOINTS"
KINDS: Final = ("timeline", "priority", "fair")
SECONDS_BELOW: Final = 10**11
"""An int below this is a date before 1973 in milliseconds, but a plausible date in seconds."""

_TOPIC = re.compile(rf"[A-Za-z0-9._-]{{1,{limits.TOPIC_NAME_MAX}}}", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_VALUES = np.full(256, 255, np.uint8)
for _i, _c in enumerate(ids.ALPHABET):
    _VALUES[ord(_c)] = _VALUES[ord(_c.lower())] = _i
_warned = False


class IdColumns(NamedTuple):
    """Message ids taken apart; columns of one length."""

    first: U64
    uid: U32
    sequence: U64
    row: U16


# ---------------------------------------------------------------- rows


def key_column(keys: Iterable[str | None] | None, rows: int) -> list[bytes] | None:
    """Check keys and return their bytes; None when no row has one.

    Args:
        keys: one per row, None or "" where a row has none; None when there are none at all.
        rows: how many there must be.

    Raises:
        InvalidRequest: one is no str, is no valid text, or has more than 255 bytes of UTF-8; or a wrong count.
    """
    if keys is None:
        return None
    if isinstance(keys, str | bytes):
        raise InvalidRequest(f"keys is a sequence of keys, one per payload, not one {type(keys).__name__}")
    taken = [_key_bytes(row, key) if key else b"" for row, key in enumerate(keys)]
    if len(taken) != rows:
        raise InvalidRequest(f"{rows} rows need {rows} keys, not {len(taken)}")
    return taken if any(taken) else None


def _key_bytes(row: int, key: str) -> bytes:
    if not isinstance(key, str):
        raise InvalidRequest(f"row {row}: a key is a str, not {type(key).__name__}: {key!r:.80}")
    try:
        encoded = key.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"row {row}: the key {key!r:.80} is not Unicode text: {error.reason}") from None
    if len(encoded) > KEY_BYTES_MAX:
        raise InvalidRequest(
            f"row {row}: a key has at most {KEY_BYTES_MAX} bytes of UTF-8, not {len(encoded)}: {key!r:.80}"
        )
    return encoded


class Prefixes(NamedTuple):
    """What goes before payloads: mode, and the bytes for each row; none where the mode is NONE."""

    mode: Meta
    rows: Sequence[bytes]


NO_PREFIXES: Final = Prefixes(Meta.NONE, ())


def prefixes_of(
    keys: Iterable[str | None] | None,
    headers: Headers | None,
    rows: int,
) -> Prefixes:
    """Check keys and headers.

    Args:
        keys: as for `key_column`.
        headers: one mapping per row (None: it has none), or a single one for all; None when there are none.
        rows: how many there must be.

    Raises:
        InvalidRequest: one cannot be, or a wrong count.
    """
    names = key_column(keys, rows)
    packed = _header_column(headers, rows)
    if packed is not None and any(packed):
        each = names or [b""] * rows
        return Prefixes(
            Meta.HEADERS, [prefix_of(Meta.HEADERS, *pair) for pair in zip(each, packed, strict=True)]
        )
    if names is not None:
        return Prefixes(Meta.KEY, [prefix_of(Meta.KEY, name, b"") for name in names])
    return Prefixes(Meta.NONE, ())


def _header_column(headers: Headers | None, rows: int) -> list[bytes] | None:
    if headers is None:
        return None
    try:
        if isinstance(headers, Mapping):
            return [packed_headers(headers)] * rows
        if isinstance(headers, str | bytes) or not isinstance(headers, Iterable):
            raise InvalidRequest(f"headers are a mapping, or one per payload, not {headers!r:.80}")
        packed: list[bytes] = []
        for each in headers:
            packed.append(packed_headers(each) if each else b"")
    except MetaRefused as refused:
        row = "" if isinstance(headers, Mapping) else f"row {len(packed)}: "
        raise InvalidRequest(f"{row}{refused}") from None
    if len(packed) != rows:
        raise InvalidRequest(f"{rows} rows need {rows} headers, not {len(packed)}")
    return packed


def rank_column(ranks: int | Iterable[int] | None, rows: int) -> U16:
    """Check ranks and return them; empty when there are none.

    Args:
        ranks: one per row, or a single one for all; None when there are none.
        rows: how many there must be.

    Raises:
        InvalidRequest: one is no int, or is not between 0 and 65,535; or a wrong count.
    """
    if ranks is None:
        return NO_U16
    if isinstance(ranks, int | str | bytes | bytearray) or not isinstance(ranks, Iterable):
        return np.full(rows, one_rank(ranks), np.uint16)
    column = []
    for row, rank in enumerate(ranks):
        try:
            column.append(one_rank(rank))
        except InvalidRequest as error:
            raise InvalidRequest(f"row {row}: {error}") from None
    if len(column) != rows:
        raise InvalidRequest(f"{rows} rows need {rows} ranks, not {len(column)}")
    return np.array(column, np.uint16)


def version_column(versions: int | Iterable[int | None] | None, rows: int) -> U64 | None:
    """Check the versions that messages must have and return them, 0 for any; None when none is asked for.

    Raises:
        InvalidRequest: one is no int of 1 or more; or a wrong count.
    """
    if versions is None:
        return None
    listed = [versions] * rows if isinstance(versions, int) else list(versions)
    if len(listed) != rows:
        raise InvalidRequest(f"{rows} rows need {rows} versions, not {len(listed)}")
    for row, version in enumerate(listed):
        if version is not None and (type(version) is not int or not 1 <= version <= limits.SEQUENCE_MAX):
            raise InvalidRequest(
                f"row {row}: a version is a whole number from 1 to {limits.SEQUENCE_MAX}, not {version!r:.80}"
            )
    return np.array([version or 0 for version in listed], np.uint64)


def one_rank(rank: object) -> int:
    """Check a rank and return it.

    Raises:
        InvalidRequest: it is no int, or outside its limits.
    """
    if isinstance(rank, np.integer):
        rank = int(rank)
    if isinstance(rank, bool) or not isinstance(rank, int):
        raise InvalidRequest(f"a rank is an int, not {type(rank).__name__}: {rank!r:.80}")
    if not 0 <= rank <= limits.RANK_MAX:
        raise InvalidRequest(f"a rank is between 0 and {limits.RANK_MAX}, not {rank}")
    return rank


def group_columns(groups: str | Iterable[str | None] | None, rows: int) -> tuple[U16, tuple[str, ...]]:
    """Check groups and return the place of each row's among their names, and these; empty when no row has one.

    Args:
        groups: one per row (None or "": it has none), or a single one for all; None when there are none.
        rows: how many there must be.

    Raises:
        InvalidRequest: one is no str or no valid name; or a wrong count.
    """
    if groups is None:
        return NO_U16, ()
    if isinstance(groups, str | bytes | bytearray) or not isinstance(groups, Iterable):
        groups = [groups] * rows
    listed = list(groups)
    if len(listed) != rows:
        raise InvalidRequest(f"{rows} rows need {rows} groups, not {len(listed)}")
    places: dict[str, int] = {}
    column = [places.setdefault(_group(row, group), len(places)) for row, group in enumerate(listed)]
    if not any(places):
        return NO_U16, ()
    return np.array(column, np.uint16), tuple(places)


def _group(row: int, group: str | None) -> str:
    try:
        return one_group(group) if group is not None else ""
    except InvalidRequest as refused:
        raise InvalidRequest(f"row {row}: {refused}") from None


def one_group(group: str) -> str:
    """Check the name of a group and return it; the empty one is that of messages without a group.

    Raises:
        InvalidRequest: it is no str, or no valid name.
    """
    if not isinstance(group, str):
        raise InvalidRequest(f"a group is a str, not {type(group).__name__}: {group!r:.80}")
    try:
        check_group(group)
    except GroupRefused as refused:
        raise InvalidRequest(str(refused)) from None
    return group


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
        raise InvalidRequest(f"row {row}: due is {int(dues[row])} ms, outside 0 … {limits.DUE_MS_MAX}")
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
    if isinstance(dues, str) or not isinstance(dues, Iterable):
        return np.full(rows, due_ms(dues, mesh_us), np.uint64)
    listed: list[Any] = dues.tolist() if isinstance(dues, np.ndarray) else list(dues)
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
        InvalidRequest: it is no number, too long, or ends too late.
    """
    if window is None:
        return NO_U32
    given = window if isinstance(window, Sequence) else [window]
    each = [duration_ms(one or 0, "window", 0, limits.WINDOW_MS_MAX) for one in given]
    widths = np.array(each if isinstance(window, Sequence) else each * len(due), np.uint32)
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
        whole: list[Due] = dues.tolist()
        return whole
    if isinstance(dues, Sequence) or not isinstance(dues, Iterable):
        return dues
    return list(dues)


def held_ends(
    expires: Expiries | None, max_attempts: int | Iterable[int | None] | None
) -> tuple[Due | Sequence[Due | None] | None, int | Sequence[int | None] | None]:
    """Return how messages end, in what can be iterated more than once."""
    until = list(expires) if isinstance(expires, Iterable) and not isinstance(expires, str) else expires
    return until, list(max_attempts) if isinstance(max_attempts, Iterable) else max_attempts


def is_relative(dues: Due | Sequence[Due | None] | None) -> bool:
    """Return whether any of them counts from now."""
    if isinstance(dues, Sequence) and not isinstance(dues, str):
        return any(issubclass(kind, timedelta) for kind in set(map(type, dues)))
    return isinstance(dues, timedelta)


class EndColumns(NamedTuple):
    """How messages end, a value per row; empty: as the topic says."""

    expires: U64
    attempts_max: U16


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
    until, most = NO_U64, NO_U16
    if isinstance(expires, Sequence):
        until = np.array([0 if each is None else due_ms(each, mesh_us) for each in expires], np.uint64)
    elif expires is not None:
        until = np.full(rows, due_ms(expires, mesh_us), np.uint64)
    if isinstance(max_attempts, Sequence):
        most = np.array([0 if each is None else _attempts(each) for each in max_attempts], np.uint16)
    elif max_attempts is not None:
        most = np.full(rows, _attempts(max_attempts), np.uint16)
    for what, column in (("expires", until), ("max_attempts", most)):
        if len(column) not in (0, rows):
            raise InvalidRequest(f"{rows} rows need {rows} {what}, not {len(column)}")
    return EndColumns(until if until.any() else NO_U64, most if most.any() else NO_U16)


def _attempts(most: int) -> int:
    return count(most, "max_attempts", 1, ATTEMPTS_MAX)


def due_ms(due: Due, mesh_us: Callable[[], int]) -> int:
    """Check one instant and return it in Unix ms, rounded up (never early).

    Raises:
        InvalidRequest: a bool, float, naive datetime, negative or too late instant.
    """
    if isinstance(due, Integral) and not isinstance(due, bool):
        due_int = int(due)
        warn_of_seconds(due_int)
    elif isinstance(due, datetime):
        if due.tzinfo is None or due.utcoffset() is None:
            raise InvalidRequest(
                f"due {due!r} is a naive datetime: give it a time zone, such as datetime.UTC"
            )
        due_int = -((_EPOCH - due) // timedelta(milliseconds=1))
    elif isinstance(due, timedelta):
        due_int = -(-(mesh_us() + due // _MICROSECOND) // 1000)
    else:
        raise InvalidRequest(
            f"due is an int (Unix ms), an aware datetime or a timedelta from now, not {type(due).__name__}: {due!r:.80}"
        )
    if not 0 <= due_int <= limits.DUE_MS_MAX:
        raise InvalidRequest(f"due {due!r} is {due_int} ms, outside 0 … {limits.DUE_MS_MAX}")
    return due_int


def instant_ms(value: int | datetime, what: str) -> int:
    """Check an instant of a range and return it in Unix ms, rounded up.

    Raises:
        InvalidRequest: it is neither an int nor an aware datetime, or outside 0 … 2^48−1 ms.
    """
    if isinstance(value, Integral) and not isinstance(value, bool):
        found = int(value)
    elif isinstance(value, datetime) and value.utcoffset() is not None:
        found = -((_EPOCH - value) // timedelta(milliseconds=1))
    else:
        raise InvalidRequest(f"{what} is an int (Unix ms) or an aware datetime, not {value!r:.80}")
    if not 0 <= found <= limits.DUE_MS_MAX:
        raise InvalidRequest(f"{what} {value!r} is {found} ms, outside 0 … {limits.DUE_MS_MAX}")
    return found


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
            stacklevel=2,
        )


def id_columns(message_ids: Iterable[str]) -> IdColumns:
    """Take message ids apart, all at once.

    Raises:
        InvalidRequest: one is not 26 characters of Crockford base-32 of at most 128 bits.
    """
    listed = list(message_ids) if not isinstance(message_ids, str) else [message_ids]
    if not listed:
        none = np.empty(0, np.uint64)
        return IdColumns(none, none.astype(np.uint32), none, none.astype(np.uint16))
    try:
        raw = np.frombuffer("".join(listed).encode("ascii"), np.uint8)
        digits = _VALUES[raw].reshape(len(listed), ids.TEXT_LENGTH).astype(np.uint64)
        sound = (
            set(map(len, listed)) == {ids.TEXT_LENGTH}
            and int(digits.max()) < 32
            and int(digits[:, 0].max()) < 8
        )
    except (TypeError, ValueError, UnicodeEncodeError):
        sound = False
    if not sound:
        raise InvalidRequest(_fault_of_ids(listed))
    # 26 digits of 5 bits: two of 3 + 60 bits would not do, so high and low halves meet inside digit 13.
    high = np.zeros(len(listed), np.uint64)
    low = np.zeros(len(listed), np.uint64)
    for column in range(13):
        high = (high << np.uint64(5)) | digits[:, column]
        low = (low << np.uint64(5)) | digits[:, column + 13]
    # high holds the upper 63 bits of 128, low the lower 65: its top bit went over the edge.
    edge = digits[:, 13] >> np.uint64(4)
    upper = (high << np.uint64(1)) | edge
    first = upper >> np.uint64(16)
    uid = ((upper & np.uint64(0xFFFF)) << np.uint64(8)) | (low >> np.uint64(56))
    sequence = (low >> np.uint64(16)) & np.uint64(0xFFFFFFFFFF)
    return IdColumns(first, uid.astype(np.uint32), sequence, (low & np.uint64(0xFFFF)).astype(np.uint16))


def _fault_of_ids(listed: list[str]) -> str:
    for row, text in enumerate(listed):
        try:
            ids.from_text(text)
        except ValueError as error:
            return f"row {row}: {error}"
    raise AssertionError(f"ids that are sound one by one: {listed!r:.200}")


# ---------------------------------------------------------------- single values


def one_of(value: str, name: str, allowed: Sequence[str]) -> str:
    """Return a value that is one of these.

    Raises:
        InvalidRequest: it is none of them.
    """
    if value not in allowed:
        raise InvalidRequest(f"{name} is one of {', '.join(allowed)}, not {value!r:.200}")
    return value


def detached(value: bool, name: str | None) -> bool:
    """Return whether a consumer's leases are detached.

    Raises:
        InvalidRequest: it is no bool, or the consumer has a name.
    """
    if not isinstance(value, bool):
        raise InvalidRequest(f"detached is True or False, not {value!r:.80}")
    if value and name is not None:
        raise InvalidRequest(f"leases of a consumer with a name are not detached: {name!r:.80}")
    return value


def topic_name(name: str) -> str:
    """Check a topic's name.

    Raises:
        InvalidRequest: it is not 1–255 of `A-Z a-z 0-9 . _ -`.
    """
    if not isinstance(name, str) or not _TOPIC.fullmatch(name):
        raise InvalidRequest(
            f"a topic's name has 1–{limits.TOPIC_NAME_MAX} characters of A-Z a-z 0-9 . _ -, not {name!r:.300}"
        )
    return name


def count(value: int, what: str, low: int, high: int) -> int:
    """Check a whole number.

    Raises:
        InvalidRequest: it is no int, or outside low … high.
    """
    if not isinstance(value, Integral) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidRequest(f"{what} is a whole number from {low} to {high}, not {value!r}")
    return int(value)


class Ending(NamedTuple):
    """How a lease is to end, or to go on: see `events.Settle`."""

    amount_ms: int = 0
    fate: Fate = Fate.DELAY
    reason: str = ""
    headers: str = ""
    """JSON; empty: they stay."""


def ack(reason: str) -> Ending:
    """Check how messages are done.

    Raises:
        InvalidRequest: the reason is no text, or too long.
    """
    if not isinstance(reason, str):
        raise InvalidRequest(f"a reason is a str, not {type(reason).__name__}: {reason!r:.80}")
    try:
        length = len(reason.encode())
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"the reason {reason!r:.80} is not Unicode text: {error.reason}") from None
    if length > REASON_BYTES_MAX:
        raise InvalidRequest(f"a reason has at most {REASON_BYTES_MAX} bytes of UTF-8, not {length}")
    return Ending(reason=reason)


def nack(delay: Seconds | None, reason: str, dead: bool, headers: Mapping[str, str] | None = None) -> Ending:
    """Check how messages are given back.

    Raises:
        InvalidRequest: the delay is no number or outside its limits, the reason is no text or too long, headers are
            none or too long, or a dead message has a delay.
    """
    ack(reason)
    if dead and delay is not None:
        raise InvalidRequest(f"a message that is dead has no delay, not {delay!r}")
    document = "" if headers is None else _headers_text(headers)
    if dead:
        return Ending(0, Fate.DEAD, reason, document)
    if delay is None:
        return Ending(0, Fate.BACK_OFF, reason, document)
    return Ending(duration_ms(delay, "delay", 0, limits.DELAY_MS_MAX), Fate.DELAY, reason, document)


def _headers_text(headers: Mapping[str, str]) -> str:
    try:
        packed_headers(headers)
    except MetaRefused as refused:
        raise InvalidRequest(str(refused)) from None
    return json.dumps(dict(headers), ensure_ascii=False, separators=(",", ":"))


def release(delay: Seconds) -> Ending:
    """Check how messages are given back unhandled.

    Raises:
        InvalidRequest: the delay is no number, or outside its limits.
    """
    return Ending(duration_ms(delay, "delay", 0, limits.RELEASE_DELAY_MS_MAX))


def duration_ms(value: Seconds, what: str, low_ms: int, high_ms: int) -> int:
    """Check a duration in seconds (or a timedelta) and return ms, rounded up.

    Raises:
        InvalidRequest: it is no number, or outside low … high.
    """
    if isinstance(value, timedelta):
        duration = -(-value // timedelta(milliseconds=1)) if value >= timedelta(0) else -1
    elif isinstance(value, Real) and not isinstance(value, bool) and 0 <= value <= high_ms:
        duration = -int(-float(value) * 1000 // 1)
    else:
        duration = -1
    if not low_ms <= duration <= high_ms:
        raise InvalidRequest(f"{what} is {low_ms / 1000:g} to {high_ms / 1000:g} seconds, not {value!r}")
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
    if not isinstance(value, Real) or isinstance(value, bool) or not value >= 0:
        raise InvalidRequest(f"timeout is a number of seconds, 0 or more, not {value!r}")
    return min(float(value), 365 * 86_400.0)


def endpoint_list(endpoints: str | Sequence[str] | None) -> list[str]:
    """Check endpoints; None takes them from DUEQ_ENDPOINTS (separated by commas).

    Raises:
        InvalidRequest: there is none, or one is not like tcp://HOST:PORT.
    """
    if endpoints is None:
        endpoints = os.environ.get(ENDPOINTS_VARIABLE, "")
        if not endpoints.strip():
            raise InvalidRequest(f"no endpoints: pass them, or set {ENDPOINTS_VARIABLE}=tcp://HOST:PORT[,…]")
    if isinstance(endpoints, str):
        endpoints = endpoints.split(",")
    taken = [endpoint.strip() for endpoint in endpoints]
    for endpoint in taken:
        if not re.fullmatch(r"tcp://[^:\s]+:\d{1,5}|tcp://\[[0-9a-fA-F:.%\w]+\]:\d{1,5}|ipc://\S+", endpoint):
            raise InvalidRequest(f"an endpoint is tcp://HOST:PORT, not {endpoint!r}")
    if not taken:
        raise InvalidRequest("the list of endpoints is empty")
    return list(dict.fromkeys(taken))
