"""Inserts that any partition may take, before they have a partition: they gather for one partition, then for the next.

Like KIP-480's sticky partitioner, with a bound on open requests. If the calls of fifty threads were spread
evenly, they would make many requests of a few rows, and a request costs as much as a hundred rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dueq.client.core.ports.change import Part
from dueq.client.core.ports.timers import Timer

_OPEN: Final = 2
"""While fewer requests are open, inserts of a few callers wait for no answer."""
_MANY: Final = 8
"""From this many callers on, one request is made at a time."""
_ROWS: Final = 64
"""Rows that are worth a request of their own."""
_ANSWER_US: Final = 20_000
"""Longest wait for answers: one partition without a leader must not hold up the others."""
_RETURN_US: Final = 3_000
"""Longest wait for callers that were answered together: they usually call again together."""


class StickyBatcher:
    """The inserts of one client into one topic, whatever partition they go to.

    Attributes:
        turn: counts the requests: where the next one goes.
        uids: the topic's partitions, as last seen.
        waiting: inserts that have no partition yet, in order; `rows` of them.
        open: unanswered requests.
        timer: runs when they have waited long enough.
    """

    def __init__(self, client_id: bytes) -> None:
        self.turn = int.from_bytes(client_id[-4:], "big")  # clients begin at different partitions
        self.uids: Sequence[int] = ()
        self.waiting: dict[Part, None] = {}
        self.rows = 0
        self.open = 0
        self.timer: Timer | None = None
        self._since_us = 0
        # How many callers were answered at once lately, and when.
        self._together = 0
        self._answered_us = 0

    def next_uid(self) -> int:
        """Return the partition whose turn it is."""
        uid = self.uids[self.turn % len(self.uids)]
        self.turn += 1
        return uid

    def push(self, part: Part, now_us: int) -> None:
        """Let an insert wait."""
        if not self.waiting:
            self._since_us = now_us
        self.waiting[part] = None
        self.rows += part.rows

    def take(self) -> list[Part]:
        """Let all go."""
        parts = list(self.waiting)
        self.waiting.clear()
        self.rows = 0
        return parts

    def remove(self, part: Part) -> None:
        """Take one out, if it waits here."""
        if part in self.waiting:
            del self.waiting[part]
            self.rows -= part.rows

    def answered(self, parts: int, now_us: int) -> None:
        """A request with so many inserts was answered, or is given up."""
        self.open -= 1
        self._together, self._answered_us = max(parts, self._together * 3 // 4), now_us

    def waits_until_us(self) -> int:
        """Until when (monotonic µs) it is better to wait for more; in the past: do not wait."""
        if self.rows >= _ROWS:
            return 0
        if self.open >= (_OPEN if self._together < _MANY else 1):
            return self._since_us + _ANSWER_US
        if len(self.waiting) < self._together * 3 // 4:
            return self._answered_us + _RETURN_US
        return 0
