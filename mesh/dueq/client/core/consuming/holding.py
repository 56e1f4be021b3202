"""The leases that one consumer holds, from their push to their end.

A lease is never handed out when it is over, and what the user will not reach in time is given back before that,
uncounted. Leases of a leader that has not answered for two thirds of CONSUMER_SESSION_MS are given up before the leader
ends them, unless they are detached: the leader does not end these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from dueq import limits
from dueq.client.core.links.context import Context
from dueq.client.core.ports.delivery import Delivery
from dueq.client.core.ports.effects import LeaseLost, Reclaim
from dueq.client.core.ports.events import OpenConsumer

LOST_US: Final = limits.CONSUMER_LOST_US
RECLAIM_US_MAX: Final = 2_000_000
LEASE_LOOK_US_MIN: Final = 20_000


class Holding:
    """What one consumer holds.

    Args:
        event: who consumes what, and how long its leases are.
        held: deliveries whose lease is not finished, by message name; kept up to date here.

    Attributes:
        counts: how many they are, by partition.
        look_us: when some lease must be looked at (mono); None: there is none.
    """

    def __init__(self, context: Context, event: OpenConsumer, held: dict[int, Delivery]) -> None:
        self._context = context
        self._consumer_id, self._topic, self._lease_ms = event.consumer_id, event.topic, event.lease_ms
        self._detached = event.detached
        self._held = held
        self.counts: Counter[int] = Counter()
        self.look_us: int | None = None
        # When what the leader of a partition has answered was sent, by partition.
        self._alive_us: dict[int, int] = {}

    def take(self, deliveries: Sequence[Delivery]) -> None:
        """These have come; each takes the place of an older lease of its message."""
        held, counts, alive_us = self._held, self.counts, self._alive_us
        earliest: int | None = None
        for delivery in deliveries:
            name = delivery.name
            if name in held:
                self.lose([held[name]])
            held[name] = delivery
            uid = delivery.uid
            counts[uid] += 1
            if uid not in alive_us:
                alive_us[uid] = self._context.mono_us
            if earliest is None or delivery.deadline_us < earliest:
                earliest = delivery.deadline_us
        if earliest is not None:
            self.look_at(earliest - self._margin_us)

    def drop(self, deliveries: Sequence[Delivery]) -> None:
        """These leases are finished, as far as they are held."""
        held, counts = self._held, self.counts
        for delivery in deliveries:
            name = delivery.name
            if held.get(name) is delivery:
                del held[name]
                uid = delivery.uid
                counts[uid] -= 1
                if not counts[uid]:
                    del counts[uid]

    def lose(self, deliveries: Sequence[Delivery], *, returning: bool = False) -> None:
        """These leases are over; `returning`: their messages are to be given back where they still can be."""
        if not deliveries:
            return
        for delivery in deliveries:
            delivery.lost = True
        self.drop(deliveries)
        self._context.log(
            "warning", "leases.lost", topic=self._topic, count=len(deliveries), first=deliveries[0].id
        )
        self._context.emit(LeaseLost(self._consumer_id, list(deliveries), returning))

    # -------------------------------------------------------------- their ends

    @property
    def _margin_us(self) -> int:
        """How long before its end an unhandled lease is given back, µs."""
        return min(self._lease_ms * 250, RECLAIM_US_MAX)

    def look_at(self, at_us: int) -> None:
        """Look at the leases at this instant (mono), or before."""
        if self.look_us is None or at_us < self.look_us:
            self.look_us = at_us

    def check(self) -> list[Delivery]:
        """Give back what will not be reached in time; returns what is over."""
        now_us, margin_us = self._context.mono_us, self._margin_us
        late: list[Delivery] = []
        over: list[Delivery] = []
        following: int | None = None
        for delivery in self._held.values():
            if delivery.settling:
                continue
            at_us = delivery.deadline_us
            if at_us <= now_us:
                over.append(delivery)
                continue
            if not delivery.handed:
                if at_us - margin_us <= now_us:
                    late.append(delivery)
                else:
                    at_us -= margin_us
            following = at_us if following is None else min(following, at_us)
        self.look_us = None if following is None else max(following, now_us + LEASE_LOOK_US_MIN)
        if late:
            self._context.emit(Reclaim(self._consumer_id, late))
        return over

    # -------------------------------------------------------------- their leaders

    def heard(self, uids: Iterable[int], sent_us: int) -> None:
        """The leader of these partitions has answered what was sent at this instant (mono)."""
        for uid in uids:
            self._alive_us[uid] = max(self._alive_us.get(uid, 0), sent_us)

    def lose_silent(self) -> None:
        """Give up what is held of leaders that have not answered for too long."""
        if self._detached:
            return
        now_us = self._context.mono_us
        silent = {uid for uid in self.counts if now_us - self._alive_us.get(uid, now_us) >= LOST_US}
        if silent:
            self._alive_us |= dict.fromkeys(silent, now_us)
            # Heard again before its patience is over, a leader would keep them to the end of their leases.
            self.lose([d for d in self._held.values() if d.uid in silent and not d.settling], returning=True)

    @property
    def next_us(self) -> int | None:
        """When something must be looked at (mono); None: nothing is held."""
        at_us = self.look_us
        if self.counts and not self._detached:
            now_us = self._context.mono_us
            lost_us = min(self._alive_us.get(uid, now_us) for uid in self.counts) + LOST_US
            at_us = lost_us if at_us is None else min(at_us, lost_us)
        return at_us
