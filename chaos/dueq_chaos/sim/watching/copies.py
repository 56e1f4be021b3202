"""Copies of committed records: looked up on the disks themselves, no matter what their brokers believe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dueq.core.ports.membership import Member
from dueq_chaos.sim.judging.ledger import Ledger

if TYPE_CHECKING:
    from dueq_chaos.sim.environment.mesh import SimMesh


class Copies:
    """Compares disks with the ledger.

    A disk that was replaced, or damaged and not filled again, since its broker became a member of an ISR is no
    longer expected to hold anything: no replica could have kept what it has lost.
    """

    def __init__(self, mesh: SimMesh, ledger: Ledger) -> None:
        self._mesh, self._ledger = mesh, ledger

    def missing(self, uid: int, first: int, last: int) -> str:
        """Look for records on the disks of the members of the node's ISR.

        Args:
            uid: the partition.
            first, last: sequences, both included; those that are committed count.

        Returns:
            The record that some member lacks, or holds in another version than was committed; "" when all is well.
        """
        found = self._mesh.coordinator.nodes.get(uid)
        for member in found[1].isr if found is not None else ():
            if self._is_excused(uid, member):
                continue
            for sequence in range(first, last + 1):
                wrong = self._differs(member.broker_id, uid, sequence)
                if wrong:
                    return wrong
        return ""

    def missing_anywhere(self, uid: int) -> str:
        """The same for everything that was ever committed: by log matching its last record speaks for all."""
        end = self._ledger.end(uid)
        return self.missing(uid, end, end) if end else ""

    def too_few(self, uid: int, sequence: int) -> str:
        """Whether a committed record is on the disks of fewer than min_isr brokers."""
        mesh = self._mesh
        members = {member.broker_id: member for member in mesh.coordinator.nodes[uid][1].isr}
        holders = [
            name
            for name in mesh.names
            if not self._differs(name, uid, sequence)
            or (name in members and self._is_excused(uid, members[name]))
        ]
        if len(holders) >= self._min_isr(uid):
            return ""
        return f"record {sequence} is committed and on {len(holders)} disks only: {holders}"

    def too_few_members(self, uid: int) -> str:
        """Whether the node's ISR has fewer than min_isr members: only a person may make it so."""
        members = [member.broker_id for member in self._mesh.coordinator.nodes[uid][1].isr]
        least = self._min_isr(uid)
        return f"it is {members}, of at least {least}" if len(members) < least else ""

    def _min_isr(self, uid: int) -> int:
        topics = self._mesh.coordinator.topics.values()
        return next(
            (topic.min_isr for topic in topics if any(part.uid == uid for part in topic.partitions)), 0
        )

    def _is_excused(self, uid: int, member: Member) -> bool:
        disk = self._mesh.nodes[member.broker_id].disk
        return disk.store_id != member.store_id or disk.is_damaged(uid)

    def _differs(self, broker: str, uid: int, sequence: int) -> str:
        disk = self._mesh.nodes[broker].disk
        held, wanted = disk.record(uid, sequence), self._ledger.encoded(uid, sequence)
        if held is None:
            if disk.trimmed_to(uid) > sequence:
                return ""
            return f"record {sequence} is committed and not on the disk of {broker}, a member of the ISR"
        if wanted is not None and held != wanted:
            return f"{broker}, a member of the ISR, holds another record {sequence} than was committed"
        return ""
