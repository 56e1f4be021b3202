"""Rows of the index in their short form: an entry without the fields that its key has, or that usually follow from it.

The key of a waiting message already has the instant, the record and the row. Both other instants are usually the same,
and nobody holds the message. So an entry is compared, in words of 8 bytes, with a *guess* that is made of its key. The
value is a mask of the words that differ (4 bytes), then their differences. Most entries have three of them, so the
value has 28 bytes instead of 88. A value of 88 bytes or more is an entry as it is in memory: a dead one, one that
differs in nearly everything, or one from before there was a short form.

A *row* here is the end of a key (instant, sequence, row) and then the value: both are needed to read it.
"""

from __future__ import annotations

from itertools import compress
from typing import Final

import numpy as np
import numpy.typing as npt

from dueq.core.ports.entry import (
    ENTRY,
    FULL,
    NO_ENTRIES,
    WIDE,
    Entries,
    State,
    from_words,
    packed,
    unpacked,
    words_of,
)
from dueq.core.ports.row_bytes import cut_rows
from dueq.storage.ordered.engine import EngineDamaged
from dueq_codecs.records import U64

PLACE_BYTES: Final = 13
"""Of a key's end: instant (6), sequence (5), row (2)."""
_INSTANT_BYTES: Final = 6
_MASK_BYTES: Final = 4
_WORDS: Final = FULL.itemsize // 8
_BITS: Final = np.uint32(1) << np.arange(_WORDS, dtype=np.uint32)


def _word_of(field: str) -> tuple[int, int]:
    """Return (word, bits to the left) of a field of an entry."""
    assert FULL.fields is not None
    at = FULL.fields[field][1]
    return at // 8, at % 8 * 8


_INSTANTS: Final = [_word_of(field)[0] for field in ("wait_at", "first", "due")]
_SEQUENCE: Final = _word_of("sequence")[0]
_ROW: Final = _word_of("row")
_STATE: Final = _word_of("state")
_JOB: Final = _word_of("job")


def row_of(key: bytes, value: bytes) -> bytes:
    """Return a key of the index, or of the dead, and its value as one row."""
    return key[-PLACE_BYTES:] + value


def place_of_row(row: bytes) -> tuple[int, int]:
    """Return (instant, key) of a row: when it becomes ready, or when it died."""
    return int.from_bytes(row[:_INSTANT_BYTES], "big"), int.from_bytes(row[_INSTANT_BYTES:PLACE_BYTES], "big")


def job_of_row(row: bytes) -> int:
    """Return the number of the job of an entry; 0: it has none."""
    word, shift = _JOB
    if len(row) >= PLACE_BYTES + ENTRY.itemsize:
        at = PLACE_BYTES + 8 * word
    else:
        mask = int.from_bytes(row[PLACE_BYTES : PLACE_BYTES + _MASK_BYTES], "little")
        if not mask >> word & 1:
            return 0
        at = PLACE_BYTES + _MASK_BYTES + 8 * (mask & ((1 << word) - 1)).bit_count()
    return int.from_bytes(row[at : at + 8], "little") >> shift


def shortened(entries: Entries) -> list[bytes]:
    """Return the values of waiting entries in their short form; of those that it does not make shorter, as they are.

    Few sets of words differ in the entries of one checkpoint: each set is cut out at once.
    """
    words = words_of(entries)
    differences = words ^ _guess(words[:, 0], words[:, _SEQUENCE], entries["row"], words.shape[1])
    masks = (differences != 0).astype(np.uint32) @ _BITS[: words.shape[1]]
    values = np.empty(len(words), np.object_)
    for mask in np.unique(masks).tolist():
        at = np.flatnonzero(masks == mask)
        differ = np.flatnonzero(mask & _BITS[: words.shape[1]])
        if _MASK_BYTES + 8 * len(differ) >= ENTRY.itemsize:
            values[at] = packed(entries.take(at))
            continue
        held = np.empty((len(at), 1 + 2 * len(differ)), np.uint32)
        held[:, 0] = mask
        held[:, 1:] = np.ascontiguousarray(differences[np.ix_(at, differ)]).view(np.uint32)
        values[at] = cut_rows(held)
    found: list[bytes] = values.tolist()
    return found


def entries_of(rows: list[bytes]) -> Entries:
    """Return the entries of rows, in their order; as wide as the widest of them needs.

    Raises:
        EngineDamaged: a row is not as long as its mask says.
    """
    if not rows:
        return NO_ENTRIES
    are_short = [len(row) < PLACE_BYTES + ENTRY.itemsize for row in rows]
    if not any(are_short):
        return unpacked([row[PLACE_BYTES:] for row in rows])
    of_short = _lengthened(list(compress(rows, are_short)))
    if all(are_short):
        return from_words(of_short)
    short = np.array(are_short)
    of_long = words_of(unpacked([row[PLACE_BYTES:] for row in compress(rows, ~short)]))
    words = np.zeros((len(rows), max(of_short.shape[1], of_long.shape[1])), np.uint64)
    words[np.flatnonzero(short), : of_short.shape[1]] = of_short
    words[np.flatnonzero(~short), : of_long.shape[1]] = of_long
    return from_words(words)


def _lengthened(rows: list[bytes]) -> U64:
    """Return the entries of rows in their short form, a line of words each."""
    sizes = np.fromiter(map(len, rows), np.int64, len(rows))
    if (sizes < PLACE_BYTES + _MASK_BYTES).any():
        raise EngineDamaged("a row of the index is too short")
    starts = sizes.cumsum() - sizes
    data = np.frombuffer(b"".join(rows), np.uint8)
    places = data[starts[:, None] + np.arange(PLACE_BYTES)]
    masks = data[starts[:, None] + np.arange(PLACE_BYTES, PLACE_BYTES + _MASK_BYTES)].view("<u4")
    differ = (masks & _BITS) != 0
    expected = PLACE_BYTES + _MASK_BYTES + 8 * differ.sum(axis=1)
    if (sizes != expected).any() or (masks >> np.uint32(_WORDS)).any():
        raise EngineDamaged("a row of the index is not as long as it says")
    is_held = np.ones(len(data), np.bool_)
    is_held[starts[:, None] + np.arange(PLACE_BYTES + _MASK_BYTES)] = False
    last = int(np.flatnonzero(differ.any(axis=0)).max(initial=0))
    width = next(dtype.itemsize // 8 for dtype in (ENTRY, WIDE, FULL) if last < dtype.itemsize // 8)
    instants, keys = np.zeros((2, len(rows), 8), np.uint8)
    instants[:, 8 - _INSTANT_BYTES :] = places[:, :_INSTANT_BYTES]
    keys[:, 8 - PLACE_BYTES + _INSTANT_BYTES :] = places[:, _INSTANT_BYTES:]
    wait_at, key = (each.view(">u8").reshape(-1).astype(np.uint64) for each in (instants, keys))
    words = _guess(wait_at, key >> np.uint64(16), key & np.uint64(0xFFFF), width)
    words[differ[:, :width]] ^= data[is_held].view("<u8")
    return words


def _guess(wait_at: U64, sequence: U64, row: npt.NDArray[np.unsignedinteger], width: int) -> U64:
    """Return the entries of messages that have waited since they were scheduled, have no payload and no job."""
    words = np.zeros((len(wait_at), width), np.uint64)
    words[:, _INSTANTS] = wait_at[:, None]
    words[:, _SEQUENCE] = sequence
    words[:, _ROW[0]] = row.astype(np.uint64) << np.uint64(_ROW[1])
    words[:, _STATE[0]] = np.uint64(State.WAITING << _STATE[1])
    return words
