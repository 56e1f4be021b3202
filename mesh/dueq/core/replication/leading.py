"""One leadership: its barrier, commits, and whether it may go on, act, or be handed over.

`Isr` knows whose acks count. `Followers` knows what each follower holds and is sent. `Confirmation` knows when a
leader may act towards consumers.
"""

from __future__ import annotations

from typing import Protocol

from dueq import limits
from dueq.core.ports.membership import Member
from dueq.core.replication.durable_log import DurableLog
from dueq.core.replication.followers import Followers
from dueq.core.replication.isr import Isr
from dueq.core.replication.progress import Progress
from dueq.core.replication.standing import Standing
from dueq.core.replication.uncommitted import Uncommitted
from dueq.core.turn.context import Context
from dueq.core.turn.peers import Peer
from dueq.instant import Now
from dueq_codecs.messages import Ack, Mismatch
from dueq_codecs.records import LogEntry, Record, RecordKind


class LedReplica(Protocol):
    """The replica that leads, as far as its leadership deals with it (see `Replica`)."""

    ctx: Context
    uid: int
    replicas: tuple[str, ...]
    min_isr: int
    log: DurableLog
    leading: Leading | None

    @property
    def commit(self) -> int: ...
    @property
    def synced(self) -> int: ...
    @property
    def durable_epoch(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def is_leader(self) -> bool: ...

    def append_own(self, entry: LogEntry, now: Now) -> None:
        """Append to the log as its leader."""
        ...

    def commit_to(self, sequence: int, now: Now) -> None:
        """Everything up to here is committed."""
        ...

    def level_of_all(self) -> int:
        """Return the feature level that every assigned replica has announced; 0: nothing is known of one."""
        ...

    def tell_leadership(self, epoch: int, *, leads: bool, serving: bool) -> None:
        """Tell every peer."""
        ...

    def give_up(self, now: Now, why: str) -> None:
        """Lead no longer."""
        ...

    def offer_snapshot(self, peer: Peer) -> None:
        """The follower lacks records that the log no longer holds."""
        ...

    def missed_record(self, peer: Peer, sequence: int, now: Now) -> None:
        """The disk does not give a record of the log that the follower lacks."""
        ...


class Leading:
    """One leadership of one partition: exactly one epoch.

    Attributes:
        epoch: of this leadership.
        barrier: sequence of its first record.
        serving: the barrier was applied: requests may be answered.
        isr: whose acks a commit needs.
        followers: what the others hold and are sent.
        confirmation: whether it may push, and answer consumers.
    """

    def __init__(self, replica: LedReplica, standing: Standing, epoch: int, now: Now) -> None:
        self._replica, self._ctx = replica, replica.ctx
        self.epoch = epoch
        self.barrier = replica.log.end + 1
        self.serving = False
        self._progress = {
            broker_id: Progress(self.barrier)
            for broker_id in replica.replicas
            if broker_id != self._ctx.settings.broker_id
        }
        # Lives (broker, incarnation) of followers that are stopped: they would not lead.
        self._declined: set[tuple[str, int]] = set()
        self._began_us = now.mono_us
        self._uncommitted = Uncommitted()
        self.isr = Isr(
            replica, standing, self._progress, self._uncommitted, epoch, self.barrier, self._isr_changed
        )
        self.confirmation = self.isr.confirmation
        self.followers = Followers(replica, self._progress, self.isr, epoch, self.barrier)

    # -------------------------------------------------------------- beginning

    def begin(self, now: Now) -> None:
        """Append the barrier; nothing of this epoch leaves before the epoch is synced.

        It raises the partition's level at once where all replicas allow that, so that a new topic begins with it.
        """
        replica = self._replica
        stamp = self._ctx.clock.mesh_now_us(now) // 1000
        level = max(replica.level_of_all(), 1)
        replica.append_own(
            LogEntry(Record(RecordKind.BARRIER, replica.uid, self.barrier, self.epoch, stamp, level)), now
        )
        self._uncommitted.add(self.barrier, now)
        replica.tell_leadership(self.epoch, leads=True, serving=False)
        self._ctx.attend(replica.uid)

    def serve(self) -> None:
        """The barrier has been applied."""
        self.serving = True
        self._replica.tell_leadership(self.epoch, leads=True, serving=True)

    def shift(self, gap_us: int) -> None:
        """The process was paused: waiting records have waited less than the clock says."""
        self._began_us += gap_us
        self._uncommitted.shift(gap_us)
        self.confirmation.begin_anew()

    def appended(self, sequence: int, now: Now) -> None:
        """A record of this epoch was appended."""
        self._uncommitted.add(sequence, now)
        self._ctx.attend(self._replica.uid)

    # -------------------------------------------------------------- commits

    def synced(self, now: Now) -> None:
        """This broker's own disk has caught up."""
        self.advance(now)

    def ack_received(self, peer: Peer, ack: Ack, asked_us: int, now: Now) -> bool:
        """A follower has synced; see `Followers.ack_received`.

        Returns:
            Whether the end of the turn may have something to do for it, beside what a commit brings. Most acks are of
            who has all there is, and of a record that another one has not synced yet.
        """
        if ack.epoch != self.epoch:
            return False
        awaited = self.followers.is_awaited(peer)
        if self.followers.ack_received(peer, ack, asked_us, now):
            self.advance(now)
        return awaited

    def mismatch_received(self, peer: Peer, mismatch: Mismatch, now: Now) -> None:
        """A follower's log differs."""
        if mismatch.epoch == self.epoch:
            self.followers.mismatch_received(peer, mismatch, now)

    def advance(self, now: Now) -> None:
        """Commit what every member of the maximal ISR has synced."""
        replica = self._replica
        if replica.durable_epoch < self.epoch:
            return
        if len(self.isr.members) < replica.min_isr:
            # Only after `dueq partition recover`: the sole survivor leads, and what one disk holds is not safe yet.
            return
        lowest = replica.synced
        for member in self.isr.maximal():
            if member == self._ctx.me:
                continue
            progress = self._progress.get(member.broker_id)
            if progress is None or progress.store_id != member.store_id:
                return
            lowest = min(lowest, progress.match)
        if lowest >= self.barrier and lowest > replica.commit:
            for waited_us in self._uncommitted.committed(lowest, now):
                self._ctx.metrics.committed(waited_us)
            replica.commit_to(lowest, now)

    def node_read(self, now: Now) -> None:
        """The node was read and is still ours; its ISR may be one that we had asked for."""
        self.advance(now)

    def _isr_changed(self, now: Now) -> None:
        if self._replica.leading is self:
            self._ctx.attend(self._replica.uid)
            self.advance(now)

    @property
    def busy(self) -> bool:
        """Whether a record waits for its commit, or a change of the node for its answer."""
        return self.isr.is_changing or self._replica.commit < self._replica.log.end

    # -------------------------------------------------------------- whether it may act

    def healthy(self, now: Now) -> bool:
        """Whether min_isr replicas of the maximal ISR are within reach, so that a new record could commit soon."""
        alive = 0
        for member in self.isr.maximal():
            if member == self._ctx.me:
                alive += 1
                continue
            peer = self._ctx.peers.get(member.broker_id)
            if (
                peer is not None
                and peer.registered
                and peer.store_id == member.store_id
                and peer.silent_for_us(now) <= limits.REPLICA_LAG_MS * 1000
            ):
                alive += 1
        return alive >= self._replica.min_isr

    def confirmed(self, now: Now) -> bool:
        """Whether it may push, and answer consumers: no other replica can have led until lately."""
        return self.confirmation.holds(now)

    def ask(self, now: Now, since_us: int = 0) -> None:
        """Have the members confirm, as something waits for it: an Append without records each, once in a while.

        Args:
            now: the instant.
            since_us: what they have confirmed before this instant (mono) is not enough.
        """
        if self.confirmation.needs_node:
            self.isr.settle()
        for peer, progress in self.confirmation.unconfirmed(now, since_us):
            self.followers.ask(peer, progress, now)

    def in_touch(self, now: Now) -> bool:
        """Whether every member of the ISR has answered anything lately: a record appended now may soon commit."""
        floor_us = max(now.mono_us - limits.PUSH_CONFIRM_MS * 1000, self._ctx.confirm_floor_us)
        for member in self.isr.members:
            if member == self._ctx.me:
                continue
            peer = self._ctx.peers.get(member.broker_id)
            if peer is None or peer.answered_to_us < floor_us:
                return False
        return True

    # -------------------------------------------------------------- who could lead in its place

    def has_heir(self) -> bool:
        """Whether another member of the ISR holds all that is committed; one that has lost its data may not lead."""
        return any(
            (progress := self._progress.get(member.broker_id)) is not None
            and progress.match >= self._replica.commit
            and not self._has_declined(member.broker_id)
            for member in self.isr.members
        )

    def declined(self, peer: Peer) -> None:
        """A follower is stopped: it would not lead in this one's place."""
        self._declined.add((peer.broker_id, peer.incarnation))
        self._ctx.log("warning", "replica.declined", uid=self._replica.uid, broker=peer.broker_id)

    def _has_declined(self, broker_id: str) -> bool:
        peer = self._ctx.peers.get(broker_id)
        return peer is not None and (broker_id, peer.incarnation) in self._declined

    def could_lead(self, broker_id: str, now: Now) -> bool:
        """Whether this follower is in the ISR, and level: it would need nothing to lead in this one's place."""
        peer = self._ctx.peers.get(broker_id)
        if peer is None or broker_id not in self._progress or self._has_declined(broker_id):
            return False
        return Member(broker_id, peer.store_id) in self.isr.members and self.isr.is_level(broker_id, now)

    # -------------------------------------------------------------- periodic care

    def tick(self, now: Now) -> bool:
        """Resend, change the ISR, give up; returns whether there is anything left to care for."""
        if not self._enough_replicas(now):
            self._replica.give_up(now, "fewer than min_isr replicas have been heard")
            return True
        self.followers.resend(now)
        self.isr.tick(now)
        self.followers.send_all(now)
        self.followers.tell_commits()
        return not self._at_rest(now)

    def _enough_replicas(self, now: Now) -> bool:
        if now.mono_us - self._began_us < limits.LEADER_SILENCE_MS * 1000:
            return True
        heard = 1
        for broker_id in self._progress:
            peer = self._ctx.peers.get(broker_id)
            if peer is not None and peer.silent_for_us(now) <= limits.LEADER_SILENCE_MS * 1000:
                heard += 1
        return heard >= self._replica.min_isr

    def _within_reach(self, now: Now) -> dict[str, Peer]:
        """The followers that are alive, as far as this broker can tell."""
        return {
            broker_id: peer
            for broker_id in self._progress
            if (peer := self._ctx.peers.get(broker_id)) is not None
            and peer.registered
            and not self._ctx.is_silent(peer, now)
        }

    def _at_rest(self, now: Now) -> bool:
        """Whether there is nothing to care for: all that are within reach are level, and the ISR is just these.

        A peer that falls silent, is heard again or registers causes care (`BrokerCore`), so a dead replica needs
        none.
        """
        if not self.serving or self.busy:
            return False
        end = self._replica.log.end
        members = {self._ctx.me}
        for broker_id, peer in self._within_reach(now).items():
            progress = self._progress[broker_id]
            if progress.match < end or progress.assured_commit < end:
                return False
            members.add(Member(broker_id, peer.store_id))
        return members == set(self.isr.members) and len(members) >= self._replica.min_isr
