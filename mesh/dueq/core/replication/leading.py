"""What a replica keeps while it leads: each follower's progress, the ISR and its changes, commits.

The *maximal* ISR is the node's ISR plus every member of a change whose outcome is not known to have failed.
Commits need all of it; it shrinks only when a later compare-and-set by this leader has succeeded (KIP-497's
rule, and stricter: a read never settles an unknown outcome).
"""

from __future__ import annotations

from collections import deque
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
from dueq.core.ports.persistence import LogRead, ReadLog
from dueq.core.replication.confirming import Confirmation
from dueq.core.replication.durable_log import DurableLog
from dueq.core.replication.progress import Progress
from dueq.core.replication.standing import Standing
from dueq.core.turn.context import Context
from dueq.core.turn.peers import Peer
from dueq.instant import Now
from dueq_codecs.messages import Ack, Append, Mismatch
from dueq_codecs.records import LogEntry, Record, RecordKind

_SEND_BYTES = 1 << 20
_SEND_RECORDS = 128
_WINDOW_RECORDS = 512
"""Records that may be on their way to one follower."""


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

    def append_own(self, entry: LogEntry, now: Now) -> None:
        """Append to the log as its leader."""
        ...

    def commit_to(self, sequence: int, now: Now) -> None:
        """Everything up to here is committed."""
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


