"""The window of a topic with classes, here ranks: what is in memory, what it wants to read, and what it lets go."""

from __future__ import annotations

import numpy as np

from dueq.core.ports.entry import WIDE, Entries, State
from dueq.core.state.job_table import JobTable
from dueq.core.state.priority import PriorityOrder
from dueq.core.state.window import Looked, Position, Wanted, Window


def rows(*ranks_and_waits: tuple[int, int]) -> Entries:
    """Waiting entries of (rank, wait_at), keyed by their number."""
    found = np.zeros(len(ranks_and_waits), WIDE)
    found["rank"], found["wait_at"] = zip(*ranks_and_waits, strict=True)
    found["sequence"], found["state"] = np.arange(1, len(found) + 1), State.WAITING
    return found


def window(low_water: int | None) -> Window:
    return PriorityOrder().window(JobTable((0, 1)), low_water)


def next_wanted(found: Window, half: int) -> list[tuple[int, Position]]:
    """Which classes it wants to be read, each behind a position."""
    wanted = found.wants(half, half)
    return wanted.spots if wanted is not None else []


def read(found: Window, of: int, looked_to: Position | None, following: int | None = None) -> None:
    """Let it grow over a class; None: nothing of that is left."""
    found.grow([Looked(of, looked_to, exhausted=looked_to is None)], following)


def test_with_nothing_on_the_disk_it_has_no_end() -> None:
    found = window(None)
    assert found.endless
    assert (found.known_until_ms, found.unknown_from(10**15), next_wanted(found, 10)) == (None, None, [])
    assert len(found.begin(rows((3, 5), (65_535, 9)))) == 2
    assert found.count == 2


def test_it_reads_rank_by_rank_and_knows_of_none_that_it_has_not_read() -> None:
    found = window(100)
    assert found.wants(10, 8) == Wanted([(0, (100, 0))], 8, onward=True)
    assert found.unknown_from(99) is None
    assert found.unknown_from(100) == 0
    read(found, 0, (200, 5), following=7)
    assert found.end_of(0) == (200, 5)
    assert found.unknown_from(150) == 7
    assert found.wants(10, 8) == Wanted([(7, (100, 0))], 4, onward=True)
    read(found, 7, None)
    assert found.end_of(7) is None
    assert (found.unknown_from(150), found.unknown_from(200)) == (None, 0)
    assert found.known_until_ms == 200


def test_a_rank_that_has_given_its_messages_is_read_on() -> None:
    found = window(100)
    read(found, 0, (200, 1 << 16))
    assert next_wanted(found, 4) == [(0, (200, 1 << 16))]
    given = rows((0, 150), (0, 200))
    found.gain(given)
    assert next_wanted(found, 4) == []
    found.leave(given)
    assert next_wanted(found, 4) == [(0, (200, 1 << 16))]


def test_what_begins_to_wait_behind_the_end_of_its_rank_stays_on_the_disk() -> None:
    found = window(100)
    read(found, 0, (200, 9 << 16))
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
    read(found, 0, None)
    assert found.endless
    assert found.go_back(70)
    assert not found.endless
    assert next_wanted(found, 10) == [(0, (70, 0))]
    assert found.unknown_from(69) is None
    assert found.unknown_from(70) == 0


def test_it_goes_back_to_what_it_let_go_though_that_waits_since_before_its_beginning() -> None:
    """A leader whose clock is behind stamps messages with instants before all that the disk had at the start."""
    found = window(100)
    read(found, 0, None)
    waiting = found.begin(rows((0, 20), (0, 30), (0, 40)))
    found.shrink(waiting, 1)
    assert found.end_of(0) == (20, 1 << 16)
    found.go_back(70)
    assert (found.end_of(0), found.unknown_from(20)) == ((20, 0), 0)


def test_ranks_that_nobody_has_looked_at_yet_are_not_cut() -> None:
    """All of theirs that waits before the low-water mark is in memory, and stays there when they are looked at."""
    found = window(100)
    read(found, 0, None, following=5)
    waiting = found.begin(rows((0, 10), (0, 20), (6, 10), (6, 20), (8, 10), (8, 20)))
    found.shrink(waiting, 3)
    assert found.count == len(found.inside(waiting)) == 5
    read(found, 5, None, following=7)
    assert found.count == len(found.inside(waiting)) == 5
    found.leave(found.inside(waiting))
    assert (found.count, found.least) == (0, 1)


