"""Numbers of messages in each second, and in each minute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Counts:
    """Messages by second (or minute), only where there are any.

    Attributes:
        at: numbers of seconds (minutes) since 1970, ascending.
        count: messages in each, at least 1.
    """

    at: I64
    count: I64

    @classmethod
    def of(cls, at: Any, count: Any) -> Self:
        """Put counts together: any order, the same second may come several times, zeros are left out."""
        seconds, place = np.unique(np.asarray(at, np.int64), return_inverse=True)
        total = np.zeros(len(seconds), np.int64)
        np.add.at(total, place, np.asarray(count, np.int64))
        return cls(seconds[total > 0], total[total > 0])

    @classmethod
    def nothing(cls) -> Self:
        """No messages at all."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64))

    @property
    def total(self) -> int:
        """Messages in all."""
        return int(self.count.sum())

    @property
    def peak(self) -> int:
        """Messages in the fullest."""
        return int(self.count.max(initial=0))

    def coarser(self, factor: int) -> Counts:
        """Return counts by `factor` seconds (minutes) each, numbered accordingly."""
        return Counts.of(self.at // factor, self.count)

    def added(self, other: Counts) -> Counts:
        """Return both together."""
        return Counts.of(
            np.concatenate([self.at, other.at]), np.concatenate([self.count, other.count])
        )  # fmt: skip
