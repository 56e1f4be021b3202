"""The simulated network: every message has its own delay, so messages overtake each other; some are lost or
come twice; links are cut one way or both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dueq_chaos.sim.world import World


@dataclass
class Weather:
    """How bad the network is; shares are of all messages."""

    delay_us: tuple[int, int] = (50, 400)
    slow_share: float = 0.0
    slow_us: tuple[int, int] = (5_000, 300_000)
    lost_share: float = 0.0
    twice_share: float = 0.0


class Network:
    """Between named ends: brokers ("b1") and clients ("c1")."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.weather = Weather()
        self._cut: dict[tuple[str, str], None] = {}
        self.sent = 0

    def cut(self, source: str, target: str, both: bool = True) -> None:
        """Nothing passes from source to target (and back) any more."""
        self._cut[source, target] = None
        if both:
            self._cut[target, source] = None

    def isolate(self, who: str, others: list[str]) -> None:
        """Cut an end off from all others."""
        for other in others:
            if other != who:
                self.cut(who, other)

    def heal(self) -> None:
        """Every link is whole again."""
        self._cut.clear()

    def send(self, source: str, target: str, deliver: Callable[[], None]) -> None:
        """Deliver after a while, perhaps never, perhaps twice."""
        self.sent += 1
        random, weather = self._world.random, self.weather
        if random.random() < weather.lost_share:
            return
        copies = 2 if random.random() < weather.twice_share else 1
        for _ in range(copies):
            slow = random.random() < weather.slow_share
            delay_us = random.randint(*(weather.slow_us if slow else weather.delay_us))

            def arrive() -> None:
                if (source, target) not in self._cut:
                    deliver()

            self._world.after(delay_us, arrive)
