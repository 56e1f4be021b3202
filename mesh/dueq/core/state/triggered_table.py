"""The triggered messages of one partition that wait: no pause and no rate hold them.

A leader has to find them wherever they lie in the index: a paused topic may have millions of messages that wait before
them. So they are listed here, and their entries stay in memory. A message is here while it waits and its entry has the
flag. Those that are leased are counted: they wait again if they are given back. Everything happens inside `apply`: a
function of the log.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import numpy as np

from dueq.core.ports.entry import Entries, are_triggered, keys_of
from dueq.core.ports.tables import TableRow

_ROW: Final = Struct("<Q")
_KEY_BYTES: Final = 7


class TriggeredTable:
    """Their ids.

    Attributes:
        first_of: by key; in the order in which they began to wait.
        leased: how many are leased. No row says so: what is leased is in memory, with its flag.
    """

    def __init__(self) -> None:
        self.first_of: dict[int, int] = {}
        self.leased = 0
        self._changed: dict[int, None] = {}
        self._saved: set[int] = set()

    def recover(self, rows: list[TableRow]) -> None:
        """Begin with what the last checkpoint left."""
        for key, value in rows:
            if value is not None:
                number = int.from_bytes(key, "big")
                (self.first_of[number],) = _ROW.unpack(value)
                self._saved.add(number)

    def expire(self, age_ms: int, stamp: int) -> None:
        """Nothing here grows old."""

    def count(self, rows: Entries, waiting: int, leased: int, dead: int = 0) -> None:
        """Note messages that begin (1) or stop (-1) to wait, or to be leased."""
        if not (waiting or leased) or (waiting < 0 and not self.first_of) or (leased < 0 and not self.leased):
            return
        of = are_triggered(rows)
        count = int(np.count_nonzero(of))
        self.leased += leased * count
        if not (waiting and count):
            return
        rows = rows[of]
        for key, first in zip(keys_of(rows).tolist(), rows["first"].tolist(), strict=True):
            if waiting > 0:
                self.first_of[key] = first
            else:
                del self.first_of[key]
            self._changed[key] = None

    def changed_rows(self) -> list[TableRow]:
        """Return the rows that changed since the last call; from now on they count as being on disk."""
        rows = []
        for key in self._changed:
            first = self.first_of.get(key)
            if first is not None:
                rows.append(TableRow(key.to_bytes(_KEY_BYTES, "big"), _ROW.pack(first)))
                self._saved.add(key)
            elif key in self._saved:
                rows.append(TableRow(key.to_bytes(_KEY_BYTES, "big"), None))
                self._saved.discard(key)
        self._changed.clear()
        return rows

    def export(self) -> object:
        """Return everything known."""
        return sorted(self.first_of.items())
