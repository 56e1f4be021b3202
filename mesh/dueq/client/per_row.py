"""What callers give row by row, besides instants, as checked columns: ids, keys, headers, ranks, versions, groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, cast

import numpy as np

from dueq import ids, limits
from dueq.client.arguments import count, plain, rows_of, shown
from dueq.errors import InvalidRequest
from dueq_codecs.groups import GroupRefused, check_group
from dueq_codecs.meta import KEY_BYTES_MAX, Meta, MetaRefused, key_prefixes, packed_headers, prefix_of
from dueq_codecs.records import NO_U16, U16, U32, U64

Headers = Mapping[str, str] | Iterable[Mapping[str, str] | None]
"""One mapping for all rows, or one (or None) each."""
_VALUES = np.full(256, 255, np.uint8)
for _i, _c in enumerate(ids.ALPHABET):
    _VALUES[ord(_c)] = _VALUES[ord(_c.lower())] = _i


class IdColumns(NamedTuple):
    """Message ids taken apart; columns of one length."""

    first: U64
    uid: U32
    sequence: U64
    row: U16


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
    listed = list(rows_of(keys, "keys"))
    taken = _plain_keys(listed)
    if taken is None:
        taken = [b"" if key is None else _key_bytes(row, key) for row, key in enumerate(listed)]
    if len(taken) != rows:
        raise InvalidRequest(f"{rows} rows need {rows} keys, not {len(taken)}")
    return taken if any(taken) else None


def _plain_keys(keys: list[str | None]) -> list[bytes] | None:
    """Return the bytes of keys, all at once; None where one of them is none, or cannot be a key."""
    if set(map(type, keys)) != {str}:
        return None
    try:
        taken = list(map(str.encode, cast(list[str], keys)))
    except UnicodeEncodeError:
        return None
    return taken if max(map(len, taken)) <= KEY_BYTES_MAX else None


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
        return Prefixes(Meta.KEY, key_prefixes(names))
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
        for each in rows_of(headers, "headers"):
            packed.append(b"" if each is None else packed_headers(each))
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
    if isinstance(ranks, int | str | bytes | bytearray | memoryview) or not isinstance(ranks, Iterable):
        return np.full(rows, one_rank(ranks), np.uint16)
    column = []
    for row, rank in enumerate(rows_of(ranks, "ranks")):
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
    if isinstance(versions, str | bytes | bytearray | memoryview) or not isinstance(versions, Iterable):
        return np.full(rows, count(versions, "a version", 1, limits.SEQUENCE_MAX), np.uint64)  # type: ignore[arg-type]
    listed = list(rows_of(versions, "versions"))
    if len(listed) != rows:
        raise InvalidRequest(f"{rows} rows need {rows} versions, not {len(listed)}")
    column = [
        0 if version is None else count(version, f"row {row}: a version", 1, limits.SEQUENCE_MAX)
        for row, version in enumerate(listed)
    ]
    return np.array(column, np.uint64)


def one_rank(rank: object) -> int:
    """Check a rank and return it.

    Raises:
        InvalidRequest: it is no int, or outside its limits.
    """
    rank = plain(rank)
    if isinstance(rank, bool) or not isinstance(rank, int):
        raise InvalidRequest(f"a rank is an int, not {type(rank).__name__}: {rank!r:.80}")
    if not 0 <= rank <= limits.RANK_MAX:
        raise InvalidRequest(f"a rank is between 0 and {limits.RANK_MAX}, not {shown(rank)}")
    return rank


def group_columns(groups: str | Iterable[str | None] | None, rows: int) -> tuple[U16 | U32, tuple[str, ...]]:
    """Check groups and return the place of each row's among their names, and these; empty when no row has one.

    Args:
        groups: one per row (None or "": it has none), or a single one for all; None when there are none.
        rows: how many there must be.

    Raises:
        InvalidRequest: one is no str or no valid name; or a wrong count.
    """
    if groups is None:
        return NO_U16, ()
    if isinstance(groups, str | bytes | bytearray | memoryview) or not isinstance(groups, Iterable):
        groups = [groups] * rows  # type: ignore[list-item]
    listed = list(rows_of(groups, "groups"))
    if len(listed) != rows:
        raise InvalidRequest(f"{rows} rows need {rows} groups, not {len(listed)}")
    places: dict[str, int] = {}
    column = [places.setdefault(_group(row, group), len(places)) for row, group in enumerate(listed)]
    if not any(places):
        return NO_U16, ()
    placed = np.array(column, np.uint32)
    # Each request counts the groups of its own rows anew. Only a call may have more than 16 bits can count.
    return placed if len(places) > 1 << 16 else placed.astype(np.uint16), tuple(places)


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


def id_columns(message_ids: Iterable[str]) -> IdColumns:
    """Take message ids apart, all at once.

    Raises:
        InvalidRequest: one is not 26 characters of Crockford base-32 of at most 128 bits.
    """
    listed = [message_ids] if isinstance(message_ids, str) else list(rows_of(message_ids, "message ids"))
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
            return f"row {row}: {error}" if len(listed) > 1 else str(error)
    raise AssertionError(f"ids that are sound one by one: {listed!r:.200}")
