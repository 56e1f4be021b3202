"""Patient acks wait for a record that is made anyway, and never longer than a bound."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq.core.turn.gathering import Gathering
from dueq.instant import Now

UIDS = (3, 4)


def at(ms: float) -> Now:
    return Now(0, int(ms * 1000))


def waiting(*ms: float) -> Gathering:
    """One ack of each of two partitions by turns, at these instants."""
    gathering = Gathering()
    for number, instant in enumerate(ms):
        gathering.wait(UIDS[number % 2], 1, at(instant))
    return gathering


@pytest.mark.parametrize("later", [[], [1, 2, 3, 4]], ids=["alone", "others follow"])
def test_the_first_ack_says_when_all_leave(later: list[int]) -> None:
    gathering = waiting(0, *later)
    assert gathering.until_us == limits.ACK_GATHER_MS * 1000
    assert gathering.take(at(limits.ACK_GATHER_MS - 0.001)) == []
    assert gathering.take(at(limits.ACK_GATHER_MS)) == list(UIDS[: 1 + bool(later)])
    assert gathering.until_us is None


def test_they_leave_with_a_record_that_is_made_anyway() -> None:
    gathering = waiting(0, 1)
    assert gathering.end(UIDS[0]), "its acks are in that record"
    assert gathering.take(at(2)) == [UIDS[1]]


def test_they_leave_when_they_fill_a_record() -> None:
    gathering = waiting(0)
    gathering.wait(UIDS[1], limits.RECORD_ROWS_MAX, at(1))
    assert gathering.take(at(1)) == list(UIDS)
    gathering.wait(UIDS[0], 1, at(2))
    assert gathering.take(at(2)) == [], "the rows of the first time do not count again"


def test_a_partition_that_is_no_longer_led_leaves_alone() -> None:
    gathering = waiting(0, 1)
    gathering.leave(UIDS[0])
    assert gathering.take(at(limits.ACK_GATHER_MS)) == [UIDS[1]]
