"""A growable array of entries that is as wide as the widest row that was ever put into it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dueq.core.ports.entry import WORDS, Entries, from_words, widened, words_of
from dueq_codecs.records import U64

Slots = npt.NDArray[np.intp]
"""Places of rows."""


class EntryRows:
    """Entries by slot.

    Attributes:
        rows: all of them, free slots too. Another array after each growth.
    """

    def __init__(self) -> None:
        self._words: U64 = np.empty((0, WORDS), "<u8")
        self.rows: Entries = from_words(self._words)

    def resize(self, capacity: int) -> None:
        """Have this many slots; new ones are zero."""
        words = np.zeros((capacity, self._words.shape[1]), "<u8")  # what is not used yet takes no memory
        words[: len(self._words)] = self._words
        self._renew(words)

    def _renew(self, words: U64) -> None:
        self._words = words
        self.rows = from_words(words)

    def fitting(self, rows: Entries) -> Entries:
        """Return rows as wide as these; these become wider if the others are."""
        if rows.itemsize == self.rows.itemsize:
            return rows
        if rows.itemsize > self.rows.itemsize:
            self._renew(words_of(widened(self.rows, rows.itemsize)))
            return rows
        return widened(rows, self.rows.itemsize)

    def put(self, slots: Slots, rows: Entries) -> None:
        """Write whole rows; `slots` are distinct."""
        rows = self.fitting(rows)
        self._words[slots] = words_of(rows)
