"""How a replica comes to be filled from a snapshot: which offers it takes, and the filling that is under way."""

from __future__ import annotations

from collections.abc import Callable

from dueq.core.ports.persistence import RecoveredPartition
from dueq.core.replication.installing import Installation
from dueq.core.replication.replica import Replica
from dueq.core.turn.context import Context
from dueq.core.turn.peers import Peer
from dueq.instant import Now
from dueq_codecs.messages import SnapshotChunk


class Filling:
    """The follower's side of snapshots, for one partition.

    Args:
        topic: the name of the partition's topic.
        wiped: called before the replica's data goes.
        filled: called with what the store holds when the last part is in.
    """

    def __init__(
        self,
        ctx: Context,
        replica: Replica,
        topic: str,
        wiped: Callable[[], None],
        filled: Callable[[RecoveredPartition, Now], None],
    ) -> None:
        self._ctx, self._replica, self._topic = ctx, replica, topic
        self._wiped, self._filled = wiped, filled
        self._installation: Installation | None = None

    def received(self, peer: Peer, chunk: SnapshotChunk, body: bytes | memoryview, now: Now) -> None:
        """The leader offers a snapshot, or sends a part of one."""
        replica, installation = self._replica, self._installation
        if not replica.follows(peer, chunk.epoch, now):
            return
        if chunk.snapshot:
            if installation is not None:
                installation.chunk_received(chunk, body, now)
            return
        if installation is not None and not installation.ended and installation.epoch == chunk.epoch:
            return
        if replica.is_standing:
            return  # the replica that would be wiped may be about to lead; the offer is repeated
        if replica.can_go_on_from(chunk.applied, chunk.applied_epoch):
            # The offer may be old, and this replica's data may count again. Or no answer of this replica has reached
            # the leader, which needs one to go on.
            replica.tell_position(peer, chunk.epoch)
            return
        self._wiped()
        if installation is not None:
            installation.replaced()
        self._installation = Installation(
            self._ctx, replica, self._topic, peer.broker_id, self._installed, now
        )
        self._ctx.attend(replica.uid)

    def _installed(self, recovered: RecoveredPartition, now: Now) -> None:
        self._installation = None
        epoch = self._replica.epoch
        self._replica.installed(recovered)
        self._filled(recovered, now)
        self._ctx.log(
            "info", "replica.installed", uid=self._replica.uid, applied=recovered.applied, epoch=epoch
        )

    def tick(self, now: Now) -> bool:
        """Ask again where an answer was lost; returns whether a filling is under way."""
        if self._installation is None:
            return False
        self._installation.tick(now)
        return True
