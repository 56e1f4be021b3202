"""The ISR of one leadership: whose acks a commit needs, and changes of it by compare-and-set of the node.

The *maximal* ISR is the node's ISR plus every member of a change whose outcome is not known to have failed.
Commits need all of it; it shrinks only when a later compare-and-set by this leader has succeeded (KIP-497's
rule, and stricter: a read never settles an unknown outcome).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dueq import limits
from dueq.core.ports.membership import (
    CompareAndSetDone,
    CoordinatorState,
    Member,
    PartitionNode,
    ReadNode,
    SetOutcome,
)
from dueq.core.replication.confirming import Confirmation
from dueq.core.replication.progress import Progress
from dueq.core.replication.standing import Standing
from dueq.core.replication.uncommitted import Uncommitted
from dueq.core.turn.context import Context
from dueq.instant import Now


class IsrReplica(Protocol):
    """The replica that leads, as far as its ISR concerns it (see `Replica`)."""

    ctx: Context
    uid: int
    min_isr: int

    @property
    def commit(self) -> int: ...


class Isr:
    """The members of one leadership.

    Args:
        progress: each follower, by broker id.
        uncommitted: by what a member is known to lag.
        epoch, barrier: of the leadership.
        ended: called when a change has ended, one way or another.

    Attributes:
        confirmation: whether the members have confirmed the leadership; it starts again when there may be more of
            them.
    """

    def __init__(
        self,
        replica: IsrReplica,
        standing: Standing,
        progress: dict[str, Progress],
        uncommitted: Uncommitted,
        epoch: int,
        barrier: int,
        ended: Callable[[Now], None],
    ) -> None:
        self._replica, self._standing, self._ctx = replica, standing, replica.ctx
        self._progress, self._uncommitted = progress, uncommitted
        self._epoch, self._barrier = epoch, barrier
        self._ended = ended
        self._in_flight: PartitionNode | None = None
        self._unknown: set[Member] = set()
        self._settle = False
        self.confirmation = Confirmation(self._ctx, progress, self.maximal)

    # -------------------------------------------------------------- members

    @property
    def members(self) -> tuple[Member, ...]:
        """The node's ISR, as this leader last knew it."""
        return self._standing.isr

    def maximal(self) -> set[Member]:
        """Everyone whose ack a commit needs."""
        members = set(self.members) | self._unknown
        if self._in_flight is not None:
            members.update(self._in_flight.isr)
        return members

    def counts(self, broker_id: str, store_id: str) -> bool:
        """Whether a commit needs the ack of this broker, with this disk."""
        return Member(broker_id, store_id) in self.maximal()

    def is_level(self, broker_id: str, now: Now) -> bool:
        """Whether a follower has synced this epoch's barrier and all that is committed at this instant.

        While nothing can be committed without a member, it lacks nothing that is committed. That alone must not bring
        it back when it lags (its process answers, its disk hangs), in the very change that removes it.
        """
        progress, peer = self._progress[broker_id], self._ctx.peers.get(broker_id)
        return (
            peer is not None
            and peer.registered
            and progress.incarnation == peer.incarnation
            and not progress.untrusted
            and progress.match >= max(self._barrier, self._replica.commit)
            and not self._uncommitted.lacks_for_long(progress.match, now)
            and peer.silent_for_us(now) <= limits.REPLICA_LAG_MS * 500
        )

    def _is_out(self, member: Member, now: Now) -> bool:
        """Whether a member of the ISR must leave it: gone, another disk, untrusted, silent, or lagging."""
        if member == self._ctx.me:
            return False
        peer = self._ctx.peers.get(member.broker_id)
        progress = self._progress.get(member.broker_id)
        if peer is None or progress is None or not peer.registered or peer.store_id != member.store_id:
            return True
        if progress.untrusted or peer.silent_for_us(now) > limits.REPLICA_LAG_MS * 1000:
            return True
        return self._uncommitted.lacks_for_long(progress.match, now)

    # -------------------------------------------------------------- changes

    @property
    def is_changing(self) -> bool:
        """Whether a change is under way, or wanted to settle one of unknown outcome."""
        return self._in_flight is not None or self._settle

    def settle(self) -> None:
        """Set the node once more, whether or not the members change."""
        self._settle = True
        self._ctx.attend(self._replica.uid)

    def tick(self, now: Now) -> None:
        """Have members leave that must, and followers join that are level."""
        if self._in_flight is not None or self._ctx.coordinator is not CoordinatorState.CONNECTED:
            return
        members = self.members
        stay = [member for member in members if not self._is_out(member, now)]
        names = {member.broker_id for member in stay}
        join = [
            Member(broker_id, self._ctx.peers[broker_id].store_id)
            for broker_id in self._progress
            if broker_id not in names and self.is_level(broker_id, now)
        ]
        wanted = tuple(stay + join)
        if len(wanted) < self._replica.min_isr:
            wanted = members
        if wanted != members or self._settle:
            node = self._standing.node
            assert node is not None
            self.set_node(PartitionNode(node.leader, node.incarnation, self._epoch, wanted))

    def set_node(self, node: PartitionNode) -> None:
        """Compare-and-set the node; from now on both ISRs count."""
        self._in_flight = node
        self.confirmation.begin_anew()
        asked_us = self._ctx.turn.mono_us

        def ended(done: CompareAndSetDone, now: Now) -> None:
            if done.outcome is SetOutcome.DONE:
                self.confirmation.node_was_ours(asked_us)
            self._set_ended(node, done, now)

        self._ctx.compare_and_set(self._replica.uid, self._standing.node_version, node, ended)
        self._ctx.attend(self._replica.uid)

    def _set_ended(self, node: PartitionNode, done: CompareAndSetDone, now: Now) -> None:
        uid = self._replica.uid
        self._in_flight = None
        if done.outcome is SetOutcome.DONE:
            self._unknown.clear()
            self._settle = False
            self._standing.node_set(done, node)
            self._ctx.log(
                "info", "partition.isr_changed", uid=uid, epoch=self._epoch, leader=node.leader,
                isr=[member.broker_id for member in node.isr],
            )  # fmt: skip
        elif done.outcome is not SetOutcome.REFUSED:
            if done.outcome is SetOutcome.UNKNOWN:
                self._unknown.update(node.isr)
            self._settle = True
            self._ctx.coordinate(ReadNode(uid))
        self._ended(now)
