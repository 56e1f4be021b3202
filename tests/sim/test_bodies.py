"""Shared bodies on a whole mesh: what is brought is kept, also at the moment at which it was to be forgotten."""

from __future__ import annotations

import pytest

from dueq_chaos.scenarios.stage import Stage
from dueq_chaos.sim.environment import scale
from dueq_chaos.sim.watching.invariants import Invariants
from dueq_codecs.records import Outcome

GRACE_MS = 30_000


@pytest.mark.parametrize("late_ms", [-1_000, -1, 0, 1, 10, 30])
def test_a_body_that_is_brought_again_when_its_grace_ends_is_kept(late_ms: int) -> None:
    """The record that brings it makes the partition older, and so may those that are not applied yet."""
    with scale.scaled((("BODY_GRACE_MS", GRACE_MS),)):
        stage = Stage()
        hand = stage.hand("user")
        stage.settled(hand, hand.bring(stage.leader, b"body"))
        [body] = stage.replica(stage.leader).timeline.bodies.by_name.values()
        stage.run_ms(stage.replica(stage.leader).timeline.stamp + GRACE_MS + late_ms - stage.now_ms)
        again = stage.settled(hand, hand.bring(stage.leader, b"body"))
        stage.expect(again.outcomes == [Outcome.DONE], f"it is kept, not {again.outcomes}")
        stage.expect(body.name in stage.replica(stage.leader).timeline.bodies.by_name, "it is there")
        stage.finish()


def test_a_member_with_a_new_disk_may_have_applied_a_body_that_its_disk_has_a_little_later() -> None:
    """It applies in the turn in which it appends. That is no fault, and was taken for one."""
    stage = Stage()
    watching, hand = Invariants(stage, clock_error_us=0), stage.hand("user")
    stage.settled(hand, hand.bring(stage.leader, b"body"))
    stage.run_ms(1_000)
    stage.nodes["b3"].disk.slow_us = 100_000
    stage.lose_disk("b3")
    for _ in range(800):
        stage.run_ms(0.5)
        watching.in_full(quiet=False)
