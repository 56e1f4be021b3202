"""Whether a replica should lead: the partition's node as it is known here, votes, and standing for election.

The node is read when its watch fires, and when a peer knows of a newer one. `Candidacy` is one attempt to lead; this
module decides when to make one, and what its outcome means.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from dueq import limits
from dueq.core.ports.membership import CompareAndSetDone, Member, PartitionNode, ReadNode, SetOutcome
from dueq.core.replication.durable_log import DurableLog
from dueq.core.replication.election import Candidacy
from dueq.core.turn.context import Context
from dueq.core.turn.peers import Peer
from dueq.instant import Now
from dueq_codecs.messages import Vote, VoteRequest


class StandingReplica(Protocol):
    """The replica that may stand (see `Replica`)."""

    ctx: Context
    uid: int
    replicas: tuple[str, ...]
    min_isr: int
    log: DurableLog
    installing: bool
    unproven: bool

    @property
    def is_leader(self) -> bool: ...
    @property
    def is_stopped(self) -> bool: ...

    def lead(self, epoch: int, now: Now) -> None:
        """A takeover is known to have succeeded."""
        ...


class Standing:
    """One replica's knowledge of its partition's node, and its attempts to be named there.

    Attributes:
        node, node_version: the partition's node as last read or set.
        candidacy: the present attempt to lead.
    """

    def __init__(self, replica: StandingReplica) -> None:
        self._replica, self.ctx = replica, replica.ctx
        self.uid, self.replicas = replica.uid, replica.replicas
        self.node: PartitionNode | None = None
        self.node_version = -1
        # Since when a newer node than ours is known of, or when it was last asked for (mono µs).
        self._missed_at_us: int | None = None
        self.candidacy: Candidacy | None = None

    @property
    def min_isr(self) -> int:
        """Least number of ISR members for a takeover of one's own accord."""
        return self._replica.min_isr

    # -------------------------------------------------------------- who may lead

    @property
    def isr(self) -> tuple[Member, ...]:
        """The ISR as last seen."""
        return self.node.isr if self.node is not None else ()

    @property
    def in_isr(self) -> bool:
        """Whether the node, as last seen, counts this replica in."""
        return self.node is not None and self.ctx.me in self.node.isr

    @property
    def holds_all(self) -> bool:
        """Whether everything committed is here.

        The only member of the ISR holds all that there is. So it leads although it was just filled, if a person has
        made it the only one.
        """
        replica = self._replica
        return not replica.installing and (not replica.unproven or self._is_sole_member)

    @property
    def _may_lead(self) -> bool:
        """Whether everything committed is here and can be applied, and the mesh's clocks are measured.

        The only member of the ISR leads although it is stopped, until another one has joined.
        """
        can_apply = not self._replica.is_stopped or self._is_sole_member
        return self.in_isr and self.holds_all and can_apply and self.ctx.clock.settled

    @property
    def _is_sole_member(self) -> bool:
        return self.node is not None and self.node.isr == (self.ctx.me,)

    def leader_lost(self, now: Now) -> bool:
        """Whether, as far as this broker can tell, no replica leads."""
        if self._replica.is_leader or self.node is None:
            return False
        if self.leader_gone():
            return True
        return self.ctx.is_silent(self.ctx.peers[self.node.leader], now)

    def leader_gone(self) -> bool:
        """Whether the leader has given up, or its registration is gone or is another life's."""
        node = self.node
        if node is None or node.leader == "" or node.leader == self.ctx.settings.broker_id:
            return True
        peer = self.ctx.peers.get(node.leader)
        return peer is None or not peer.registered or peer.incarnation != node.incarnation

    # -------------------------------------------------------------- the node

    def node_seen(self, version: int, node: PartitionNode) -> bool:
        """Take a node that was read; False where a newer one is known."""
        if version < self.node_version:
            return False
        self.node, self.node_version, self._missed_at_us = _with_our_disk(node, self.ctx.me), version, None
        return True

    def node_set(self, done: CompareAndSetDone, wanted: PartitionNode) -> None:
        """Our compare-and-set is known to have succeeded."""
        if done.version >= self.node_version:
            self.node, self.node_version, self._missed_at_us = wanted, done.version, None

    def _newer_node(self, now: Now) -> None:
        """Somebody knows a newer node than ours."""
        if self._missed_at_us is None:
            self._missed_at_us = now.mono_us
            self.ctx.attend(self.uid)

    def _misses_node(self) -> bool:
        """Whether there is a newer node than ours: who leads by that one is not known yet."""
        newer = self._missed_at_us is not None
        return self.node is not None and (newer or self._replica.log.epoch > self.node.epoch)

    def _wait_for_node(self, now: Now) -> None:
        """The node's watch will tell; where it has not for a while, ask."""
        if self._missed_at_us is None:
            self._missed_at_us = now.mono_us
        elif now.mono_us - self._missed_at_us >= limits.RESEND_MS * 1000:
            self._missed_at_us = now.mono_us
            self.ctx.coordinate(ReadNode(self.uid))

    # -------------------------------------------------------------- votes

    def vote_requested(self, peer: Peer, request: VoteRequest, now: Now) -> None:
        """Raft's pre-vote: consent only if the leader is lost to us too and our log is not later.

        A replica that is being installed is nobody, one that is not proven does not refuse, and one that is stopped
        does not for its later log: each would keep a member that holds everything from leading, and not lead itself.
        """
        replica, node = self._replica, self.node
        if replica.installing:
            return
        own = self.last()
        lacks = (request.last_epoch, request.last_sequence) < own and not replica.is_stopped
        current = node is not None and request.epoch == node.epoch and replica.log.epoch <= request.epoch
        lost = node is not None and (node.leader == peer.broker_id or self.leader_lost(now))
        consent = current and lost and not replica.is_leader and not lacks
        if node is not None and request.epoch > node.epoch:
            if replica.is_leader:
                self.ctx.coordinate(ReadNode(self.uid))
            else:
                self._newer_node(now)
        if consent or not replica.unproven:
            peer.votes.append(Vote(self.uid, request.round, consent, *own))

    def last(self) -> tuple[int, int]:
        """Epoch and sequence of the log's last record."""
        log = self._replica.log
        return log.last_epoch, log.end

    def vote_received(self, peer: Peer, vote: Vote, now: Now) -> None:
        """An answer to our pre-vote."""
        if self.candidacy is not None:
            self.candidacy.vote_received(peer, vote, now)

    # -------------------------------------------------------------- candidacies

    def tick(self, now: Now) -> bool:
        """Stand for election when the leader is lost; returns whether it is."""
        if not self._may_lead or not self.leader_lost(now):
            if not self.under_way:
                self.candidacy = None
            return False
        if self.candidacy is None:
            if self._misses_node():
                self._wait_for_node(now)
                return True
            self.candidacy = Candidacy(self, now)
        self.candidacy.tick(now)
        return True

    @property
    def under_way(self) -> bool:
        """Whether it has asked the coordinator to make it leader, and does not know the outcome yet."""
        return self.candidacy is not None and not self.candidacy.idle

    def withdraw(self) -> None:
        """Somebody leads: stand no more."""
        self.candidacy = None

    def candidacy_ended(self, done: CompareAndSetDone, version: int, wanted: PartitionNode, now: Now) -> None:
        """The takeover's compare-and-set ended, one way or another."""
        self.candidacy = None
        if done.outcome is SetOutcome.DONE:
            self.node_set(done, wanted)
            # Where a newer node is known by now, that one says who leads.
            if self.node is wanted and wanted.epoch > self._replica.log.epoch:
                self._replica.lead(wanted.epoch, now)
        elif done.outcome is SetOutcome.BAD_VERSION:
            if self.node_version == version:
                self._newer_node(now)
        elif done.outcome is SetOutcome.UNKNOWN:
            self.ctx.coordinate(ReadNode(self.uid))


def _with_our_disk(node: PartitionNode, me: Member) -> PartitionNode:
    """Return a node with the disk that we have now, if nobody has ever led: an older one had nothing either.

    Whoever made the partition may not have known yet that our disk was replaced.
    """
    if node.epoch or me in node.isr:
        return node
    isr = tuple(me if member.broker_id == me.broker_id else member for member in node.isr)
    return replace(node, isr=isr)
