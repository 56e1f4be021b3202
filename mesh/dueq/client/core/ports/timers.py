"""Pending actions of the session machine."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final

_SWEEP_FROM: Final = 256
"""With fewer timers than this, cancelled ones are not cleared."""


class Timer:
    """One pending action; `cancel()` makes it never run."""

    __slots__ = ("action", "at_us")

    def __init__(self, at_us: int, action: Callable[[], None]) -> None:
        self.at_us = at_us
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """Forget the action."""
        self.action = None


class Timers:
    """Actions by monotonic instant (µs); those of one instant run in the order they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._count = 0
        self._sweep_from = _SWEEP_FROM

    def __len__(self) -> int:
        """The number of timers kept, some cancelled ones included."""
        return len(self._heap)

    def at(self, at_us: int, action: Callable[[], None]) -> Timer:
        """Run `action` in the first step at or after `at_us`."""
        if len(self._heap) >= self._sweep_from:
            self._sweep()
        timer = Timer(at_us, action)
        self._count += 1
        heapq.heappush(self._heap, (at_us, self._count, timer))
        return timer

    def _sweep(self) -> None:
        """Drop cancelled timers: most are cancelled long before their instant."""
        self._heap = [entry for entry in self._heap if entry[2].action is not None]
        heapq.heapify(self._heap)
        self._sweep_from = max(2 * len(self._heap), _SWEEP_FROM)

    def next_us(self) -> int | None:
        """The earliest pending instant, or None."""
        while self._heap and self._heap[0][2].action is None:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def run(self, now_us: int) -> None:
        """Run everything that is due."""
        while self._heap and self._heap[0][0] <= now_us:
            timer = heapq.heappop(self._heap)[2]
            if timer.action is not None:
                action, timer.action = timer.action, None
                action()
