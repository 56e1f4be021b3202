"""Whole meshes in one thread, in weather that a seed decides: nothing lost, early, or twice."""

from __future__ import annotations

import pytest

from dueq_chaos.sim.storm import Storm


@pytest.mark.parametrize("seed", range(60))
def test_a_storm_harms_no_message(seed: int) -> None:
    outcome = Storm(seed).run()
    assert not outcome.verdicts, "\n".join([*outcome.verdicts[:5], *outcome.trace[-60:]])


def test_the_same_seed_is_the_same_world() -> None:
    first, again = Storm(7).run(), Storm(7).run()
    assert first.trace == again.trace
    assert first.simulated_us == again.simulated_us
