"""Records of one leadership that wait for their commit, and since when."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from dueq import limits
from dueq.instant import Now


class Uncommitted:
    """In the order of the log."""

    def __init__(self) -> None:
        self._appended: deque[tuple[int, int]] = deque()

    def add(self, sequence: int, now: Now) -> None:
        """A record was appended."""
        self._appended.append((sequence, now.mono_us))

    def committed(self, sequence: int, now: Now) -> Iterator[int]:
        """Forget the records up to this one; yield how long each has waited, µs."""
        while self._appended and self._appended[0][0] <= sequence:
            yield now.mono_us - self._appended.popleft()[1]

    def shift(self, gap_us: int) -> None:
        """The process was paused: they have waited less than the clock says."""
        self._appended = deque((sequence, at_us + gap_us) for sequence, at_us in self._appended)

    def lacks_for_long(self, match: int, now: Now) -> bool:
        """Whether one who holds the log up to `match` lacks a record that has waited for too long."""
        if not self._appended:
            return False
        oldest, appended_us = self._appended[0]
        return match < oldest and now.mono_us - appended_us > limits.REPLICA_LAG_MS * 1000
