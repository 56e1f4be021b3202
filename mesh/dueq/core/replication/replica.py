"""One replica of one partition's log: following, being elected, leading.

The rules are those of docs/explanation/replication.md. In short: log matching is as in Raft (§5.3), with KIP-279's
answer for epochs. The largest epoch in which this replica has led or followed is synced before it acks in that epoch
or, as its leader, sends anything. A record is committed when every member of the maximal ISR has synced it.

This class owns the log, the epoch and the follower's part; `Leading` exists while it leads, `Candidacy` while it
tries to. The meaning of the records is its owner's business.
"""

from __future__ import annotations

from typing import Protocol

from dueq.core.ports.membership import Member, PartitionNode, ReadNode
from dueq.core.ports.persistence import MarkProven, RecoveredPartition
from dueq.core.replication.durable_log import DurableLog
from dueq.core.replication.following import Following, LogOwner
from dueq.core.replication.leading import Leading
from dueq.core.replication.resigning import Resignation
from dueq.core.replication.standing import Standing
from dueq.core.replication.stopped import Stopped
from dueq.core.turn.context import Context
from dueq.core.turn.peers import Peer
from dueq.errors import invariant
from dueq.instant import Now
from dueq_codecs.messages import Ack, Append, Fence, Leadership, Mismatch, Vote, VoteRequest
from dueq_codecs.records import LogEntry, Record


class ReplicaOwner(LogOwner, Protocol):
    """The replica's reports to the partition it belongs to.

    Attributes:
        broken: why the log is not applied any more, "" while it is.
    """

    broken: str

    def committed(self, now: Now) -> None:
        """The commit position has moved."""

    def leadership_lost(self, now: Now) -> None:
        """Clients that wait for a commit must be told that its outcome is unknown."""

    def offer_snapshot(self, peer: Peer) -> None:
        """The follower lacks records that this leader's log no longer holds."""

    def missed_record(self, peer: Peer, sequence: int, now: Now) -> None:
        """The disk does not give a record of the log that the follower lacks."""

    def level_of_all(self) -> int:
        """Return the feature level that every assigned replica has announced; 0: nothing is known of one."""
        ...


