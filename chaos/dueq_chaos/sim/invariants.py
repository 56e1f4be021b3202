"""x"""

from __future__ import annotations

from dueq_chaos.sim.mesh import SimMesh


class Violation(Exception):
    pass


class Invariants:
    def __init__(self, mesh: SimMesh, clock_error_us: int) -> None:
        self.steps = 0

    def in_full(self) -> None:
        pass
