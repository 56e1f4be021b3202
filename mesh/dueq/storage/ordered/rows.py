"""Rows of both databases as one stream of bytes: for snapshots, and for replicas that are set aside.

Each row: database (1 byte: 0 timeline, 1 payload), key length (2), value length (4), key, value.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

_HEAD = Struct(">BHI")


def pack_row(database: int, key: bytes, value: bytes) -> bytes:
    """Return one row as bytes."""
    return _HEAD.pack(database, len(key), len(value)) + key + value


def read_rows(data: bytes | memoryview) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (database, key, value).

    Raises:
        ValueError: the bytes end in the middle of a row, or name no database.
    """
    view = memoryview(data)
    at = 0
    while at < len(view):
        if at + _HEAD.size > len(view):
            raise ValueError("rows end in the middle of one")
        database, key_length, value_length = _HEAD.unpack_from(view, at)
        at += _HEAD.size
        end = at + key_length + value_length
        if database > 1 or end > len(view):
            raise ValueError("rows end in the middle of one")
        yield database, bytes(view[at : at + key_length]), bytes(view[at + key_length : end])
        at = end
