"""Keys. All begin with the partition's uid (3 bytes), so a partition is one range of each database.

timeline/                                            payload/
    uid P              topic name                        uid b sequence(5) block_row(2)   block of payloads
    uid M              epoch, commit                     uid u upload(8) chunk(2)         chunk of an upload
    uid C              checkpoint: applied, low water
    uid X              mark of a replica that may not lead: `installing`, `unproven`
    uid T              log's start, what went before it
    uid L sequence(5)  CRC chain(4) + record
    uid i class wait_at(6) sequence(5) row(2)   waiting entry (see `short_rows`); the class has no bytes in a timeline
    uid x died_at(6) sequence(5) row(2)   dead entry
    uid o sequence(5) row(2)              class, wait_at(6), where the place does not follow from the id;
                                          of a dead entry "x", died_at(6)
    uid l sequence(5) row(2)              leased entry
    uid n sequence(5) block_row(2)        rows of a block that are still live
    uid g sequence(5) …payload key        garbage: to go from payload/ once the log is past `sequence`
    uid t sequence(5) row(2)              why the message was given back last
    uid k hash(16)                        unique key: which message bears it, or has until lately
    uid e until(8) hash(16)               remembered key, by the age of the partition at which it is forgotten
    uid v upload(8)                       the upload is named by a live entry of `sequence`

Every other lower-case letter is the tag of a side table, of which the store knows nothing: its rows are `uid tag key`,
and the core makes the keys (`core/state/side_tables.py`).

Uid 0 belongs to the store itself: format, store id, broker id, cluster id; store id and stamp (see `pair`) are in both.
While a store is brought to a newer format (see `upgrading`) its mark and its journals are there, too.
Integers are big-endian, so keys sort as the numbers do.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import numpy as np
import numpy.typing as npt

from dueq.core.ports.row_bytes import cut_rows

META: Final = Struct(">QQ")
"""Value of the row M: epoch, commit."""
CHECKPOINT: Final = Struct(">QQQ")
"""Beginning of the row C: applied, its epoch, low water; the core's summary follows."""
LINK: Final = Struct("<I")
"""Beginning of a log row: the CRC chain."""
START: Final = Struct(">QQI")
"""Value of the row T: the log's first sequence, epoch of the record before it, its link."""

INSTALLING: Final = b"1"
"""Value of the row X: the replica holds nothing, or a part of a snapshot."""
UNPROVEN: Final = b"2"
"""Value of the row X: it holds a whole snapshot, perhaps not yet all that was committed after it."""

STATE_TAGS: Final = frozenset((b"e", b"g", b"i", b"k", b"l", b"n", b"o", b"t", b"v", b"x"))
"""Lower-case tags of rows in timeline/ that the store makes and reads itself."""
TABLE_TAGS: Final = frozenset(bytes([letter]) for letter in range(ord("a"), ord("z") + 1)) - STATE_TAGS
"""Tags of side tables."""
_BEHIND_TAGS: Final = bytes([ord("z") + 1])


def _ranges_between(tags: frozenset[bytes]) -> list[tuple[bytes, bytes]]:
    """Return (first letter, the one behind the last) of every run of lower-case letters without these."""
    edges = [b"a", *(edge for tag in sorted(tags) for edge in (tag, bytes([tag[0] + 1]))), _BEHIND_TAGS]
    runs = zip(edges[::2], edges[1::2], strict=True)
    return [(first, behind) for first, behind in runs if first < behind]


_TABLE_RANGES: Final = _ranges_between(STATE_TAGS)

STORE_FORMAT: Final = b"\0\0\0format"
STORE_ID: Final = b"\0\0\0store_id"
BROKER_ID: Final = b"\0\0\0broker_id"
CLUSTER_ID: Final = b"\0\0\0cluster_id"
STAMP: Final = b"\0\0\0stamp"
UPGRADING: Final = b"\0\0\0upgrading"
JOURNAL: Final = b"\0\0\0journal"
FIRST_UID: Final = b"\0\0\1"
"""Before the keys of all partitions."""
BEHIND_ALL: Final = b"\xff" * 32
"""Behind every key."""


def head(uid: int, tag: bytes) -> bytes:
    """Return what every key of one kind of one partition begins with."""
    return uid.to_bytes(3, "big") + tag


def after(prefix: bytes) -> bytes:
    """Return the first key that no longer begins with `prefix`."""
    return prefix[:-1] + bytes([prefix[-1] + 1]) if prefix[-1] < 255 else after(prefix[:-1])


