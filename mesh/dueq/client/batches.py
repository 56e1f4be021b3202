"""Divides rows that come one after another into requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, Final

from dueq import limits
from dueq.client.arguments import Payload, rows_of
from dueq.client.core.ports.shared_body import NamedBody
from dueq.client.per_row import Headers
from dueq.client.times import Due, Expiries
from dueq.errors import InvalidRequest

_END: Final = object()
_BYTES_LIKE: Final = (bytes, bytearray, memoryview)
_NO_ROWS: Final = (str, *_BYTES_LIKE)


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
    columns: dict[str, Any] = {
        "due": dues, "key": keys, "rank": ranks, "group": groups, "headers": headers, "expires": expires,
        "max_attempts": max_attempts,
    }  # fmt: skip
    varying = {
        name: iter(rows_of(value, _many(name))) for name, value in columns.items() if _varies(name, value)
    }
    # Most of the time that a client needs goes into this loop: it does nothing for what is the same in all rows.
    rows: Iterator[tuple[Any, ...]] = zip(
        rows_of(payloads, "payloads"),
        *(chain(column, _lacking(name)) for name, column in varying.items()),
        strict=False,
    )
    taken: list[tuple[Any, ...]] = []
    first = size = 0
    fault: Exception | None = None
    while True:
        try:
            row = next(rows)
        except StopIteration:
            fault = _more_than_payloads(varying)
            break
        except _Lacks as error:
            fault = InvalidRequest(f"row {first + len(taken)}: there is a payload, but no {error}")
            break
        except Exception as error:
            fault = error
            break
        payload = row[0]
        more_bytes = _bytes_of(payload)
        size += more_bytes
        if taken and (
            len(taken) == limits.REQUEST_ROWS_MAX
            or size > limits.REQUEST_BYTES_MAX
            or not _go_together(taken[0][0], payload)
        ):
            yield _batch(first, taken, varying, columns)
            first += len(taken)
            taken, size = [], more_bytes
        taken.append(row)
    if taken:
        yield _batch(first, taken, varying, columns)
    if fault is not None:
        raise fault


class _Lacks(Exception):
    """A column has ended before the payloads."""


def _lacking(name: str) -> Iterator[Any]:
    """Return what follows a column's last row: to ask for one more raises."""
    raise _Lacks(name)
    yield


def _more_than_payloads(varying: dict[str, Iterator[Any]]) -> Exception | None:
    """Return what is wrong about columns that go on behind the last payload."""
    try:
        for name, rest in varying.items():
            if not isinstance(rest, repeat) and next(rest, _END) is not _END:
                return InvalidRequest(f"there are more {_many(name)} than payloads")
    except Exception as error:
        return error
    return None


def _many(name: str) -> str:
    """Return what a column is called."""
    return name if name.endswith("s") else f"{name}s"


def _varies(name: str, value: object) -> bool:
    """Whether there is one for each row."""
    if name == "headers" and isinstance(value, Mapping):
        return False
    return isinstance(value, Iterable) and not isinstance(value, _NO_ROWS)


def _go_together(one: object, other: object) -> bool:
    """Whether payloads may be in one request: all have the same shared body, or none has one."""
    if not isinstance(one, NamedBody):
        return not isinstance(other, NamedBody)
    return one is other or one == other


def _batch(first: int, rows: list[tuple[Any, ...]], varying: Iterable[str], columns: dict[str, Any]) -> Batch:
    payloads, *lists = map(list, zip(*rows, strict=True))
    of = columns | dict(zip(varying, lists, strict=True))
    return Batch(
        first, payloads, of["due"], of["key"], of["rank"], of["group"], of["headers"], of["expires"],
        of["max_attempts"],
    )  # fmt: skip


def _bytes_of(payload: object) -> int:
    if isinstance(payload, memoryview):
        return payload.nbytes
    return len(payload) if isinstance(payload, _BYTES_LIKE) else 0
