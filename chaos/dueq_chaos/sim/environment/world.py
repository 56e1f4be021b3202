"""The simulated world's time and chance: one queue of events, one random generator, nothing else.

Everything that happens follows from the seed: events at one instant happen in the order in which they were
planned, and no set is ever iterated.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

START_WALL_US = 1_700_000_000_000_000


class World:
    """Time in µs since the world began, and what is planned.

    Attributes:
        now_us: the present instant.
        random: the only source of chance.
        trace: what was said about what happened, newest last, bounded.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now_us = 1_000_000
        self.random = Random(seed)
        self.trace: list[str] = []
        self._planned: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0

    @property
    def wall_us(self) -> int:
        """The true time, Unix µs."""
        return START_WALL_US + self.now_us

    def at(self, at_us: int, then: Callable[[], None]) -> None:
        """Plan something for an instant (at once, when it is past)."""
        self._order += 1
        heappush(self._planned, (at_us if at_us > self.now_us else self.now_us, self._order, then))

    def after(self, delay_us: int, then: Callable[[], None]) -> None:
        """Plan something."""
        self.at(self.now_us + delay_us, then)

    def between(self, low: int, high: int) -> int:
        """Draw a number, both ends included: what `random.randint` draws, in a third of its time."""
        span = high - low + 1
        bits, draw = span.bit_length(), self.random.getrandbits
        drawn = draw(bits)
        while drawn >= span:
            drawn = draw(bits)
        return low + drawn

    def tell(self, who: str, what: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.now_us / 1e6:12.6f} {who:>10}  {what}")
        if len(self.trace) > 20_000:
            del self.trace[:10_000]

    def step(self) -> bool:
        """Let the next planned thing happen; False when nothing is planned."""
        if not self._planned:
            return False
        self.now_us, _, then = heappop(self._planned)
        then()
        return True

    def run_until(self, condition: Callable[[], bool], within_us: int, every_us: int = 0) -> bool:
        """Run until the condition holds; False when the time is over first.

        Args:
            condition: asked after every happening, or no more often than `every_us`.
            within_us: how long to run at most.
            every_us: least time between two looks at the condition.
        """
        end_us = self.now_us + within_us
        while not condition():
            next_us = min(end_us, self.now_us + every_us)
            if every_us:
                self._run_to(next_us)
            elif self._planned and self._planned[0][0] <= end_us:
                self.step()
            else:
                self.now_us = end_us
            if self.now_us >= end_us:
                return condition()
        return True

    def run(self, for_us: int) -> None:
        """Run for a while."""
        self._run_to(self.now_us + for_us)

    def _run_to(self, end_us: int) -> None:
        planned = self._planned
        while planned and planned[0][0] <= end_us:
            self.now_us, _, then = heappop(planned)
            then()
        self.now_us = end_us
