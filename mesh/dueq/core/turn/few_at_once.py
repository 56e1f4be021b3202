"""Work that is ordered elsewhere, a few pieces at a time: the others wait for their turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

Start = Callable[[], bool]
"""Begins a piece of work; False: there is nothing to be done any more."""


class FewAtOnce:
    """Begins work in the order in which it comes, and no more than `most` pieces before others have ended."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._under_way = 0
        self._first: deque[Start] = deque()
        self._waiting: deque[Start] = deque()

    def begin(self, start: Start, *, first: bool) -> None:
        """Begin a piece, now or when earlier ones have ended; `ended` is to be called when it has.

        Args:
            start: begins it.
            first: it comes before all that are not `first`.
        """
        (self._first if first else self._waiting).append(start)
        self._go_on()

    def ended(self) -> None:
        """A piece has ended."""
        self._under_way -= 1
        self._go_on()

    def _go_on(self) -> None:
        while self._under_way < self._most and (queue := self._first or self._waiting):
            self._under_way += queue.popleft()()
