"""Which followers may join the ISR, and which changes of it are still possible."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq.core.ports.membership import Member, ReadNode, SetOutcome
from dueq.core.replication.leading import Leading
from tests.unit.core.replica_stage import UID, Stage, entry

B1, B2, B3 = (Member(f"b{i}", f"s{i}") for i in (1, 2, 3))


def leads_after_two_records(stage: Stage) -> Leading:
    """Two records of epoch 1 are committed here and at b2. The barrier of epoch 2, record 3, is at nobody else yet."""
    stage.append("b2", 1, (0, 0), 1, 1, commit=2)
    stage.sync()
    stage.node("", 1, "b1", "b2")
    stage.pass_ms(600, "b2", "b3")
    stage.votes(b2=True)
    stage.answer(SetOutcome.DONE)
    stage.sync()
    assert stage.replica.leading is not None
    return stage.replica.leading


def leads_with_b2(stage: Stage) -> Leading:
    """The ISR is b1, b2; b3 has everything, too, and may join."""
    stage.lead("b2")
    leading = stage.replica.leading
    assert leading is not None
    for name in ("b2", "b3"):
        stage.acked_by(name, 1)
    return leading


def test_all_that_is_committed_does_not_make_a_follower_level_before_the_barrier() -> None:
    """This leader may know of fewer commits than its predecessor made."""
    stage = Stage()
    leading = leads_after_two_records(stage)
    stage.acked_by("b3", 2)
    assert stage.replica.commit == 2
    assert not leading.isr.is_level("b3", stage.now)
    stage.acked_by("b3", 3)
    assert leading.isr.is_level("b3", stage.now)


def test_a_follower_that_has_fallen_silent_does_not_join() -> None:
    stage = Stage()
    leading = leads_after_two_records(stage)
    stage.acked_by("b3", 3)
    stage.mono_us += limits.REPLICA_LAG_MS * 500
    stage.peer("b2").heard_at_us = stage.mono_us
    assert leading.isr.is_level("b3", stage.now)
    stage.mono_us += 1
    assert not leading.isr.is_level("b3", stage.now)


def test_a_member_that_takes_no_records_does_not_come_back_because_nothing_is_committed_without_it() -> None:
    stage = Stage()
    leading = leads_after_two_records(stage)
    for name in ("b2", "b3"):
        stage.acked_by(name, 3)
    stage.replica.append_own(entry(4, 2), stage.now)
    leading.appended(4, stage.now)
    stage.sync()
    stage.mono_us += limits.REPLICA_LAG_MS * 1000 + 1
    for name in ("b2", "b3"):
        stage.peer(name).heard_at_us = stage.mono_us
    assert stage.replica.commit == 3
    assert not leading.isr.is_level("b3", stage.now)


def test_of_two_changes_of_unknown_outcome_both_count() -> None:
    """The first may have joined b3 to the ISR. The second, which is without b3, says nothing about that."""
    stage = Stage()
    leading = leads_with_b2(stage)
    stage.pass_ms(50, "b2", "b3")
    stage.pass_ms(limits.REPLICA_LAG_MS, "b2")
    assert stage.answer(SetOutcome.UNKNOWN).node.isr == (B1, B2, B3)
    stage.pass_ms(50, "b2")
    assert stage.answer(SetOutcome.UNKNOWN).node.isr == (B1, B2)
    assert leading.isr.maximal() == {B1, B2, B3}
    stage.replica.append_own(entry(2, 1), stage.now)
    stage.sync()
    stage.acked_by("b2", 2)
    assert stage.replica.commit == 1
    stage.acked_by("b3", 2)
    assert stage.replica.commit == 2


def test_a_member_whose_broker_has_another_disk_leaves() -> None:
    """Its second disk does not hold what the first one had acked."""
    stage = Stage()
    stage.lead("b2", "b3")
    for name in ("b2", "b3"):
        stage.acked_by(name, 1)
    stage.peer("b3").reborn(34, "another", "tcp://b3", "", stage.now)
    stage.pass_ms(50, "b2", "b3")
    assert stage.answer(SetOutcome.DONE).node.isr == (B1, B2)


def test_a_member_leaves_once_it_has_been_silent_for_longer_than_it_may() -> None:
    stage = Stage()
    stage.lead("b2", "b3")
    for name in ("b2", "b3"):
        stage.acked_by(name, 1)
    for us, isrs in ((limits.REPLICA_LAG_MS * 1000, []), (1, [(B1, B2)])):
        stage.mono_us += us
        stage.peer("b2").heard_at_us = stage.mono_us
        stage.tick()
        assert [order.node.isr for order in stage.orders] == isrs


@pytest.mark.parametrize("outcome", [SetOutcome.UNKNOWN, SetOutcome.BAD_VERSION])
def test_a_leader_that_does_not_know_what_the_node_says_reads_it(outcome: SetOutcome) -> None:
    """Another may lead by now, and every further change would be made in vain."""
    stage = Stage()
    leads_with_b2(stage)
    stage.pass_ms(50, "b2", "b3")
    assert stage.asked == []
    stage.answer(outcome)
    assert stage.asked == [ReadNode(UID)]


def test_a_leader_is_busy_until_it_knows_how_its_change_has_ended() -> None:
    stage = Stage()
    leads_with_b2(stage)
    assert not stage.replica.busy
    stage.pass_ms(50, "b2", "b3")
    assert stage.replica.busy
    stage.answer(SetOutcome.UNKNOWN)
    assert stage.replica.busy
    stage.pass_ms(50, "b2", "b3")
    stage.answer(SetOutcome.DONE)
    assert not stage.replica.busy


def test_what_a_later_change_has_left_out_is_waited_for_no_more() -> None:
    """A follower that was to join is dead, the outcome unknown: else nothing would ever be committed again."""
    stage = Stage()
    leads_with_b2(stage)
    stage.pass_ms(50, "b2", "b3")
    assert stage.answer(SetOutcome.UNKNOWN).node.isr == (B1, B2, B3)
    stage.peer("b3").registered = False
    stage.pass_ms(50, "b2")
    stage.replica.append_own(entry(2, 1), stage.now)
    stage.sync()
    stage.acked_by("b2", 2)
    assert stage.replica.commit == 1
    assert stage.answer(SetOutcome.DONE).node.isr == (B1, B2)
    assert stage.replica.commit == 2
