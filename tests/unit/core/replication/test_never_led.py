"""A partition that nobody has ever led has nothing to lose: a disk that was replaced is as good as the old one."""

from __future__ import annotations

import pytest

from dueq.core.ports.membership import Member, PartitionNode, SetOutcome
from tests.unit.core.replica_stage import Stage

OURS, OLD, OTHER = Member("b1", "s1"), Member("b1", "old"), Member("b2", "s2")


@pytest.mark.parametrize("others", [(), (OTHER,)])
def test_a_broker_whose_disk_was_replaced_before_leads_with_the_new_one(others: tuple[Member, ...]) -> None:
    """Whoever made the partition had not heard of the new disk yet."""
    stage = Stage()
    stage.replica.node_seen(0, PartitionNode("", 0, 0, (OLD, *others)), stage.now)
    stage.pass_ms(100, "b2", "b3")
    if others:
        stage.votes(b2=True)
    stage.pass_ms(400, "b2", "b3")
    assert stage.answer(SetOutcome.DONE).node.isr == (OURS, *others)
    assert stage.replica.is_leader


def test_where_somebody_has_led_a_new_disk_is_nobody() -> None:
    stage = Stage()
    stage.replica.node_seen(0, PartitionNode("", 0, 1, (OLD,)), stage.now)
    stage.pass_ms(2_000, "b2", "b3")
    assert not stage.orders
    assert not stage.replica.is_leader
