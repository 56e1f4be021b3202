"""Arrow batches cut into requests, column by column: nothing here is done row by row.

The end of a run follows from the rows alone, not from the Arrow batches: a task that Spark runs again may see other
batches, and must make the same requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dueq.limits import REQUEST_BYTES_MAX
from dueq_codecs.groups import joined_groups
from dueq_codecs.records import NO_U16, U16, U32, U64

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass
class Run:
    """Rows of one request (or a piece of them).

    Attributes:
        body: payloads one after another, each with its key before it where there are keys.
        size: bytes of each row.
        due: Unix ms of each row.
        keys: texts of the keys, if ids are reported by them.
        rank: of each row; empty: none has one.
        group: the place of each row's group among `groups`; empty: none has one.
        groups: names; the empty one is that of rows without a group.
    """

    body: bytes | memoryview
    size: U32
    due: U64
    keys: list[str | None]
    rank: U16 = field(default_factory=lambda: NO_U16)
    group: U16 = field(default_factory=lambda: NO_U16)
    groups: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.size)


def piece_of(
    due: pa.Array,
    payload: pa.Array,
    key: pa.Array | None,
    with_keys: bool,
    rank: pa.Array | None = None,
    group: pa.Array | None = None,
) -> Run:
    """Return good rows as columns.

    Args:
        due: int64, none null, each a valid instant.
        payload: binary, none null.
        key: binary, null where a row has none; None: no row has one, and no row gets a prefix.
        with_keys: whether the keys' texts are wanted.
        rank: of each row, none null and each valid; None: no row has one.
        group: a text, null or empty where a row has none; at most 65,536 rows. None: no row has one.
    """
    stored = payload.cast(pa.large_binary())
    if key is not None:
        stored = _keyed(stored, key.cast(pa.large_binary()))
    _, ends, data = stored.buffers()
    offsets = np.frombuffer(ends, np.int64, len(stored) + 1, offset=8 * stored.offset)
    body = memoryview(data).cast("B")[int(offsets[0]) : int(offsets[-1])] if data is not None else b""
    dues = due.to_numpy(zero_copy_only=False).astype(np.uint64)
    texts = key.cast(pa.string()).to_pylist() if with_keys and key is not None else []
    run = Run(body, np.diff(offsets).astype(np.uint32), dues, texts)
    if rank is not None:
        run.rank = rank.to_numpy(zero_copy_only=False).astype(np.uint16)
    if group is not None:
        named = pc.fill_null(group.cast(pa.string()), "").dictionary_encode()
        run.group = named.indices.to_numpy(zero_copy_only=False).astype(np.uint16)
        run.groups = tuple(named.dictionary.to_pylist())
    return run


def _keyed(payload: pa.Array, key: pa.Array) -> pa.Array:
    """Put before each payload one byte of length and the key (`dueq_codecs.meta`)."""
    named = pc.fill_null(key, pa.scalar(b"", pa.large_binary()))
    length = pc.binary_length(named).to_numpy(zero_copy_only=False).astype(np.uint8)
    each = pa.py_buffer(np.arange(len(length) + 1, dtype=np.int64))
    lengths = pa.Array.from_buffers(pa.large_binary(), len(length), [None, each, pa.py_buffer(length)])
    return pc.binary_join_element_wise(lengths, named, payload, pa.scalar(b"", pa.large_binary()))


def runs_of(pieces: Iterator[Run | None], batch_rows: int) -> Iterator[Run | None]:
    """Cut rows into runs of `batch_rows` rows and of what fits into one request; None is passed on."""
    waiting: list[Run] = []
    rows = size = 0
    for piece in pieces:
        if piece is None:
            yield None
            continue
        ends = np.cumsum(piece.size, dtype=np.int64)
        start = 0
        while start < piece.rows:
            before = int(ends[start - 1]) if start else 0
            fits = int(np.searchsorted(ends, before + REQUEST_BYTES_MAX - size, side="right"))
            end = min(start + batch_rows - rows, fits)
            if end <= start and rows:
                yield _together(waiting)
                waiting, rows, size = [], 0, 0
                continue
            end = max(end, start + 1)
            waiting.append(_part(piece, ends, start, end))
            rows, size = rows + end - start, size + int(ends[end - 1]) - before
            start = end
    if rows:
        yield _together(waiting)


def _part(piece: Run, ends: np.ndarray[Any, np.dtype[np.int64]], start: int, end: int) -> Run:
    if end - start == piece.rows:
        return piece
    before = int(ends[start - 1]) if start else 0
    body = memoryview(piece.body)[before : int(ends[end - 1])]
    return Run(
        body, piece.size[start:end], piece.due[start:end], piece.keys[start:end], piece.rank[start:end],
        piece.group[start:end], piece.groups,
    )  # fmt: skip


def _together(pieces: Sequence[Run]) -> Run:
    if len(pieces) == 1:
        return pieces[0]
    groups, group = joined_groups(pieces)
    return Run(
        b"".join(piece.body for piece in pieces),
        np.concatenate([piece.size for piece in pieces]),
        np.concatenate([piece.due for piece in pieces]),
        [key for piece in pieces for key in piece.keys],
        np.concatenate([piece.rank for piece in pieces]),
        group,
        groups,
    )
