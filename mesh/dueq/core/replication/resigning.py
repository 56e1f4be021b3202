"""Resigning: a replica that leads no longer has the partition's node say so.

The others stand only once the node names nobody, or a leader that they have not heard for a while. A broker that has
given up is still heard. So one compare-and-set is not enough: it may lose to a change of the ISR that was under way,
or the coordinator may be away. It is repeated for as long as the node names this life of the broker.
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


class ResigningReplica(Protocol):
    """The replica, as far as resigning concerns it (see `Replica`)."""

    ctx: Context
    uid: int

    @property
    def epoch(self) -> int: ...
    @property
    def is_leader(self) -> bool: ...


class Resignation:
    """What a replica does while it is named leader and does not lead."""

    def __init__(self, replica: ResigningReplica, standing: Standing) -> None:
        self._replica, self._standing = replica, standing
        self._under_way = False

    def tick(self) -> bool:
        """Have the node no longer name this broker; returns whether it does."""
        replica = self._replica
        if replica.is_leader or not self._is_named():
            return False
        if not self._under_way and replica.ctx.coordinator is CoordinatorState.CONNECTED:
            self._resign()
        return True

    def _is_named(self) -> bool:
        """Whether other brokers must believe that this one leads: the coordinator has not accepted that it gave up.

        A node of an earlier epoch than ours is out of date, or the coordinator has lost a change: it is not ours.
        """
        node, settings = self._standing.node, self._replica.ctx.settings
        return (
            node is not None
            and (node.leader, node.incarnation) == (settings.broker_id, settings.incarnation)
            and node.epoch >= self._replica.epoch
        )

    def _resign(self) -> None:
        replica, standing, node = self._replica, self._standing, self._standing.node
        assert node is not None
        nobody = PartitionNode("", 0, node.epoch, node.isr)
        self._under_way = True

        def ended(done: CompareAndSetDone, now: Now) -> None:
            self._under_way = False
            if done.outcome is SetOutcome.DONE:
                standing.node_set(done, nobody)
            elif done.outcome is not SetOutcome.REFUSED:
                replica.ctx.coordinate(ReadNode(replica.uid))
            replica.ctx.attend(replica.uid)

        replica.ctx.compare_and_set(replica.uid, standing.node_version, nobody, ended)