def whole(uid: int) -> tuple[bytes, bytes]:
    """Return the range of all keys of a partition."""
    return uid.to_bytes(3, "big"), (uid + 1).to_bytes(4, "big")[-3:] if uid < 0xFFFFFF else b"\xff" * 4


def log_key(uid: int, sequence: int) -> bytes:
    """Return the key of a log row."""
    return head(uid, b"L") + sequence.to_bytes(5, "big")


def block_key(uid: int, sequence: int, block_row: int) -> bytes:
    """Return the key of a payload block."""
    return head(uid, b"b") + sequence.to_bytes(5, "big") + block_row.to_bytes(2, "big")


def chunk_key(uid: int, upload: int, chunk: int) -> bytes:
    """Return the key of an upload's chunk."""
    return head(uid, b"u") + upload.to_bytes(8, "big") + chunk.to_bytes(2, "big")


def counter_key(uid: int, sequence: int, block_row: int) -> bytes:
    """Return the key of a block's count of live rows."""
    return head(uid, b"n") + sequence.to_bytes(5, "big") + block_row.to_bytes(2, "big")


def garbage_key(uid: int, sequence: int, payload_key: bytes) -> bytes:
    """Return the key of a piece of garbage."""
    return head(uid, b"g") + sequence.to_bytes(5, "big") + payload_key[3:]


def table_head(uid: int, tag: bytes) -> bytes:
    """Return what every key of one side table begins with."""
    assert tag in TABLE_TAGS, f"the tag {tag!r} is no side table's"
    return head(uid, tag)


def table_ranges(uid: int) -> list[tuple[bytes, bytes]]:
    """Return the ranges of all side tables, those of newer builds included."""
    return [(head(uid, first), head(uid, behind)) for first, behind in _TABLE_RANGES]


def state_range(uid: int) -> tuple[bytes, bytes]:
    """Return the range of all rows that a checkpoint writes, but its own: the store's and those of side tables."""
    return head(uid, b"a"), head(uid, _BEHIND_TAGS)


def named_key(uid: int, upload: int) -> bytes:
    """Return the key that says that a live entry names the upload."""
    return head(uid, b"v") + upload.to_bytes(8, "big")


def index_keys(
    uid: int,
    wait_at: npt.NDArray[np.uint64],
    key: npt.NDArray[np.uint64],
    of: npt.NDArray[np.uint8] | None = None,
) -> list[bytes]:
    """Return the index keys of many entries; `of`: the class of each, a row of bytes."""
    width = of.shape[1] if of is not None else 0
    rows = np.empty((len(key), 17 + width), np.uint8)
    rows[:, :4] = np.frombuffer(head(uid, b"i"), np.uint8)
    if of is not None:
        rows[:, 4 : 4 + width] = of
    rows[:, 4 + width : 10 + width] = wait_at.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 2:]
    rows[:, 10 + width :] = key.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 1:]
    return cut_rows(rows)


def dead_keys(uid: int, died_at: npt.NDArray[np.uint64], key: npt.NDArray[np.uint64]) -> list[bytes]:
    """Return the keys of dead entries: in order of their deaths."""
    keys = index_keys(uid, died_at, key)
    head_of_dead = head(uid, b"x")
    return [head_of_dead + each[4:] for each in keys]


def dead_places(died_at: npt.NDArray[np.uint64]) -> list[bytes]:
    """Return where dead entries are, as rows `o` say it: no class has one byte, so no other place is so long."""
    return [b"x" + each for each in places(died_at, None)]


def places(wait_at: npt.NDArray[np.uint64], of: npt.NDArray[np.uint8] | None) -> list[bytes]:
    """Return class and wait_at of many entries: what lies between tag and key in the index."""
    at = wait_at.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 2:]
    return cut_rows(at if of is None else np.hstack((of, at)))


def name_keys(uid: int, high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]) -> list[bytes]:
    """Return the keys of the rows of unique keys, of whose hashes these are the halves."""
    rows = np.empty((len(high), 20), np.uint8)
    rows[:, :4] = np.frombuffer(head(uid, b"k"), np.uint8)
    rows[:, 4:12] = high.astype(">u8").view(np.uint8).reshape(-1, 8)
    rows[:, 12:] = low.astype(">u8").view(np.uint8).reshape(-1, 8)
    return cut_rows(rows)


def message_keys(uid: int, tag: bytes, key: npt.NDArray[np.uint64]) -> list[bytes]:
    """Return the keys `uid tag sequence row` of many messages."""
    rows = np.empty((len(key), 11), np.uint8)
    rows[:, :4] = np.frombuffer(head(uid, tag), np.uint8)
    rows[:, 4:] = key.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 1:]
    return cut_rows(rows)
