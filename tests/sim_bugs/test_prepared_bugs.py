"""Planted bugs of pushes that are laid out before their instant: a test of the dispatcher finds each."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.core import test_push_first as first
from tests.unit.core.delivery import test_instants as instants
from tests.unit.core.delivery import test_prepared as prepared

from dueq_chaos.bugs.bug import Bug
from dueq_chaos.bugs.prepared import PREPARED, PREPARED_UNSEEN

FOUND_BY: dict[str, Callable[[], None]] = {
    "prepared-though-withheld": lambda: prepared.test_what_a_cancel_withholds_stays(40),
    "prepared-by-own-clock": prepared.test_the_instant_is_that_of_mesh_time,
    "prepared-for-another-lease": lambda: (
        prepared.test_a_place_that_another_lease_has_is_not_taken_for_the_old_one(40)
    ),
    "prepared-without-payload": lambda: prepared.test_nothing_leaves_before_its_payload_is_here(40),
    "prepared-though-ended": prepared.test_less_than_half_a_lease_goes_back_instead,
    "prepared-to-a-lost-route": prepared.test_a_lease_that_is_granted_when_its_consumer_is_lost_goes_back,
    "prepared-though-extended": prepared.test_a_lease_that_was_extended_meanwhile_says_its_new_length,
    "instant-though-unconfirmed": lambda: instants.test_whatever_has_happened_wants_a_whole_turn(
        "unconfirmed"
    ),
    "instant-though-something-has-happened": lambda: instants.test_whatever_has_happened_wants_a_whole_turn(
        "frame"
    ),
    "instant-hides-a-pause": first.test_a_pause_is_noticed_though_nothing_is_due,
    "instant-keeps-others-waiting": instants.test_what_is_to_be_leased_wants_a_whole_turn,
}


@pytest.mark.parametrize("bug", [*PREPARED, *PREPARED_UNSEEN], ids=lambda bug: bug.name)
def test_a_test_finds_it(bug: Bug) -> None:
    with bug.planted(), pytest.raises(AssertionError):
        FOUND_BY[bug.name]()
