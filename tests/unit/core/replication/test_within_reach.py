"""Who counts as within reach of a leader: for the next request, and for the next lease."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq.core.ports.membership import CoordinatorState, Member, PartitionNode
from dueq.core.replication.leading import Leading
from dueq_codecs.messages import PeerFrame
from tests.unit.core.replica_stage import Stage

CONFIRM_US = limits.PUSH_CONFIRM_MS * 1000
LAG_US = limits.REPLICA_LAG_MS * 1000
B1, B3 = Member("b1", "s1"), Member("b3", "s3")


@pytest.fixture
def stage() -> Stage:
    return Stage()


def leading_with(stage: Stage, *isr: str) -> Leading:
    """Lead with these members, who have the barrier."""
    stage.lead(*isr)
    for name in isr:
        stage.acked_by(name, 1)
    assert stage.replica.leading is not None
    return stage.replica.leading


def answered(stage: Stage, name: str, asked_us: int) -> None:
    """A frame comes of a peer that has had what left here at this instant (mono)."""
    frame = PeerFrame(name, stage.peer(name).incarnation, "b1", 11, stage.mono_us, 0, echo_mono_us=asked_us)
    stage.peer(name).frame_received(frame, stage.now)


# ---------------------------------------------------------------- for a request


def test_a_request_is_taken_while_min_isr_members_were_heard_within_the_time_that_a_replica_may_lag(
    stage: Stage,
) -> None:
    leading = leading_with(stage, "b2", "b3")
    stage.mono_us += LAG_US
    assert leading.healthy(stage.now)
    stage.mono_us += 1
    assert not leading.healthy(stage.now)
    stage.peer("b3").heard_at_us = stage.mono_us
    assert leading.healthy(stage.now), "two of the three are enough"


def test_a_member_that_has_come_back_with_another_disk_is_not_the_member(stage: Stage) -> None:
    """It acks nothing for the one that is counted on: who stores would wait for its answer in vain."""
    leading = leading_with(stage, "b2")
    assert leading.healthy(stage.now)
    stage.peer("b2").reborn(34, "other", "tcp://b2", "", stage.now)
    assert not leading.healthy(stage.now)
    stage.peer("b2").reborn(35, "s2", "tcp://b2", "", stage.now)
    assert leading.healthy(stage.now)


def test_a_member_without_a_registration_is_not_within_reach_however_lately_it_was_heard(
    stage: Stage,
) -> None:
    """It is about to leave the ISR."""
    leading = leading_with(stage, "b2")
    stage.peer("b2").registered = False
    assert not leading.healthy(stage.now)


def test_a_follower_outside_the_isr_makes_no_leader_healthy(stage: Stage) -> None:
    leading = leading_with(stage, "b2")
    stage.mono_us += LAG_US + 1
    stage.peer("b3").heard_at_us = stage.mono_us
    assert not leading.healthy(stage.now)


def test_a_member_that_is_about_to_join_is_one_who_may_ack_the_next_record(stage: Stage) -> None:
    """The change of the node is under way, and the member before it has died."""
    leading = leading_with(stage, "b2")
    stage.ctx.coordinator = CoordinatorState.CONNECTED
    isr = (*leading.isr.members, B3)
    stage.peer("b2").registered = False
    assert not leading.healthy(stage.now)
    leading.isr.set_node(PartitionNode("b1", 11, leading.epoch, isr))
    assert leading.healthy(stage.now)


# ---------------------------------------------------------------- for a lease


def test_every_member_must_have_answered_lately_before_anything_is_leased(stage: Stage) -> None:
    """The lease of one that waits for a dead member would be committed after the message was due."""
    leading = leading_with(stage, "b2", "b3")
    asked_us = stage.mono_us
    answered(stage, "b2", asked_us)
    assert not leading.in_touch(stage.now), "b3 has never answered"
    answered(stage, "b3", asked_us + 10)
    stage.mono_us = asked_us + CONFIRM_US
    assert leading.in_touch(stage.now)
    stage.mono_us += 1
    assert not leading.in_touch(stage.now)
    answered(stage, "b2", stage.mono_us)
    assert leading.in_touch(stage.now)


def test_a_member_that_is_heard_and_does_not_answer_is_not_in_touch(stage: Stage) -> None:
    """What is sent to it is lost on its way: it will ack no lease."""
    leading = leading_with(stage, "b2")
    answered(stage, "b2", stage.mono_us)
    assert leading.in_touch(stage.now)
    early_us = stage.mono_us
    stage.mono_us += CONFIRM_US + 1
    answered(stage, "b2", early_us)
    assert not leading.in_touch(stage.now)


def test_what_was_asked_before_a_pause_of_the_process_says_nothing_after_it(stage: Stage) -> None:
    """The clock may have stood still with the machine; the member may have died meanwhile."""
    leading = leading_with(stage, "b2")
    answered(stage, "b2", stage.mono_us)
    stage.mono_us += 1
    stage.ctx.confirm_floor_us = stage.mono_us
    assert not leading.in_touch(stage.now)
    answered(stage, "b2", stage.mono_us)
    assert leading.in_touch(stage.now)


def test_no_lease_waits_for_a_follower_outside_the_isr(stage: Stage) -> None:
    leading = leading_with(stage, "b2")
    answered(stage, "b2", stage.mono_us)
    stage.peer("b3").registered = False
    assert leading.in_touch(stage.now)


def test_a_member_of_which_nothing_was_ever_read_is_not_in_touch(stage: Stage) -> None:
    leading = leading_with(stage, "b2", "b3")
    answered(stage, "b2", stage.mono_us)
    del stage.ctx.peers["b3"]
    assert not leading.in_touch(stage.now)
