"""Groups of a fair topic take turns, looked at from outside.

On each level, while a group has a ready message that could be leased, another group is leased at most as many messages
as its weight. So the first message of a group waits for no more messages than the sum of the weights. Turns are the
leader's: they begin anew with each leadership, and whenever a leader makes its queue anew. While a ready message may be
only on the disk, nothing is counted; nor across a LEASE that could not be looked at. The messages of one LEASE are
leased together, in any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import is_

from dueq.core.delivery.fair_queue import FairQueue
from dueq.core.partition.partition import Partition
from dueq.core.ports.entry import State
from dueq_chaos.sim.judging.shares import levels_of, newly_leased
from dueq_chaos.sim.reference.naive import Naive
from dueq_codecs.records import Record, RecordKind

_OWN = "."
"""Ends the name of what is a group's own: it takes turns with the groups below."""

Child = tuple[str, str]
"""A level, and one that takes turns on it."""


@dataclass
class _Leadership:
    """The observations of one leadership.

    Attributes:
        ring: the root of all turns.
        weights: the largest weight of each group.
        waiting: of each that could have been leased at every look, what others of its level got meanwhile.
        able: whoever could be leased at the last look, by the state and the pending records of then.
        applied, pending: the last record of that state, and those records.
    """

    ring: object
    weights: dict[str, int] = field(default_factory=dict)
    waiting: dict[Child, Counter[str]] = field(default_factory=dict)
    able: set[Child] = field(default_factory=set)
    applied: int = -1
    pending: list[Record] = field(default_factory=list)

    def has_seen(self, naive: Naive, pending: list[Record]) -> bool:
        """Whether nothing has changed since the last look. A state changes by the records that are applied."""
        same = self.applied == naive.applied and len(self.pending) == len(pending)
        return same and all(map(is_, self.pending, pending))


class Rounds:
    """Looks at the LEASE records that leaders of fair topics propose, and at what they could have proposed."""

    def __init__(self) -> None:
        self._leaderships: dict[tuple[str, int], _Leadership] = {}

    def look(
        self, broker: str, partition: Partition, naive: Naive, pending: list[Record], fresh: list[Record]
    ) -> str:
        """Return the group that had to wait too long; "": none.

        Args:
            broker: that leads.
            partition: its replica.
            naive: the state that is applied.
            pending: records in its log that are not applied.
            fresh: those of them that this turn has brought.
        """
        lane = partition.dispatcher._lanes.get(partition.uid)
        if lane is None or not isinstance(lane.queue, FairQueue):
            return ""
        seen = self._leaderships.get((broker, partition.uid))
        if seen is None or seen.ring is not lane.queue._root:
            seen = self._leaderships[broker, partition.uid] = _Leadership(lane.queue._root)
        wrong = ""
        if not seen.has_seen(naive, pending):
            for name, settings in naive.groups.settings.items():
                seen.weights[name] = max(seen.weights.get(name, 1), settings.get("weight", 1))
            seen.able, seen.applied, seen.pending = _able(naive, pending), naive.applied, pending
            # A group that this turn has paused, say, was passed over.
            seen.waiting = {child: got for child, got in seen.waiting.items() if child in seen.able}
            wrong = self._count(seen, naive, fresh)
        if partition.timeline.unknown_from(naive.stamp) is not None:
            seen.waiting.clear()
        elif len(seen.waiting) < len(seen.able):
            seen.waiting = {child: seen.waiting.get(child) or Counter() for child in seen.able}
        return wrong

    def forget(self, broker: str, uid: int) -> None:
        """Begin to count anew: the leader may have leased what cannot be looked at."""
        if seen := self._leaderships.get((broker, uid)):
            seen.waiting.clear()

    def _count(self, seen: _Leadership, naive: Naive, fresh: Iterable[Record]) -> str:
        for record in fresh:
            if record.kind != RecordKind.LEASE:
                continue  # whose message has expired has not had its turn
            fresh_keys = {key for key in newly_leased(record) if not naive.is_triggered(key)}
            names = naive.groups.names
            given = [
                child
                for key in _in_order(record)
                if key in fresh_keys
                for child in _children(naive, names, key)
            ]
            for child in given:
                seen.waiting.pop(child, None)
            for level, name in given:
                for (own, waiting), got in seen.waiting.items():
                    if own != level:
                        continue
                    got[name] += 1
                    if got[name] > (weight := seen.weights.get(name, 1)):
                        return (
                            f"the LEASE {record.sequence} makes it {got[name]} messages of {name!r}, whose weight"
                            f" is {weight}, while {waiting!r} waits for its turn"
                        )
        return ""


def _in_order(record: Record) -> list[int]:
    columns = zip(record.target_sequence.tolist(), record.target_row.tolist(), strict=True)
    return [sequence << 16 | row for sequence, row in columns]


def _children(naive: Naive, names: dict[int, str], key: int) -> list[Child]:
    """Return who is at its turn with a message, level by level."""
    path = levels_of(naive, names, key)
    name = path[-1] if path else ""
    return [*zip(["", *path], path, strict=False), (name, name + _OWN)]


def _able(naive: Naive, pending: list[Record]) -> set[Child]:
    """Return those of whom something is ready, free, and has a slot on each level above it."""
    spoken_for: set[int] = set()
    out = set(naive.leased)
    for record in pending:
        named = _in_order(record)
        spoken_for.update(named)
        if record.kind == RecordKind.LEASE:
            out.update(named)
    names = naive.groups.names
    held = (
        Counter(level for key in out for level in levels_of(naive, names, key))
        if naive.groups.settings
        else Counter()
    )
    closed = {
        name
        for name, settings in naive.groups.settings.items()
        if settings.get("paused")
        or settings.get("rate")  # who knows whether it has a token
        or 0 < settings.get("max_unacked", 0) <= held[name]
    }
    found: set[Child] = set()
    groups: set[int] = set()
    waits, stamp = State.WAITING, naive.stamp
    for key, entry in naive.live.items():
        if entry.wait_at > stamp or entry.state != waits or key in spoken_for:
            continue
        if entry.group not in groups and naive.may_be_delivered(key):
            groups.add(entry.group)
            if closed.isdisjoint(levels_of(naive, names, key)):
                found.update(_children(naive, names, key))
    return found
