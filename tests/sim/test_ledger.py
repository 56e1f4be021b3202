"""The ledger of committed records, and the reference beside it."""

from __future__ import annotations

from dueq.core.state.order import ORDERS
from dueq_chaos.sim.ledger import Ledger


def test_a_partition_that_was_asked_about_before_it_was_there_gets_its_place_and_its_order() -> None:
    ledger = Ledger()
    assert ledger.end(7) == 0
    ledger.opened(7, (3, 2), ORDERS["priority"])
    assert ledger.naive(7).place == (3, 2)
    assert ledger.reference(7).order.kind == "priority"
