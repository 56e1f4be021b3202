"""Headers that a NACK has put in place of a producer's headers, in one partition.

The producer's headers lie before the payload, and stay there. The new ones are JSON, in memory, and bounded: the leader
takes no NACK that brings more (`limits.HEADINGS_BYTES_MAX`). They go with their message. Everything happens inside
`apply`: a function of the log.
"""

from __future__ import annotations

from typing import Final

from dueq.core.ports.entry import Entries, keys_of
from dueq.core.ports.tables import TableRow

_KEY_BYTES: Final = 7


class HeadingTable:
    """The headers, by the key of their message.

    Attributes:
        by_key: JSON.
        size: bytes of all of them.
    """

    def __init__(self) -> None:
        self.by_key: dict[int, str] = {}
        self.size = 0
        self._changed: dict[int, None] = {}
        self._saved: set[int] = set()

    def recover(self, rows: list[TableRow]) -> None:
        """Begin with what the last checkpoint left."""
        for key, value in rows:
            if value is not None:
                number = int.from_bytes(key, "big")
                self.by_key[number] = value.decode()
                self.size += len(value)
                self._saved.add(number)

    def expire(self, age_ms: int, stamp: int) -> None:
        """Nothing here grows old."""

    def note(self, entries: Entries, document: str) -> None:
        """These messages have these headers from now on."""
        length = len(document.encode())
        for key in keys_of(entries).tolist():
            self._drop(key)
            self.by_key[key] = document
            self.size += length

    def forget(self, entries: Entries) -> None:
        """These messages end."""
        if self.by_key:
            for key in keys_of(entries).tolist():
                self._drop(key)

    def _drop(self, key: int) -> None:
        self._changed[key] = None
        before = self.by_key.pop(key, None)
        if before is not None:
            self.size -= len(before.encode())

    def changed_rows(self) -> list[TableRow]:
        """Return the rows that changed since the last call; from now on they count as being on disk."""
        rows = []
        for key in self._changed:
            document, name = self.by_key.get(key), key.to_bytes(_KEY_BYTES, "big")
            if document is not None:
                rows.append(TableRow(name, document.encode()))
                self._saved.add(key)
            elif key in self._saved:
                rows.append(TableRow(name, None))
                self._saved.discard(key)
        self._changed.clear()
        return rows

    def export(self) -> object:
        """Return everything known."""
        return sorted(self.by_key.items())
