"""One replica of one partition's log: following, being elected, leading.

The rules are those of docs/explanation/replication.md. In short: log matching as in Raft (§5.3) with KIP-279's
answer for epochs; the largest epoch that this replica has led or followed in is synced before it acks or, as a
leader, sends anything in that epoch; a record is committed when every member of the maximal ISR has it synced.

This class owns the log, the epoch and the follower's part; `Leading` exists while it leads, `Candidacy` while it
tries to. What the records mean is its owner's business.
"""

from __future__ import annotations

from typing import Protocol

from dueq import limits
from dueq.core.ports.membership import CompareAndSetDone, PartitionNode, ReadNode, SetOutcome
from dueq.core.ports.persistence import AppendLog, MarkProven, RecoveredPartition, SaveMeta, TruncateLog
from dueq.core.replication.election import Candidacy
from dueq.core.replication.leading import Leading
from dueq.core.replication.log import ReplicaLog
from dueq.core.replication.stopped import Stopped
from dueq.core.turn.context import Context
from dueq.core.turn.peers import Peer
from dueq.errors import invariant
from dueq.instant import Now
from dueq_codecs.messages import Ack, Append, Fence, Leadership, Mismatch, Vote, VoteRequest
from dueq_codecs.records import LogEntry


class ReplicaOwner(Protocol):
    """What the replica tells the partition it belongs to.

    Attributes:
        broken: why the log is not applied any more, "" while it is.
    """

    broken: str

    def appended(self, entries: list[LogEntry], now: Now) -> None:
        """Entries are at the end of the log (not yet synced, not yet committed)."""

    def truncated(self, entries: list[LogEntry]) -> None:
        """These uncommitted entries were cut from the log."""

    def committed(self, now: Now) -> None:
        """The commit position has moved."""

    def leadership_lost(self, now: Now) -> None:
        """Whoever waits for a commit must be told that its outcome is unknown."""

    def missing_upload(self, entry: LogEntry, leader: str) -> bool:
        """Whether the entry names an upload of which chunks are missing here (and asks the leader for them)."""

    def offer_snapshot(self, peer: Peer) -> None:
        """The follower lacks records that this leader's log no longer holds."""


