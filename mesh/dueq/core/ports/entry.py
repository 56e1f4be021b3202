"""The index entry of one live message: one row of a structured array, in memory and on disk alike.

No payload: `place` says where the payload is. The same 88 bytes are the value under the entry's key in
`timeline/`, so a checkpoint copies rows and never converts them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt


class State(IntEnum):
    """What a message does."""

    ABSENT = 0
    """Done, cancelled or never was: a tombstone in memory, never on disk."""
    WAITING = 1
    LEASED = 2


FLAG_UPLOAD: Final = 1
"""The payload is an upload (chunks under the number in `place`), not part of a block."""
FLAG_FAR: Final = 2
"""The message is counted in the forecast's last, open-ended bucket."""
FLAG_KEYED: Final = 4
"""The payload begins with its key: one byte of length and so many bytes."""

ENTRY: Final = np.dtype(
    [
        (
            "wait_at",
            "<u8",
        ),  # instant (ms) at which it becomes ready: max(due, stamp) of when it began to wait
        ("first", "<u8"),  # the first such instant; part of the id
        ("due", "<u8"),  # what the user asked for
        ("sequence", "<u8"),  # log sequence of the record that inserted it
        ("token", "<u8"),  # log sequence of the record that leased it; 0 while waiting
        ("place", "<u8"),  # block_row << 32 | offset in the block, or the upload number
        ("consumer_high", ">u8"),  # the holder's id, first and last 8 bytes; 0 while waiting
        ("consumer_low", ">u8"),
        ("size", "<u4"),  # payload bytes
        ("crc", "<u4"),  # CRC-32 of the whole payload
        ("lease_ms", "<u4"),  # length of the lease; 0 while waiting
        ("row", "<u2"),  # row in the inserting record
        ("attempt", "<u2"),  # deliveries so far, the present one included
        ("block_rows", "<u2"),  # rows that share the block
        ("state", "u1"),
        ("flags", "u1"),
        ("job", "<u4"),  # number of the job that it belongs to, in this partition; 0: none
    ]
)
assert ENTRY.itemsize == 88

Entries = npt.NDArray[Any]
"""A one-dimensional array of dtype ENTRY."""

NO_ENTRIES: Final[Entries] = np.empty(0, ENTRY)


def keys_of(entries: Entries) -> npt.NDArray[np.uint64]:
    """Return `sequence << 16 | row` of each entry."""
    keys: npt.NDArray[np.uint64] = (entries["sequence"] << np.uint64(16)) | entries["row"]
    return keys


def block_starts(sizes: npt.NDArray[np.uint32], block_bytes: int) -> npt.NDArray[np.intp]:
    """Return the first row of each payload block of a record, in order.

    Rows join the current block until the next one would make it longer than `block_bytes`; a longer row is
    a block of its own. Deterministic: leader, followers and readers must agree.

    Args:
        sizes: inline payload bytes per row (0 for rows with an upload).
        block_bytes: the limit.
    """
    if len(sizes) == 0:
        return np.empty(0, np.intp)
    ends = np.cumsum(sizes, dtype=np.int64)
    starts = [0]
    base = 0
    while True:
        row = int(np.searchsorted(ends, base + block_bytes, side="right"))
        row = max(row, starts[-1] + 1)
        if row >= len(sizes):
            return np.array(starts, np.intp)
        starts.append(row)
        base = int(ends[row - 1])
