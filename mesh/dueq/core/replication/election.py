"""Becoming leader: wait one's turn, ask the other members (Raft's pre-vote, thesis §9.6), compare-and-set.

A vote is no promise and is not stored: safety comes from the compare-and-set on a node whose ISR contains the
new leader (docs/explanation/replication.md). The pre-vote only keeps replicas from trying that would lose records, or
that alone cannot hear a living leader.
"""

from __future__ import annotations

from typing import Protocol

from dueq import limits
from dueq.core.ports.membership import (
    CompareAndSetDone,
    CoordinatorState,
    Member,
    PartitionNode,
)
from dueq.core.turn.context import Context
from dueq.core.turn.peers import Peer
from dueq.instant import Now
from dueq_codecs.messages import Vote, VoteRequest

_TURN_US = 150_000
"""Delay of each less preferred member."""
_TURN_US_PER_PARTITION = 1_000
"""Further delay for each partition that wants care. When a broker has died that led thousands, the more preferred
members need this long for all of theirs; a candidate that stands against them costs both an attempt.
"""
_ROUND_US = 300_000
"""Longest wait of a round for answers."""


class Contender(Protocol):
    """The replica that wants to lead, as far as a candidacy deals with it (see `Standing`)."""

    ctx: Context
    uid: int
    replicas: tuple[str, ...]
    node: PartitionNode | None
    node_version: int
    candidacy: Candidacy | None

    @property
    def min_isr(self) -> int: ...

    def last(self) -> tuple[int, int]:
        """Epoch and sequence of the log's last record."""
        ...

    def leader_gone(self) -> bool:
        """Whether the leader has given up, or its registration is gone or is another life's."""
        ...

    def candidacy_ended(self, done: CompareAndSetDone, version: int, wanted: PartitionNode, now: Now) -> None:
        """The compare-and-set of the node's `version` that would make it leader was answered."""
        ...


class Candidacy:
    """One attempt of one replica to lead; replaced by a new one when it fails."""

    def __init__(self, contender: Contender, now: Now) -> None:
        self._contender = contender
        self._ctx = contender.ctx
        turn_us = _TURN_US + self._ctx.wanting * _TURN_US_PER_PARTITION
        self._begins_at_us = now.mono_us + self._rank(now) * turn_us
        self._ends_at_us = 0
        self._round = 0
        self._version = 0
        self._votes: dict[str, Vote] = {}
        self._token: int | None = None

    def _rank(self, now: Now) -> int:
        """Our place among the members that could lead, in the partition's order of preference."""
        me = self._ctx.settings.broker_id
        if now.mono_us < self._ctx.step_aside_until_us:
            return 20
        ahead = 0
        for broker_id in self._contender.replicas:
            if broker_id == me:
                return ahead
            peer = self._ctx.peers.get(broker_id)
            member = peer is not None and Member(broker_id, peer.store_id) in self._members()
            if peer is not None and member and self._alive(peer, now):
                ahead += 1
        return ahead

    def _members(self) -> tuple[Member, ...]:
        node = self._contender.node
        return node.isr if node is not None else ()

    @staticmethod
    def _alive(peer: Peer, now: Now) -> bool:
        return peer.registered and peer.silent_for_us(now) <= limits.LEADER_SILENCE_MS * 1000

    def _voters(self) -> list[Peer]:
        """Members other than us that still have the disk which the ISR names."""
        voters = []
        for member in self._members():
            peer = self._ctx.peers.get(member.broker_id)
            if peer is not None and peer.registered and peer.store_id == member.store_id:
                voters.append(peer)
        return voters

    @property
    def idle(self) -> bool:
        """Whether no compare-and-set of this attempt is under way."""
        return self._token is None

    def tick(self, now: Now) -> None:
        """Begin the round, or end it when its time is over."""
        if self._token is not None:
            return
        if self._ctx.coordinator is not CoordinatorState.CONNECTED or now.mono_us < self._begins_at_us:
            return
        if self._round == 0 or self._contender.node_version != self._version:
            self._ask(now)
        elif now.mono_us >= self._ends_at_us:
            self._decide(now, final=True)
        else:
            self._request(self._missing(now))

    def _ask(self, now: Now) -> None:
        contender = self._contender
        self._round, self._version = self._ctx.new_token(), contender.node_version
        self._votes = {}
        self._ends_at_us = now.mono_us + _ROUND_US
        self._request(self._voters())
        self._decide(now, final=False)

    def _request(self, voters: list[Peer]) -> None:
        """Ask for a vote; once more in each tick, as a voter may learn of a new partition later than we did."""
        contender = self._contender
        epoch = contender.node.epoch if contender.node is not None else 0
        for peer in voters:
            peer.vote_requests.append(VoteRequest(contender.uid, self._round, epoch, *contender.last()))

    def _missing(self, now: Now) -> list[Peer]:
        """Voters within reach that have not answered."""
        return [
            peer for peer in self._voters() if peer.broker_id not in self._votes and self._alive(peer, now)
        ]

    def vote_received(self, peer: Peer, vote: Vote, now: Now) -> None:
        """Note an answer of this round."""
        if vote.round == self._round and self._token is None:
            self._votes[peer.broker_id] = vote
            self._decide(now, final=False)

    def _decide(self, now: Now, *, final: bool) -> None:
        """Take over, wait for more answers, or give up for this time."""
        contender = self._contender
        if contender.node_version != self._version:
            # Consents were to the node as it was. By now another replica may lead, and have left us out of the ISR.
            # To take over from it would lose what it has committed. The next tick asks anew, or gives up.
            return
        if not final and self._missing(now):
            return
        consenting = {broker_id for broker_id, vote in self._votes.items() if vote.consent}
        isr = tuple(
            member for member in self._members() if member == self._ctx.me or member.broker_id in consenting
        )
        if len(isr) >= contender.min_isr:
            self._take_over(isr)
        elif contender.leader_gone() and not self._refused() and self._can_be_mended(now):
            self._take_over(self._members())
        else:
            contender.candidacy = None

    def _refused(self) -> bool:
        """Whether a member that answered would lose records (or knows a leader)."""
        return any(not vote.consent for vote in self._votes.values())

    def _can_be_mended(self, now: Now) -> bool:
        """Whether enough replicas live, so that one brought level can replace a dead member."""
        alive = sum(
            1
            for broker_id in self._contender.replicas
            if (peer := self._ctx.peers.get(broker_id)) is not None and self._alive(peer, now)
        )
        return alive + 1 >= self._contender.min_isr

    def _take_over(self, isr: tuple[Member, ...]) -> None:
        contender, settings = self._contender, self._ctx.settings
        if contender.node is None:
            return
        wanted = PartitionNode(settings.broker_id, settings.incarnation, contender.node.epoch + 1, isr)
        version = contender.node_version

        def ended(done: CompareAndSetDone, now: Now) -> None:
            contender.candidacy_ended(done, version, wanted, now)

        self._token = self._ctx.compare_and_set(contender.uid, version, wanted, ended)
