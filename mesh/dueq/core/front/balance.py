"""Leaderships go back to the brokers that are preferred for them.

A partition's replicas stand in order of preference, and the first ones of all partitions are spread evenly over the
brokers. When a broker has died or was restarted, others lead in its place, and would do so for ever. After three
restarts one broker would lead nearly everything. So once the mesh has not changed for a while, a leader gives up each
partition that its preferred replica could lead at once. It gives up a few a second, each in a quiet moment if one
comes soon (as Kafka's preferred leader election, `auto.leader.rebalance.enable`). The election is an ordinary one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from dueq import limits
from dueq.core.partition.partition import Partition
from dueq.core.ports.membership import CoordinatorState
from dueq.core.turn.context import Context
from dueq.instant import Now

_APART_US: Final = 50_000
"""Between two partitions that are given up."""
_QUIET_US: Final = 1_000_000
"""Longest wait of a partition for a moment in which nothing of it is under way."""


class Balance:
    """Partitions that this broker leads and another should."""

    def __init__(self, ctx: Context, partitions: Mapping[int, Partition], now: Now) -> None:
        self._ctx = ctx
        self._partitions = partitions
        self._round: deque[int] = deque()
        self._at_us = self._waited_since_us = 0
        # Given up since the mesh has changed: one that came back is not wanted there.
        self._given_up: set[int] = set()
        self.disturbed(now)

    def disturbed(self, now: Now) -> None:
        """A broker has come, gone, fallen silent or been heard again: the wait begins again."""
        self._round.clear()
        self._given_up.clear()
        self._at_us = now.mono_us + limits.BALANCE_CALM_MS * 1000

    def tick(self, now: Now) -> None:
        """Give up the next partition, if it is time."""
        if now.mono_us < self._at_us or self._ctx.coordinator is not CoordinatorState.CONNECTED:
            return
        if not self._round:
            self._round.extend(uid for uid in self._partitions if self._is_misplaced(uid, now))
            self._at_us = now.mono_us + limits.BALANCE_CALM_MS * 1000
            self._waited_since_us = now.mono_us
        if not self._round:
            return
        self._at_us = now.mono_us + _APART_US
        partition = self._partitions.get(self._round[0])
        busy = partition is not None and partition.replica.busy
        if busy and now.mono_us - self._waited_since_us < _QUIET_US:
            return
        uid = self._round.popleft()
        self._waited_since_us = now.mono_us
        if partition is not None and self._is_misplaced(uid, now):
            self._given_up.add(uid)
            partition.replica.give_up(now, f"{partition.replicas[0]} is preferred")

    def _is_misplaced(self, uid: int, now: Now) -> bool:
        """Whether this broker leads it, and the preferred replica could at once."""
        partition = self._partitions.get(uid)
        if partition is None or uid in self._given_up:
            return False
        preferred = partition.replicas[0]
        return partition.replica.could_pass_to(preferred, now) and self._ctx.clock.within(preferred, now)
