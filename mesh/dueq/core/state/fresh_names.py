"""The keys of one INSERT that nobody bore before, kept as one: the usual case, ten times cheaper than key by key.

    in the log ──► they are held: nobody bears them, and the disk has none of them
    applied    ──► its messages bear them; their rows go to the disk with the next checkpoint
    saved      ──► they leave memory

`Names.known` has the batch itself as the value of each of its keys. When something happens to one key by itself, a
value of its own takes the place of the batch. From then on the batch is *touched*, and looked through key by key.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dueq.core.ports.names import Borne, pack_name, pack_owners
from dueq_codecs.records import U64


class FreshNames:
    """Keys of rows of one INSERT.

    Attributes:
        hashes: of the keys, distinct.
        high, low: the two halves of each.
        rows: which rows of the record have them.
        others: hashes of its other rows, which are held key by key.
        other_rows: which rows those are.
        borne: whether the messages have begun to live.
        refused: whether they never will: the INSERT was refused, or cut off the log.
        saving: whether a checkpoint with their rows is under way.
        touched: whether a key is no longer the batch's.
    """

    __slots__ = (
        "_at", "_firsts", "_sequence",
        "borne", "hashes", "high", "low", "other_rows", "others", "refused", "rows", "saving", "touched",
    )  # fmt: skip

    def __init__(self, hashes: list[bytes], high: U64, low: U64, perhaps: Iterable[int]) -> None:
        self.others: list[bytes] = []
        self.other_rows = list(perhaps)
        self.rows = np.arange(len(hashes), dtype=np.uint64)
        if self.other_rows:
            self.others = [hashes[at] for at in self.other_rows]
            self.rows = np.delete(self.rows, self.other_rows)
            hashes = [hashes[at] for at in self.rows.tolist()]
            high, low = high[self.rows], low[self.rows]
        self.hashes, self.high, self.low = hashes, high, low
        self.borne = self.refused = self.saving = self.touched = False
        self._at: dict[bytes, int] | None = None

    def bear(self, sequence: int, firsts: U64) -> None:
        """Let the messages of the record with this sequence live; `firsts`: the first instant of each of its rows."""
        self.borne, self._sequence = True, sequence
        self._firsts = firsts[self.rows] if self.other_rows else firsts

    def row_of(self, digest: bytes) -> bytes | None:
        """Return the row of one of the keys; None: nobody bears it yet."""
        if not self.borne:
            return None
        if self._at is None:
            self._at = dict(zip(self.hashes, range(len(self.hashes)), strict=True))
        at = self._at[digest]
        return pack_name((int(self._firsts[at]), self._sequence << 16 | int(self.rows[at])))

    def packed(self) -> list[bytes]:
        """Return the rows of all keys."""
        borne = self.as_columns()
        return pack_owners(borne.first, borne.key)

    def as_columns(self) -> Borne:
        """Return all keys, with the messages that bear them."""
        return Borne(self.high, self.low, self._firsts, self.rows + np.uint64(self._sequence << 16))
