"""Safe beliefs about a lease that was asked to end at another instant.

A lease that is extended ends so long after its EXTEND was *applied*: never before what is counted from the request.
Until the answer nobody here knows whether it was applied, so the earliest of all ends that are possible counts,
also where that is before the end of the lease as it was. Requests of one lease may be applied in any order: what was
applied last counts, as the places of the records in the log say.
"""

from __future__ import annotations

Place = tuple[int, int]
"""(log sequence, row) of an EXTEND."""


class Extension:
    """The extensions of one lease. All instants are monotonic, µs.

    An extension without an answer stays among the possible ones: it may still be on its way.

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
        """An EXTEND to this end goes out: it may be applied from now on."""
        self._asked.append(until_us)

    def answered(self, until_us: int, place: Place | None) -> None:
        """It was applied at this place of the log; None: it was refused, and never will be applied."""
        self._asked.remove(until_us)
        if place is not None and place > self._place:
            self._place, self._until_us = place, until_us