class Replica:
    """The replication state of one partition at this broker.

    Attributes:
        log: its log, with the epoch and the commit position.
        leader: broker id of the leader of the epoch, or "" while it is not known.
        following: what it does with what that leader sends.
        standing: what it knows of the partition's node, and its attempts to lead.
        leading: its leadership, while it has one.
        installing: this replica is being filled from a snapshot: its data is not usable.
        unproven: it was filled, and may lack what was committed after the snapshot: it does not lead. It is proven
            once it holds a record of its leader's own epoch that is committed: nothing before that one is missing,
            and if it is in the ISR, nothing after it was committed without its ack.
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
        self.leading: Leading | None = None
        self.leader = ""
        self._read_back(recovered)
        self.standing = Standing(self)
        self.following = Following(self, owner)
        self.stopped = Stopped(self)
        self._resignation = Resignation(self, self.standing)

    def _read_back(self, recovered: RecoveredPartition | None) -> None:
        self.installing = recovered is not None and (recovered.installing or bool(recovered.damaged))
        self.unproven = recovered is not None and recovered.unproven
        self.log = DurableLog(self.ctx, self.uid, recovered)

    def installed(self, recovered: RecoveredPartition) -> None:
        """Go on from what the store holds, now that a snapshot was installed."""
        epoch = self.log.epoch
        self._read_back(recovered)
        self.log.raise_epoch(epoch)
        self.following.begin_anew()

    def wiped(self) -> None:
        """Its data goes, to be filled anew."""
        self.installing, self.unproven = True, False
        self.standing.withdraw()
        self.log.wiped()

    # -------------------------------------------------------------- who am I

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition (serving or not yet)."""
        return self.leading is not None

    @property
    def role(self) -> str:
        """Its present role, as one word for people."""
        if self.trouble:
            return "stopped"
        if self.is_leader:
            return "leader"
        return "installing" if self.installing else "unproven" if self.unproven else "follower"

    @property
    def serving(self) -> bool:
        """Whether it leads and has applied its barrier."""
        return self.leading is not None and self.leading.serving

    @property
    def is_stopped(self) -> bool:
        """Whether it has met a record that it cannot apply."""
        return bool(self._owner.broken)

    @property
    def trouble(self) -> str:
        """Why it does not go on with what a newer build wrote; "" while it does."""
        return self._owner.broken or ("" if self.is_leader else self.following.unreadable)

    @property
    def is_standing(self) -> bool:
        """Whether it has asked the coordinator to make it leader, and does not know the outcome yet."""
        return self.standing.under_way

    @property
    def node(self) -> PartitionNode | None:
        """The partition's node as last seen."""
        return self.standing.node

    @property
    def isr(self) -> tuple[Member, ...]:
        """The ISR as last seen."""
        return self.standing.isr

    @property
    def acked_at_us(self) -> int:
        """(mono) Its last ack; at the latest its start, as nothing is known of the life before."""
        return self.following.acked_at_us

    # -------------------------------------------------------------- the log

    @property
    def epoch(self) -> int:
        """The largest epoch led or followed in."""
        return self.log.epoch

    @property
    def commit(self) -> int:
        """Records up to here are committed."""
        return self.log.commit

    @property
    def synced(self) -> int:
        """Records up to here are on this disk."""
        return self.log.synced

    @property
    def durable_epoch(self) -> int:
        """The epoch on this disk."""
        return self.log.durable_epoch

    @property
    def end(self) -> int:
        """The last sequence of the log."""
        return self.log.end

    @property
    def last_epoch(self) -> int:
        """The epoch of the log's last record."""
        return self.log.last_epoch

    def entry(self, sequence: int) -> LogEntry | None:
        """Return a record of the log that is still in memory."""
        return self.log.get(sequence)

    @property
    def cached_bytes(self) -> int:
        """What the records in memory weigh there."""
        return self.log.cached_bytes

    def can_go_on_from(self, sequence: int, epoch: int) -> bool:
        """Whether it holds this record, so that a leader whose log begins after it needs to send no snapshot."""
        if self.installing or sequence > self.log.end:
            return False
        return sequence < self.log.start - 1 or self.log.epoch_at(sequence) == epoch

    def trim(self, limit: int, now: Now) -> int:
        """Give up the log before `limit`, but for what followers need and a bounded reserve.

        Returns:
            The first sequence that is still held; 0 when nothing was given up.
        """
        if self.leading is not None:
            limit = min(limit, self.leading.followers.lowest_needed(now))
        return self.log.trim_to(limit)

    def shrink_cache(self, applied: int, bytes_max: int) -> None:
        """Limit the weight of the records that are kept in memory; those that are not applied are always kept."""
        # A committed record may not be on this disk yet. Then it could not be read back.
        self.log.shrink_cache(min(applied, self.synced) + 1, bytes_max)

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
        self.following.append_received(peer, append, now)

    def prove(self) -> None:
        """Nothing is missing (any more): it may lead, and is not acked before that is on the disk."""
        self.unproven = False
        self.log.flush()
        self.ctx.persist(MarkProven(self.uid))
        self.log.dirty = True
        self.ctx.attend(self.uid)
        self.ctx.log("info", "replica.proven", uid=self.uid, commit=self.commit, epoch=self.epoch)

    def commit_to(self, sequence: int, now: Now) -> None:
        """Every member of the maximal ISR has synced up to `sequence`, or the leader says so."""
        if sequence > self.log.commit:
            self.log.commit = sequence
            self._owner.committed(now)

    def tell_position(self, peer: Peer, epoch: int) -> None:
        """Tell the leader of this epoch where the log ends."""
        self.following.tell_position(peer, epoch, epoch)

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
        self.standing.withdraw()
        if epoch > self.epoch:
            self.following.take_back_ack()
            self.log.raise_epoch(epoch)
            self.following.forget_leader()
        self.leader = leader
        if self.is_stopped:
            self.stopped.decline()
        self.ctx.log("info", "partition.followed", uid=self.uid, leader=leader, epoch=epoch)

    # -------------------------------------------------------------- durability

    def end_turn(self, now: Now) -> None:
        """Order this turn's writes; what depends on them happens when they are synced."""
        if self.log.dirty:
            log = self.log
            log.save(lambda then: self._saved(log, then))

    def _saved(self, log: DurableLog, now: Now) -> None:
        if log is not self.log:
            return
        if self.leading is not None:
            self.leading.synced(now)
        else:
            self.following.ack(now, asked=True)

    # -------------------------------------------------------------- leading

    def lead(self, epoch: int, now: Now) -> None:
        """The compare-and-set that made this broker leader of `epoch` is known to have succeeded.

        It does not lead if it has lost its data meanwhile.
        """
        invariant(
            epoch > self.epoch, "a takeover raises the epoch", uid=self.uid, epoch=epoch, own=self.epoch
        )
        if not self.standing.holds_all:
            # It was wiped after it had asked. So the answer comes too late; the next tick resigns.
            self.ctx.attend(self.uid)
            return
        if self.leading is not None:
            self._lose_leadership(now, "led again")
        self.standing.withdraw()
        self.following.take_back_ack()
        self.log.raise_epoch(epoch)
        self.leader = self.ctx.settings.broker_id
        if self.unproven:
            self.prove()
        self.ctx.metrics.elections += 1
        self.leading = Leading(self, self.standing, epoch, now)
        self.ctx.log("info", "partition.led", uid=self.uid, epoch=epoch, end=self.log.end)
        self.leading.begin(now)

    def append(self, record: Record, body: bytes | memoryview, now: Now) -> LogEntry:
        """Leader: make a record the next one of the present epoch; its sequence, epoch and stamp are set here."""
        leading = self.leading
        assert leading is not None
        record.sequence, record.epoch = self.log.end + 1, self.epoch
        # Mesh time: a clock that is ahead must not make messages wait for it.
        record.stamp = self.ctx.clock.mesh_now_us(now) // 1000
        entry = LogEntry(record, body)
        self.append_own(entry, now)
        leading.appended(record.sequence, now)
        return entry

    def append_own(self, entry: LogEntry, now: Now) -> None:
        """Leader: put a record of the present epoch at the end of the log."""
        self.log.append(entry)
        self._owner.appended([entry], now)

    def barrier_applied(self, record: Record) -> bool:
        """Whether the record is this leadership's barrier; if so, it serves from now on."""
        leading = self.leading
        if leading is None or record.sequence != leading.barrier or record.epoch != leading.epoch:
            return False
        leading.serve()
        return True

    def send(self, now: Now) -> None:
        """Leader: send each follower what it lacks; called at the end of a turn."""
        if self.leading is not None:
            self.leading.followers.send_all(now)

    def healthy(self, now: Now) -> bool:
        """Whether it leads, and a new record could commit soon."""
        return self.leading is not None and self.leading.healthy(now)

    def confirmed(self, now: Now) -> bool:
        """Whether it is certain that no other replica has led until lately."""
        return self.leading is not None and self.leading.confirmed(now)

    def confirmed_since(self, since_us: int, now: Now) -> bool:
        """Whether it is certain that no other replica had led at this instant (mono)."""
        return self.leading is not None and self.leading.confirmation.holds_since(since_us, now)

    def ask(self, now: Now, since_us: int = 0) -> None:
        """Leader: something waits until that is certain, of an instant (mono) or of a while ago."""
        if self.leading is not None:
            self.leading.ask(now, since_us)

    def in_touch(self, now: Now) -> bool:
        """Whether it leads, and every member of the ISR has answered lately."""
        return self.leading is not None and self.leading.in_touch(now)

    @property
    def busy(self) -> bool:
        """Whether it leads, and a record waits for its commit, or a change of the node for its answer."""
        return self.leading is not None and self.leading.busy

    def could_pass_to(self, broker_id: str, now: Now) -> bool:
        """Whether it serves, and this follower would need nothing to lead in its place."""
        leading = self.leading
        return leading is not None and leading.serving and leading.could_lead(broker_id, now)

    def hand_over(self, now: Now, why: str) -> None:
        """Leader: give up where another member of the ISR could take over."""
        leading = self.leading
        if leading is not None and leading.has_heir() and leading.healthy(now):
            self.give_up(now, why)

    def waited_on(self) -> set[Member]:
        """The members whose acks a commit needs here; none where it does not lead."""
        return self.leading.isr.maximal() if self.leading is not None else set()

    def lag(self) -> dict[str, int] | None:
        """Return how many records each follower lacks; None where it does not lead."""
        return self.leading.followers.lag() if self.leading is not None else None

    def shift(self, gap_us: int) -> None:
        """The process was paused."""
        if self.leading is not None:
            self.leading.shift(gap_us)

    def ack_received(self, peer: Peer, ack: Ack, asked_us: int, now: Now) -> bool:
        """A follower has synced up to there; see `Leading.ack_received`."""
        return self.leading is not None and self.leading.ack_received(peer, ack, asked_us, now)

    def mismatch_received(self, peer: Peer, mismatch: Mismatch, now: Now) -> None:
        """A follower's log differs."""
        if self.leading is not None:
            self.leading.mismatch_received(peer, mismatch, now)

    def declined(self, peer: Peer, said: Leadership) -> bool:
        """Whether a peer that leads nothing says by this that it would not, in this one's place."""
        leading = self.leading
        if leading is None or said.leads or said.epoch != leading.epoch:
            return False
        leading.declined(peer)
        return True

    def installed_to(self, broker_id: str, applied: int) -> None:
        """Leader: the last part of a snapshot of record `applied` was read out for this follower."""
        if self.leading is not None:
            self.leading.followers.installed_to(broker_id, applied)

    def introduce(self, peer: Peer) -> None:
        """Tell a new life of a peer, if it leads."""
        if self.leading is not None:
            peer.tell_leadership(Leadership(self.uid, self.leading.epoch, True, self.leading.serving))

    def level_of_all(self) -> int:
        """Return the feature level that every assigned replica has announced; 0: nothing is known of one."""
        return self._owner.level_of_all()

    def offer_snapshot(self, peer: Peer) -> None:
        """Leader: have the follower ask for a snapshot."""
        self._owner.offer_snapshot(peer)

    def missed_record(self, peer: Peer, sequence: int, now: Now) -> None:
        """Leader: the disk does not give a record of the log that the follower lacks."""
        self._owner.missed_record(peer, sequence, now)

    def _lose_leadership(self, now: Now, why: str) -> None:
        leading, self.leading = self.leading, None
        if leading is None:
            return
        self.leader = ""
        self.following.forget_leader()
        self.tell_leadership(leading.epoch, leads=False, serving=False)
        self.ctx.log("info", "partition.leadership_lost", uid=self.uid, epoch=leading.epoch, why=why)
        self._owner.leadership_lost(now)

    def close(self) -> None:
        """The partition is deleted: neither lead nor follow nor stand."""
        self.leading = None
        self.standing.withdraw()
        self.leader = ""

    def give_up(self, now: Now, why: str) -> None:
        """Stop leading of one's own accord; the node says so as soon as the coordinator takes it."""
        self._lose_leadership(now, why)
        self._resignation.tick()

    def tell_leadership(self, epoch: int, *, leads: bool, serving: bool) -> None:
        """Tell every peer who leads, until it has heard."""
        for peer in self.ctx.peers.values():
            peer.tell_leadership(Leadership(self.uid, epoch, leads, serving))

    def fenced(self, fence: Fence, now: Now) -> None:
        """A peer is in a newer epoch: a leadership here with a lower one has been replaced."""
        if self.leading is not None and fence.epoch > self.leading.epoch:
            self._lose_leadership(now, "fenced by a newer epoch")
            self.ctx.coordinate(ReadNode(self.uid))

    # -------------------------------------------------------------- the node

    def node_seen(self, version: int, node: PartitionNode, now: Now) -> None:
        """The partition's node was read."""
        if not self.standing.node_seen(version, node):
            return
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

    # -------------------------------------------------------------- elections

    def decline(self) -> None:
        """It has met a record that it cannot apply: tell the leader not to hand the partition over to it."""
        self.stopped.decline()

    def vote_requested(self, peer: Peer, request: VoteRequest, now: Now) -> None:
        """A peer asks whether it may stand."""
        self.standing.vote_requested(peer, request, now)

    def vote_received(self, peer: Peer, vote: Vote, now: Now) -> None:
        """A peer has answered."""
        self.standing.vote_received(peer, vote, now)

    def tick(self, now: Now) -> bool:
        """Periodic care; returns whether this partition wants more of it soon.

        An election when the leader is lost; membership and resends when leading.
        """
        if self.is_stopped:
            self.stopped.tick(now)
        if self.leading is not None:
            return self.leading.tick(now)
        # It stands only once nobody is named: those that it has given up for have to know of it, too.
        return self._resignation.tick() or self.standing.tick(now)
