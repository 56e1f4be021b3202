"""When each of those who could lead stands: a less preferred one later, so that only one does."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq.core.replication.replica import Replica
from tests.unit.core.replica_stage import UID, Stage

TURN_MS = 150


@pytest.fixture
def stage() -> Stage:
    """Broker b1 is the last that is to lead."""
    stage = Stage()
    stage.replica = Replica(stage.ctx, UID, ("b2", "b3", "b1"), 2, None, stage)
    return stage


def stands(stage: Stage) -> bool:
    """Whether it has asked anybody for a vote."""
    return any(stage.peer(name).vote_requests for name in ("b2", "b3"))


def test_each_member_that_could_lead_is_left_one_turn(stage: Stage) -> None:
    """With longer ones, nobody would lead for longer than needed after the death of the first ones."""
    stage.node("", 1, "b1", "b2", "b3")
    stage.pass_ms(50, "b2", "b3")  # it sees that nobody leads
    stage.pass_ms(2 * TURN_MS - 50, "b2", "b3")
    assert not stands(stage)
    stage.pass_ms(50, "b2", "b3")
    assert stands(stage)


@pytest.mark.parametrize("silent", [True, False])
def test_a_member_that_is_silent_has_no_turn_though_its_registration_lasts(
    stage: Stage, silent: bool
) -> None:
    """It may be dead: nobody would lead for as long as the turns of the dead take."""
    stage.mono_us += (limits.LEADER_SILENCE_MS + 1) * 1000
    for name in ("b2", "b3"):
        stage.peer(name).heard_at_us = stage.mono_us - (limits.LEADER_SILENCE_MS * 1000 + 1) * silent
    stage.node("", 1, "b1", "b2", "b3")
    stage.replica.tick(stage.now)
    assert stands(stage) is silent


def test_a_broker_that_has_stepped_aside_leaves_the_others_their_turns() -> None:
    """Its clock is wrong, or it was told to: it leads only where nobody else does."""
    stage = Stage()
    stage.ctx.step_aside_until_us = stage.mono_us + 60_000_000
    stage.node("", 1, "b1", "b2", "b3")
    stage.pass_ms(3 * TURN_MS, "b2", "b3")
    assert not stands(stage)
    stage.pass_ms(60_000, "b2", "b3")
    assert stands(stage)
