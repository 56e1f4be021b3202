"""The store's memory of each partition's log: its ends, its epochs, and the CRC chain's last link.

Each log row begins with a CRC over its record and the link before (so a row that is missing, changed or from
another history breaks the chain).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from zlib import crc32

from dueq.storage.ordered.layout import LINK


@dataclass(slots=True)
class LogState:
    """One log.

    Attributes:
        start, end: first and last sequence held.
        epochs: (epoch, first sequence), oldest first; begins with that of record `start - 1`.
        link: of the last record.
        base_link: of record `start - 1`.
    """

    start: int = 1
    end: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    link: int = 0
    base_link: int = 0

    def append(self, sequence: int, epoch: int, encoded: bytes) -> bytes:
        """Note a record; returns its link as bytes."""
        self.link = crc32(encoded, self.link)
        if epoch != self.epochs[-1][0]:
            self.epochs.append((epoch, sequence))
        self.end = sequence
        return LINK.pack(self.link)

    def cut(self, from_sequence: int, link: int) -> None:
        """Records from here on are gone; `link` is that of the last one that stays."""
        while len(self.epochs) > 1 and self.epochs[-1][1] >= from_sequence:
            self.epochs.pop()
        self.end, self.link = from_sequence - 1, link

    def trim(self, below: int, link: int) -> None:
        """Records before `below` are gone; `link` is that of the last of them."""
        epoch = self.epoch_at(below - 1)
        self.epochs = [(epoch, below - 1), *(pair for pair in self.epochs if pair[1] >= below)]
        self.start, self.base_link = below, link

    def epoch_at(self, sequence: int) -> int:
        """Return the epoch of a record that is held, or of the one before the first."""
        at = bisect_right(self.epochs, sequence, key=lambda pair: pair[1]) - 1
        return self.epochs[max(at, 0)][0]
