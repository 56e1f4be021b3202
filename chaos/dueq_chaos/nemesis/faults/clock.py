"""Wall clocks that are set."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from dueq_chaos.nemesis.faults.fault import Fault

if TYPE_CHECKING:
    from dueq_chaos.nemesis.target import Target


class SetClock(Fault):
    """The wall clock of the chosen brokers is `amount` seconds ahead (behind, when negative), and right at the end."""

    kind: ClassVar[str] = "clock"
    needs: ClassVar[str] = "clocks"
    lane: ClassVar[str] = "clock"

    def begin(self, target: Target) -> str:
        """See Fault."""
        brokers = target.choose(self.step.who)
        for broker in brokers:
            target.set_clock(broker, self.step.amount, self)
        return f"clock {self.step.amount:+g} s {target.text(brokers)}"

    def end(self, target: Target) -> None:
        """See Fault."""
        target.correct_clocks(self)
