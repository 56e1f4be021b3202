"""Divides rows that come one after another into requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final

from dueq import limits
from dueq.client.arguments import Payload
from dueq.client.core.ports.shared_body import NamedBody
from dueq.client.per_row import Headers
from dueq.client.times import Due, Expiries
from dueq.errors import InvalidRequest

_END: Final = object()
_COLUMNS: Final = ("due", "key", "rank", "group", "headers", "expires", "max_attempts")


@dataclass(slots=True)
class Batch:
    """Up to 1,024 rows of at most 3 MiB together, or one longer payload.

    Attributes:
        first: the place of its first row among all.
        payloads, dues, keys, ranks, groups, headers, expires, max_attempts: its columns; without ranks all are 0, of
            another column that was not given all are None.
        size: bytes of its payloads.
    """

    first: int
    payloads: list[Payload] = field(default_factory=list)
    dues: list[Due] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    groups: list[str | None] = field(default_factory=list)
    headers: list[Mapping[str, str] | None] = field(default_factory=list)
    expires: list[Due | None] = field(default_factory=list)
    max_attempts: list[int | None] = field(default_factory=list)
    size: int = 0

    def has_room(self, size: int) -> bool:
        """Whether a payload of `size` bytes fits, too."""
        rows = len(self.payloads)
        return not rows or (rows < limits.REQUEST_ROWS_MAX and self.size + size <= limits.REQUEST_BYTES_MAX)

    def goes_with(self, payload: object) -> bool:
        """Whether a payload may be in one request with these: all have the same shared body, or none has one."""
        if not self.payloads or not isinstance(self.payloads[0], NamedBody):
            return not self.payloads or not isinstance(payload, NamedBody)
        return payload is self.payloads[0] or payload == self.payloads[0]


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
    for what, given in (("payloads", payloads), ("keys", keys)):
        if isinstance(given, bytes | bytearray | memoryview | str):
            raise InvalidRequest(f"{what} are many, not one {type(given).__name__}")
    rows = _rows(
        iter(payloads),
        iter(dues) if isinstance(dues, Iterable) and not isinstance(dues, str) else repeat(dues),
        repeat(None) if keys is None else iter(keys),
        iter(ranks) if isinstance(ranks, Iterable) else repeat(ranks or 0),
        repeat(groups) if groups is None or isinstance(groups, str) else iter(groups),
        repeat(headers) if headers is None or isinstance(headers, Mapping) else iter(headers),
        iter(expires) if isinstance(expires, Iterable) and not isinstance(expires, str) else repeat(expires),
        iter(max_attempts) if isinstance(max_attempts, Iterable) else repeat(max_attempts),
    )
    batch, fault = Batch(0), None
    while True:
        try:
            payload, due, key, rank, group, each, expiry, most = next(rows)
        except StopIteration:
            break
        except Exception as error:
            fault = error
            break
        size = len(payload) if isinstance(payload, bytes | bytearray | memoryview) else 0
        if not batch.has_room(size) or not batch.goes_with(payload):
            yield batch
            batch = Batch(batch.first + len(batch.payloads))
        batch.payloads.append(payload)
        batch.dues.append(due)
        batch.keys.append(key)
        batch.ranks.append(rank)
        batch.groups.append(group)
        batch.headers.append(each)
        batch.expires.append(expiry)
        batch.max_attempts.append(most)
        batch.size += size
    if batch.payloads:
        yield batch
    if fault is not None:
        raise fault


def _rows(payloads: Iterator[Payload], *columns: Iterator[Any]) -> Iterator[tuple[Any, ...]]:
    for row, payload in enumerate(payloads):
        values = [next(column, _END) for column in columns]
        if _END in values:
            raise InvalidRequest(f"row {row}: there is a payload, but no {_COLUMNS[values.index(_END)]}")
        yield payload, *values
    for what, rest in zip(_COLUMNS, columns, strict=True):
        if not isinstance(rest, repeat) and next(rest, _END) is not _END:
            raise InvalidRequest(f"there are more {what}s than payloads")
