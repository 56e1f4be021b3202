"""Rules that clients and brokers must compute alike; docs/reference/protocol.md has the same in words."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from operator import methodcaller
from typing import Final, Protocol
from zlib import crc32

import numpy as np

from dueq_codecs.groups import home_of_group
from dueq_codecs.messages import ChangeRequest
from dueq_codecs.meta import PREFIX_BYTES_MAX, Meta
from dueq_codecs.records import (
    LEVEL_OF_KINDS,
    U32,
    U64,
    WITH_PAYLOADS,
    Fate,
    JobAction,
    OnDuplicate,
    Record,
    RecordKind,
)

_digest: Final = methodcaller("digest")
_NEW_KINDS: Final = frozenset(
    (
        RecordKind.PASS,
        RecordKind.RECURRENCE,
        RecordKind.GROUP,
        RecordKind.DISCARD,
        RecordKind.REDRIVE,
        RecordKind.BODY,
        RecordKind.TRIGGER,
    )
)
"""Kinds of requests that older builds do not know."""


class _Change(Protocol):
    """A request, or a part of one, as far as `batch_key` looks at it."""

    kind: RecordKind
    keyed: Meta
    job: bytes
    job_until: int
    job_action: JobAction
    on_duplicate: OnDuplicate
    retry: bool
    shared: bytes
    once_high: U64
    claim: bool
    document: str


def batch_key(change: _Change) -> tuple[object, ...]:
    """Return what changes must have in common to share a request, and requests to share a record."""
    if change.kind == RecordKind.NACK:
        return change.kind, change.document
    names = change.on_duplicate, change.retry, len(change.once_high) > 0, change.claim
    return change.kind, change.keyed, change.job, change.job_until, change.job_action, names, change.shared


def level_of(change: ChangeRequest) -> int:
    """Return the feature level that a partition must have reached for a request."""
    columns = (
        change.rank, change.group, change.key_high, change.expires, change.attempts_max, change.reason,
        change.window, change.expected, change.once_high,
    )  # fmt: skip
    newer = (
        change.kind in _NEW_KINDS
        or change.keyed == Meta.HEADERS
        or bool(change.shared)
        or (change.kind == RecordKind.NACK and bool(change.document))
        or any(len(column) for column in columns)
        or (len(change.fate) and (change.fate == Fate.DEAD).any())
    )
    if change.kind == RecordKind.RELEASE:
        newer = newer or change.amount_ms.any()
    return LEVEL_OF_KINDS if newer else 1


def homes_of_recurrence(name: str, group: str | None, kind: str, partitions: int) -> list[int]:
    """Return the indexes in the topic of the partitions that may have a recurrence.

    Args:
        name: of the recurrence.
        group: of its messages; None: it is not known.
        kind: of the topic. In a fair one a recurrence lives with its group.
        partitions: how many of the topic are home to anything.
    """
    if kind != "fair":
        return [home_of(name.encode(), partitions)]
    return [home_of_group(group, partitions)] if group is not None else list(range(partitions))


def home_of(name: bytes, partitions: int) -> int:
    """Return the index in the topic of the partition that decides about a job or a recurrence.

    Args:
        name: the job's 16 bytes, or the recurrence's name in UTF-8.
        partitions: how many the topic began with (its `home_partitions`).
    """
    return crc32(name) % partitions


def first_expired(expires: U64, due: U64, window: U32) -> int | None:
    """Return the first row that expires when it is due, or before, or before its window ends; None: none does.

    Args:
        expires: Unix ms; 0: never. Empty: none expires.
        due: Unix ms.
        window: how much later each may be due, ms; empty: no later.
    """
    if not len(expires):
        return None
    last = due + window if len(window) else due
    wrong = (expires != 0) & (expires <= last)
    return int(wrong.argmax()) if wrong.any() else None


def expired_text(row: int, expires: U64, due: U64, window: U32) -> str:
    """Return what is wrong with a row that `first_expired` has found."""
    if len(window) and window[row]:
        end = int(due[row] + window[row])
        return f"row {row}: expires {int(expires[row])} is not behind the end of its window, {end}"
    return f"row {row}: expires {int(expires[row])} is not behind its due instant, {int(due[row])}"


def key_hashes(keys: Iterable[bytes | memoryview], levels: Iterable[str] = ()) -> tuple[U64, U64]:
    """Return the hashes by which a topic knows unique keys: bytes 0 to 7 and 8 to 15 of SHA-256, as big-endian numbers.

    Args:
        keys: in UTF-8; an empty one is that of a message without a key, whose hash is 0, 0.
        levels: the first level of the group of each row, in a fair topic with more than one home partition: there each
            has keys of its own. Empty: the keys are those of the whole topic.
    """
    names = list(keys)
    if parts := [level.encode() + b"\0" for level in levels]:
        names = [part + key if key else b"" for part, key in zip(parts, names, strict=True)]
    found = np.frombuffer(b"".join(map(_digest, map(sha256, names))), ">u8").reshape(-1, 4)
    high, low = found[:, 0].astype(np.uint64), found[:, 1].astype(np.uint64)
    if not all(names):
        bare = [row for row, name in enumerate(names) if not name]
        high[bare] = low[bare] = 0
    return high, low


def once_hashes(names: Iterable[bytes]) -> tuple[U64, U64]:
    """Return the hashes of idempotency keys, as `key_hashes`; no unique key has one of these.

    Args:
        names: in UTF-8; an empty one is that of a row without a key.
    """
    # No text in UTF-8 begins like this.
    return key_hashes([b"\xff" + name if name else name for name in names])


def homes_of_keys(key_high: U64, partitions: int) -> U64:
    """Return the index in the topic of the partition that has each unique key, unless its group decides."""
    return key_high % np.uint64(partitions)


@lru_cache(maxsize=64)
def _crc_bits(size: int) -> list[int]:
    """Return what each bit of a CRC-32 becomes behind so many more bytes: the rest does not depend on it."""
    zeros = bytes(size)
    base = crc32(zeros)
    return [crc32(zeros, 1 << bit) ^ base for bit in range(32)]


def crc_joined(first: int, second: int, second_size: int) -> int:
    """Return the CRC-32 of two pieces of which only the CRCs are known, and the bytes of the second."""
    if first:
        for bit, change in enumerate(_crc_bits(second_size)):
            if first >> bit & 1:
                second ^= change
    return second


def shared_name(body: bytes) -> bytes:
    """Return the name of a shared body."""
    return sha256(body).digest()


def inline_bytes(change: ChangeRequest | Record) -> U32:
    """Return how many bytes of each payload are beside a request or a record.

    None of an upload, and nothing of a shared body; of a BODY all, if it brings them.
    """
    sizes = change.size
    if change.shared and change.kind in WITH_PAYLOADS:
        sizes = sizes - np.uint32(change.shared_size)
    return sizes if not len(change.upload) else np.where(change.upload == 0, sizes, np.uint32(0))


def first_instants(due: U64, stamp: int, job_until: int) -> U64:
    """Return when new messages begin to wait, Unix ms: the first 48 bits of their ids.

    A message that is due already waits from its record's stamp on. One of a hidden job waits from the instant by
    which the job must be committed, at the earliest.
    """
    return np.maximum(due, np.uint64(max(stamp, job_until, 0)))


def first_beyond_horizon(due: U64, horizon_ms: int, mesh_ms: int) -> int | None:
    """Return the first row that is due later than a topic allows at this mesh time; a horizon of 0 is none."""
    return _first(due > np.uint64(mesh_ms + horizon_ms)) if horizon_ms else None


def first_too_long(size: U32, keyed: int, allowed: int) -> int | None:
    """Return the first row whose payload is longer than a topic allows, whatever its key and headers.

    The limit is on the bytes after these, and only the payload itself knows how long they are.
    """
    return _first(size > np.uint32(min(allowed + PREFIX_BYTES_MAX[keyed], 0xFFFFFFFF)))


def _first(wrong: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> int | None:
    return int(wrong.argmax()) if wrong.any() else None
