"""Pauses that were confirmed, as the clients that asked for them know."""

from __future__ import annotations


class Silences:
    """When nothing may be pushed, by topic: from the answer to a pause until somebody asks for another change."""

    def __init__(self) -> None:
        self._until_us: dict[str, int | None] = {}
        self._changes: dict[str, int] = {}
        self._resumed_us: dict[str, int] = {}

    def begin(self, topic: str, until_us: int | None) -> None:
        """A pause was confirmed; `until_us`: (Unix µs) when it may end by itself."""
        self._until_us[topic] = until_us

    def end(self, topic: str) -> None:
        """Another change is asked for."""
        self._until_us.pop(topic, None)
        self._changes[topic] = self.changes(topic) + 1

    def resumed(self, topic: str, wall_us: int) -> None:
        """The end of a pause was confirmed."""
        self._resumed_us[topic] = wall_us

    def held_up(self, topic: str, since_us: int) -> bool:
        """Whether what was to be pushed again since then may have waited for the end of a pause."""
        return since_us < self._resumed_us.get(topic, 0)

    def changes(self, topic: str) -> int:
        """How many changes were asked for."""
        return self._changes.get(topic, 0)

    def holds(self, topic: str, wall_us: int) -> bool:
        """Whether nothing may be pushed now."""
        if topic not in self._until_us:
            return False
        until_us = self._until_us[topic]
        return until_us is None or wall_us < until_us
