"""ZooKeeper dies, or stands still."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from dueq_chaos.nemesis.faults.fault import Fault

if TYPE_CHECKING:
    from dueq_chaos.nemesis.target import Target


class KillZooKeeper(Fault):
    """`kill -9`; it is started again, on the same folder, at the end."""

    kind: ClassVar[str] = "zookeeper-kill"
    lane: ClassVar[str] = "zookeeper"

    def begin(self, target: Target) -> str:
        """See Fault."""
        target.zookeeper_down(self)
        return "kill -9 zookeeper"

    def end(self, target: Target) -> None:
        """See Fault."""
        target.zookeeper_up(self)


class PauseZooKeeper(Fault):
    """SIGSTOP, and SIGCONT at the end."""

    kind: ClassVar[str] = "zookeeper-pause"
    lane: ClassVar[str] = "zookeeper"

    def begin(self, target: Target) -> str:
        """See Fault."""
        target.zookeeper_pause(self)
        return "pause zookeeper"

    def end(self, target: Target) -> None:
        """See Fault."""
        target.zookeeper_resume(self)
