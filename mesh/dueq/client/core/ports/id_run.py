"""Ids of messages that an INSERT has made."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dueq import ids
from dueq_codecs.records import U64

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
