"""The next instant at which something must happen, for many owners."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

Name = TypeVar("Name", str, int)
_SPARE: Final = 64
"""Outdated entries that are always allowed."""


class Deadlines(Generic[Name]):
    """At most one deadline (mono µs) per name; a heap with lazy deletion.

    A deadline that is hours away and moves a little at every turn must not leave an entry each time. So the heap is
    rebuilt when most of it is outdated.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, Name]] = []
        self._current: dict[Name, int] = {}

    def set(self, name: Name, at_us: int | None) -> None:
        """Set, move or (None) remove a deadline."""
        if at_us is None:
            self._current.pop(name, None)
        elif self._current.get(name) != at_us:
            self._current[name] = at_us
            heappush(self._heap, (at_us, name))
            if len(self._heap) > 2 * len(self._current) + _SPARE:
                self._heap = [(at_us, name) for name, at_us in self._current.items()]
                heapify(self._heap)

    def next_us(self) -> int | None:
        """Return the earliest deadline."""
        while self._heap:
            at_us, name = self._heap[0]
            if self._current.get(name) == at_us:
                return at_us
            heappop(self._heap)
        return None

    def take_due(self, now_us: int, most: int | None = None) -> list[Name]:
        """Remove and return the names whose deadline has come, the earliest first; at most this many."""
        due: list[Name] = []
        while (most is None or len(due) < most) and (at_us := self.next_us()) is not None and at_us <= now_us:
            name = heappop(self._heap)[1]
            del self._current[name]
            due.append(name)
        return due
