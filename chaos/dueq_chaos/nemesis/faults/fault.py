"""The base of every fault."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from dueq_chaos.nemesis.plan import Step
    from dueq_chaos.nemesis.target import Target


class Fault(ABC):
    """One thing that is broken for a while.

    Attributes:
        kind: its name in a plan.
        needs: what the machine must allow: "", "wires" (cuts), "delays" (and loss, resets), "clocks", "small disks".
        lane: under which heading the report shows it.
    """

    kind: ClassVar[str]
    needs: ClassVar[str] = ""
    lane: ClassVar[str]

    def __init__(self, step: Step) -> None:
        self.step = step

    @abstractmethod
    def begin(self, target: Target) -> str:
        """Break it.

        Returns:
            The deed and the broker, for people: `kill -9 b2 (leader)`.
        """

    @abstractmethod
    def end(self, target: Target) -> None:
        """Undo it, also where `begin` has failed half-way."""
