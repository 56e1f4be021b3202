"""Chunks that a leader's disk does not give, though a follower waits for them: damage of one payload.

The follower takes no record without its chunks, so it would stay behind for ever, and hold back the log. Another member
of the ISR has the payload: it is to lead, and sends it. If that does not help, or nobody can lead instead, the follower
begins anew with a snapshot. That lacks the payload, too; mostly the message is over by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dueq import limits
from dueq.core.partition.checkpoints import Checkpoints
from dueq.core.partition.uploads import chunk_count
from dueq.core.ports.membership import CoordinatorState, Member
from dueq.core.ports.persistence import LogRead, ReadLog
from dueq.core.replication.installing import SnapshotService
from dueq.core.turn.context import Context
from dueq.core.turn.peers import Peer
from dueq.instant import Now
from dueq_codecs.records import Record

if TYPE_CHECKING:
    from dueq.core.replication.replica import Replica

_MET_MAX: Final = 1024
"""Records that are remembered; for a forgotten one the leadership is handed over once more."""


class LostChunks:
    """The chunks that this leader has lost and a follower needs, in one partition."""

    def __init__(
        self, ctx: Context, replica: Replica, snapshots: SnapshotService, checkpoints: Checkpoints
    ) -> None:
        self._ctx, self._replica = ctx, replica
        self._snapshots, self._checkpoints = snapshots, checkpoints
        # (follower, first record that it lacks) for which the leadership has been handed over, if it could be.
        self._met: dict[tuple[str, int], None] = {}

    def met(self, peer: Peer, number: int, chunk: int) -> None:
        """The disk holds no such chunk: see whether the first record that the follower lacks has one.

        Otherwise the follower has it by now, and it was deleted rightly; or the upload ends before it.
        """
        replica = self._replica
        lag = replica.lag() or {}
        first = replica.end - lag.get(peer.broker_id, 0) + 1

        def read(answer: object, now: Now) -> None:
            assert isinstance(answer, LogRead)
            if replica.is_leader and any(_names(entry.record, number, chunk) for entry in answer.entries[:1]):
                self._lost(peer, first, number, chunk, now)

        self._ctx.read(lambda token: ReadLog(token, replica.uid, first, 1), read)

    def _lost(self, peer: Peer, sequence: int, number: int, chunk: int, now: Now) -> None:
        ctx, replica = self._ctx, self._replica
        place = peer.broker_id, sequence
        if ctx.coordinator is not CoordinatorState.CONNECTED:
            return  # nobody could be elected; the follower asks again
        if place not in self._met:
            self._met[place] = None
            if len(self._met) > _MET_MAX:
                del self._met[next(iter(self._met))]
            ctx.log(
                "error", "payload.unreadable",
                uid=replica.uid, upload=number, chunk=chunk, wanted_by=peer.broker_id,
            )  # fmt: skip
            replica.hand_over(now, "a payload that a follower lacks cannot be read")
            if not replica.is_leader:
                aside_us = now.mono_us + limits.HANDOVER_MS * 1000
                ctx.step_aside_until_us = max(ctx.step_aside_until_us, aside_us)
        # A member of the ISR keeps its data: it leaves first, as it lags.
        if replica.is_leader and Member(peer.broker_id, peer.store_id) not in replica.waited_on():
            self._snapshots.offer_without_lost(peer, self._checkpoints.saved)


def _names(record: Record, number: int, chunk: int) -> bool:
    """Whether a record names an upload that has this chunk."""
    columns = zip(record.upload.tolist(), record.size.tolist(), strict=False)
    return any(upload == number and chunk < chunk_count(size) for upload, size in columns)
