"""When a leader may push: who must have acked, since when, and how it asks."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq.core.ports.membership import CoordinatorState, Member, PartitionNode, SetOutcome
from dueq.core.replication.confirming import ASK_US, CONFIRM_US, Confirmation, inherited_from_us
from dueq.core.replication.leading import Leading
from dueq_codecs.messages import Ack, Append
from dueq_codecs.records import LogEntry, Record, RecordKind
from tests.unit.core.replica_stage import UID, Stage


@pytest.fixture
def stage() -> Stage:
    return Stage()


def _leading(stage: Stage, *isr: str) -> Leading:
    stage.lead(*isr)
    assert stage.replica.leading is not None
    return stage.replica.leading


def test_a_member_that_is_about_to_join_must_have_acked_too(stage: Stage) -> None:
    """The outcome of the expansion is not known: it may have happened, and the new member may lead by now."""
    leading = _leading(stage, "b2")
    stage.acked_by("b2", 1)
    assert leading.confirmed(stage.now)
    stage.ctx.coordinator = CoordinatorState.CONNECTED
    isr = (*leading.isr.members, Member("b3", "s3"))
    leading.isr.set_node(PartitionNode("b1", 11, leading.epoch, isr))
    assert not leading.confirmed(stage.now)
    stage.pass_ms(0)
    stage.orders.clear()
    stage.acked_by("b3", 1)
    assert leading.confirmed(stage.now)


def test_an_ack_of_another_disk_confirms_nothing(stage: Stage) -> None:
    """It has forgotten which epoch the member was in."""
    leading = _leading(stage, "b2", "b3")
    stage.acked_by("b2", 1)
    stage.peer("b3").reborn(34, "other", "tcp://b3", "", stage.now)
    stage.acked_by("b3", 1)
    assert not leading.confirmed(stage.now)


def test_what_an_earlier_life_has_confirmed_is_over(stage: Stage) -> None:
    """A broker that has restarted may have followed a later leader since."""
    leading = _leading(stage, "b2", "b3")
    for name in ("b2", "b3"):
        stage.acked_by(name, 1)
    assert leading.confirmed(stage.now)
    stage.peer("b3").reborn(34, "s3", "tcp://b3", "", stage.now)
    leading.isr.confirmation.begin_anew()
    assert not leading.confirmed(stage.now), "also before anything is sent to the new life"
    leading.followers.send_all(stage.now)
    leading.isr.confirmation.begin_anew()
    assert not leading.confirmed(stage.now)


def test_who_has_not_confirmed_lately_is_asked_once_in_a_while(stage: Stage) -> None:
    leading = _leading(stage, "b2", "b3")
    stage.acked_by("b2", 1)
    stage.acked_by("b3", 1, asked_us=stage.mono_us - CONFIRM_US - 1)
    for name in ("b2", "b3"):
        stage.peer(name).appends.clear()
    leading.ask(stage.now)
    leading.ask(stage.now)
    assert not stage.peer("b2").appends, "it has confirmed"
    assert stage.peer("b3").appends == [Append(UID, 1, 1, 1, stage.replica.commit, [])]
    stage.mono_us += ASK_US
    leading.ask(stage.now)
    assert len(stage.peer("b3").appends) == 2


def test_a_reader_needs_acks_of_what_was_asked_after_its_question_came(stage: Stage) -> None:
    """Another leader may have committed something a moment ago, and told somebody."""
    leading = _leading(stage, "b2", "b3")
    since_us = stage.mono_us
    for name in ("b2", "b3"):
        stage.acked_by(name, 1, asked_us=since_us - 1)
        stage.peer(name).appends.clear()
    assert leading.confirmed(stage.now)
    assert not leading.confirmation.holds_since(since_us, stage.now)
    leading.ask(stage.now, since_us)
    assert [len(stage.peer(name).appends) for name in ("b2", "b3")] == [1, 1]
    stage.acked_by("b2", 1, asked_us=since_us)
    assert not leading.confirmation.holds_since(since_us, stage.now)
    stage.acked_by("b3", 1, asked_us=since_us)
    assert leading.confirmation.holds_since(since_us, stage.now)


def test_a_reader_gets_nothing_by_what_was_asked_before_a_pause_of_the_process(stage: Stage) -> None:
    """The clock may have stood still with the machine: another one may have led since the answer."""
    leading = _leading(stage, "b2")
    since_us = stage.mono_us
    stage.acked_by("b2", 1, asked_us=since_us)
    assert leading.confirmation.holds_since(since_us, stage.now)
    stage.mono_us += 1
    stage.ctx.confirm_floor_us = stage.mono_us
    assert not leading.confirmation.holds_since(since_us, stage.now)
    stage.acked_by("b2", 1)
    assert leading.confirmation.holds_since(since_us, stage.now)


def test_a_member_that_may_be_dead_is_not_asked(stage: Stage) -> None:
    leading = _leading(stage, "b2")
    stage.acked_by("b2", 1)
    stage.peer("b2").appends.clear()
    stage.mono_us += limits.LEADER_SILENCE_MS * 1000 + 1
    leading.ask(stage.now)
    assert not stage.peer("b2").appends
    stage.peer("b2").heard_at_us += 1
    leading.ask(stage.now)
    assert len(stage.peer("b2").appends) == 1


def test_the_only_replica_of_a_partition_waits_for_nobody_after_a_pause(stage: Stage) -> None:
    """Nobody else can have led."""
    confirmation = Confirmation(stage.ctx, {}, lambda: {stage.ctx.me})
    stage.ctx.confirm_floor_us = stage.mono_us
    assert not confirmation.needs_node
    assert confirmation.holds(stage.now)


def test_the_next_reader_does_not_wait_for_the_turn_to_ask_again(stage: Stage) -> None:
    leading = _leading(stage, "b2")
    stage.acked_by("b2", 1, asked_us=stage.mono_us - 1)
    leading.ask(stage.now, stage.mono_us)
    stage.acked_by("b2", 1)
    stage.peer("b2").appends.clear()
    stage.mono_us += 1
    leading.ask(stage.now, stage.mono_us)
    assert len(stage.peer("b2").appends) == 1


def test_a_later_reader_waits_for_the_answer_that_is_on_its_way(stage: Stage) -> None:
    leading = _leading(stage, "b2")
    stage.acked_by("b2", 1, asked_us=stage.mono_us - 1)
    leading.ask(stage.now, stage.mono_us)
    stage.peer("b2").appends.clear()
    asked_us = stage.mono_us
    stage.mono_us += 1
    leading.ask(stage.now, stage.mono_us)
    assert not stage.peer("b2").appends
    stage.mono_us = asked_us + ASK_US
    leading.ask(stage.now, stage.mono_us)
    assert len(stage.peer("b2").appends) == 1, "it may be lost"


def test_a_sole_member_needs_its_node_after_a_pause(stage: Stage) -> None:
    """Another replica may have been made the only member by hand, and have nothing to tell it."""
    leading = _leading(stage, "b2")
    stage.acked_by("b2", 1)
    stage.replica.standing.node = PartitionNode("b1", 11, 1, (stage.ctx.me,))
    stage.replica.min_isr = 1
    stage.peer("b2").registered = stage.peer("b3").registered = False
    assert leading.confirmed(stage.now)
    stage.ctx.turn = stage.now
    stage.ctx.confirm_floor_us = stage.mono_us
    leading.shift(300_000)
    stage.ctx.coordinator = CoordinatorState.CONNECTED
    assert not leading.confirmed(stage.now)
    leading.ask(stage.now)
    stage.pass_ms(50)
    assert not leading.confirmed(stage.now)
    stage.answer(SetOutcome.DONE)
    assert leading.confirmed(stage.now)


def test_a_node_that_was_set_before_a_pause_confirms_nothing_after_it(stage: Stage) -> None:
    """The answer waited while the process slept, and a person may have named another leader since."""
    leading = _leading(stage, "b2")
    stage.acked_by("b2", 1)
    stage.replica.standing.node = PartitionNode("b1", 11, 1, (stage.ctx.me,))
    stage.replica.min_isr = 1
    stage.peer("b2").registered = stage.peer("b3").registered = False
    stage.ctx.coordinator = CoordinatorState.CONNECTED

    def pause() -> None:
        stage.mono_us += 300_000
        stage.ctx.turn, stage.ctx.confirm_floor_us = stage.now, stage.mono_us
        leading.shift(300_000)

    def set_node() -> None:
        leading.ask(stage.now)
        stage.pass_ms(50)

    pause()
    set_node()
    pause()
    stage.answer(SetOutcome.DONE)
    assert not leading.confirmed(stage.now)
    set_node()
    stage.answer(SetOutcome.DONE)
    assert leading.confirmed(stage.now)


def test_an_ack_of_the_epoch_before_does_not_leave_with_a_later_echo(stage: Stage) -> None:
    """It was true when it was made; the frame that it leaves with answers what came after."""
    stage.node("b2", 1, "b1", "b2", "b3")
    stage.peer("b2").acks[UID] = Ack(UID, 1, 1)
    stage.replica.leader, stage.replica.log.epoch = "b2", 1
    record = Record(RecordKind.BARRIER, UID, 1, 2, 0)
    stage.replica.append_received(stage.peer("b3"), Append(UID, 2, 0, 0, 0, [LogEntry(record)]), stage.now)
    assert stage.ack_to("b2") is None


def test_inherited_leases_count_from_when_nobody_else_can_push_them() -> None:
    """The earlier leader's clock may be the slower one by twice the drift of one."""
    assert inherited_from_us(1_000_000) >= 1_000_000 + CONFIRM_US * (1 + 2 * limits.CLOCK_DRIFT_PPM / 1e6)


def test_an_ack_that_comes_late_takes_nothing_from_a_later_one(stage: Stage) -> None:
    leading = _leading(stage, "b2", "b3")
    stage.pass_ms(CONFIRM_US // 1000 + 50, "b2", "b3")
    for name in ("b2", "b3"):
        stage.acked_by(name, 1)
    stage.acked_by("b2", 1, asked_us=stage.mono_us - CONFIRM_US - 1)
    assert leading.confirmed(stage.now)
