"""An ISR smaller than min_isr is noticed when the node is set, before anything is committed by it."""

from __future__ import annotations

import pytest

from dueq.core.ports.membership import CompareAndSet, CoordinatorEvent, PartitionNode, Registration
from dueq_chaos.scenarios.stage import Stage
from dueq_chaos.sim.environment.coordinator import Session
from dueq_chaos.sim.watching.invariants import Invariants, Violation


def _keep(stage: Stage, members: int) -> None:
    """Somebody sets the node so that only so many members stay."""
    version, node = stage.coordinator.nodes[stage.uid]
    wanted = PartitionNode(node.leader, node.incarnation, node.epoch, node.isr[:members])
    events: list[CoordinatorEvent] = []
    session = Session(stage.coordinator, Registration("somebody", 1, "", ""), events.append)
    session.connected = True
    stage.coordinator.order(session, CompareAndSet(1, stage.uid, version, wanted))
    stage.until(lambda: stage.coordinator.nodes[stage.uid][0] > version, "the node is set")


def test_of_three_members_two_are_enough_and_one_is_not() -> None:
    stage = Stage()
    Invariants(stage, clock_error_us=0)
    _keep(stage, 2)
    with pytest.raises(Violation, match="of at least 2"):
        _keep(stage, 1)
