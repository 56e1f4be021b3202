"""The next instant at which something must happen, for many owners."""

from __future__ import annotations

from heapq import heappop, heappush


class Deadlines:
    """At most one deadline (mono µs) per name; a heap with lazy deletion."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str]] = []
        self._current: dict[str, int] = {}

    def set(self, name: str, at_us: int | None) -> None:
        """Set, move or (None) remove a deadline."""
        if at_us is None:
            self._current.pop(name, None)
        elif self._current.get(name) != at_us:
            self._current[name] = at_us
            heappush(self._heap, (at_us, name))

    def next_us(self) -> int | None:
        """Return the earliest deadline."""
        while self._heap:
            at_us, name = self._heap[0]
            if self._current.get(name) == at_us:
                return at_us
            heappop(self._heap)
        return None

    def take_due(self, now_us: int) -> list[str]:
        """Remove and return the names whose deadline has come."""
        due: list[str] = []
        while (at_us := self.next_us()) is not None and at_us <= now_us:
            name = heappop(self._heap)[1]
            del self._current[name]
            due.append(name)
        return due
