"""Partial losses: a disk that holds a part of its data, a mixture of two states, or another build's data.

One broker at a time, and only while the others hold everything: more would be a loss by design.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from dueq.storage.ordered.engine import Reader
from dueq.storage.ordered.memory import MemoryEngine
from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.environment.node import Node
from dueq_chaos.sim.storms.plots import Burst, Plots


class Losses(Plots):
    """Carries them out.

    Attributes:
        kinds: each by its name in `plan.LOSSES`.
    """

    def __init__(self, mesh: SimMesh, burst: Burst) -> None:
        super().__init__(mesh, burst)
        self.kinds: dict[str, Callable[[str, Random], None]] = {
            "newer checkpoint": self._newer_checkpoint,
            "timeline gone": lambda broker, random: self._gone("timeline", broker),
            "payload gone": lambda broker, random: self._gone("payload", broker),
            "timeline older": lambda broker, random: self._older("timeline", broker, random),
            "payload older": lambda broker, random: self._older("payload", broker, random),
            "payload swapped": self._swapped,
            "put aside half-way": self._put_aside_half_way,
        }

    def _newer_checkpoint(self, broker: str, random: Random) -> None:
        """A broker goes back to an older build, which cannot read what the newer one has left; until it is calm."""
        mesh = self.mesh
        node = mesh.nodes[broker]
        if not mesh.may_lose(broker):
            return
        node.crash(goodbye=random.random() < 0.5)
        for uid in mesh.coordinator.nodes:
            if random.random() < 0.7:
                node.disk.make_newer(uid)
        node.start()

    def _gone(self, name: str, broker: str) -> None:
        """One of both databases is empty when the broker comes back."""
        self._replace(self.mesh.nodes[broker], name, MemoryEngine())

    def _older(self, name: str, broker: str, random: Random) -> None:
        """One of both is restored from a backup, the other one went on meanwhile."""
        node = self.mesh.nodes[broker]
        disk, store_id = node.disk, node.disk.store_id
        backup = (disk.timeline if name == "timeline" else disk.payload).snapshot()
        for _ in range(random.randint(1, 3)):
            self._later(random.randint(0, 500_000), lambda: self._burst(random, 2, -200, 5_000))

        def restore() -> None:
            if disk.store_id == store_id:
                self._replace(node, name, backup)

        self._later(random.randint(300_000, 3_000_000), restore)

    def _swapped(self, broker: str, random: Random) -> None:
        """A payload/ of another broker lies in its place, where there is another."""
        others = [name for name in self.mesh.names if name != broker]
        if not others:
            return
        other = random.choice(others)
        self._replace(self.mesh.nodes[broker], "payload", self.mesh.nodes[other].disk.payload.snapshot())

    def _put_aside_half_way(self, broker: str, random: Random) -> None:
        """The process dies between the two renames, and is started once more."""
        node = self.mesh.nodes[broker]
        node.disk.half_way = True
        self._replace(node, "timeline", MemoryEngine())
        node.disk.half_way = False
        if node.core is None:
            self._later(random.randint(1_000, 1_000_000), lambda: self._start(node))

    def _start(self, node: Node) -> None:
        if node.core is None:
            node.start()

    def _replace(self, node: Node, name: str, rows: Reader) -> None:
        if self.mesh.may_lose(node.name):
            node.crash()
            node.disk.replace(name, rows)
            node.start()
