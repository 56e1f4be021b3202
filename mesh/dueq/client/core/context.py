"""What every part of the session machine shares: the instant, timers, effects, request numbers, chance."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Protocol

from dueq.client.core.clock import MeshClock
from dueq.client.core.effects import Effect, Log
from dueq.core.instant import Now


class RandomSource(Protocol):
    """Where jitter comes from: `random.Random` in life and in the simulator, injected."""

    def random(self) -> float:
        """Return a number in [0, 1)."""
        ...


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

    def at(self, at_us: int, action: Callable[[], None]) -> Timer:
        """Run `action` in the first step at or after `at_us`."""
        timer = Timer(at_us, action)
        self._count += 1
        heapq.heappush(self._heap, (at_us, self._count, timer))
        return timer

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


class Context:
    """The shared desk of one session machine.

    Attributes:
        now: the instant of the present step.
        effects: orders of the present step, in order.
    """

    def __init__(self, client_id: bytes, random: RandomSource) -> None:
        self.client_id = client_id
        self.now = Now(0, 0)
        self.effects: list[Effect] = []
        self.timers = Timers()
        self.clock = MeshClock()
        self._random = random
        self._requests = 0

    @property
    def mono_us(self) -> int:
        """The monotonic instant of the present step."""
        return self.now.mono_us

    def emit(self, effect: Effect) -> None:
        """Order something."""
        self.effects.append(effect)

    def log(self, level: str, event: str, **fields: object) -> None:
        """Order one line of log."""
        self.effects.append(Log(level, event, fields))

    def after(self, delay_us: int, action: Callable[[], None]) -> Timer:
        """Run `action` once `delay_us` have passed."""
        return self.timers.at(self.now.mono_us + delay_us, action)

    def next_request(self) -> int:
        """A request number that this client has not used."""
        self._requests += 1
        return self._requests

    def jittered(self, duration_us: int) -> int:
        """Between half of the duration and the whole, by chance."""
        return int(duration_us * (0.5 + self._random.random() / 2))
