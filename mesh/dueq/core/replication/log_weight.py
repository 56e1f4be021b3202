"""The weight of a log from each record on, without a number for every record.

A log of sixteen megabytes may have a hundred thousand records. To know where to trim it, a few hundred marks are
enough: each stands for neighbouring records and says what they weigh together. When there are too many, neighbours
become one mark, as long as it stays light beside the whole. So a log of few records is known exactly, and a long one
to about a hundredth.
"""

from __future__ import annotations

from array import array
from typing import Final

MARKS_MAX: Final = 512
_SHARE: Final = 128
"""Marks are merged only if the result weighs at most this fraction (one in …) of the log."""


class LogWeight:
    """Weights of records by sequence; records come and go at the end, and go at the front.

    Attributes:
        bytes: what all of them weigh.
    """

    __slots__ = ("_lasts", "_weights", "bytes")

    def __init__(self) -> None:
        self.bytes = 0
        self._lasts = array("Q")  # of each mark: the last sequence that it stands for
        self._weights = array("Q")

    def __len__(self) -> int:
        return len(self._lasts)

    def append(self, sequence: int, weight: int) -> None:
        """Add the next record."""
        self._lasts.append(sequence)
        self._weights.append(weight)
        self.bytes += weight
        if len(self._lasts) > MARKS_MAX:
            self._merge()

    def _merge(self) -> None:
        """Let neighbours be one. Two that stay weigh more than a share together, so that few are left."""
        heaviest = self.bytes // _SHARE
        lasts, weights = array("Q"), array("Q")
        for last, weight in zip(self._lasts, self._weights, strict=True):
            if weights and weights[-1] + weight <= heaviest:
                lasts[-1] = last
                weights[-1] += weight
            else:
                lasts.append(last)
                weights.append(weight)
        self._lasts, self._weights = lasts, weights

    def truncate(self, from_sequence: int) -> None:
        """Forget records at or after `from_sequence`; those of a mark that is cut count as if they weighed alike."""
        while self._lasts and self._lasts[-1] >= from_sequence:
            last, weight = self._lasts.pop(), self._weights.pop()
            self.bytes -= weight
            before = self._lasts[-1] if self._lasts else None
            if before is not None and before < from_sequence - 1:
                left = weight * (from_sequence - 1 - before) // (last - before)
                self._lasts.append(from_sequence - 1)
                self._weights.append(left)
                self.bytes += left
                return

    def trim(self, below: int) -> None:
        """Forget records before `below`; a mark goes with its last one."""
        count = 0
        while count < len(self._lasts) and self._lasts[count] < below:
            self.bytes -= self._weights[count]
            count += 1
        del self._lasts[:count]
        del self._weights[:count]

    def trimmable(self, retain_bytes: int) -> int:
        """Return the sequence up to which records may go so that about `retain_bytes` stay; 0: none may."""
        excess = self.bytes - retain_bytes
        found = 0
        for last, weight in zip(self._lasts, self._weights, strict=True):
            if excess <= 0:
                break
            excess -= weight
            found = last
        return found
