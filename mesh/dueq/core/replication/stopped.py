"""A replica that has met a record which it cannot apply, of a newer build: it is *stopped*.

Its log is as good as any: it appends, acks and counts in the ISR. But it has no state, so it cannot serve. It stands
for no election, declines what its leader would hand over, and never keeps a healthy member from leading. The one
exception is the only member of an ISR: it leads without serving, until another replica has caught up and joined.
"""

from __future__ import annotations

from typing import Protocol

from dueq.core.ports.membership import (
    CompareAndSetDone,
    CoordinatorState,
    PartitionNode,
    ReadNode,
    SetOutcome,
)
from dueq.core.replication.standing import Standing
from dueq.core.turn.context import Context
from dueq.instant import Now
from dueq_codecs.messages import Leadership


class StoppedReplica(Protocol):
    """The replica, as far as being stopped concerns it (see `Replica`)."""

    ctx: Context
    uid: int
    leader: str

    @property
    def epoch(self) -> int: ...
    @property
    def is_leader(self) -> bool: ...

    def hand_over(self, now: Now, why: str) -> None:
        """Give up where another member of the ISR could take over."""
        ...


class Stopped:
    """A stopped replica's substitute for leading."""

    def __init__(self, replica: StoppedReplica, standing: Standing) -> None:
        self._replica, self._standing = replica, standing
        self._resigning = False

    def decline(self) -> None:
        """Tell the leader not to hand the partition over to this broker: as if it had given up this epoch already."""
        replica = self._replica
        if not replica.is_leader and (peer := replica.ctx.peers.get(replica.leader)) is not None:
            peer.tell_leadership(Leadership(replica.uid, replica.epoch, leads=False, serving=False))

    def tick(self, now: Now) -> bool:
        """Hand over, or have the node no longer name this broker; returns whether that is still under way."""
        replica = self._replica
        if replica.is_leader:
            replica.hand_over(now, "it is stopped, and another member of the ISR is not")
            return True
        if not self._is_named():
            return False
        if not self._resigning and replica.ctx.coordinator is CoordinatorState.CONNECTED:
            self._resign()
        return True

    def _is_named(self) -> bool:
        """Whether other brokers must believe that this one leads: the coordinator has not accepted that it gave up."""
        node, settings = self._standing.node, self._replica.ctx.settings
        return node is not None and (node.leader, node.incarnation) == (
            settings.broker_id,
            settings.incarnation,
        )

    def _resign(self) -> None:
        replica, standing, node = self._replica, self._standing, self._standing.node
        assert node is not None
        nobody = PartitionNode("", 0, node.epoch, node.isr)
        self._resigning = True

        def ended(done: CompareAndSetDone, now: Now) -> None:
            self._resigning = False
            if done.outcome is SetOutcome.DONE:
                standing.node_set(done, nobody)
            elif done.outcome is not SetOutcome.REFUSED:
                replica.ctx.coordinate(ReadNode(replica.uid))
            replica.ctx.attend(replica.uid)

        replica.ctx.compare_and_set(replica.uid, standing.node_version, nobody, ended)
