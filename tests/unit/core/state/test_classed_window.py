"""The window of a topic with classes, here ranks: what is in memory, what it wants to read, and what it lets go."""

from __future__ import annotations

import numpy as np

from dueq.core.ports.entry import WIDE, Entries, State
from dueq.core.state.job_table import JobTable
from dueq.core.state.priority import PriorityOrder
from dueq.core.state.window import Window


def rows(*ranks_and_waits: tuple[int, int]) -> Entries:
    """Waiting entries of (rank, wait_at), keyed by their number."""
    found = np.zeros(len(ranks_and_waits), WIDE)
    found["rank"], found["wait_at"] = zip(*ranks_and_waits, strict=True)
    found["sequence"], found["state"] = np.arange(1, len(found) + 1), State.WAITING
    return found


def window(low_water: int | None) -> Window:
    return PriorityOrder().window(JobTable((0, 1)), low_water)


def test_with_nothing_on_the_disk_it_has_no_end() -> None:
    found = window(None)
    assert found.endless
    assert (found.known_until_ms, found.unknown_from(10**15), found.wants(10)) == (None, None, None)
    assert len(found.begin(rows((3, 5), (65_535, 9)))) == 2
    assert found.count == 2


def test_it_reads_rank_by_rank_and_knows_of_none_that_it_has_not_read() -> None:
    found = window(100)
    assert found.wants(10) == (0, (100, 0))
    assert found.unknown_from(99) is None
    assert found.unknown_from(100) == 0
    found.grow(0, (200, 5), exhausted=False, following=7)
    assert found.end_of(0) == (200, 5)
    assert (found.unknown_from(150), found.wants(10)) == (7, (7, (100, 0)))
    found.grow(7, None, exhausted=True, following=None)
    assert found.end_of(7) is None
    assert (found.unknown_from(150), found.unknown_from(200)) == (None, 0)
    assert found.known_until_ms == 200


def test_a_rank_that_has_given_its_messages_is_read_on() -> None:
    found = window(100)
    found.grow(0, (200, 1 << 16), exhausted=False, following=None)
    assert found.wants(4) == (0, (200, 1 << 16))
    given = rows((0, 150), (0, 200))
    found.gain(given)
    assert found.wants(4) is None
    found.leave(given)
    assert found.wants(4) == (0, (200, 1 << 16))


def test_what_begins_to_wait_behind_the_end_of_its_rank_stays_on_the_disk() -> None:
    found = window(100)
    found.grow(0, (200, 9 << 16), exhausted=False, following=None)
    inside = found.begin(rows((0, 199), (0, 200), (0, 201), (8, 900)))
    assert list(zip(inside["rank"], inside["wait_at"], strict=True)) == [(0, 199), (0, 200), (8, 900)]


def test_it_shrinks_to_a_share_of_each_rank() -> None:
    found = window(None)
    waiting = rows(*[(rank, 10 * at) for rank in (0, 5) for at in range(6)], (9, 1))
    found.gain(waiting)
    found.shrink(waiting, 6)
    kept = found.inside(waiting)
    assert [int(np.count_nonzero(kept["rank"] == rank)) for rank in (0, 5, 9)] == [2, 2, 1]
    assert found.count == 5
    assert (found.end_of(0), found.end_of(9)) == ((10, 2 << 16), None)
    assert found.unknown_from(10) == 0
    assert found.unknown_from(9) is None


def test_it_goes_back_in_every_rank_for_what_a_job_has_hidden() -> None:
    found = window(100)
    found.grow(0, None, exhausted=True, following=None)
    assert found.endless
    assert found.go_back(70)
    assert not found.endless
    assert found.wants(10) == (0, (70, 0))
    assert found.unknown_from(69) is None
    assert found.unknown_from(70) == 0


def test_the_messages_of_many_ranks_are_counted_one_each() -> None:
    found = window(None)
    everything = rows(*[(rank, 1) for rank in range(0, 65_536, 7)])
    found.gain(everything)
    found.shrink(everything, 100)
    assert found.count == len(everything)
    found.leave(everything)
    assert found.count == 0
