"""The follower: log matching, acks, the commit position.

Log matching as in Raft (§5.3), with KIP-279's answer for epochs. An ack means: synced here, and known to equal the
log of the leader of this epoch.
"""

from __future__ import annotations

from typing import Protocol

from dueq import limits
from dueq.core.replication.durable_log import DurableLog
from dueq.core.turn.context import Context
from dueq.core.turn.peers import Peer
from dueq.instant import Now
from dueq_codecs.messages import Ack, Append, Mismatch
from dueq_codecs.records import LogEntry


class FollowingReplica(Protocol):
    """The replica that follows (see `Replica`)."""

    ctx: Context
    uid: int
    log: DurableLog
    leader: str
    installing: bool
    unproven: bool

    @property
    def is_leader(self) -> bool: ...

    def commit_to(self, sequence: int, now: Now) -> None:
        """Records up to here are committed."""
        ...

    def prove(self) -> None:
        """Nothing that was committed is missing here."""
        ...


class LogOwner(Protocol):
    """Whose log it is."""

    def appended(self, entries: list[LogEntry], now: Now) -> None:
        """Entries are at the end of the log (not yet synced, not yet committed)."""
        ...

    def truncated(self, entries: list[LogEntry]) -> None:
        """These uncommitted entries were cut from the log."""
        ...

    def is_full(self) -> bool:
        """Whether so much waits to be applied that no more can be taken."""
        ...

    def missing_upload(self, entry: LogEntry, leader: str) -> bool:
        """Whether the entry names an upload of which chunks are missing here (and asks the leader for them)."""
        ...


class Following:
    """The follower's part of one replica.

    Attributes:
        verified: records up to here are known to equal those of the leader of the present epoch.
        unreadable: why the leader's next record cannot be taken, which a newer build wrote; "" while it can.
        acked_at_us: (mono) its last ack; at the latest its start, as nothing is known of the life before.
    """

    def __init__(self, replica: FollowingReplica, owner: LogOwner) -> None:
        self._replica, self._ctx, self._owner = replica, replica.ctx, owner
        self.acked_at_us = self._ctx.turn.mono_us
        self.begin_anew()

    def begin_anew(self) -> None:
        """The log is another one: at the start, and after a snapshot was installed."""
        self.verified = 0
        self.unreadable = ""
        self._acked = (0, 0, 0)

    def forget_leader(self) -> None:
        """Another epoch, or an own leadership that has ended: nothing is known of the next leader's log."""
        self.verified = 0
        self.unreadable = ""

    def append_received(self, peer: Peer, append: Append, now: Now) -> None:
        """Verify, truncate only what differs, append, follow the commit position. The peer leads in this epoch."""
        replica, log = self._replica, self._replica.log
        if replica.installing:
            self.tell_position(peer, append.epoch, append.previous_epoch)
            return
        if append.entries or append.unreadable:
            self._note_unreadable(append)
        previous, entries = self._above_start(append)
        held = log.epoch_at(previous)
        skipped = previous > append.previous_sequence
        if held is None or (not skipped and held != append.previous_epoch):
            self.tell_position(peer, append.epoch, append.previous_epoch)
            return
        # First, so that what the new records name is in memory: a LEASE follows the commit of its INSERT closely.
        self._follow_commit(append.commit, now)
        grown = self._take(previous, entries, now)
        self.verified = max(self.verified, grown)
        self._follow_commit(append.commit, now)
        if (
            replica.unproven
            and append.commit <= self.verified
            and log.epoch_at(append.commit) == append.epoch
        ):
            replica.prove()
        if not log.dirty:
            self.ack(now, asked=bool(append.entries))

    def _note_unreadable(self, append: Append) -> None:
        """The records after these are of a newer build: this replica stays behind, and leaves the ISR in the end."""
        if append.unreadable and append.unreadable != self.unreadable:
            replica = self._replica
            self._ctx.log(
                "error", "partition.stopped", uid=replica.uid, reason=append.unreadable, leader=replica.leader
            )
        self.unreadable = append.unreadable

    def _above_start(self, append: Append) -> tuple[int, list[LogEntry]]:
        """Skip what lies before the log's start: it was committed, so every leader's records equal ours."""
        previous, entries, start = append.previous_sequence, append.entries, self._replica.log.start
        if previous >= start - 1:
            return previous, entries
        skip = min(len(entries), start - 1 - previous)
        return previous + skip, entries[skip:]

    def tell_position(self, peer: Peer, epoch: int, asked_epoch: int) -> None:
        """Tell the leader of `epoch` where this log ends, as a whole and in the largest epoch up to the asked one."""
        replica, log = self._replica, self._replica.log
        known_epoch, known_end = log.epoch_not_above(asked_epoch)
        peer.mismatches.append(
            Mismatch(replica.uid, epoch, log.end, known_epoch, known_end, replica.installing)
        )

    def _take(self, previous: int, entries: list[LogEntry], now: Now) -> int:
        """Append what is new of `entries`; returns the sequence up to which the log now equals the leader's."""
        log = self._replica.log
        end = previous
        fresh: list[LogEntry] = []
        for entry in entries:
            record = entry.record
            if record.sequence <= log.end:
                if log.epoch_at(record.sequence) == record.epoch:
                    end = record.sequence
                    continue
                self._truncate(record.sequence)
            if self._owner.is_full() or self._owner.missing_upload(entry, self._replica.leader):
                break  # the leader sends it again
            log.append(entry)
            fresh.append(entry)
            end = record.sequence
        if fresh:
            self._owner.appended(fresh, now)
        return end

    def _truncate(self, from_sequence: int) -> None:
        replica = self._replica
        cut = replica.log.truncate(from_sequence)
        self.verified = min(self.verified, from_sequence - 1)
        self._owner.truncated(cut)
        self._ctx.log(
            "info", "log.truncated", uid=replica.uid, from_sequence=from_sequence, epoch=replica.log.epoch
        )

    def _follow_commit(self, told: int, now: Now) -> None:
        """Take over the leader's commit position, for as much as is known to equal its log."""
        self._replica.commit_to(min(told, self.verified), now)

    # -------------------------------------------------------------- acks

    def ack(self, now: Now, asked: bool) -> None:
        """Tell the leader what is synced and verified; unasked repeats only after a while."""
        replica, log = self._replica, self._replica.log
        if replica.is_leader or log.durable_epoch != log.epoch or not replica.leader or replica.installing:
            return
        sequence = min(log.synced, self.verified)
        said = (log.epoch, sequence)
        quiet = now.mono_us - self._acked[2] < limits.RESEND_MS * 500
        if not asked and said == self._acked[:2] and quiet:
            return
        self._acked = (*said, now.mono_us)
        self.acked_at_us = now.mono_us
        self._ctx.peers[replica.leader].acks[replica.uid] = Ack(replica.uid, log.epoch, sequence)

    def take_back_ack(self) -> None:
        """The epoch rises: an ack of the older one must not leave with a frame that echoes what came since."""
        if (peer := self._ctx.peers.get(self._replica.leader)) is not None:
            peer.acks.pop(self._replica.uid, None)
