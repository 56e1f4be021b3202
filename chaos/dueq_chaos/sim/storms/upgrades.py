"""A mesh that is upgraded one broker at a time, and does not always get to the end.

The next build is the present one with a feature level that is higher by one. No format has changed with it, so only the
level itself can be seen: a partition reaches it when the last of its replicas has been replaced, and every record of
its leader carries it from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.storms.plots import Burst
from dueq_codecs.records import FEATURE_LEVEL

NEXT_LEVEL = FEATURE_LEVEL + 1


class Upgrades:
    """Carries them out."""

    def __init__(self, mesh: SimMesh, burst: Burst) -> None:
        self.mesh, self._burst, self._later = mesh, burst, mesh.unless_calm

    @property
    def kinds(self) -> dict[str, Callable[[str, Random], None]]:
        """By name."""
        return {"rolling upgrade": self.rolling_upgrade, "upgrade without one": self.upgrade_without_one}

    def rolling_upgrade(self, broker: str, random: Random) -> None:
        """Some brokers are replaced one after the other; where not all are, one may go back to the old build."""
        old = self._old(broker, random)
        chosen = (
            old[: random.randint(1, max(len(old), 1))] or self.mesh.names
        )  # once all are new: a rolling restart
        self._traffic(random)
        at_us = random.randint(200_000, 1_000_000)
        for name in chosen:
            self._later(at_us, lambda name=name: self._replace(name, NEXT_LEVEL, random))  # type: ignore[misc]
            at_us += random.randint(300_000, 1_500_000)
        if len(chosen) < len(old) and random.random() < 0.4:
            # Allowed until the level has risen: one of the old ones keeps it where it is.
            self._later(at_us, lambda: self._replace(random.choice(chosen), FEATURE_LEVEL, random))

    def upgrade_without_one(self, broker: str, random: Random) -> None:
        """One broker is away, with the old build, while all the others are replaced; then it comes back."""
        away, *others = self._old(broker, random) or [broker]
        node = self.mesh.nodes[away]
        self._traffic(random)
        node.crash(goodbye=random.random() < 0.5)
        at_us = random.randint(200_000, 1_500_000)
        for name in others:
            self._later(at_us, lambda name=name: self._replace(name, NEXT_LEVEL, random))  # type: ignore[misc]
            at_us += random.randint(500_000, 1_500_000)

        def come_back() -> None:
            if node.core is None:
                node.level = random.choice([node.level, NEXT_LEVEL])
                node.start()

        self._later(at_us + random.randint(0, 2_000_000), come_back)

    def _old(self, first: str, random: Random) -> list[str]:
        """The brokers that run the old build, in some order; `first` at the beginning if it is one of them."""
        old = [name for name in self.mesh.names if self.mesh.nodes[name].level < NEXT_LEVEL]
        random.shuffle(old)
        return sorted(old, key=lambda name: name != first)

    def _traffic(self, random: Random) -> None:
        for at_us in range(0, 6_000_000, 150_000):
            self._later(at_us, lambda: self._burst(random, 1, -200, 1_500))

    def _replace(self, name: str, level: int, random: Random) -> None:
        """End it as an operator does, mostly, and start the other build on the same disk."""
        node = self.mesh.nodes[name]
        node.crash(goodbye=random.random() < 0.7)
        node.level = level

        def start() -> None:
            if node.core is None:
                node.start()

        self._later(random.randint(1_000, 600_000), start)
