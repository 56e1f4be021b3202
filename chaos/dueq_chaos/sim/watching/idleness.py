"""No message waits for long while a consumer has nothing at all to do.

Five times a second the partitions that a broker leads are looked at: which messages are due and may be delivered, and
which consumers hold nothing and have credit. If one of the former and one of the latter have waited for each other for
a second and a half, with the same leader in touch with its followers all the while, the broker has forgotten one of
them: a wake-up was lost, or something has a claim that nobody gives up.

Fair topics are looked at only where no group has terms and nothing is leased: then no group is held up by another. Of
priority topics those messages are left out that wait for a read: one of a smaller rank may be on the disk. A topic with
a rate is not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from dueq import limits
from dueq.core.delivery.dispatch import TopicDispatcher
from dueq.core.delivery.lane import Lane
from dueq.core.partition.partition import Partition
from dueq.core.ports.entry import keys_of
from dueq.core.state.priority import ranks_of
from dueq.instant import Now

if TYPE_CHECKING:
    from dueq_chaos.sim.environment.node import Node

_EVERY_US: Final = 200_000
_GAP_US: Final = 2_000_000
"""A broker that has taken no turn for so long was paused, or had nothing to wait for."""
_LONG_US: Final = 1_500_000
"""Longer than disks and links of storms hold up a lease."""
_HEARD_US: Final = 700_000
"""A leader hears of its followers as often, unless the weather is bad."""
_LOOKED_AT: Final = 64
"""Messages of one partition that are followed."""


_Message = tuple[int, int]
"""Key and attempts: one that is released has waited since then."""
_Consumer = tuple[int, int]
"""Number and pushes: one that has done something between two looks has waited since the latter."""


@dataclass
class _Pair:
    """Who waits for whom at one lane: since when (world time, µs) each message and each consumer has waited."""

    lane: Lane
    messages: dict[_Message, int] = field(default_factory=dict)
    consumers: dict[_Consumer, int] = field(default_factory=dict)


class Idleness:
    """Watches all brokers of a mesh."""

    def __init__(self) -> None:
        self._looked_us: dict[str, int] = {}
        self._pairs: dict[tuple[str, int], _Pair] = {}

    def seen(self, node: Node, world_us: int) -> str:
        """Look at a broker that has had a turn; returns what is wrong, "" if nothing is."""
        before_us = self._looked_us.get(node.name, -_GAP_US)
        if world_us - before_us < _EVERY_US or node.core is None:
            return ""
        self._looked_us[node.name] = world_us
        core, now = node.core, node.now()
        mesh_ms = core._clock.mesh_now_us(now) // 1000
        anew = world_us - before_us > _GAP_US
        found: dict[tuple[str, int], _Pair] = {}
        for dispatcher in core._dispatchers.values():
            idle = [] if dispatcher._paused else _idle(dispatcher, now)
            if not idle or any(lane.leases.staged_bytes for lane in dispatcher._lanes.values()):
                continue
            for uid, lane in dispatcher._lanes.items():
                before = self._pairs.get((node.name, uid))
                if anew or before is None or before.lane is not lane:
                    before = _Pair(lane)
                messages = _waiting(lane, mesh_ms, now)
                pair = found[node.name, uid] = _Pair(
                    lane,
                    {message: before.messages.get(message, world_us) for message in messages},
                    {consumer: before.consumers.get(consumer, world_us) for consumer in idle},
                )
                for (key, _), since_us in pair.messages.items():
                    for (number, _), idle_us in pair.consumers.items():
                        if world_us - max(since_us, idle_us) >= _LONG_US:
                            return (
                                f"{node.name} p{uid}: message {key >> 16}/{key & 0xFFFF} is due and has waited since"
                                f" {since_us} µs, and consumer {number} has had nothing to do since {idle_us} µs"
                            )
        for place in [place for place in self._pairs if place[0] == node.name]:
            del self._pairs[place]
        self._pairs |= found
        return ""


def _idle(dispatcher: TopicDispatcher, now: Now) -> list[_Consumer]:
    """Return the consumers that hold nothing and could take something."""
    sessions = dispatcher._consumers.by_id.values()
    return [
        (each.number_here, each.push_number)
        for each in sessions
        if not each.rows_out and each.free_rows(now) > 0
    ]


def _waiting(lane: Lane, mesh_ms: int, now: Now) -> list[_Message]:
    """Return messages that are due and that nothing holds up."""
    assert isinstance(lane.partition, Partition)
    timeline, settings = lane.partition.timeline, lane.partition.settings
    if settings.rate or lane.is_silent(mesh_ms) or not _is_heard(lane.partition, now):
        return []
    if 2 * len(lane.leases) > limits.PARTITION_LEASES_MAX:
        return []
    if timeline.order.kind == "fair" and (len(lane.leases) or timeline.groups.limited):
        return []
    entries = timeline.deliverable_hot()
    entries = entries[entries["wait_at"] <= np.uint64(max(mesh_ms, 0))]
    entries = entries[~lane.over(entries, mesh_ms)]
    barred = lane.partition.barred(entries)
    if barred is not None:
        entries = entries[~barred]
    if timeline.order.kind == "priority" and timeline._residency.reads.scanning:
        unknown = timeline.unknown_from(mesh_ms)
        entries = entries if unknown is None else entries[ranks_of(entries) < unknown]
    waiting = zip(keys_of(entries).tolist(), entries["attempt"].tolist(), strict=True)
    return [message for message in waiting if message[0] not in lane.leases.slot_of][:_LOOKED_AT]


def _is_heard(partition: Partition, now: Now) -> bool:
    """Whether a lease could be committed: every follower that it takes has answered of late."""
    leading, ctx = partition.replica.leading, partition.ctx
    if leading is None:
        return False
    peers = [ctx.peers.get(member.broker_id) for member in leading.isr.members if member != ctx.me]
    return all(peer is not None and now.mono_us - peer.answered_to_us < _HEARD_US for peer in peers)
