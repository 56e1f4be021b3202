"""A partition whose ISR was set to one survivor by hand, because every disk of the old one is lost."""

from __future__ import annotations

import pytest

from dueq.core.ports.membership import Member, SetOutcome
from dueq.core.replication.leading import Leading
from tests.unit.core.replica_stage import Stage

B1, B2, B3 = (Member(f"b{i}", f"s{i}") for i in (1, 2, 3))


@pytest.fixture
def stage() -> Stage:
    """The survivor holds two records of epoch 1, of which the second was never committed; min_isr is 2."""
    stage = Stage()
    stage.append("b2", 1, (0, 0), 1, 1, commit=1)
    stage.sync()
    stage.ack_to("b2")
    return stage


def take_over(stage: Stage) -> Leading:
    """The node names nobody but the survivor, which leads, with its barrier (record 3) synced."""
    stage.node("", 7, "b1", version=4)
    stage.pass_ms(600, "b2", "b3")
    order = stage.answer(SetOutcome.DONE)
    assert (order.version, order.node.leader, order.node.epoch, order.node.isr) == (4, "b1", 8, (B1,))
    stage.sync()
    leading = stage.replica.leading
    assert leading is not None
    return leading


def test_the_only_member_takes_over_without_asking_anybody(stage: Stage) -> None:
    take_over(stage)
    assert not stage.peer("b2").vote_requests
    assert not stage.peer("b3").vote_requests


def test_who_was_not_named_does_not_try(stage: Stage) -> None:
    stage.node("", 7, "b3", version=4)
    stage.pass_ms(3_000, "b2", "b3")
    assert stage.orders == []


def test_alone_it_does_not_take_over_because_nobody_could_join(stage: Stage) -> None:
    stage.peer("b2").registered = stage.peer("b3").registered = False
    stage.node("", 7, "b1", version=4)
    stage.pass_ms(3_000)
    assert stage.orders == []


def test_it_commits_nothing_alone_not_even_its_barrier(stage: Stage) -> None:
    leading = take_over(stage)
    stage.pass_ms(1_000, "b2", "b3")
    assert leading.barrier == 3
    assert stage.replica.synced == 3
    assert stage.replica.commit == 1
    assert not stage.replica.serving
    assert not leading.healthy(stage.now)


def test_a_follower_that_is_not_yet_in_the_node_does_not_make_a_commit(stage: Stage) -> None:
    take_over(stage)
    stage.acked_by("b2", 3)
    assert stage.replica.commit == 1
    stage.pass_ms(100, "b2", "b3")
    assert [order.node.isr for order in stage.orders] == [(B1, B2)]
    assert stage.replica.commit == 1


def test_it_commits_once_the_node_has_min_isr_members_again(stage: Stage) -> None:
    leading = take_over(stage)
    stage.acked_by("b2", 3)
    stage.pass_ms(100, "b2", "b3")
    stage.answer(SetOutcome.DONE)
    assert stage.replica.commit == 3
    assert leading.healthy(stage.now)
    stage.acked_by("b3", 3)
    stage.pass_ms(100, "b2", "b3")
    assert stage.answer(SetOutcome.DONE).node.isr == (B1, B2, B3)


def test_an_expansion_of_unknown_outcome_commits_nothing_before_it_is_settled(stage: Stage) -> None:
    leading = take_over(stage)
    stage.acked_by("b2", 3)
    stage.pass_ms(100, "b2", "b3")
    stage.answer(SetOutcome.UNKNOWN)
    assert stage.replica.commit == 1
    assert leading.isr.maximal() == {B1, B2}
    stage.pass_ms(100, "b2", "b3")
    stage.answer(SetOutcome.DONE)
    assert stage.replica.commit == 3
