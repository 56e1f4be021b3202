"""The index entry of one live message: one row of a structured array, in memory and on disk alike.

No payload: `place` says where the payload is. The same bytes are the value under the entry's key in `timeline/`; only
waiting entries have a shorter form there, which the store makes (`storage/ordered/short_rows.py`).

An entry has 88 bytes. Fields that only some messages need follow in the *extension*: with a rank, a group, a version or
a recurrence the row is *wide*, with anything else it is *full*. On the disk a row ends with its last word of 8 bytes
that is not zero, but never before byte 88. In memory all rows of one array are of one width.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from dueq.core.ports.row_bytes import cut_rows
from dueq_codecs.meta import Meta


class State(IntEnum):
    """The state of a message."""

    ABSENT = 0
    """Done, cancelled or never was: a tombstone in memory, never on disk."""
    WAITING = 1
    LEASED = 2
    DEAD = 3
    """It is not tried again, and stays until it is redriven or discarded."""


FLAG_UPLOAD: Final = 1
"""The payload is an upload (chunks under the number in `place`), not part of a block."""
FLAG_FAR: Final = 2
"""The message is counted in the forecast's last, open-ended bucket."""
FLAG_KEYED: Final = 4
"""The payload begins with its key: one byte of length, then the bytes."""
FLAG_META: Final = 8
"""The payload begins with its key and its headers (`dueq_codecs.meta`)."""
_META_SHIFT: Final = 2
FLAG_TRIGGERED: Final = 16
"""No pause and no rate hold it: until it is delivered, or waits for something else."""
FLAG_DETACHED: Final = 128
"""Its lease does not end with a consumer's session; 0 while waiting."""

_FIELDS: Final = (
    ("wait_at", "<u8"),  # instant (ms) at which it becomes ready: max(due, stamp) of when it began to wait
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
)
_EXTENSION: Final = (
    ("rank", "<u4"),  # of a topic with ranks: the smallest first
    ("group", "<u4"),  # number of its group, in this partition; 0: none
    ("version", "<u8"),  # log sequence of the record that changed it last; 0: the one that inserted it
    ("recurrence", "<u8"),  # number of the recurrence that made it, in this partition; 0: none
)
_SELDOM: Final = (
    ("key_high", "<u8"),  # the first 16 bytes of the SHA-256 of a unique key; 0, 0: it has none
    ("key_low", "<u8"),
    ("expires", "<u8"),  # instant (ms) from which it is not delivered any more; 0: never
    ("body", "<u8"),  # number of the shared body, in this partition; 0: its payload is its own
    ("died_at", "<u8"),  # stamp (ms) of the record after which it is not tried again; 0: it lives
    ("remark", "<u8"),  # key of the row of a record that says why it was given back; 0: none
    ("attempts_max", "<u8"),  # deliveries, its own limit; 0: the topic's
)

ENTRY: Final = np.dtype(list(_FIELDS))
WIDE: Final = np.dtype([*_FIELDS, *_EXTENSION])
"""An entry with the first part of its extension."""
FULL: Final = np.dtype([*_FIELDS, *_EXTENSION, *_SELDOM])
"""An entry with all of its extension."""
assert (ENTRY.itemsize, WIDE.itemsize, FULL.itemsize) == (88, 112, 168)
WORDS: Final = ENTRY.itemsize // 8
_OF_WIDTH: Final = {dtype.itemsize: dtype for dtype in (ENTRY, WIDE, FULL)}

Entries = npt.NDArray[Any]
"""A one-dimensional array of dtype ENTRY, WIDE or FULL."""

NO_ENTRIES: Final[Entries] = np.empty(0, ENTRY)


def of_width(size: int) -> np.dtype[Any]:
    """Return the type of rows of this many bytes."""
    return _OF_WIDTH[size]


def is_wide(entries: Entries) -> bool:
    """Whether rows have the first part of the extension."""
    return entries.itemsize > ENTRY.itemsize


def is_full(entries: Entries) -> bool:
    """Whether rows have all of the extension."""
    return entries.itemsize == FULL.itemsize


