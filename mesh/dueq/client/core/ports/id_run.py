"""Ids of messages that INSERTs have made, as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dueq import ids
from dueq_codecs.records import U16, U32, U64

_TEXTS_TOGETHER = 8
"""From this many ids on, making their texts in one go is cheaper."""


class IdRun(NamedTuple):
    """Ids of messages that follow each other in one record.

    Attributes:
        first: when each begins to wait, Unix ms.
        uid: of the partition.
        sequence: of the record.
        row: of the first message in it.
    """

    first: U64
    uid: int
    sequence: int
    row: int

    def text(self, place: int) -> str:
        """Return one id."""
        return ids.to_text(ids.MessageId(int(self.first[place]), self.uid, self.sequence, self.row + place))

    def texts(self) -> list[str]:
        """Return all ids."""
        rows = len(self.first)
        if rows < _TEXTS_TOGETHER:
            return [
                ids.to_text(ids.MessageId(instant, self.uid, self.sequence, self.row + i))
                for i, instant in enumerate(self.first.tolist())
            ]
        sequence = np.full(rows, self.sequence, np.uint64)
        places = np.arange(self.row, self.row + rows, dtype=np.uint16)
        return ids.texts(self.first, self.uid, sequence, places)


class SpreadIds(NamedTuple):
    """Ids of messages of one call whose rows went to several records; columns in the order of the call.

    Attributes:
        first: when each begins to wait, Unix ms.
        run: the place of its record in the next two columns.
        uid, sequence: of each record.
        row: of each message in its record.
    """

    first: U64
    run: U32
    uid: U64
    sequence: U64
    row: U16

    @classmethod
    def of(cls, runs: Sequence[IdRun], places: Sequence[npt.NDArray[np.intp]]) -> SpreadIds:
        """Return the ids of runs; `places`: the call's row of each row of each run."""
        count = sum(map(len, places))
        first, run, row = np.empty(count, np.uint64), np.empty(count, np.uint32), np.empty(count, np.uint16)
        for number, (each, at) in enumerate(zip(runs, places, strict=True)):
            first[at], run[at] = each.first, number
            row[at] = np.arange(each.row, each.row + len(at))
        return cls(
            first, run,
            np.array([each.uid for each in runs], np.uint64), np.array([each.sequence for each in runs], np.uint64),
            row,
        )  # fmt: skip

    def text(self, place: int) -> str:
        """Return one id."""
        run = self.run[place]
        uid, sequence = int(self.uid[run]), int(self.sequence[run])
        return ids.to_text(ids.MessageId(int(self.first[place]), uid, sequence, int(self.row[place])))

    def texts(self) -> list[str]:
        """Return all ids: made together, which is cheaper than record by record."""
        if len(self.first) < _TEXTS_TOGETHER:
            return [self.text(place) for place in range(len(self.first))]
        return ids.texts(self.first, self.uid[self.run], self.sequence[self.run], self.row)