class Leading:
    """One leadership of one partition: exactly one epoch.

    Attributes:
        epoch: of this leadership.
        barrier: sequence of its first record, 0 until it is appended.
        serving: the barrier was applied: requests may be answered.
        confirmation: whether it may push, and answer consumers.
    """

    def __init__(self, replica: LedReplica, standing: Standing, epoch: int, now: Now) -> None:
        self._replica, self._standing = replica, standing
        self._ctx = replica.ctx
        self.epoch = epoch
        self.barrier = 0
        self.serving = False
        self._progress = {
            broker_id: Progress(replica.log.end + 1)
            for broker_id in replica.replicas
            if broker_id != self._ctx.settings.broker_id
        }
        # Lives (broker, incarnation) of followers that are stopped: they would not lead.
        self._declined: set[tuple[str, int]] = set()
        self._in_flight: PartitionNode | None = None
        self._unknown: set[Member] = set()
        self._settle = False
        self._began_us = now.mono_us
        self._appended: deque[tuple[int, int]] = deque()
        self.confirmation = Confirmation(self._ctx, self._progress, self.maximal_isr)

    # -------------------------------------------------------------- beginning

    def begin(self, now: Now) -> None:
        """Append the barrier; nothing of this epoch leaves before the epoch is synced."""
        replica = self._replica
        stamp = self._ctx.clock.mesh_now_us(now) // 1000
        record = Record(RecordKind.BARRIER, replica.uid, replica.log.end + 1, self.epoch, stamp)
        self.barrier = record.sequence
        replica.append_own(LogEntry(record), now)
        self._appended.append((record.sequence, now.mono_us))
        replica.tell_leadership(self.epoch, leads=True, serving=False)
        self._ctx.attend(replica.uid)

    def serve(self) -> None:
        """The barrier has been applied."""
        self.serving = True
        self._replica.tell_leadership(self.epoch, leads=True, serving=True)

    def shift(self, gap_us: int) -> None:
        """The process was paused: what waits has waited less than the clock says."""
        self._began_us += gap_us
        self._appended = deque((sequence, at_us + gap_us) for sequence, at_us in self._appended)
        self.confirmation.begin_anew()

    def appended(self, sequence: int, now: Now) -> None:
        """A record of this epoch was appended."""
        self._appended.append((sequence, now.mono_us))
        self._ctx.attend(self._replica.uid)

    # -------------------------------------------------------------- commits

    @property
    def node(self) -> PartitionNode:
        """The node as this leader last knew it."""
        node = self._standing.node
        assert node is not None
        return node

    def maximal_isr(self) -> set[Member]:
        """Everyone whose ack a commit needs."""
        members = set(self.node.isr) | self._unknown
        if self._in_flight is not None:
            members.update(self._in_flight.isr)
        return members

    def synced(self, now: Now) -> None:
        """This broker's own disk has caught up."""
        self.advance(now)

    def advance(self, now: Now) -> None:
        """Commit what every member of the maximal ISR has synced."""
        replica = self._replica
        if replica.durable_epoch < self.epoch or self.barrier == 0:
            return
        if len(self.node.isr) < replica.min_isr:
            # Only after `dueq partition recover`: the sole survivor leads, and what one disk holds is not safe yet.
            return
        lowest = replica.synced
        for member in self.maximal_isr():
            if member == self._ctx.me:
                continue
            progress = self._progress.get(member.broker_id)
            if progress is None or progress.match < 0 or progress.store_id != member.store_id:
                return
            lowest = min(lowest, progress.match)
        if lowest >= self.barrier and lowest > replica.commit:
            while self._appended and self._appended[0][0] <= lowest:
                self._ctx.metrics.committed(now.mono_us - self._appended.popleft()[1])
            replica.commit_to(lowest, now)

    def healthy(self, now: Now) -> bool:
        """Whether min_isr replicas of the maximal ISR are within reach, so that a new record could commit soon."""
        alive = 0
        for member in self.maximal_isr():
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

    def has_heir(self) -> bool:
        """Whether another member of the ISR holds all that is committed; one that has lost its data may not lead."""
        return any(
            (progress := self._progress.get(member.broker_id)) is not None
            and progress.match >= self._replica.commit
            and not self._has_declined(member.broker_id)
            for member in self.node.isr
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
        return Member(broker_id, peer.store_id) in self.node.isr and self._is_level(broker_id, now)

    @property
    def busy(self) -> bool:
        """Whether a record waits for its commit, or a change of the node for its answer."""
        return self._in_flight is not None or self._settle or self._replica.commit < self._replica.log.end

    def confirmed(self, now: Now) -> bool:
        """Whether it may push, and answer consumers: nobody else can have led until lately."""
        return self.confirmation.holds(now)

    def ask(self, now: Now) -> None:
        """Have the members confirm, as something waits for it: an Append without records each, once in a while."""
        replica = self._replica
        if self.confirmation.needs_node:
            self._settle = True
            self._ctx.attend(replica.uid)
        for peer, progress in self.confirmation.unconfirmed(now):
            epoch = replica.log.epoch_at(progress.match) if progress.match >= 0 else None
            if epoch is not None:
                progress.asked_at_us = now.mono_us
                peer.appends.append(
                    Append(replica.uid, self.epoch, progress.match, epoch, replica.commit, [])
                )

    def in_touch(self, now: Now) -> bool:
        """Whether every member of the ISR has answered lately, about whatever: what is appended may soon commit."""
        floor_us = max(now.mono_us - limits.PUSH_CONFIRM_MS * 1000, self._ctx.confirm_floor_us)
        for member in self.node.isr:
            if member == self._ctx.me:
                continue
            peer = self._ctx.peers.get(member.broker_id)
            if peer is None or peer.answered_to_us < floor_us:
                return False
        return True

    # -------------------------------------------------------------- followers

    def ack_received(self, peer: Peer, ack: Ack, asked_us: int, now: Now) -> None:
        """A follower has synced, and verified against this leadership, up to `ack.sequence`.

        Args:
            peer: the follower.
            ack: what it says.
            asked_us: (mono) when the latest of our frames left that it had when it said so.
            now: this instant.
        """
        progress = self._progress.get(peer.broker_id)
        if progress is None or ack.epoch != self.epoch:
            return
        self._same_life(progress, peer)
        progress.confirmed_at_us = max(progress.confirmed_at_us, asked_us)
        # An ack of 0 says that it follows, and nothing of what it holds: as if nothing were known.
        if ack.sequence > max(progress.match, 0):
            progress.match = ack.sequence
            progress.moved_at_us = now.mono_us
            progress.next = max(progress.next, ack.sequence + 1)
            if ack.sequence >= self.barrier:
                progress.untrusted = False
            self.advance(now)

    @staticmethod
    def _same_life(progress: Progress, peer: Peer) -> None:
        if progress.incarnation != peer.incarnation:
            progress.new_life(peer.incarnation, peer.store_id)

    def mismatch_received(self, peer: Peer, mismatch: Mismatch, now: Now) -> None:
        """The follower's log differs, or lacks what was sent: find where to go on from (KIP-279)."""
        progress = self._progress.get(peer.broker_id)
        if progress is None or mismatch.epoch != self.epoch:
            return
        self._same_life(progress, peer)
        if mismatch.installing or mismatch.end < self._must_hold(peer, progress):
            self._distrust(peer, progress, mismatch)
        if mismatch.installing:
            progress.match = -1
            self._offer_snapshot(peer, progress, now)
            return
        log = self._replica.log
        _, own_end = log.epoch_not_above(mismatch.known_epoch)
        previous = min(mismatch.known_end, own_end, log.end)
        progress.next = max(previous, progress.match, 0) + 1
        progress.moved_at_us = None
        if progress.next < log.start:
            self._offer_snapshot(peer, progress, now)
        else:
            self._send(peer, progress, now)

    def _must_hold(self, peer: Peer, progress: Progress) -> int:
        """What a follower has if nothing was lost: what its disk had acked and, in the ISR, what was trimmed here."""
        best = progress.best if progress.best_store == peer.store_id else 0
        before = self._replica.log.start - 1
        # From who has acked that much in this life, a message that says otherwise is an old one.
        if progress.match < before and self._is_counted(peer):
            return max(best, before)
        return best

    def _is_counted(self, peer: Peer) -> bool:
        return Member(peer.broker_id, peer.store_id) in self.maximal_isr()

    def _distrust(self, peer: Peer, progress: Progress, mismatch: Mismatch) -> None:
        """A member without data that it must hold is not to be counted on for longer than needed."""
        progress.untrusted = True
        self._ctx.attend(self._replica.uid)
        self._ctx.log(
            "error", "replica.data_missing", uid=self._replica.uid, broker=peer.broker_id,
            end=mismatch.end, must_hold=self._must_hold(peer, progress), installing=mismatch.installing,
        )  # fmt: skip

    def _offer_snapshot(self, peer: Peer, progress: Progress, now: Now) -> None:
        """Begin a replica anew; never one that is counted on, unless it has lost its data."""
        if self._is_counted(peer) and not progress.untrusted:
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
            progress.next = applied + 1
            progress.match = -1
            progress.moved_at_us = None
            progress.offered_at_us = None

    def lowest_needed(self, now: Now) -> int:
        """The first sequence that any member of the ISR, or another follower within reach, may still lack.

        Who has not been heard for long and is counted on no more does not hold the log: it gets a snapshot.
        """
        lowest = self._replica.log.end + 1
        for member in self.maximal_isr():
            progress = self._progress.get(member.broker_id)
            if progress is not None and progress.match < 0:
                return self._replica.log.start
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
        """Return how many records each follower lacks (all of them while nothing is known of it)."""
        end = self._replica.log.end
        return {broker_id: end - max(progress.match, 0) for broker_id, progress in self._progress.items()}

    def send_all(self, now: Now) -> None:
        """Send each follower what it lacks; called at the end of a turn."""
        if self._replica.durable_epoch < self.epoch:
            return
        for broker_id, progress in self._progress.items():
            peer = self._ctx.peers.get(broker_id)
            if peer is not None and peer.incarnation:
                self._send(peer, progress, now)

    def _send(self, peer: Peer, progress: Progress, now: Now) -> None:
        """Send the next records, or, as long as nothing is known of this life, one probe at a time."""
        self._same_life(progress, peer)
        replica, log = self._replica, self._replica.log
        if replica.durable_epoch < self.epoch or progress.reading or self._ctx.is_silent(peer, now):
            return
        if progress.match < 0 and progress.waits(now):
            return
        if progress.next < log.start:
            self._offer_snapshot(peer, progress, now)
        elif progress.next > log.end:
            if progress.match < 0 or (peer.appends and progress.told_commit < replica.commit):
                self._send_entries(peer, progress, [], now)
        elif progress.match < 0 or progress.next - progress.match <= _WINDOW_RECORDS:
            entries = log.read(progress.next, _SEND_BYTES, _SEND_RECORDS)
            if entries:
                self._send_entries(peer, progress, entries, now)
            else:
                self._read_for(peer, progress)

    def _send_entries(self, peer: Peer, progress: Progress, entries: list[LogEntry], now: Now) -> None:
        replica = self._replica
        previous = progress.next - 1
        previous_epoch = replica.log.epoch_at(previous)
        if previous_epoch is None:
            self._offer_snapshot(peer, progress, now)
            return
        if progress.match < 0 or progress.match >= previous:
            progress.moved_at_us = now.mono_us
        peer.appends.append(
            Append(replica.uid, self.epoch, previous, previous_epoch, replica.commit, entries)
        )
        if progress.match >= 0:
            # A probe that is not answered is repeated as it is: else it would run away from a silent follower,
            # beyond the window.
            progress.next = previous + 1 + len(entries)
        progress.told_commit = replica.commit
        self._ctx.attend(replica.uid)

    def _tell_commits(self) -> None:
        """Followers that have everything learn of the last commit at leisure, and surely: nothing follows it."""
        replica = self._replica
        for broker_id, progress in self._progress.items():
            peer, match = self._ctx.peers.get(broker_id), progress.match
            if peer is None or match < replica.log.end or progress.assured_commit >= replica.commit:
                continue
            epoch = replica.log.epoch_at(match)
            if epoch is not None:
                peer.tell_commit(Append(replica.uid, self.epoch, match, epoch, replica.commit, []))
                progress.told_commit = progress.assured_commit = replica.commit

    def _read_for(self, peer: Peer, progress: Progress) -> None:
        """Old records come from the store; the follower gets them when they are read."""
        replica = self._replica
        progress.reading = True
        start = progress.next

        def done(answer: object, now: Now) -> None:
            assert isinstance(answer, LogRead)
            progress.reading = False
            if replica.leading is not self or progress.next != start:
                return
            entries = [entry for entry in answer.entries if entry.record.sequence <= replica.log.end]
            if entries:
                self._send_entries(peer, progress, entries, now)
            else:
                self._offer_snapshot(peer, progress, now)

        self._ctx.read(lambda token: ReadLog(token, replica.uid, start, _SEND_BYTES), done)

    # -------------------------------------------------------------- periodic care

    def tick(self, now: Now) -> bool:
        """Resend, change the ISR, give up; returns whether there is anything left to care for."""
        replica = self._replica
        if not self._enough_replicas(now):
            replica.give_up(now, "fewer than min_isr replicas have been heard")
            return True
        self._resend(now)
        self._change_isr(now)
        self.send_all(now)
        self._tell_commits()
        return not self._at_rest(now)

    def _within_reach(self, now: Now) -> dict[str, Peer]:
        """The followers that live, as far as this broker can tell."""
        return {
            broker_id: peer
            for broker_id in self._progress
            if (peer := self._ctx.peers.get(broker_id)) is not None
            and peer.registered
            and not self._ctx.is_silent(peer, now)
        }

    def _at_rest(self, now: Now) -> bool:
        """Whether there is nothing to care for: all that are within reach are level, and the ISR is just these.

        Whoever falls silent, is heard again or registers calls for care (`BrokerCore`), so a dead replica needs none.
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
        return members == set(self.node.isr) and len(members) >= self._replica.min_isr

    def _enough_replicas(self, now: Now) -> bool:
        if now.mono_us - self._began_us < limits.LEADER_SILENCE_MS * 1000:
            return True
        heard = 1
        for broker_id in self._progress:
            peer = self._ctx.peers.get(broker_id)
            if peer is not None and peer.silent_for_us(now) <= limits.LEADER_SILENCE_MS * 1000:
                heard += 1
        return heard >= self._replica.min_isr

    def _resend(self, now: Now) -> None:
        for progress in self._progress.values():
            if progress.match >= 0 and progress.next - 1 > progress.match and not progress.waits(now):
                progress.next = progress.match + 1
                progress.moved_at_us = now.mono_us

    def _is_out(self, member: Member, now: Now) -> bool:
        """Whether a member of the ISR must leave it: gone, another disk, untrusted, silent, or lagging."""
        if member == self._ctx.me:
            return False
        peer = self._ctx.peers.get(member.broker_id)
        progress = self._progress.get(member.broker_id)
        if peer is None or progress is None or not peer.registered or peer.store_id != member.store_id:
            return True
        lag_us = limits.REPLICA_LAG_MS * 1000
        return progress.untrusted or peer.silent_for_us(now) > lag_us or self._lags(progress, now)

    def _lags(self, progress: Progress, now: Now) -> bool:
        """Whether a follower lacks a record that has waited for its commit for too long."""
        if not self._appended:
            return False
        oldest, appended_us = self._appended[0]
        return progress.match < oldest and now.mono_us - appended_us > limits.REPLICA_LAG_MS * 1000

    def _is_level(self, broker_id: str, now: Now) -> bool:
        """Whether a follower has synced this epoch's barrier and all that is committed at this instant.

        A member without which nothing can be committed lacks nothing committed: who lags must not come back by
        that alone (its process answers, its disk hangs), in the very change that puts it out.
        """
        progress, peer = self._progress[broker_id], self._ctx.peers.get(broker_id)
        return (
            peer is not None
            and peer.registered
            and progress.incarnation == peer.incarnation
            and progress.match >= max(self.barrier, self._replica.commit)
            and not self._lags(progress, now)
            and peer.silent_for_us(now) <= limits.REPLICA_LAG_MS * 500
        )

    def _change_isr(self, now: Now) -> None:
        if self._in_flight is not None or self._ctx.coordinator is not CoordinatorState.CONNECTED:
            return
        node = self.node
        stay = [member for member in node.isr if not self._is_out(member, now)]
        names = {member.broker_id for member in stay}
        join = [
            Member(broker_id, self._ctx.peers[broker_id].store_id)
            for broker_id in self._progress
            if broker_id not in names and self._is_level(broker_id, now)
        ]
        wanted = tuple(stay + join)
        if len(wanted) < self._replica.min_isr:
            wanted = node.isr
        if wanted != node.isr or self._settle:
            self.set_node(PartitionNode(node.leader, node.incarnation, self.epoch, wanted))

    def set_node(self, node: PartitionNode) -> None:
        """Compare-and-set the node; from now on both ISRs count."""
        replica = self._replica
        self._in_flight = node
        self.confirmation.begin_anew()
        asked_us = self._ctx.turn.mono_us

        def ended(done: CompareAndSetDone, now: Now) -> None:
            if done.outcome is SetOutcome.DONE:
                self.confirmation.node_was_ours(asked_us)
            self._set_ended(node, done, now)

        self._ctx.compare_and_set(replica.uid, self._standing.node_version, node, ended)
        self._ctx.attend(replica.uid)

    def _set_ended(self, node: PartitionNode, done: CompareAndSetDone, now: Now) -> None:
        replica = self._replica
        self._in_flight = None
        if done.outcome is SetOutcome.DONE:
            self._unknown.clear()
            self._settle = False
            self._standing.node_set(done, node)
            self._ctx.log(
                "info", "partition.isr_changed", uid=replica.uid, epoch=self.epoch, leader=node.leader,
                isr=[member.broker_id for member in node.isr],
            )  # fmt: skip
        elif done.outcome is not SetOutcome.REFUSED:
            if done.outcome is SetOutcome.UNKNOWN:
                self._unknown.update(node.isr)
            self._settle = True
            self._ctx.coordinate(ReadNode(replica.uid))
        if replica.leading is self:
            self._ctx.attend(replica.uid)
            self.advance(now)

    def node_read(self, now: Now) -> None:
        """The node was read and is still ours; its ISR may be one that we had asked for."""
        self.advance(now)
