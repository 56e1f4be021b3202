"""A replica that leads no longer has the node say so: it resigns until the node names it no more."""

from __future__ import annotations

from dueq.core.ports.membership import CoordinatorState, Member, PartitionNode, SetOutcome
from tests.unit.core.replica_stage import Stage

B1, B2, B3 = (Member(f"b{i}", f"s{i}") for i in (1, 2, 3))


def gives_up(stage: Stage) -> None:
    stage.replica.give_up(stage.now, "told to")
    assert not stage.replica.is_leader


def test_it_resigns_again_though_a_change_of_the_isr_that_was_under_way_came_first() -> None:
    """Else the others believe that it still leads, and nobody does until they take it for silent."""
    stage = Stage()
    stage.lead("b2")
    for name in ("b2", "b3"):
        stage.acked_by(name, 1)
    stage.pass_ms(50, "b2", "b3")
    gives_up(stage)
    stage.pass_ms(50, "b2", "b3")
    joined = stage.answer(SetOutcome.DONE)
    assert joined.node.isr == (B1, B2, B3)
    stage.answer(SetOutcome.BAD_VERSION)
    stage.pass_ms(50, "b2", "b3")
    [again] = stage.orders
    assert (again.version, again.node) == (joined.version + 1, PartitionNode("", 0, 1, (B1, B2, B3)))


def test_it_does_not_stand_before_the_node_says_that_nobody_leads() -> None:
    """Those that it gave up for do not know yet that they may stand."""
    stage = Stage()
    stage.lead("b2", "b3")
    gives_up(stage)
    for outcome in (SetOutcome.REFUSED, SetOutcome.BAD_VERSION, SetOutcome.UNKNOWN, SetOutcome.DONE):
        stage.pass_ms(200, "b2", "b3")
        assert stage.replica.standing.candidacy is None
        assert stage.answer(outcome).node.leader == ""
    stage.pass_ms(50, "b2", "b3")
    assert stage.replica.standing.candidacy is not None
    assert not stage.orders


def test_it_resigns_once_the_coordinator_is_back() -> None:
    stage = Stage()
    stage.lead("b2", "b3")
    stage.ctx.coordinator = CoordinatorState.SUSPENDED
    gives_up(stage)
    stage.pass_ms(500, "b2", "b3")
    assert not stage.orders
    stage.ctx.coordinator = CoordinatorState.CONNECTED
    stage.pass_ms(50, "b2", "b3")
    assert [order.node.leader for order in stage.orders] == [""]


def test_it_leaves_a_node_alone_that_is_older_than_the_leader_that_it_follows() -> None:
    """The node has changed by now, or the coordinator has lost a change: either way it is not this one's to set."""
    stage = Stage()
    stage.lead("b2", "b3")
    stage.append("b2", 2, (0, 0), 2)
    stage.pass_ms(1_000, "b2", "b3")
    assert not stage.orders
