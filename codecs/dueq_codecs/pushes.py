"""A push: due messages with their leases.

Its rows are one vector of structs of 56 bytes each, not columns. There are thousands of pushes a second with few rows
each, and each column costs a write and a read of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dueq_codecs.records import NO_U16, NO_U32, NO_U64

PUSH_ROW: Final = np.dtype(
    [
        ("first", "<u8"),
        ("sequence", "<u8"),
        ("due", "<u8"),
        ("token", "<u8"),
        ("uid", "<u4"),
        ("lease_left_ms", "<u4"),
        ("size", "<u4"),
        ("crc", "<u4"),
        ("keyed", "<u4"),  # what the payload begins with: a `meta.Meta`
        ("row", "<u2"),
        ("attempt", "<u2"),  # 1 for the first delivery
    ]
)
"""As the struct PushRow of the schema: without a gap, so that no byte is left to chance."""
_ROW: Final = struct.Struct("<4Q5I2H")
_TOKEN: Final = 3
_UID: Final = 4
assert _ROW.size == PUSH_ROW.itemsize == 56

PushRows = npt.NDArray[Any]
"""A one-dimensional array of dtype PUSH_ROW."""

NO_PUSH_ROWS: Final[PushRows] = np.empty(0, PUSH_ROW)
NO_PUSH_ROWS.flags.writeable = False


def push_rows(count: int, **columns: Any) -> PushRows:
    """Return `count` rows with these columns; columns that are not given are 0."""
    rows = np.zeros(count, PUSH_ROW)
    for name, column in columns.items():
        rows[name] = column
    return rows


def _column(name: str) -> Any:
    return property(lambda push: push.rows[name], doc=f"The rows' `{name}`.")


@dataclass(slots=True)
class Push:
    """Due messages with their leases, for one consumer; one body: the inline payloads in row order.

    A row whose size is above CHUNK_BYTES has its payload in PushChunk frames that went ahead.
    """

    topic: str
    consumer_id: bytes
    attach: int
    number: int
    """1, 2, 3, … within one attach."""
    epoch: int
    released_at_us: int
    """Mesh time when the push left, as its leader measures it, Unix µs."""
    leader: str = ""
    """The broker that pushes."""
    rows: PushRows = field(default_factory=lambda: NO_PUSH_ROWS)
    incarnation: int = 0
    """The life of the broker that `mono_us` is of."""
    mono_us: int = 0
    """The leader's monotonic clock when the push left, µs: leases are counted by it, whatever wall clocks show."""
    rank: npt.NDArray[np.uint16] = field(default_factory=lambda: NO_U16)
    """Of each row; empty: all are 0."""
    version: npt.NDArray[np.uint64] = field(default_factory=lambda: NO_U64)
    """Log sequence of the record that changed each message last, 0: the one that inserted it; empty: all are 0."""
    group: npt.NDArray[np.uint16] = field(default_factory=lambda: NO_U16)
    """Place of each row's group in `groups`; empty: no row has a group."""
    groups: tuple[str, ...] = ()
    expires: npt.NDArray[np.uint64] = field(default_factory=lambda: NO_U64)
    """The instant (Unix ms) from which each message is not delivered any more, 0: never; empty: all are 0."""
    shared: npt.NDArray[np.uint16] = field(default_factory=lambda: NO_U16)
    """Which shared body ends each row's payload, counted from 1, 0: none; empty: all are 0. Its bytes are behind
    those of all rows, once, and rows are short of them."""
    shared_size: npt.NDArray[np.uint32] = field(default_factory=lambda: NO_U32)
    """The bytes of each of these bodies, in order."""
    heading: npt.NDArray[np.uint16] = field(default_factory=lambda: NO_U16)
    """Place in `headings` of the headers (JSON) that a NACK gave each message, "": none; empty: no row has any."""
    headings: tuple[str, ...] = ()

    first = _column("first")
    sequence = _column("sequence")
    due = _column("due")
    token = _column("token")
    uid = _column("uid")
    lease_left_ms = _column("lease_left_ms")
    size = _column("size")
    crc = _column("crc")
    keyed = _column("keyed")
    row = _column("row")
    attempt = _column("attempt")

    def each_row(self) -> Iterator[tuple[int, ...]]:
        """Return the rows as tuples, in the order of PUSH_ROW's fields: faster than column by column."""
        return _ROW.iter_unpack(self.rows.tobytes())

    def newest_tokens(self) -> dict[int, int]:
        """Return the highest token of each partition."""
        newest: dict[int, int] = {}
        for row in self.each_row():
            token, uid = row[_TOKEN], row[_UID]
            if token > newest.get(uid, 0):
                newest[uid] = token
        return newest
