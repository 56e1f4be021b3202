"""Divides rows that come one after another into requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat, zip_longest
from typing import Any, Final

from dueq import limits
from dueq.client.arguments import Payload
from dueq.client.core.ports.shared_body import NamedBody
from dueq.client.per_row import Headers
from dueq.client.times import Due, Expiries
from dueq.errors import InvalidRequest

_END: Final = object()
_BYTES_LIKE: Final = (bytes, bytearray, memoryview)


@dataclass(slots=True)
class Batch:
    """Up to 1,024 rows of at most 3 MiB together, or one longer payload.

    Attributes:
        first: the place of its first row among all.
        payloads: its rows.
        dues, keys, ranks, groups, headers, expires, max_attempts: a list with one item per row where an iterable was
            given; otherwise what was given for all.
    """

    first: int
    payloads: list[Payload]
    dues: Due | list[Due]
    keys: list[str | None] | None
    ranks: int | list[int] | None
    groups: str | list[str | None] | None
    headers: Mapping[str, str] | list[Mapping[str, str] | None] | None
    expires: Due | list[Due | None] | None
    max_attempts: int | list[int | None] | None


def batches(
    payloads: Iterable[Payload],
    dues: Due | Iterable[Due],
    keys: Iterable[str | None] | None = None,
    ranks: int | Iterable[int] | None = None,
    groups: str | Iterable[str | None] | None = None,
    headers: Headers | None = None,
    expires: Expiries | None = None,
    max_attempts: int | Iterable[int | None] | None = None,
) -> Iterator[Batch]:
    """Yield the rows in order. At most one row is taken from the iterators ahead of a batch.

    Raises:
        InvalidRequest: one of them is no sequence of rows, or ends before another; the rows before were yielded.
    """
    for what, many in (("payloads", payloads), ("keys", keys)):
        if isinstance(many, bytes | bytearray | memoryview | str):
            raise InvalidRequest(f"{what} are many, not one {type(many).__name__}")
    columns = {"due": dues, "key": keys, "rank": ranks, "group": groups, "headers": headers, "expires": expires,
               "max_attempts": max_attempts}  # fmt: skip
    varying = [name for name, value in columns.items() if _varies(value)]
    # Most of the time that a client needs goes into this loop: it does nothing for what is the same in all rows.
    rows: Iterator[tuple[Any, ...]] = zip_longest(
        payloads, *(columns[name] for name in varying), fillvalue=_END
    )
    taken: list[tuple[Any, ...]] = []
    first = size = 0
    fault: Exception | None = None
    while True:
        try:
            row = next(rows)
        except StopIteration:
            break
        except Exception as error:
            fault = error
            break
        payload = row[0]
        if payload is _END:
            more = [name for name, value in zip(varying, row[1:], strict=True) if value is not _END]
            if more := [name for name in more if not isinstance(columns[name], repeat)]:
                fault = InvalidRequest(f"there are more {more[0]}s than payloads")
            break
        more_bytes = len(payload) if isinstance(payload, _BYTES_LIKE) else 0
        size += more_bytes
        if taken and (
            len(taken) == limits.REQUEST_ROWS_MAX
            or size > limits.REQUEST_BYTES_MAX
            or not _go_together(taken[0][0], payload)
        ):
            yield from _batch(first, taken, varying, columns)
            first += len(taken)
            taken, size = [], more_bytes
        taken.append(row)
    if taken:
        yield from _batch(first, taken, varying, columns)
    if fault is not None:
        raise fault


def _varies(value: object) -> bool:
    """Whether there is one for each row."""
    return isinstance(value, Iterable) and not isinstance(value, str | Mapping)


def _go_together(one: object, other: object) -> bool:
    """Whether payloads may be in one request: all have the same shared body, or none has one."""
    if not isinstance(one, NamedBody):
        return not isinstance(other, NamedBody)
    return one is other or one == other


def _batch(
    first: int, rows: list[tuple[Any, ...]], varying: Sequence[str], columns: dict[str, Any]
) -> Iterator[Batch]:
    """Yield these rows, up to the first one that lacks something."""
    payloads, *lists = map(list, zip(*rows, strict=True))
    lacking = [name for name, column in zip(varying, lists, strict=True) if column[-1] is _END]
    count = len(rows)
    if lacking:
        count = next(place for place, row in enumerate(rows) if any(value is _END for value in row))
        lacking = [name for name, value in zip(varying, rows[count][1:], strict=True) if value is _END]
    if count:
        of = columns | {name: column[:count] for name, column in zip(varying, lists, strict=True)}
        yield Batch(
            first, payloads[:count], of["due"], of["key"], of["rank"], of["group"], of["headers"], of["expires"],
            of["max_attempts"],
        )  # fmt: skip
    if lacking:
        raise InvalidRequest(f"row {first + count}: there is a payload, but no {lacking[0]}")
