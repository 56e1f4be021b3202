"""A plan of faults follows from a scenario or a seed alone."""

from __future__ import annotations

import pytest

from dueq_chaos.nemesis.faults import FAULTS
from dueq_chaos.nemesis.plan import Step, fitted, one_after_another
from dueq_chaos.nemesis.scenarios import SCENARIOS, at_random


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_every_scenario_is_made_of_known_faults_in_order(name: str) -> None:
    steps = SCENARIOS[name].steps
    assert steps
    assert {step.kind for step in steps} <= set(FAULTS)
    assert [step.at_s for step in steps] == sorted(step.at_s for step in steps)


def test_every_kind_of_fault_is_in_some_scenario() -> None:
    assert {step.kind for scenario in SCENARIOS.values() for step in scenario.steps} == set(FAULTS)


@pytest.mark.parametrize("name", sorted(SCENARIOS))
@pytest.mark.parametrize("duration_s", [10.0, 60.0, 600.0])
def test_a_fitted_scenario_ends_with_its_time_and_no_fault_is_longer_than_it_was(
    name: str, duration_s: float
) -> None:
    steps = SCENARIOS[name].steps
    plan = fitted(steps, duration_s)
    assert len(plan) == len(steps)
    assert all(step.end_s <= duration_s + max(s.for_s for s in steps) for step in plan)
    longest = max(step.for_s for step in steps)
    assert all(0 < step.for_s <= longest for step in plan)


def test_a_scenario_that_is_given_less_time_shrinks_as_a_whole() -> None:
    assert fitted((Step(2, 2, "kill"), Step(8, 2, "pause")), 5) == (Step(1, 1, "kill"), Step(4, 1, "pause"))


def test_scenarios_in_turn_have_equal_shares_of_the_time() -> None:
    plan = one_after_another([(Step(1, 9, "kill"),), (Step(4, 6, "pause"),)], 20)
    assert [(step.kind, step.at_s, step.end_s) for step in plan] == [("kill", 1, 10), ("pause", 14, 20)]


def test_the_same_seed_gives_the_same_plan_and_another_seed_another_one() -> None:
    assert at_random(7, 300, list(FAULTS)) == at_random(7, 300, list(FAULTS))
    assert at_random(7, 300, list(FAULTS)) != at_random(8, 300, list(FAULTS))


@pytest.mark.parametrize("seed", range(40))
def test_a_random_plan_is_possible_in_order_and_over_in_time(seed: int) -> None:
    possible = [kind for kind in FAULTS if kind not in ("clock", "fill-disk")]
    plan = at_random(seed, 120, possible)
    assert plan
    assert {step.kind for step in plan} <= set(possible)
    assert [step.at_s for step in plan] == sorted(step.at_s for step in plan)
    assert all(step.for_s > 0 and step.end_s <= 120.01 for step in plan)


def test_where_nothing_is_possible_nothing_is_planned() -> None:
    assert at_random(1, 60, []) == ()
    assert at_random(1, 60, ["kill"], only=["pause"]) == ()


@pytest.mark.parametrize("seed", range(20))
def test_random_faults_can_be_of_chosen_kinds_only(seed: int) -> None:
    plan = at_random(seed, 120, list(FAULTS), only=["pause", "kill"])
    assert {step.kind for step in plan} == {"pause", "kill"}
