"""Catching up by snapshot: both ends.

The follower pulls: part by part, each synced before the next is asked for, so a lost message costs one repeat and
memory stays bounded. It marks itself `installing` first (synced). Until the last part is in, its data is not usable.
The first part is asked for when the store has deleted all old rows, which it does little by little. Otherwise the part
would have to wait for the rest, and every other partition with it.
The leader keeps the log after the snapshot's sequence for as long as the follower is reading.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dueq import limits
from dueq.core.ports.persistence import (
    InstallBegin,
    InstallEnd,
    InstallRows,
    PartitionRead,
    ReadPartition,
    ReadSnapshot,
    RecoveredPartition,
    SnapshotRead,
)
from dueq.core.turn.context import Context
from dueq.core.turn.peers import Peer
from dueq.instant import Now
from dueq_codecs.messages import Code, SnapshotChunk, SnapshotRequest

if TYPE_CHECKING:
    from dueq.core.replication.replica import Replica


class Installation:
    """A follower that is being filled. Replaced by a new one when another leader offers."""

    def __init__(
        self,
        ctx: Context,
        replica: Replica,
        topic: str,
        leader: str,
        done: Callable[[RecoveredPartition, Now], None],
        now: Now,
    ) -> None:
        self._ctx, self._replica, self._leader, self._done = ctx, replica, leader, done
        self.epoch = replica.epoch
        self._snapshot = 0
        self._part = 0
        self._writing = True
        self._wiping = False
        self._asked_at_us = now.mono_us
        self.ended = False
        replica.wiped()
        ctx.log("info", "replica.installation_begun", uid=replica.uid, leader=leader, epoch=self.epoch)
        ctx.persist(InstallBegin(replica.uid, topic, self.epoch))
        ctx.when_persisted(self._ask)

    def replaced(self) -> None:
        """Another one has begun: what this one has written is wiped, and nothing that is read of it counts."""
        self.ended = True

    def _ask(self, now: Now) -> None:
        if self.ended:
            return
        self._wiping = self._replica.uid in self._ctx.wiping
        if self._wiping:
            return
        self._writing = False
        self._asked_at_us = now.mono_us
        settings = self._ctx.settings
        request = SnapshotRequest(
            settings.broker_id,
            settings.incarnation,
            self._replica.uid,
            self.epoch,
            self._snapshot,
            self._part,
        )
        self._ctx.send(self._leader, request, [])

    def chunk_received(self, chunk: SnapshotChunk, body: bytes | memoryview, now: Now) -> None:
        """Write the part that was asked for; anything else is a repeat."""
        if self.ended or self._writing or chunk.part != self._part:
            return
        if chunk.code != Code.OK:
            self.ended = True
            return
        if self._snapshot not in (0, chunk.snapshot):
            return
        self._snapshot = chunk.snapshot
        self._part += 1
        self._writing = True
        uid = self._replica.uid
        self._ctx.persist(InstallRows(uid, body))
        if not chunk.last:
            self._ctx.when_persisted(self._ask)
            return
        self._ctx.persist(InstallEnd(uid, chunk.applied, chunk.applied_epoch, self.epoch))
        self._ctx.when_persisted(self._read_back)

    def _read_back(self, now: Now) -> None:
        if self.ended:
            return

        def read(answer: object, then: Now) -> None:
            assert isinstance(answer, PartitionRead)
            if self.ended:
                return
            self.ended = True
            self._done(answer.recovered, then)

        self._ctx.read(lambda token: ReadPartition(token, self._replica.uid), read)

    def tick(self, now: Now) -> None:
        """Ask again when the answer was lost, and look again whether the old rows are gone."""
        if self._wiping:
            self._wiping = False
            self._ctx.when_persisted(self._ask)
        elif not self._writing and now.mono_us - self._asked_at_us > limits.LEADER_SILENCE_MS * 1000:
            self._ask(now)


class SnapshotService:
    """A leader's snapshots that followers are reading."""

    def __init__(self, ctx: Context, replica: Replica) -> None:
        self._ctx, self._replica = ctx, replica
        # follower -> (applied, mono µs of the last request)
        self._readers: dict[str, tuple[int, int]] = {}
        # (follower, epoch, snapshot, part) of those that are just being read, or wait for that.
        self._reading: set[tuple[str, int, int, int]] = set()
        # Followers that were offered one because a chunk cannot be read: it must not fail for the same reason.
        # follower -> (its life, epoch)
        self._without_lost: dict[str, tuple[int, int]] = {}

    def offer(self, peer: Peer) -> None:
        """Tell a follower that it must be filled from a snapshot (snapshot 0: an offer).

        `applied` names the record before the log's first: a follower that holds it can go on from the log, and
        ignores the offer as an old one.
        """
        self._offer(peer, self._replica.log.start - 1)

    def offer_without_lost(self, peer: Peer, saved: int) -> None:
        """Offer one to a follower that the log reaches, but for chunks that this disk has lost.

        Args:
            peer: the follower.
            saved: the last record in the checkpoint, which is what a snapshot has at least. So it is committed, and
                a follower that holds it ignores the offer: all that are counted on do.
        """
        self._without_lost[peer.broker_id] = peer.incarnation, self._replica.epoch
        self._offer(peer, max(saved, self._replica.log.start - 1))

    def _offer(self, peer: Peer, held: int) -> None:
        replica = self._replica
        offer = SnapshotRead(0, replica.uid, 0, 0, held, replica.log.epoch_at(held) or 0, b"", False)
        self._send(peer.broker_id, replica.epoch, offer)

    def requested(self, peer: Peer, request: SnapshotRequest, now: Now) -> None:
        """Read the part and send it, when its turn comes among those of all partitions.

        Snapshots that are being read come first: otherwise ever more of them would begin, and each might be closed
        before its next part. A follower asks again where it has waited for long. What it asks for is not read twice
        at a time: where many replicas are filled at once, what they want next would wait for all these repeats.
        """
        replica = self._replica
        asked = peer.broker_id, request.epoch, request.snapshot, request.part
        if not replica.is_leader or request.epoch != replica.epoch or asked in self._reading:
            return
        self._reading.add(asked)

        def read(answer: object, then: Now) -> None:
            assert isinstance(answer, SnapshotRead)
            self._reading.discard(asked)
            self._ctx.follower_reads.ended()
            if not replica.is_leader or request.epoch != replica.epoch:
                return  # deposed meanwhile
            self._readers[peer.broker_id] = (answer.applied, then.mono_us)
            self._send(peer.broker_id, request.epoch, answer)
            if answer.last:
                self._without_lost.pop(peer.broker_id, None)
                replica.installed_to(peer.broker_id, answer.applied)

        def begin() -> bool:
            if not replica.is_leader or request.epoch != replica.epoch:
                self._reading.discard(asked)
                return False
            self._ctx.read(
                lambda token: ReadSnapshot(
                    token,
                    replica.uid,
                    request.snapshot,
                    request.part,
                    limits.SNAPSHOT_CHUNK_BYTES,
                    self._without_lost.get(peer.broker_id) == (peer.incarnation, request.epoch),
                ),
                read,
            )
            return True

        self._ctx.follower_reads.begin(begin, first=request.snapshot > 0)

    def _send(self, broker_id: str, epoch: int, read: SnapshotRead) -> None:
        settings = self._ctx.settings
        chunk = SnapshotChunk(
            settings.broker_id, settings.incarnation, self._replica.uid, epoch,
            read.snapshot, read.part, read.applied, read.applied_epoch, read.last,
            Code.BUSY if read.failed else Code.OK,
        )  # fmt: skip
        self._ctx.send(broker_id, chunk, [read.data])

    def needed_from(self, now: Now) -> int | None:
        """The first sequence that a follower will want after its snapshot; None when none is being read."""
        idle = now.mono_us - limits.SNAPSHOT_IDLE_MS * 1000
        self._readers = {who: reader for who, reader in self._readers.items() if reader[1] >= idle}
        return min((applied + 1 for applied, _ in self._readers.values()), default=None)
