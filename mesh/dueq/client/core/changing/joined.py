"""Payloads in one buffer, as in Arrow: work is done per run, not per row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import overload

import numpy as np

from dueq_codecs.records import U32


class Joined(Sequence[memoryview]):
    """Payloads one after another in one buffer; a row is a view of it, neighbouring rows are one piece.

    Args:
        body: the bytes of all rows; they must not change.
        size: of each row, in order; they add up to the body's length.
    """

    __slots__ = ("_body", "_ends")

    def __init__(self, body: bytes | memoryview, size: U32) -> None:
        self._body = memoryview(body)
        self._ends = np.concatenate(([0], np.cumsum(size, dtype=np.int64)))

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, row: int) -> memoryview: ...
    @overload
    def __getitem__(self, row: slice) -> Joined: ...
    def __getitem__(self, row: int | slice) -> memoryview | Joined:
        if isinstance(row, slice):
            start, end, _ = row.indices(len(self))
            return Joined(self._view(start, end), np.diff(self._ends[start : end + 1]).astype(np.uint32))
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        return self._view(row, row + 1)

    def __iter__(self) -> Iterator[memoryview]:
        body = self._body
        return (body[start:end] for start, end in pairwise(self._ends.tolist()))

    def without(self, rows: Sequence[int]) -> list[memoryview]:
        """Return the bytes of all rows but these (ascending), in as few pieces as possible."""
        pieces, start = [], 0
        for row in (*rows, len(self)):
            if row > start:
                pieces.append(self._view(start, row))
            start = row + 1
        return pieces

    def _view(self, start: int, end: int) -> memoryview:
        return self._body[int(self._ends[start]) : int(self._ends[end])]
