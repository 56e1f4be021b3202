"""A fair topic through the timeline, its bounded window and a real store: order inside groups, and turns among them."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
from tests.property import test_priority
from tests.property.test_priority import HOT_ROWS, UID, Mesh

from dueq.core.delivery.fair_queue import FairQueue
from dueq.core.delivery.group_rates import GroupRates
from dueq.core.delivery.leases import LeaseTable
from dueq.core.ports.entry import Entries, keys_of
from dueq.core.state.fair import FairOrder
from dueq.core.state.priority import ranks_of
from dueq.core.state.timeline import Timeline
from dueq_codecs.records import Record, RecordKind

GROUPS = ("", "acme", "acme.eu", "acme.us", "acme.eu.north", "zoo", "x.y.z")
RANKS = (0, 0, 0, 3, 65_535)
LOOKS = 8
"""One look wakes groups, one finds who waits for the disk; what is read may turn out to be gone."""


class FairMesh(Mesh):
    """One replica that leads itself.

    Attributes:
        group: key -> the group of the message.
        turns: groups of what was leased, in order.
    """

    order = FairOrder()

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.group: dict[int, str] = {}
        self.turns: list[str] = []

    def new_queue(self, timeline: Timeline) -> Any:
        queue = FairQueue(timeline, LeaseTable(), GroupRates())
        timeline.led_by(queue)
        return queue

    def checkpoint(self) -> None:
        super().checkpoint()
        self.timeline.tell_cuts()

    def scan(self) -> bool:
        is_wanted = super().scan()
        self.timeline.tell_cuts()
        return is_wanted

    def insert(self, rows: int) -> None:
        named = self.random.sample(GROUPS, self.random.randint(1, len(GROUPS)))
        self.insert_rows([(self.random.choice(named), self.random.choice(RANKS)) for _ in range(rows)])

    def insert_rows(self, rows: list[tuple[str, int]], ahead_ms: int = 4_000) -> None:
        dues = [self.stamp + self.random.randrange(-500, ahead_ms) for _ in rows]
        names = tuple(dict.fromkeys(group for group, _ in rows))
        record = Record(RecordKind.INSERT, UID, 0, 0, 0)
        record.due = np.array(dues, np.uint64)
        record.size = record.crc = np.zeros(len(rows), np.uint32)
        record.rank = np.array([rank for _, rank in rows], np.uint16)
        record.groups, record.group = names, np.array([names.index(group) for group, _ in rows], np.uint16)
        sequence = self.timeline.applied + 1
        for row, ((group, rank), due) in enumerate(zip(rows, dues, strict=True)):
            wait_at, key = max(due, self.stamp), sequence << 16 | row
            self.group[key] = group
            self.waiting[key] = rank, wait_at, wait_at
        self.apply(record)

    def set_group(self) -> None:
        """Through the log; what is set does not change what comes first in a group."""
        record = Record(RecordKind.GROUP, UID, 0, 0, 0)
        record.name = self.random.choice(GROUPS[1:])
        record.document = f'{{"weight":{self.random.randint(1, 3)}}}'
        self.apply(record)

    def cancel(self) -> None:
        super().cancel()
        if self.random.random() < 0.5:
            self.set_group()

    def settle_and_lease(self, limit: int) -> int:
        """A look may find that the group whose turn it is has nothing in memory: then that is read."""
        for _ in range(LOOKS):
            self.settle()
            if leased := self.lease(limit):
                return leased
        return 0

    def ready_of(self, group: str) -> list[tuple[int, int, int]]:
        return [place for place in self.ready() if self.group[place[2]] == group]

    def check_order(self, found: Entries) -> list[tuple[int, int, int]]:
        """Each group must deliver the beginning of its sorted list."""
        got = list(
            zip(ranks_of(found).tolist(), found["wait_at"].tolist(), keys_of(found).tolist(), strict=True)
        )
        by_group: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        for place in got:
            by_group[self.group[place[2]]].append(place)
            self.turns.append(self.group[place[2]])
        for group, places in by_group.items():
            assert places == self.ready_of(group)[: len(places)], group
        for row in np.split(found, len(found)) if len(found) else ():
            number, group = int(row["group"][0]), self.group[int(keys_of(row)[0])]
            assert self.timeline.groups.name_of(number) == group
        return got

    def settle(self) -> None:
        super().settle()
        live = Counter(self.group[key] for key in (*self.waiting, *self.leased))
        assert {name: group.messages for name, group in self.timeline.groups.by_name.items()} == {
            name: count for name, count in live.items() if name
        } | {name: 0 for name in self.timeline.groups.by_name if name not in live}

    @property
    def hot_rows_max(self) -> int:
        return max(HOT_ROWS, 2 * len(GROUPS) * len({*RANKS, *test_priority.RANKS}))


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("seed", range(16))
def test_what_comes_out_of_a_group_is_always_its_first(seed: int) -> None:
    FairMesh(seed).live_through(150)


@pytest.mark.parametrize("seed", range(4))
def test_another_group_waits_at_most_one_turn_of_all_others(seed: int) -> None:
    """However many messages one group has: counted in messages, where all weights are 1."""
    mesh = FairMesh(seed)
    groups = [f"g{number}" for number in range(9)]
    mesh.insert_rows([(mesh.random.choice(["g0", "g0", "g0", *groups]), 0) for _ in range(300)], ahead_ms=1)
    mesh.checkpoint()
    while mesh.waiting:
        assert mesh.settle_and_lease(2), "something waits, and nothing comes out"
    last: dict[str, int] = {}
    left = Counter(mesh.turns)
    for turn, group in enumerate(mesh.turns):
        left[group] -= 1
        for other in groups:
            if other == group or not left[other]:
                last[other] = turn
            else:
                assert turn - last.get(other, -1) <= 2 * len(groups), f"{other} waits for too long"
        last[group] = turn
