"""A leader's knowledge of its followers' logs, and its frames to them: records, probes, commits, offers of snapshots.

Each follower's `Progress` is a state machine; here are the causes of its transitions.
"""

from __future__ import annotations

from typing import Protocol

from dueq import limits
from dueq.core.ports.persistence import LogRead, ReadLog
from dueq.core.replication.durable_log import DurableLog
from dueq.core.replication.isr import Isr
from dueq.core.replication.progress import Progress, State
from dueq.core.turn.context import Context
from dueq.core.turn.peers import Peer
from dueq.instant import Now
from dueq_codecs.messages import Ack, Append, Mismatch
from dueq_codecs.records import LogEntry


class FollowedReplica(Protocol):
    """The replica that leads, as far as its followers concern it (see `Replica`)."""

    ctx: Context
    uid: int
    log: DurableLog

    @property
    def commit(self) -> int: ...
    @property
    def durable_epoch(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def is_leader(self) -> bool: ...

    def offer_snapshot(self, peer: Peer) -> None:
        """The follower lacks records that the log no longer holds."""
        ...

    def missed_record(self, peer: Peer, sequence: int, now: Now) -> None:
        """The disk does not give a record of the log that the follower lacks."""
        ...


class Followers:
    """The followers of one leadership.

    Args:
        progress: each of them, by broker id.
        isr: who of them is counted on.
        epoch, barrier: of the leadership.
    """

    def __init__(
        self, replica: FollowedReplica, progress: dict[str, Progress], isr: Isr, epoch: int, barrier: int
    ) -> None:
        self._replica, self._ctx, self._log = replica, replica.ctx, replica.log
        self._progress, self._isr = progress, isr
        self._epoch, self._barrier = epoch, barrier

    # -------------------------------------------------------------- what they say

    def ack_received(self, peer: Peer, ack: Ack, asked_us: int, now: Now) -> bool:
        """A follower has synced, and verified against this leadership, up to `ack.sequence`.

        Args:
            peer: the follower.
            ack: what it says, in this epoch.
            asked_us: (mono) when the latest of our frames left that it had when it said so.
            now: this instant.

        Returns:
            Whether it is known to hold more than before.
        """
        progress = self._progress.get(peer.broker_id)
        if progress is None:
            return False
        self._same_life(progress, peer)
        progress.confirmed_at_us = max(progress.confirmed_at_us, asked_us)
        # An ack of 0 says that it follows, but nothing of what it holds. Its log counts as unknown.
        if ack.sequence <= max(progress.match, 0):
            return False
        progress.acked(ack.sequence, self._log.start, now)
        if progress.untrusted and ack.sequence >= max(self._barrier, self._must_hold(peer, progress)):
            progress.untrusted = False
        return True

    def is_awaited(self, peer: Peer) -> bool:
        """Return whether the next ack of a follower is waited for: it was asked for one, or may be sent more then."""
        progress = self._progress.get(peer.broker_id)
        if progress is None:
            return False
        level = progress.state is State.REPLICATE and progress.next > self._log.end
        return not level or progress.asked_at_us > progress.confirmed_at_us

    def _same_life(self, progress: Progress, peer: Peer) -> None:
        if progress.incarnation != peer.incarnation:
            progress.new_life(peer.incarnation, peer.store_id, self._log.start)

    def mismatch_received(self, peer: Peer, mismatch: Mismatch, now: Now) -> None:
        """The follower's log differs, or lacks what was sent: find where to go on from (KIP-279)."""
        progress, log = self._progress.get(peer.broker_id), self._log
        if progress is None:
            return
        self._same_life(progress, peer)
        # What a follower has acked in this life, it holds until it says that it is being filled. A message of this life
        # that says otherwise is an old one.
        if mismatch.installing or max(mismatch.end, progress.match) < self._must_hold(peer, progress):
            self._distrust(peer, progress, mismatch)
        if mismatch.installing:
            progress.wiped(log.start)
            self._offer_snapshot(peer, progress, now)
            return
        _, own_end = log.epoch_not_above(mismatch.known_epoch)
        previous = min(mismatch.known_end, own_end, log.end)
        progress.parted(previous, log.start)
        if progress.state is State.SNAPSHOT:
            self._offer_snapshot(peer, progress, now)
        else:
            self._send(peer, progress, now)

    def _must_hold(self, peer: Peer, progress: Progress) -> int:
        """The last record that a follower has if nothing was lost: acked by its disk or, in the ISR, trimmed here."""
        best = progress.best if progress.best_store == peer.store_id else 0
        if self._isr.counts(peer.broker_id, peer.store_id):
            return max(best, self._log.start - 1)
        return best

    def _distrust(self, peer: Peer, progress: Progress, mismatch: Mismatch) -> None:
        """A member without data that it must hold is not to be counted on for longer than needed."""
        progress.untrusted = True
        self._ctx.attend(self._replica.uid)
        self._ctx.log(
            "error", "replica.data_missing", uid=self._replica.uid, broker=peer.broker_id,
            end=mismatch.end, must_hold=self._must_hold(peer, progress), installing=mismatch.installing,
        )  # fmt: skip

    # -------------------------------------------------------------- what they need

    def lowest_needed(self, now: Now) -> int:
        """The first sequence that any member of the ISR, or another follower within reach, may still lack.

        A follower that has been silent for long, and is no longer in the maximal ISR, does not hold back the log: it
        gets a snapshot.
        """
        lowest = self._log.end + 1
        for member in self._isr.maximal():
            progress = self._progress.get(member.broker_id)
            if progress is not None and progress.match < 0:
                return self._log.start
            if progress is not None:
                lowest = min(lowest, progress.match + 1)
        for broker_id, progress in self._progress.items():
            peer = self._ctx.peers.get(broker_id)
            if peer is None or not peer.registered or progress.match < 0:
                continue
            if peer.silent_for_us(now) <= limits.SNAPSHOT_IDLE_MS * 1000:
                lowest = min(lowest, progress.match + 1)
        return lowest

    def lag(self) -> dict[str, int]:
        """Return how many records each follower lacks; all of them while its log is unknown."""
        end = self._log.end
        return {broker_id: end - max(progress.match, 0) for broker_id, progress in self._progress.items()}

    # -------------------------------------------------------------- snapshots

    def _offer_snapshot(self, peer: Peer, progress: Progress, now: Now) -> None:
        """Fill a replica from a snapshot; never one of the maximal ISR, unless it has lost its data."""
        if self._isr.counts(peer.broker_id, peer.store_id) and not progress.untrusted:
            return
        if (
            progress.offered_at_us is None
            or now.mono_us - progress.offered_at_us > limits.LEADER_SILENCE_MS * 1000
        ):
            progress.offered_at_us = now.mono_us
            self._replica.offer_snapshot(peer)

    def installed_to(self, broker_id: str, applied: int) -> None:
        """A snapshot of record `applied` was read out for this follower: it goes on from there."""
        progress = self._progress.get(broker_id)
        if progress is not None:
            progress.installed(applied, self._log.start)

    # -------------------------------------------------------------- sending

    def send_all(self, now: Now) -> None:
        """Send each follower what it lacks; called at the end of a turn."""
        if self._replica.durable_epoch < self._epoch:
            return
        end, commit = self._log.end, self._replica.commit
        for broker_id, progress in self._progress.items():
            peer = self._ctx.peers.get(broker_id)
            if peer is None or not peer.incarnation:
                continue
            lacks_nothing = progress.next > end and progress.state is State.REPLICATE
            if (
                not lacks_nothing
                or progress.incarnation != peer.incarnation
                or (peer.appends and progress.told_commit < commit)
            ):
                self._send(peer, progress, now)

    def _send(self, peer: Peer, progress: Progress, now: Now) -> None:
        """Send the next records, or, as long as nothing is known of this life, one probe at a time."""
        self._same_life(progress, peer)
        replica, log = self._replica, self._log
        if replica.durable_epoch < self._epoch or progress.reading or self._ctx.is_silent(peer, now):
            return
        probes = progress.state is State.PROBE
        if probes and progress.waits(now):
            return
        if progress.trimmed(log.start):
            self._offer_snapshot(peer, progress, now)
        elif progress.next > log.end:
            if probes or (peer.appends and progress.told_commit < replica.commit):
                self._send_entries(peer, progress, [], now)
        elif probes or progress.next - progress.match <= limits.APPEND_WINDOW_RECORDS:
            entries = log.read(progress.next, limits.APPEND_BYTES, limits.APPEND_RECORDS)
            if entries:
                self._send_entries(peer, progress, entries, now)
            else:
                self._read_for(peer, progress)

    def _send_entries(self, peer: Peer, progress: Progress, entries: list[LogEntry], now: Now) -> None:
        replica, previous = self._replica, progress.next - 1
        previous_epoch = self._log.epoch_at(previous)
        if previous_epoch is None:
            self._offer_snapshot(peer, progress, now)
            return
        peer.appends.append(
            Append(replica.uid, self._epoch, previous, previous_epoch, replica.commit, entries)
        )
        progress.sent(len(entries), replica.commit, now)
        self._ctx.attend(replica.uid)

    def _read_for(self, peer: Peer, progress: Progress) -> None:
        """Old records come from the store, a few at a time; the follower gets them when they are read."""
        replica = self._replica
        progress.reading = True
        start = progress.next

        def is_wanted() -> bool:
            return replica.is_leader and replica.epoch == self._epoch and progress.next == start

        def done(answer: object, now: Now) -> None:
            assert isinstance(answer, LogRead)
            progress.reading = False
            self._ctx.follower_reads.ended()
            if not is_wanted():
                return
            entries = [entry for entry in answer.entries if entry.record.sequence <= self._log.end]
            if entries:
                self._send_entries(peer, progress, entries, now)
            elif start >= self._log.start:
                replica.missed_record(peer, start, now)
            else:
                self._offer_snapshot(peer, progress, now)

        def begin() -> bool:
            progress.reading = is_wanted()
            if progress.reading:
                self._ctx.read(lambda token: ReadLog(token, replica.uid, start, limits.APPEND_BYTES), done)
            return progress.reading

        self._ctx.follower_reads.begin(begin, first=True)

    def ask(self, peer: Peer, progress: Progress, now: Now) -> None:
        """Have a follower confirm the leadership, by an append without records."""
        epoch = self._log.epoch_at(progress.match) if progress.state is not State.PROBE else None
        if epoch is not None:
            progress.asked_at_us = now.mono_us
            peer.appends.append(
                Append(self._replica.uid, self._epoch, progress.match, epoch, self._replica.commit, [])
            )

    def tell_commits(self) -> None:
        """Followers that have everything learn of the last commit at leisure, and surely: nothing follows it."""
        replica, log = self._replica, self._log
        for broker_id, progress in self._progress.items():
            peer, match = self._ctx.peers.get(broker_id), progress.match
            if peer is None or match < log.end or progress.assured_commit >= replica.commit:
                continue
            epoch = log.epoch_at(match)
            if epoch is not None:
                peer.tell_commit(Append(replica.uid, self._epoch, match, epoch, replica.commit, []))
                progress.told_commit = progress.assured_commit = replica.commit

    def resend(self, now: Now) -> None:
        """Send again what was not acked for a while."""
        for progress in self._progress.values():
            progress.resend(now)
