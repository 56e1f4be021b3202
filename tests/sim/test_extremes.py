"""Some seeds are at the end of their scales, the others are as they always were."""

from __future__ import annotations

import pytest

from dueq_chaos.sim.storms.plan import SELDOM, draw
from dueq_chaos.sim.storms.storm import Storm

RARE = {"schedule steadily", "schedule very far", *(kind for kind, _ in SELDOM.values())}


def test_only_some_seeds_are_stretched() -> None:
    stretched = [
        seed
        for seed in range(320)
        if RARE & {step.kind for step in draw(seed).steps} or draw(seed).options.disks_us
    ]
    assert len(stretched) > 40
    assert {seed % 16 for seed in stretched} == {0, 4, 8, 10, 12}
    assert all(seed >= 16 for seed in stretched), "the first ones are in everybody's memory"


@pytest.mark.parametrize("turn", [slot or 8 for slot in SELDOM])
def test_each_misfortune_has_seeds_of_its_own(turn: int) -> None:
    plan = draw(16 * turn + 4)
    assert SELDOM[turn % 8][0] in {step.kind for step in plan.steps}


def test_a_stretched_storm_harms_no_message() -> None:
    assert not Storm(16 * 3 + 10).run().verdicts
