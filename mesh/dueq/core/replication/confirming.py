"""When a leader may act towards consumers: push, and send answers that keep their leases alive.

A leader that was paused, or cut off, may have been replaced without knowing it. Its successor's messages need not
have reached it, and an answer to a ping says nothing about epochs. An ack does: a member that acks in this leader's
epoch has not raised its own, so it has committed nothing in a later one.

    A leader acts only while every member of its maximal ISR, in its present life and with the disk that is the
    member, has acked in this epoch within `PUSH_CONFIRM_MS`. An ack counts from the instant at which the latest frame
    that it echoes left, and no question from before a noticed pause counts.

This is enough. The first successor won a compare-and-set of a node whose ISR is part of this leader's maximal ISR,
and its epoch was durable before it committed anything. So no later epoch had committed anything when the oldest of
the answered questions left. A successor counts inherited leases from `inherited_from_us` of its last older ack, which
is no earlier than that question: no push is decided after that instant.

**A linearizable read** needs more than that. It must not miss what another leader committed before the question came,
which may be a moment ago. So the leader answers once every member has acked an append that left *after the question
came* (`holds_since`): no later epoch had committed anything then. By then it has applied every change of its own epoch
that anybody was told of, and every change of the epochs before, as its barrier is applied. This is Raft's ReadIndex,
without its wait for the commit position: nobody is told of a change before the leader has applied it.

Acks come with every commit, so a new lease is confirmed by its own LEASE record. When something waits and nothing was
committed lately, an Append without records asks for acks (`Leading.ask`).

A sole member has nobody to ask. An operator could have made another replica the only member by hand. Then the leader's
own compare-and-set of the node, after the pause, shows that it still leads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from dueq import limits
from dueq.core.ports.membership import Member
from dueq.core.replication.progress import NEVER_US, Progress
from dueq.core.turn.context import Context
from dueq.core.turn.peers import Peer
from dueq.instant import Now

CONFIRM_US: Final = limits.PUSH_CONFIRM_MS * 1000
ASK_US: Final = limits.HEARTBEAT_MS * 1000
"""A member is not asked again sooner."""
_DRIFT_US: Final = CONFIRM_US * 2 * limits.CLOCK_DRIFT_PPM // 1_000_000
"""The most that two clocks drift apart in that time."""


def inherited_from_us(acked_at_us: int) -> int:
    """Return from when a new leader counts the leases that it inherits, at the earliest.

    Args:
        acked_at_us: (mono) its own last ack in an older epoch; its start counts as one.
    """
    return acked_at_us + CONFIRM_US + _DRIFT_US


class Confirmation:
    """Whether one leadership is confirmed.

    Args:
        ctx: what the broker's partitions share.
        progress: each follower, by broker id.
        members: the maximal ISR.
    """

    def __init__(
        self, ctx: Context, progress: dict[str, Progress], members: Callable[[], set[Member]]
    ) -> None:
        self._ctx, self._progress, self._members = ctx, progress, members
        # Until then (mono) it is known to be confirmed, by what has been heard; looked up by every push.
        self._until_us = NEVER_US
        # When the latest compare-and-set of the node left that has succeeded (mono); 0: before any pause.
        self._node_us = 0

    def begin_anew(self) -> None:
        """The process was paused, or there may be more members: look again."""
        self._until_us = NEVER_US

    def node_was_ours(self, asked_us: int) -> None:
        """A compare-and-set of the node that left at this instant (mono) has succeeded."""
        self._node_us = asked_us

    def holds(self, now: Now) -> bool:
        """Whether all have confirmed lately."""
        if now.mono_us <= self._until_us:
            return True
        oldest_us = self._oldest_us(now)
        if oldest_us < self._floor_us(now):
            return False
        self._until_us = oldest_us + CONFIRM_US
        return True

    def holds_since(self, since_us: int, now: Now) -> bool:
        """Whether all have confirmed what was asked at this instant (mono) or later."""
        return self._oldest_us(now) >= max(since_us, self._ctx.confirm_floor_us)

    def unconfirmed(self, now: Now, since_us: int = 0) -> Iterator[tuple[Peer, Progress]]:
        """Yield the members that have not confirmed lately, or since an instant (mono), and may be asked (again)."""
        floor_us = max(self._floor_us(now), since_us)
        for member in sorted(self._members()):
            progress = self._progress.get(member.broker_id)
            peer = self._ctx.peers.get(member.broker_id)
            if (
                progress is not None
                and peer is not None
                and progress.confirmed_at_us < floor_us
                and (now.mono_us - progress.asked_at_us >= ASK_US or _has_answered(progress, since_us))
                and not self._ctx.is_silent(peer, now)
            ):
                yield peer, progress

    @property
    def needs_node(self) -> bool:
        """Whether a compare-and-set of the node is what it waits for."""
        return self._is_alone and self._node_us < self._ctx.confirm_floor_us

    @property
    def _is_alone(self) -> bool:
        """Whether it is the only member, and not the only replica."""
        return bool(self._progress) and self._members() == {self._ctx.me}

    def _floor_us(self, now: Now) -> int:
        return max(now.mono_us - CONFIRM_US, self._ctx.confirm_floor_us)

    def _oldest_us(self, now: Now) -> int:
        """Return when the question left that was answered the longest ago (mono)."""
        oldest_us = NEVER_US if self.needs_node else now.mono_us
        for member in self._members():
            if member == self._ctx.me:
                continue
            progress = self._progress.get(member.broker_id)
            peer = self._ctx.peers.get(member.broker_id)
            if (
                progress is None
                or peer is None
                or progress.incarnation != peer.incarnation
                or progress.store_id != member.store_id
            ):
                return NEVER_US
            oldest_us = min(oldest_us, progress.confirmed_at_us)
        return oldest_us


def _has_answered(progress: Progress, since_us: int) -> bool:
    """Whether it has answered the last question, which came too early: a read waits for no more than that answer."""
    return progress.asked_at_us < since_us and progress.confirmed_at_us >= progress.asked_at_us
