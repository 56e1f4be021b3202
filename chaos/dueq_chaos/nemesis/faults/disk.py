"""A disk that fills."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from dueq_chaos.nemesis.faults.fault import Fault

if TYPE_CHECKING:
    from dueq_chaos.nemesis.target import Target


class FillDisk(Fault):
    """The small disk of the mesh is filled with a foreign file; the end removes it.

    `amount` is the share of the disk that stays free.
    """

    kind: ClassVar[str] = "fill-disk"
    needs: ClassVar[str] = "small disks"
    lane: ClassVar[str] = "disk"

    def begin(self, target: Target) -> str:
        """See Fault."""
        disk = target.small_disk()
        disk.fill(self.step.amount)
        left = f"{self.step.amount:.0%} free" if self.step.amount else "nothing free"
        return f"fill the disk of {disk.broker} ({left})"

    def end(self, target: Target) -> None:
        """See Fault."""
        target.small_disk().empty()
