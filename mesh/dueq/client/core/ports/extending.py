"""Safe assumptions about a lease that was asked to end at another instant.

The length of an extension counts from when its EXTEND was *applied*, so the lease never ends earlier than
counted from the request. Until the answer the client does not know whether it was applied. So the earliest
possible end counts, even if that is before the old end of the lease. Requests of one lease may be applied
in any order: the one applied last counts, as the places of the records in the log show.
"""

from __future__ import annotations

Place = tuple[int, int]
"""(log sequence, row) of an EXTEND."""


class Extension:
    """The extensions of one lease. All instants are monotonic, µs.

    An extension without an answer stays possible: it may still be in flight.

    Args:
        until_us: the end of the lease before the first.
    """

    __slots__ = ("_asked", "_place", "_until_us")

    def __init__(self, until_us: int) -> None:
        self._until_us = until_us
        self._place: Place = (0, 0)
        self._asked: list[int] = []

    @property
    def until_us(self) -> int:
        """The earliest end that is possible."""
        return min([self._until_us, *self._asked])

    def ask(self, until_us: int) -> None:
        """An EXTEND to this end is sent: it may be applied from now on."""
        self._asked.append(until_us)

    def answered(self, until_us: int, place: Place | None) -> None:
        """It was applied at this place of the log; None: it was refused, and never will be applied."""
        self._asked.remove(until_us)
        if place is not None and place > self._place:
            self._place, self._until_us = place, until_us
