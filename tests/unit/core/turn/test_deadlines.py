"""Deadlines: one per name, the earliest first."""

from __future__ import annotations

from dueq.core.turn.deadlines import Deadlines


def test_a_moved_deadline_counts_only_where_it_is_now() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    deadlines.set("b", 20)
    deadlines.set("a", 30)
    assert deadlines.next_us() == 20
    assert deadlines.take_due(25) == ["b"]
    assert deadlines.next_us() == 30


def test_a_removed_deadline_never_comes() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    deadlines.set("a", None)
    assert deadlines.next_us() is None
    assert deadlines.take_due(100) == []


def test_a_deadline_that_was_taken_can_be_set_to_the_same_instant_again() -> None:
    """As of who looks again at once: with a clock that goes by ms, the instant is the same."""
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    assert deadlines.take_due(10) == ["a"]
    assert deadlines.next_us() is None
    deadlines.set("a", 10)
    assert deadlines.take_due(10) == ["a"]


def test_of_many_that_are_due_as_many_are_taken_as_are_wanted_and_the_others_stay() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for at_us, name in enumerate("abc"):
        deadlines.set(name, at_us)
    assert deadlines.take_due(10, 2) == ["a", "b"]
    assert deadlines.next_us() == 2
    assert deadlines.take_due(10, 2) == ["c"]