def widened(entries: Entries, least: int = WIDE.itemsize) -> Entries:
    """Return rows of at least so many bytes each; what they did not have is zero."""
    if entries.itemsize >= least:
        return entries
    words = np.zeros((len(entries), least // 8), "<u8")
    words[:, : entries.itemsize // 8] = words_of(entries)
    return from_words(words)


def narrowed(entries: Entries) -> Entries:
    """Return rows without their extension."""
    return from_words(np.ascontiguousarray(words_of(entries)[:, :WORDS])) if is_wide(entries) else entries


def words_of(entries: Entries) -> npt.NDArray[np.uint64]:
    """Return rows as words, a line each: numpy copies a structured row field by field, eight times slower."""
    return entries.view("<u8").reshape(-1, entries.itemsize // 8)


def from_words(words: npt.NDArray[np.uint64]) -> Entries:
    """Return what `words_of` was made of."""
    return words.view(_OF_WIDTH[8 * words.shape[1]]).reshape(-1)


def joined(batches: list[Entries]) -> Entries:
    """Return batches of entries as one, as wide as the widest of them."""
    if len(batches) == 1:
        return batches[0]
    widths = {batch.itemsize for batch in batches}
    if len(widths) > 1:
        batches = [widened(batch, max(widths)) for batch in batches]
    return from_words(np.concatenate([words_of(batch) for batch in batches]))


def packed(entries: Entries) -> list[bytes]:
    """Return rows as the disk has them: words of the extension that are zero are left out at the end."""
    if not is_wide(entries):
        return cut_rows(entries)
    width, count = entries.itemsize, len(entries)
    held = words_of(entries)[:, WORDS:] != 0
    more = np.where(held.any(axis=1), width // 8 - WORDS - held[:, ::-1].argmax(axis=1), 0)
    if count and (more == more[0]).all():
        return cut_rows(words_of(entries)[:, : WORDS + int(more[0])])
    data = entries.tobytes()
    ends = np.arange(count) * width + ENTRY.itemsize + 8 * more
    return [data[at * width : end] for at, end in enumerate(ends.tolist())]


def unpacked(rows: list[bytes]) -> Entries:
    """Return what `packed` made of entries; as wide as the longest of them needs."""
    if not rows:
        return NO_ENTRIES
    data = b"".join(rows)
    if len(data) == len(rows) * ENTRY.itemsize:
        return np.frombuffer(data, ENTRY)
    dtype = FULL if max(map(len, rows)) > WIDE.itemsize else WIDE
    return np.frombuffer(b"".join(row.ljust(dtype.itemsize, b"\0") for row in rows), dtype)


def is_known(size: int) -> bool:
    """Whether this build knows all of a packed row of this many bytes."""
    return ENTRY.itemsize <= size <= FULL.itemsize and size % 8 == 0


def are_triggered(entries: Entries) -> npt.NDArray[np.bool_]:
    """Return which entries no pause and no rate hold."""
    found: npt.NDArray[np.bool_] = (entries["flags"] & np.uint8(FLAG_TRIGGERED)) != 0
    return found


def meta_flags(mode: Meta) -> int:
    """Return the flags of payloads that begin with this."""
    return mode << _META_SHIFT


def meta_of(flags: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Return what the payloads of entries with these flags begin with: a `Meta` each."""
    return (flags >> np.uint8(_META_SHIFT)) & np.uint8(3)


def versions_of(entries: Entries) -> npt.NDArray[np.uint64]:
    """Return the log sequence of the record that changed each entry last."""
    if not is_wide(entries):
        return entries["sequence"]
    found: npt.NDArray[np.uint64] = np.maximum(entries["version"], entries["sequence"])
    return found


def keys_of(entries: Entries) -> npt.NDArray[np.uint64]:
    """Return `sequence << 16 | row` of each entry."""
    keys: npt.NDArray[np.uint64] = (entries["sequence"] << np.uint64(16)) | entries["row"]
    return keys


def canonical(entries: Entries) -> list[tuple[int, ...]]:
    """Return entries as sorted plain tuples, of all fields, however wide they are."""
    entries = widened(entries, FULL.itemsize)
    columns = [entries[name].tolist() for name in entries.dtype.names or ()]
    return sorted(zip(*columns, strict=True))


def block_starts(sizes: npt.NDArray[np.uint32], block_bytes: int) -> npt.NDArray[np.intp]:
    """Return the first row of each payload block of a record, in order.

    Rows join the current block until the next one would make it longer than `block_bytes`; a longer row is
    a block of its own. Deterministic: leader, followers and readers must agree.

    Args:
        sizes: inline payload bytes per row (0 for rows with an upload).
        block_bytes: the limit.
    """
    count = len(sizes)
    if count == 0:
        return np.empty(0, np.intp)
    size = alike(sizes)
    if size is not None:
        return np.arange(0, count, max(block_bytes // size, 1) if size else count, dtype=np.intp)
    ends = sizes.cumsum(dtype=np.int64)
    starts = [0]
    base = 0
    while True:
        row = max(int(ends.searchsorted(base + block_bytes, side="right")), starts[-1] + 1)
        if row >= count:
            return np.array(starts, np.intp)
        starts.append(row)
        base = int(ends[row - 1])


def alike(sizes: npt.NDArray[np.uint32]) -> int | None:
    """Return how long each of some payloads is; None where they are not all of one length."""
    size = int(sizes[0])
    return size if np.count_nonzero(sizes == size) == len(sizes) else None