class Replica:
    """The replication state of one partition at this broker.

    Attributes:
        epoch: the largest epoch led or followed in; never falls; synced with whatever depends on it.
        commit: records up to here are committed; never falls while the process lives.
        synced: records up to here are on this disk.
        verified: records up to here are known to equal those of the leader of `epoch`.
        leader: broker id of the leader of `epoch`, or "" while it is not known.
        node, node_version: the partition's node as last read or set.
        installing: this replica is being filled from a snapshot: it is nobody.
        unproven: it was filled, and may lack what was committed after the snapshot: it does not lead. It is proven
            once it holds a record of its leader's own epoch that is committed: nothing before that one is missing,
            and if it is in the ISR, nothing after it was committed without its ack.
        acked_at_us: (mono) its last ack; at the latest its start, as nothing is known of the life before.
    """

    def __init__(
        self,
        ctx: Context,
        uid: int,
        replicas: tuple[str, ...],
        min_isr: int,
        recovered: RecoveredPartition | None,
        owner: ReplicaOwner,
    ) -> None:
        self.ctx, self.uid, self.replicas, self.min_isr = ctx, uid, replicas, min_isr
        self._owner = owner
        self.node: PartitionNode | None = None
        self.node_version = -1
        # Since when a newer node than ours is known of, or when it was last asked for (mono µs).
        self._missed_at_us: int | None = None
        self.leading: Leading | None = None
        self.candidacy: Candidacy | None = None
        self.stopped = Stopped(self)
        self.leader = ""
        self.acked_at_us = ctx.turn.mono_us
        self._dirty = False
        self.reset(recovered)

    def reset(self, recovered: RecoveredPartition | None) -> None:
        """Begin from what the store holds (at start, and after a snapshot was installed)."""
        self.installing = recovered is not None and (recovered.installing or bool(recovered.damaged))
        self.unproven = recovered is not None and recovered.unproven
        if recovered is None or recovered.damaged:
            self.log = ReplicaLog()
            self.epoch = 0 if recovered is None else recovered.epoch
            self.commit = 0
        else:
            self.log = self._restored_log(recovered)
            self.epoch = max(recovered.epoch, self.log.last_epoch)
            self.commit = max(recovered.commit, recovered.applied)
        self.durable_epoch = self.epoch
        self.synced = self.log.end
        self.verified = 0
        self.saved_commit = self.commit
        self._new_entries: list[LogEntry] = []
        self._pending: list[list[int]] = []
        self._acked = (0, 0, 0)

    def wiped(self) -> None:
        """Its data goes, to be filled anew: what was appended in this turn must not be written after that."""
        self.installing, self.unproven = True, False
        self._new_entries = []

    def raise_epoch(self, epoch: int) -> None:
        """The epoch had been raised further before `reset`: it must be saved again."""
        if epoch > self.epoch:
            self.epoch = epoch
            self._dirty = True

    @staticmethod
    def _restored_log(recovered: RecoveredPartition) -> ReplicaLog:
        held_from = recovered.tail[0].record.sequence if recovered.tail else recovered.log_end + 1
        epochs = recovered.epochs[:1] + [pair for pair in recovered.epochs[1:] if pair[1] < held_from]
        log = ReplicaLog(recovered.log_start, held_from - 1, epochs)
        for entry in recovered.tail:
            log.append(entry)
        return log

    # -------------------------------------------------------------- who am I

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition (serving or not yet)."""
        return self.leading is not None

    @property
    def role(self) -> str:
        """What it is just now, as one word for people."""
        if self._owner.broken:
            return "stopped"
        if self.is_leader:
            return "leader"
        return "installing" if self.installing else "unproven" if self.unproven else "follower"

    @property
    def serving(self) -> bool:
        """Whether it leads and has applied its barrier."""
        return self.leading is not None and self.leading.serving

    @property
    def in_isr(self) -> bool:
        """Whether the node, as last seen, counts this replica in."""
        return self.node is not None and self.ctx.me in self.node.isr

    @property
    def _may_lead(self) -> bool:
        """Whether everything committed is here and can be applied, and the mesh's clocks are measured.

        An only member of the ISR leads all the same, with all that there is: filled, where a person has made it the
        only one; stopped, until another one has joined.
        """
        whole = not self.unproven and not self._owner.broken
        return (
            self.in_isr and not self.installing and (whole or self._is_sole_member) and self.ctx.clock.settled
        )

    @property
    def _is_sole_member(self) -> bool:
        return self.node is not None and self.node.isr == (self.ctx.me,)

    def leader_lost(self, now: Now) -> bool:
        """Whether, as far as this broker can tell, nobody leads."""
        if self.leading is not None or self.node is None:
            return False
        if self.leader_gone():
            return True
        peer = self.ctx.peers[self.node.leader]
        return peer.silent_for_us(now) > limits.LEADER_SILENCE_MS * 1000

    def leader_gone(self) -> bool:
        """Whether the leader has given up, or its registration is gone or is another life's."""
        node = self.node
        if node is None or node.leader == "" or node.leader == self.ctx.settings.broker_id:
            return True
        peer = self.ctx.peers.get(node.leader)
        return peer is None or not peer.registered or peer.incarnation != node.incarnation

    # -------------------------------------------------------------- following

    def append_received(self, peer: Peer, append: Append, now: Now) -> None:
        """Log matching: verify, truncate only what differs, append, follow the commit position."""
        if append.epoch < self.epoch:
            peer.fence(Fence(self.uid, self.epoch))
            return
        invariant(
            self.leading is None or append.epoch > self.leading.epoch,
            "one epoch has one leader",
            uid=self.uid, epoch=append.epoch, other=peer.broker_id,
        )  # fmt: skip
        if append.epoch > self.epoch or self.leader != peer.broker_id:
            self._follow(peer.broker_id, append.epoch, now)
        if self.installing:
            self.tell_position(peer, append.epoch, append.previous_epoch)
            return
        previous, entries = self._above_start(append)
        held = self.log.epoch_at(previous)
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
            self.unproven
            and append.commit <= self.verified
            and self.log.epoch_at(append.commit) == append.epoch
        ):
            self._prove()
        if not self._dirty:
            self._ack(now, asked=bool(append.entries))

    def _above_start(self, append: Append) -> tuple[int, list[LogEntry]]:
        """Skip what lies before the log's start: it was committed, so every leader's records equal ours."""
        previous, entries = append.previous_sequence, append.entries
        if previous >= self.log.start - 1:
            return previous, entries
        skip = min(len(entries), self.log.start - 1 - previous)
        return previous + skip, entries[skip:]

    def tell_position(self, peer: Peer, epoch: int, asked_epoch: int) -> None:
        """Tell the leader of `epoch` where this log ends, as a whole and in the largest epoch up to the asked one."""
        known_epoch, known_end = self.log.epoch_not_above(asked_epoch)
        peer.mismatches.append(
            Mismatch(self.uid, epoch, self.log.end, known_epoch, known_end, self.installing)
        )

    def _take(self, previous: int, entries: list[LogEntry], now: Now) -> int:
        """Append what is new of `entries`; returns the sequence up to which the log now equals the leader's."""
        end = previous
        fresh: list[LogEntry] = []
        for entry in entries:
            record = entry.record
            if record.sequence <= self.log.end:
                if self.log.epoch_at(record.sequence) == record.epoch:
                    end = record.sequence
                    continue
                self._truncate(record.sequence)
            if self._owner.missing_upload(entry, self.leader):
                break
            self.log.append(entry)
            fresh.append(entry)
            end = record.sequence
        if fresh:
            self._appended(fresh, now)
        return end

    def _truncate(self, from_sequence: int) -> None:
        invariant(
            from_sequence > self.commit, "a committed record is never cut",
            uid=self.uid, at=from_sequence, commit=self.commit, epoch=self.epoch,
        )  # fmt: skip
        invariant(
            self.log.epoch_at(from_sequence) != self.epoch, "a record of the current epoch is never cut",
            uid=self.uid, at=from_sequence, epoch=self.epoch,
        )  # fmt: skip
        self._flush_entries()
        cut = self.log.truncate(from_sequence)
        self.synced = min(self.synced, from_sequence - 1)
        self.verified = min(self.verified, from_sequence - 1)
        for pending in self._pending:
            pending[0] = min(pending[0], from_sequence - 1)
        self.ctx.persist(TruncateLog(self.uid, from_sequence))
        self._dirty = True
        self._owner.truncated(cut)
        self.ctx.log("info", "log.truncated", uid=self.uid, from_sequence=from_sequence, epoch=self.epoch)

    def _appended(self, entries: list[LogEntry], now: Now) -> None:
        self._new_entries.extend(entries)
        self._dirty = True
        self._owner.appended(entries, now)

    def _flush_entries(self) -> None:
        if self._new_entries:
            self.ctx.persist(AppendLog(self.uid, self._new_entries))
            self._new_entries = []

    def _prove(self) -> None:
        """Nothing is missing (any more): it may lead, and is not acked before that is on the disk."""
        self.unproven = False
        self._flush_entries()
        self.ctx.persist(MarkProven(self.uid))
        self._dirty = True
        self.ctx.attend(self.uid)
        self.ctx.log("info", "replica.proven", uid=self.uid, commit=self.commit, epoch=self.epoch)

    def _follow_commit(self, told: int, now: Now) -> None:
        """Take over the leader's commit position, for as much as is known to equal its log."""
        self._commit_to(min(told, self.verified), now)

    def _commit_to(self, sequence: int, now: Now) -> None:
        if sequence > self.commit:
            self.commit = sequence
            self._owner.committed(now)

    def follows(self, peer: Peer, epoch: int, now: Now) -> bool:
        """Whether the peer leads, as far as this replica can tell; a newer epoch, or a first word, settles it."""
        if epoch < self.epoch or (self.is_leader and epoch == self.epoch):
            return False
        if epoch > self.epoch or not self.leader:
            self._follow(peer.broker_id, epoch, now)
        return self.leader == peer.broker_id

    def _follow(self, leader: str, epoch: int, now: Now) -> None:
        if self.leading is not None:
            self._lose_leadership(now, "a newer epoch was seen")
        self.candidacy = None
        if epoch > self.epoch:
            self._take_back_ack()
            self.epoch = epoch
            self.verified = 0
            self._dirty = True
        self.leader = leader
        if self._owner.broken:
            self.stopped.decline()
        self.ctx.log("info", "partition.followed", uid=self.uid, leader=leader, epoch=epoch)

    def _ack(self, now: Now, asked: bool) -> None:
        """Tell the leader what is synced and verified; unasked repeats only after a while."""
        if self.leading is not None or self.durable_epoch != self.epoch or not self.leader or self.installing:
            return
        sequence = min(self.synced, self.verified)
        said = (self.epoch, sequence)
        quiet = now.mono_us - self._acked[2] < limits.RESEND_MS * 500
        if not asked and said == self._acked[:2] and quiet:
            return
        self._acked = (*said, now.mono_us)
        self.acked_at_us = now.mono_us
        self.ctx.peers[self.leader].acks[self.uid] = Ack(self.uid, self.epoch, sequence)

    def _take_back_ack(self) -> None:
        """The epoch rises: an ack of the older one must not leave with a frame that echoes what came since."""
        if (peer := self.ctx.peers.get(self.leader)) is not None:
            peer.acks.pop(self.uid, None)

    # -------------------------------------------------------------- durability

    def end_turn(self, now: Now) -> None:
        """Order this turn's writes; what depends on them happens when they are synced."""
        if not self._dirty:
            return
        self._dirty = False
        self._flush_entries()
        self.ctx.persist(SaveMeta(self.uid, self.epoch, self.commit))
        self.saved_commit = self.commit
        pending, epoch, log = [self.log.end], self.epoch, self.log
        self._pending.append(pending)

        def synced(then: Now) -> None:
            if log is not self.log:
                return
            self._pending.remove(pending)
            self.synced = max(self.synced, pending[0])
            self.durable_epoch = max(self.durable_epoch, epoch)
            if self.leading is not None:
                self.leading.synced(then)
            else:
                self._ack(then, asked=True)

        self.ctx.when_persisted(synced)

    # -------------------------------------------------------------- leading

    def lead(self, epoch: int, now: Now) -> None:
        """The compare-and-set that made this broker leader of `epoch` is known to have succeeded."""
        invariant(
            epoch > self.epoch, "a takeover raises the epoch", uid=self.uid, epoch=epoch, own=self.epoch
        )
        if self.leading is not None:
            self._lose_leadership(now, "led again")
        self.candidacy = None
        self._take_back_ack()
        self.epoch = epoch
        self.leader = self.ctx.settings.broker_id
        self._dirty = True
        if self.unproven:
            self._prove()
        self.ctx.metrics.elections += 1
        self.leading = Leading(self, epoch, now)
        self.ctx.log("info", "partition.led", uid=self.uid, epoch=epoch, end=self.log.end)
        self.leading.begin(now)

    def append_own(self, entry: LogEntry, now: Now) -> None:
        """Leader: put a record of the present epoch at the end of the log."""
        self.log.append(entry)
        self._appended([entry], now)

    def offer_snapshot(self, peer: Peer) -> None:
        """Leader: have the follower ask for a snapshot."""
        self._owner.offer_snapshot(peer)

    def leader_commit(self, sequence: int, now: Now) -> None:
        """Leader: every member of the maximal ISR has synced up to `sequence`."""
        self._commit_to(sequence, now)

    def _lose_leadership(self, now: Now, why: str) -> None:
        leading, self.leading = self.leading, None
        if leading is None:
            return
        self.leader = ""
        self.verified = 0
        self.tell_leadership(leading.epoch, leads=False, serving=False)
        self.ctx.log("info", "partition.leadership_lost", uid=self.uid, epoch=leading.epoch, why=why)
        self._owner.leadership_lost(now)

    def close(self) -> None:
        """The partition is deleted: neither lead nor follow nor stand."""
        self.leading = self.candidacy = None
        self.leader = ""

    def give_up(self, now: Now, why: str) -> None:
        """Stop leading of one's own accord; the node says so as soon as the coordinator takes it."""
        leading = self.leading
        if leading is None:
            return
        if self.node is not None:
            given_up = PartitionNode("", 0, leading.epoch, self.node.isr)
            leading.set_node(given_up)
        self._lose_leadership(now, why)

    def tell_leadership(self, epoch: int, *, leads: bool, serving: bool) -> None:
        """Tell every peer who leads, until it has heard."""
        for peer in self.ctx.peers.values():
            peer.tell_leadership(Leadership(self.uid, epoch, leads, serving))

    def fenced(self, fence: Fence, now: Now) -> None:
        """A peer is in a newer epoch: whoever leads here with less has been replaced."""
        if self.leading is not None and fence.epoch > self.leading.epoch:
            self._lose_leadership(now, "fenced by a newer epoch")
            self.ctx.coordinate(ReadNode(self.uid))

    # -------------------------------------------------------------- the node

    def node_seen(self, version: int, node: PartitionNode, now: Now) -> None:
        """The partition's node was read."""
        if version < self.node_version:
            return
        self.node, self.node_version, self._missed_at_us = node, version, None
        mine = (
            node.leader == self.ctx.settings.broker_id and node.incarnation == self.ctx.settings.incarnation
        )
        if self.leading is not None:
            if mine and node.epoch == self.leading.epoch:
                self.leading.node_read(now)
            else:
                self._lose_leadership(now, "the node names another leadership")
        elif mine and node.epoch > self.epoch:
            # A takeover whose reply was lost (protocol case V3).
            self.lead(node.epoch, now)

    def node_set(self, done: CompareAndSetDone, wanted: PartitionNode, now: Now) -> None:
        """Our compare-and-set is known to have succeeded."""
        if done.version >= self.node_version:
            self.node, self.node_version, self._missed_at_us = wanted, done.version, None

    def candidacy_ended(self, done: CompareAndSetDone, version: int, wanted: PartitionNode, now: Now) -> None:
        """The takeover's compare-and-set ended, one way or another."""
        self.candidacy = None
        if done.outcome is SetOutcome.DONE:
            self.node_set(done, wanted, now)
            if wanted.epoch > self.epoch:
                self.lead(wanted.epoch, now)
        elif done.outcome is SetOutcome.BAD_VERSION:
            if self.node_version == version:
                self._newer_node(now)
        elif done.outcome is SetOutcome.UNKNOWN:
            self.ctx.coordinate(ReadNode(self.uid))

    # -------------------------------------------------------------- elections

    def vote_requested(self, peer: Peer, request: VoteRequest, now: Now) -> None:
        """Raft's pre-vote: consent only if the leader is lost to us too and our log is not later.

        A replica that is being installed is nobody, one that is not proven does not refuse, and one that is stopped
        does not for its later log: each would keep a member that holds everything from leading, and not lead itself.
        """
        if self.installing:
            return
        node = self.node
        own = (self.log.last_epoch, self.log.end)
        lacks = (request.last_epoch, request.last_sequence) < own and not self._owner.broken
        current = node is not None and request.epoch == node.epoch and self.epoch <= request.epoch
        lost = node is not None and (node.leader == peer.broker_id or self.leader_lost(now))
        consent = current and lost and self.leading is None and not lacks
        if node is not None and request.epoch > node.epoch:
            if self.leading is not None:
                self.ctx.coordinate(ReadNode(self.uid))
            else:
                self._newer_node(now)
        if consent or not self.unproven:
            peer.votes.append(Vote(self.uid, request.round, consent, *own))

    def vote_received(self, peer: Peer, vote: Vote, now: Now) -> None:
        """An answer to our pre-vote."""
        if self.candidacy is not None:
            self.candidacy.vote_received(peer, vote, now)

    def tick(self, now: Now) -> bool:
        """Periodic care; returns whether this partition wants more of it soon.

        An election when the leader is lost; membership and resends when leading.
        """
        resigning = bool(self._owner.broken) and self.stopped.tick(now)
        if self.leading is not None:
            return self.leading.tick(now)
        if not self._may_lead or not self.leader_lost(now):
            self.candidacy = None if self.candidacy is None or self.candidacy.idle else self.candidacy
            return resigning
        if self.candidacy is None:
            if self._misses_node():
                self._wait_for_node(now)
                return True
            self.candidacy = Candidacy(self, now)
        self.candidacy.tick(now)
        return True

    def _newer_node(self, now: Now) -> None:
        """Somebody knows a newer node than ours."""
        if self._missed_at_us is None:
            self._missed_at_us = now.mono_us
            self.ctx.attend(self.uid)

    def _misses_node(self) -> bool:
        """Whether there is a newer node than ours: who leads by that one is not known yet."""
        return self.node is not None and (self._missed_at_us is not None or self.epoch > self.node.epoch)

    def _wait_for_node(self, now: Now) -> None:
        """The node's watch will tell; where it has not for a while, ask."""
        if self._missed_at_us is None:
            self._missed_at_us = now.mono_us
        elif now.mono_us - self._missed_at_us >= limits.RESEND_MS * 1000:
            self._missed_at_us = now.mono_us
            self.ctx.coordinate(ReadNode(self.uid))
