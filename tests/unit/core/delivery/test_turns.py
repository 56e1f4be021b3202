"""Whose turn it is among the partitions of a priority or fair topic that one broker leads."""

from __future__ import annotations

import numpy as np

from dueq.core.delivery.due_queue import NEVER_MS
from dueq.core.delivery.turns import Demand, FairTurns, Picks, PriorityTurns
from dueq.core.ports.entry import WIDE, Entries, State

NOW_MS = 1_000


class Lane:
    """A led partition that has some messages, in order."""

    def __init__(self, uid: int, *rows: tuple[int, int]) -> None:
        self.uid, self.queue, self.last_turn = uid, self, 0
        self.waiting: Entries = np.zeros(len(rows), WIDE)
        self.waiting["rank"], self.waiting["wait_at"] = zip(*sorted(rows), strict=True)
        self.waiting["state"] = State.WAITING

    def take_waiting(self, until_ms: int, limit: int, *, again: bool = False) -> Entries:
        assert until_ms == NOW_MS, "nothing is leased ahead of its time"
        taken, self.waiting = self.waiting[:limit], self.waiting[limit:]
        return taken

    def put_back(self, entries: Entries) -> None:
        self.waiting = np.sort(np.concatenate([entries, self.waiting]), order=["rank", "wait_at"])


def chosen(
    lanes: list[Lane], free: int, room: int = 100, room_bytes: int = 1 << 30
) -> dict[int, list[tuple[int, int]]]:
    picks = Picks(lambda uid: room)
    demand = Demand(free, lambda longest: room_bytes, NOW_MS, NOW_MS, NOW_MS + 5, True)
    PriorityTurns().choose(lanes, demand, picks)  # type: ignore[arg-type]
    found = {lane.uid: picks.of(lane.uid) for lane in lanes if lane.uid in picks.entries}
    return {uid: list(zip(rows["rank"], rows["wait_at"], strict=True)) for uid, rows in found.items()}


def test_the_first_of_all_partitions_are_leased_and_the_rest_goes_back() -> None:
    lanes = [Lane(1, (0, 5), (7, 1), (7, 2)), Lane(2, (3, 9), (8, 1)), Lane(3, (7, 0))]
    assert chosen(lanes, 4) == {1: [(0, 5), (7, 1)], 2: [(3, 9)], 3: [(7, 0)]}
    assert [len(lane.waiting) for lane in lanes] == [1, 1, 0]
    assert chosen(lanes, 4) == {1: [(7, 2)], 2: [(8, 1)]}


def test_credit_for_one_goes_to_the_first_of_all() -> None:
    lanes = [Lane(1, (4, 1)), Lane(2, (4, 0), (5, 0))]
    assert [chosen(lanes, 1) for _ in range(3)] == [{2: [(4, 0)]}, {1: [(4, 1)]}, {2: [(5, 0)]}]


def test_one_partition_gives_as_many_as_there_is_credit_and_room_for() -> None:
    lane = Lane(1, *[(rank, 1) for rank in range(9)])
    assert chosen([lane], 100, room=2) == {1: [(0, 1), (1, 1)]}
    assert chosen([lane], 3) == {1: [(2, 1), (3, 1), (4, 1)]}


def test_where_bytes_are_short_the_last_one_is_the_first_that_has_no_room() -> None:
    """All others fit. Nothing is dealt after it, so its lane is dealt last."""
    lanes = [Lane(1, (0, 5), (9, 1), (9, 2)), Lane(2, (1, 9), (2, 9))]
    for lane in lanes:
        lane.waiting["size"] = 10
    assert chosen(lanes, 100, room_bytes=25) == {1: [(0, 5)], 2: [(1, 9), (2, 9)]}
    assert len(lanes[0].waiting) == 2
    lanes[1].put_back(Lane(2, (3, 1)).waiting)
    picks = Picks(lambda uid: 100)
    demand = Demand(100, lambda longest: 5, NOW_MS, NOW_MS, NOW_MS + 5, True)
    PriorityTurns().choose(lanes, demand, picks)  # type: ignore[arg-type]
    assert (list(picks.entries), len(lanes[0].waiting)) == ([2, 1], 1)


class AskedLane(Lane):
    """It notes how it is asked."""

    def __init__(self, uid: int, *rows: tuple[int, int]) -> None:
        super().__init__(uid, *rows)
        self.asked: list[tuple[int, bool]] = []

    @property
    def head_ms(self) -> int:
        return NOW_MS if len(self.waiting) else NEVER_MS

    def take_waiting(self, until_ms: int, limit: int, *, again: bool = False) -> Entries:
        self.asked.append((limit, again))
        return super().take_waiting(until_ms, limit)


def test_a_fair_partition_that_is_asked_once_more_in_a_turn_is_told_so() -> None:
    """Messages that it gave before are not leased yet, so only the partition itself can count them."""
    rich, poor = AskedLane(1, *[(0, at) for at in range(9)]), AskedLane(2, (0, 1))
    picks = Picks(lambda uid: 100)
    FairTurns().choose([rich, poor], Demand(6, lambda longest: 0, NOW_MS, NOW_MS, NOW_MS, True), picks)  # type: ignore[list-item]
    assert rich.asked == [(3, False), (2, True)]
    assert poor.asked == [(3, False)]
