"""Partial losses: a disk that holds a part of what it held, a mixture of two states, or what another build wrote.

One broker at a time, and only while the others hold everything: more would be a loss by design.
"""

from __future__ import annotations

from random import Random

from dueq_chaos.sim.plots import Plots


class Losses(Plots):
    """Carries them out."""

    def newer_checkpoint(self, broker: str, random: Random) -> None:
        """A broker goes back to an older build, which cannot read what the newer one has left; until it is calm."""
        mesh = self.mesh
        node = mesh.nodes[broker]
        if not mesh.all_hold_everything():
            return
        node.crash(goodbye=random.random() < 0.5)
        for uid in mesh.coordinator.nodes:
            if random.random() < 0.7:
                node.disk.make_newer(uid)
        node.start()
