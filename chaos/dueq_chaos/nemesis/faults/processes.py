"""Broker processes and consumers that die or stand still."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from dueq_chaos.nemesis.faults.fault import Fault

if TYPE_CHECKING:
    from dueq_chaos.nemesis.target import Target


class Kill(Fault):
    """`kill -9`; the end lets the supervisor start the broker again."""

    kind: ClassVar[str] = "kill"
    lane: ClassVar[str] = "processes"

    def begin(self, target: Target) -> str:
        """See Fault."""
        brokers = target.choose(self.step.who)
        text = f"kill -9 {target.text(brokers)}"
        for broker in brokers:
            target.hold_down(broker, self)
        return text

    def end(self, target: Target) -> None:
        """See Fault."""
        target.let_up(self)


class Pause(Fault):
    """SIGSTOP, and SIGCONT at the end."""

    kind: ClassVar[str] = "pause"
    lane: ClassVar[str] = "processes"

    def begin(self, target: Target) -> str:
        """See Fault."""
        brokers = target.choose(self.step.who)
        text = f"pause {target.text(brokers)}"
        for broker in brokers:
            target.pause(broker, self)
        return text

    def end(self, target: Target) -> None:
        """See Fault."""
        target.resume(self)


class KillConsumer(Fault):
    """`kill -9` of a consumer with messages in its hands; another is started at the end."""

    kind: ClassVar[str] = "kill-consumer"
    lane: ClassVar[str] = "consumers"

    def begin(self, target: Target) -> str:
        """See Fault."""
        return f"kill -9 {target.kill_consumer()}"

    def end(self, target: Target) -> None:
        """See Fault."""
        target.restore_consumers()
