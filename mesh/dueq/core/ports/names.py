"""The row of a unique key: the message that it names, or has named until lately. The row of an idempotency key: the
answer to its request.

A key is known by its hash, 16 bytes (`dueq_codecs.rules.key_hashes`). The entry of the message that bears it says
everything else. Once that message is finished, and if the topic remembers keys for a while, the row says it.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dueq.core.ports.row_bytes import cut_rows
from dueq.errors import UnknownVersion

HASH_BYTES: Final = 16
NO_HASH: Final = bytes(HASH_BYTES)
"""That of a message without a key."""

_BORNE: Final = struct.Struct("<BQQ")
_BORNE_KIND: Final = 1
_OWNERS: Final = np.dtype([("kind", "u1"), ("first", "<u8"), ("key", "<u8")])
"""The same as an array."""
_REMEMBERED: Final = struct.Struct("<BQQQIIQ")
_REMEMBERED_KIND: Final = 2
_ANSWERED: Final = struct.Struct("<BQQQQQ")
_ANSWERED_KIND: Final = 3

Owner = tuple[int, int]
"""(first, key) of the live message that bears a key."""


class Remembered(NamedTuple):
    """The message that bore a key, and is finished."""

    first: int
    key: int
    due: int
    """Unix ms, as it was at last."""
    size: int
    crc: int
    until: int
    """Age of the partition up to which the key stays taken, ms."""


class Answered(NamedTuple):
    """The answer to the first request with an idempotency key."""

    first: int
    """Of the message; 0, 0, 0: it was a claim."""
    key: int
    due: int
    digest: int
    """Of what was asked for."""
    until: int
    """Age of the partition up to which the answer holds, ms."""


Lasting = Remembered | Answered
"""Rows that hold up to an age of the partition."""
Name = Owner | Lasting


class Borne(NamedTuple):
    """Keys that live messages bear, as columns."""

    high: npt.NDArray[np.uint64]
    """The first half of the hash of each."""
    low: npt.NDArray[np.uint64]
    first: npt.NDArray[np.uint64]
    """First instant and key of the message that bears each."""
    key: npt.NDArray[np.uint64]

    def rows(self) -> list[tuple[bytes, bytes]]:
        """Return (hash, row) of each."""
        return list(zip(hashes_of(self.high, self.low), pack_owners(self.first, self.key), strict=True))


_NONE: Final = np.empty(0, np.uint64)
NOT_BORNE: Final = Borne(_NONE, _NONE, _NONE, _NONE)


def pack_name(name: Name) -> bytes:
    """Return the row of a key, as the disk has it."""
    if len(name) == 2:
        return _BORNE.pack(_BORNE_KIND, *name)
    if isinstance(name, Answered):
        return _ANSWERED.pack(_ANSWERED_KIND, *name)
    return _REMEMBERED.pack(_REMEMBERED_KIND, *name)


def pack_owners(first: npt.NDArray[np.uint64], key: npt.NDArray[np.uint64]) -> list[bytes]:
    """Return the rows of keys that live messages bear."""
    rows = np.empty(len(first), _OWNERS)
    rows["kind"], rows["first"], rows["key"] = _BORNE_KIND, first, key
    return cut_rows(rows)


def unpack_name(row: bytes) -> Name:
    """Return what `pack_name` was given.

    Raises:
        UnknownVersion: a newer build wrote the row.
    """
    if row[0] == _BORNE_KIND:
        _, first, key = _BORNE.unpack(row)
        return first, key
    if row[0] == _REMEMBERED_KIND:
        return Remembered(*_REMEMBERED.unpack(row)[1:])
    if row[0] == _ANSWERED_KIND:
        return Answered(*_ANSWERED.unpack(row)[1:])
    raise UnknownVersion(f"the row of a unique key is of kind {row[0]}; this build knows 1 to 3")


def hashes_of(high: npt.NDArray[np.uint64], low: npt.NDArray[np.uint64]) -> list[bytes]:
    """Return hashes, of which these are the two halves."""
    halves = np.empty((len(high), 2), ">u8")
    halves[:, 0], halves[:, 1] = high, low
    return cut_rows(halves)


def halves_of(hashes: list[bytes]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
    """Return what `hashes_of` was made of."""
    halves = np.frombuffer(b"".join(hashes), ">u8").reshape(-1, 2).astype(np.uint64)
    return halves[:, 0], halves[:, 1]


def expiry_key(until: int, digest: bytes) -> bytes:
    """Return the key of a remembered key in the index of those: by the age at which each is forgotten."""
    return until.to_bytes(8, "big") + digest
