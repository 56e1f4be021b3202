"""Goodbyes are remembered, so that an older attach that comes later opens nothing."""

from __future__ import annotations

from dueq.core.delivery.departed import KEPT_US, Departed

ALICE, BOB = b"a" * 16, b"b" * 16


def test_a_goodbye_ends_its_attach_and_all_before_it_and_none_after() -> None:
    departed = Departed()
    departed.note(ALICE, 5, 0)
    assert [departed.has_ended(ALICE, attach, 1) for attach in (4, 5, 6)] == [True, True, False]
    assert not departed.has_ended(BOB, 5, 1)


def test_a_repetition_of_an_older_goodbye_reopens_nothing() -> None:
    departed = Departed()
    departed.note(ALICE, 5, 0)
    departed.note(ALICE, 3, 1)
    assert departed.has_ended(ALICE, 5, 2)


def test_a_goodbye_is_forgotten_when_no_frame_can_be_so_late() -> None:
    departed = Departed()
    departed.note(ALICE, 5, 0)
    assert departed.has_ended(ALICE, 5, KEPT_US)
    assert not departed.has_ended(ALICE, 5, KEPT_US + 1)


def test_of_many_goodbyes_the_last_ones_are_remembered() -> None:
    departed = Departed(kept=2)
    names = [bytes([number]) * 16 for number in range(4)]
    for now_us, name in enumerate(names):
        departed.note(name, 5, now_us)
    assert [departed.has_ended(name, 5, 4) for name in names] == [False, False, True, True]
