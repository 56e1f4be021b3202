"""Payloads that a leader's disk does not give, though a follower waits for them: damage of a block or a chunk.

The follower takes no record without them, so it would stay behind for ever, and hold back the log. Another member of
the ISR has the payload: it is to lead, and sends it. It may be away, so that is tried again, more and more seldom.

Only then does a follower that lacks a chunk begin anew with a snapshot. That lacks the payload, too; mostly the message
is over by then. For blocks there is no such snapshot: reading on behind one that is damaged is not possible.
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

_TRIES: Final = 5
"""Tries to have another member lead, before a follower gets a snapshot. They take two minutes."""
_WAIT_US: Final = 4_000_000
"""Time between the first two tries. Each later one is twice as long."""
_DOUBLINGS_MAX: Final = 10
"""How often the time between two tries doubles: the longest is 68 minutes."""
_MET_MAX: Final = 1024
"""Records that are remembered; for a forgotten one the tries begin anew."""


class LostPayloads:
    """What this leader has lost and a follower needs, in one partition."""

    def __init__(
        self, ctx: Context, replica: Replica, snapshots: SnapshotService, checkpoints: Checkpoints
    ) -> None:
        self._ctx, self._replica = ctx, replica
        self._snapshots, self._checkpoints = snapshots, checkpoints
        # By follower and first record that it lacks: how often another member was to lead, and until when (mono) it may
        # send the payload.
        self._met: dict[tuple[str, int], tuple[int, int]] = {}

    def missed_record(self, peer: Peer, sequence: int, now: Now) -> None:
        """The disk does not give a record of the log that a follower lacks, as its payload is damaged."""
        if self._ctx.coordinator is CoordinatorState.CONNECTED:
            self._hand_over(peer, sequence, now)

    def missed_chunk(self, peer: Peer, number: int, chunk: int) -> None:
        """The disk holds no such chunk: see whether the first record that the follower lacks has one.

        Otherwise the follower has it by now, and it was deleted rightly; or the upload ends before it.
        """
        replica = self._replica
        lag = replica.lag() or {}
        first = replica.end - lag.get(peer.broker_id, 0) + 1

        def read(answer: object, now: Now) -> None:
            assert isinstance(answer, LogRead)
            if replica.is_leader and any(_names(entry.record, number, chunk) for entry in answer.entries[:1]):
                self._lost_chunk(peer, first, number, chunk, now)

        self._ctx.read(lambda token: ReadLog(token, replica.uid, first, 1), read)

    def _lost_chunk(self, peer: Peer, sequence: int, number: int, chunk: int, now: Now) -> None:
        replica = self._replica
        if self._ctx.coordinator is not CoordinatorState.CONNECTED:
            return  # nobody could be elected; the follower asks again
        tried = self._hand_over(peer, sequence, now, upload=number, chunk=chunk)
        # A member of the ISR keeps its data: it leaves first, as it lags.
        counted = not replica.is_leader or Member(peer.broker_id, peer.store_id) in replica.waited_on()
        if tried and not counted:
            self._snapshots.offer_without_lost(peer, self._checkpoints.saved)

    def _hand_over(self, peer: Peer, sequence: int, now: Now, **what: int) -> bool:
        """Have another member lead, if it is time to try that; returns whether that was tried often enough."""
        ctx, replica = self._ctx, self._replica
        place = peer.broker_id, sequence
        tries, until_us = self._met.get(place, (0, 0))
        if now.mono_us < until_us:
            return tries > _TRIES
        self._met[place] = tries + 1, now.mono_us + (_WAIT_US << min(tries, _DOUBLINGS_MAX))
        if len(self._met) > _MET_MAX:
            del self._met[next(iter(self._met))]
        ctx.log(
            "error", "payload.unreadable",
            uid=replica.uid, sequence=sequence, wanted_by=peer.broker_id, **what,
        )  # fmt: skip
        replica.hand_over(now, "a payload that a follower lacks cannot be read")
        if not replica.is_leader:
            aside_us = now.mono_us + limits.HANDOVER_MS * 1000
            ctx.step_aside_until_us = max(ctx.step_aside_until_us, aside_us)
        return tries >= _TRIES


def _names(record: Record, number: int, chunk: int) -> bool:
    """Whether a record names an upload that has this chunk."""
    columns = zip(record.upload.tolist(), record.size.tolist(), strict=False)
    return any(upload == number and chunk < chunk_count(size) for upload, size in columns)
