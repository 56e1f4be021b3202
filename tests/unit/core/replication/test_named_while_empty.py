"""A replica that lacks what was committed does not lead, though its takeover has succeeded."""

from __future__ import annotations

from dueq.core.partition.filling import Filling
from dueq.core.ports.membership import Member, PartitionNode, SetOutcome
from dueq_codecs.messages import Code, SnapshotChunk, Vote
from tests.unit.core.replica_stage import UID, Stage, filled

B1, B2, B3 = (Member(f"b{i}", f"s{i}") for i in (1, 2, 3))


def asks_for_votes() -> Stage:
    """It has not heard b2, which leads in epoch 1, for a while, and asks b3."""
    stage = Stage()
    stage.node("b2", 1, "b1", "b2", "b3", incarnation=22)
    stage.pass_ms(2_000, "b3")
    assert stage.replica.standing.candidacy is not None
    return stage


def stands() -> Stage:
    """It has asked the coordinator to let it lead in epoch 2."""
    stage = asks_for_votes()
    stage.votes(b3=True)
    stage.pass_ms(400, "b3")
    assert stage.replica.is_standing
    return stage


def offered(stage: Stage) -> None:
    """An offer of a snapshot comes late from b2; this replica lacks what the snapshot holds."""
    filling = Filling(stage.ctx, stage.replica, "t", lambda: None, lambda recovered, now: None)
    filling.received(
        stage.peer("b2"), SnapshotChunk("b2", 22, UID, 1, 0, 0, 9, 1, False, Code.OK), b"", stage.now
    )
    assert stage.replica.installing


def resigns(stage: Stage) -> None:
    assert not stage.replica.is_leader
    stage.pass_ms(50, "b3")
    [order] = stage.orders
    assert order.node == PartitionNode("", 0, 2, (B1, B3))
    stage.answer(SetOutcome.DONE)
    stage.pass_ms(1_000, "b3")
    assert not stage.orders, "nor does it stand"


def test_a_takeover_that_has_succeeded_while_it_was_wiped_is_resigned() -> None:
    stage = stands()
    offered(stage)
    stage.answer(SetOutcome.DONE)
    resigns(stage)


def test_a_takeover_whose_answer_was_lost_and_that_shows_once_it_is_wiped_is_resigned() -> None:
    stage = stands()
    stage.answer(SetOutcome.UNKNOWN)
    offered(stage)
    stage.node("b1", 2, "b1", "b3", version=1, incarnation=11)
    resigns(stage)


def test_a_takeover_that_shows_once_it_is_filled_is_resigned() -> None:
    """The snapshot may be older than what this replica had acked."""
    stage = stands()
    stage.answer(SetOutcome.UNKNOWN)
    offered(stage)
    stage.replica.installed(filled(9, 1))
    stage.node("b1", 2, "b1", "b3", version=1, incarnation=11)
    resigns(stage)


def test_votes_that_come_once_it_is_wiped_do_not_make_it_stand() -> None:
    stage = asks_for_votes()
    stage.append("b2", 1, (0, 0))
    stage.peer("b2").heard_at_us = 0
    stage.pass_ms(50, "b3")
    round_asked = stage.peer("b3").vote_requests.pop().round
    offered(stage)
    stage.replica.vote_received(stage.peer("b3"), Vote(UID, round_asked, True, 0, 0), stage.now)
    stage.pass_ms(50, "b3")
    assert not stage.orders


def test_the_only_member_leads_though_it_was_just_filled() -> None:
    """A person has made it the only one: there is nobody who holds more."""
    stage = Stage(filled(9, 1))
    stage.node("", 1, "b1")
    stage.pass_ms(100, "b2", "b3")
    stage.pass_ms(400, "b2", "b3")
    stage.answer(SetOutcome.DONE)
    assert stage.replica.is_leader
