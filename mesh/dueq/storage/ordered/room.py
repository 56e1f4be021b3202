"""Room of a store in memory, and the marks beyond which it wants no inserts and no leadership."""

from __future__ import annotations

from dataclasses import dataclass

from dueq import limits
from dueq.storage.port import Pressure


@dataclass(slots=True)
class MemoryRoom:
    """The room that the engines of one store share.

    Attributes:
        bytes_max: beyond it nothing is written; None: there is no bound.
        used: bytes of all rows, with what Python adds to them.
    """

    bytes_max: int | None = None
    used: int = 0

    def pressure(self) -> Pressure:
        """Judge the marks: acks, cancels and what leaders send to followers need room too."""
        if self.bytes_max is None:
            return Pressure("", False)
        free = 1 - self.used / self.bytes_max
        if free >= limits.MEMORY_LOW_SHARE:
            return Pressure("", False)
        return Pressure("memory_full", free < limits.MEMORY_CRITICAL_SHARE)
