"""Weaker rules for when a leader may act, whose circumstances no storm brings about: a scenario each finds them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.scenarios import test_replaced as scenarios

from dueq_chaos.bugs.bug import Bug
from dueq_chaos.bugs.waking import UNSEEN
from dueq_chaos.scenarios.stage import StoryFailed

FOUND_BY: dict[str, Callable[[], None]] = {
    "leaderships-told-depose": scenarios.test_a_successor_that_has_forgotten_its_leadership_is_asked_for_its_epoch,
    "only-the-nodes-isr-confirms": scenarios.test_a_member_by_a_change_of_unknown_outcome_is_asked,
    "another-disk-confirms": scenarios.test_a_member_without_its_disk_confirms_nothing,
    "inherited-leases-from-the-takeover": scenarios.test_inherited_leases_last_until_the_predecessors_pushes_are_over,
    "leases-told-longer-than-they-are": scenarios.test_nobody_is_told_that_a_lease_lasts_longer_than_it_is,
    "nobody-asked": scenarios.test_a_leader_that_was_not_replaced_asks_and_pushes_at_once,
    "alone-and-sure": scenarios.test_a_sole_member_looks_at_its_node_after_a_pause,
}


@pytest.mark.parametrize("bug", UNSEEN, ids=lambda bug: bug.name)
def test_a_scenario_finds_it(bug: Bug) -> None:
    with bug.planted(), pytest.raises(StoryFailed):
        FOUND_BY[bug.name]()
