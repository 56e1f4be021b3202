"""A member that says that its log ends early: whether it has lost what it had, or said so before it got it back."""

from __future__ import annotations

import pytest

from dueq.core.ports.membership import Member, SetOutcome
from dueq_codecs.messages import Mismatch
from tests.unit.core.replica_stage import UID, Stage, entry

B1, B2, B3 = (Member(f"b{i}", f"s{i}") for i in (1, 2, 3))
LOST = Mismatch(UID, 1, 2, 1, 2, installing=False)
"""The log ends with record 2."""


@pytest.fixture
def stage() -> Stage:
    """A leadership in which all have four records; then b3 has started again, and lacks the last two."""
    stage = Stage()
    stage.lead("b2", "b3")
    for name in ("b2", "b3"):
        stage.acked_by(name, 1)
    for _ in range(3):
        stage.replica.append_own(entry(stage.replica.log.end + 1, 1), stage.now)
    stage.sync()
    for name in ("b2", "b3"):
        stage.acked_by(name, 4)
    assert stage.replica.commit == 4
    starts_again(stage, 34)
    return stage


def starts_again(stage: Stage, incarnation: int) -> None:
    stage.peer("b3").reborn(incarnation, "s3", "tcp://b3", "", stage.now)
    stage.peer("b3").registered = True


def says(stage: Stage, mismatch: Mismatch) -> None:
    stage.replica.mismatch_received(stage.peer("b3"), mismatch, stage.now)


def isr_after_a_while(stage: Stage) -> tuple[Member, ...]:
    """Both followers answer, and nothing is written."""
    for _ in range(20):
        stage.pass_ms(50, "b2", "b3")
        while stage.orders:
            stage.answer(SetOutcome.DONE)
    leading = stage.replica.leading
    assert leading is not None
    return leading.isr.members


def test_what_a_member_has_said_before_it_got_all_back_is_no_reason_to_distrust_it(stage: Stage) -> None:
    """Frames may be repeated and late. While nothing is written, no further ack would show that it has all."""
    says(stage, LOST)
    stage.acked_by("b3", 4)
    says(stage, LOST)
    assert isr_after_a_while(stage) == (B1, B2, B3)


def test_a_member_that_has_got_back_a_part_of_what_it_has_lost_stays_distrusted(stage: Stage) -> None:
    says(stage, LOST)
    stage.acked_by("b3", 3)
    says(stage, LOST)
    assert isr_after_a_while(stage) == (B1, B2)
    stage.acked_by("b3", 4)
    assert isr_after_a_while(stage) == (B1, B2, B3)


def test_what_it_loses_in_its_next_life_counts_though_it_had_all_before(stage: Stage) -> None:
    says(stage, LOST)
    stage.acked_by("b3", 4)
    starts_again(stage, 35)
    says(stage, LOST)
    assert isr_after_a_while(stage) == (B1, B2)
    stage.acked_by("b3", 3)
    assert isr_after_a_while(stage) == (B1, B2)
    stage.acked_by("b3", 4)
    assert isr_after_a_while(stage) == (B1, B2, B3)


def test_a_member_that_is_being_filled_is_distrusted_though_it_had_all_in_this_life(stage: Stage) -> None:
    stage.acked_by("b3", 4)
    says(stage, Mismatch(UID, 1, 0, 0, 0, installing=True))
    assert isr_after_a_while(stage) == (B1, B2)
    stage.acked_by("b3", 3)
    assert isr_after_a_while(stage) == (B1, B2)
    stage.acked_by("b3", 4)
    assert isr_after_a_while(stage) == (B1, B2, B3)