def test_a_scan_that_does_not_come_to_the_low_water_mark_lets_nothing_go() -> None:
    found = window(100)
    waiting = found.begin(rows((3, 50), (3, 60)))
    found.grow([Looked(0, None, True), Looked(3, (50, 1 << 16), False)], None)
    assert found.end_of(3) == (100, 0)
    assert found.count == len(found.inside(waiting)) == 2


def test_the_messages_of_many_ranks_are_counted_one_each() -> None:
    found = window(None)
    everything = rows(*[(rank, 1) for rank in range(0, 65_536, 7)])
    found.gain(everything)
    found.shrink(everything, 100)
    assert found.count == len(everything)
    found.leave(everything)
    assert found.count == 0


def test_one_scan_goes_through_many_ranks_and_says_of_each_how_far_it_is_known() -> None:
    found = window(100)
    looked = [
        Looked(0, None, True),
        Looked(3, (150, 7), False),
        Looked(4, None, False),
        Looked(9, None, True),
    ]
    found.grow(looked, following=12)
    assert [found.end_of(of) for of in (0, 1, 3, 4, 9, 11, 12, 13)] == [
        None, None, (150, 7), (100, 0), None, None, (100, 0), (100, 0),
    ]  # fmt: skip
    assert [found.unknown_from(at) for at in (99, 100, 150)] == [None, 4, 3]
    assert (found.unknown_in(5, 12, 999), found.unknown_in(5, 99, 999)) == (None, 12)
    assert next_wanted(found, 10) == [(12, (100, 0))]
    found.grow([Looked(12, (100, 5), False)], following=None)
    assert found.unknown_from(100) == 4
    assert found.unknown_in(13, 99, 999) is None
    assert found.known_until_ms == 100


def test_ranks_that_have_given_their_messages_are_read_on_together() -> None:
    """A few rows cost no more than finding the rank, so a read takes as many as are worth it."""
    found = window(100)
    found.grow([Looked(of, (200, of), False) for of in range(50)], following=None)
    wanted = found.wants(800, 64)
    assert wanted == Wanted([(of, (200, of)) for of in range(4)], 16, onward=False)
    assert found.wants(800, 64) == wanted, "until they have been read"
    found.grow([Looked(of, None, True) for of in range(3)], following=None)
    assert found.wants(800, 64) == Wanted([(of, (200, of)) for of in range(3, 7)], 16, onward=False)
    assert (found.end_of(2), found.end_of(3)) == (None, (200, 3))


def test_of_more_ranks_than_rows_in_memory_few_rows_each_are_read() -> None:
    """Others would be let go at once, and read again."""
    found = window(100)
    found.grow([Looked(of, (200, of), False) for of in range(50)], following=None)
    assert found.wants(64, 64) == Wanted([(of, (200, of)) for of in range(32)], 2, onward=False)
    assert found.wants(200, 64) == Wanted([(of, (200, of)) for of in range(16)], 4, onward=False)


def test_what_lies_inside_follows_from_the_end_of_each_rank() -> None:
    found = window(100)
    found.grow([Looked(0, (150, 2 << 16), False), Looked(5, None, True)], following=8)
    some = rows((0, 150), (0, 150), (0, 150), (0, 151), (5, 999), (6, 999), (8, 99), (8, 100), (9, 1000))
    mask = found.mask(some)
    assert mask is not None
    assert mask.tolist() == [True, True, False, False, True, True, True, False, False]


def test_the_least_it_keeps_is_one_message_of_each_rank() -> None:
    found = window(None)
    everything = rows(*[(rank, at) for rank in range(500) for at in (1, 2)])
    found.gain(everything)
    assert found.least == 500
    found.shrink(everything, 10)
    assert found.count == 500
    found.leave(found.inside(everything))
    assert [found.end_of(of) for of in (0, 499)] == [(1, 1 << 16), (1, 999 << 16)]
