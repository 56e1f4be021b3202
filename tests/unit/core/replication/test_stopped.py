"""A stopped replica: it follows and acks, and neither leads nor keeps others from leading."""

from __future__ import annotations

from dueq_codecs.messages import VoteRequest
from tests.unit.core.replica_stage import UID, Stage


def stopped() -> Stage:
    stage = Stage()
    stage.broken = "a record of a newer build"
    return stage


def test_it_consents_to_who_lacks_its_uncommitted_records() -> None:
    """The candidate is in the ISR, so it holds all that is committed; and this replica will not lead."""
    stage = stopped()
    stage.append("b2", 1, (0, 0), 1, 1)
    stage.node("", 1, "b1", "b2")
    stage.replica.vote_requested(stage.peer("b2"), VoteRequest(UID, 7, 1, 1, 1), stage.now)
    assert [vote.consent for vote in stage.peer("b2").votes] == [True]


def test_it_refuses_while_it_hears_a_leader() -> None:
    stage = stopped()
    stage.node("b3", 1, "b1", "b2", "b3", incarnation=33)
    stage.replica.vote_requested(stage.peer("b2"), VoteRequest(UID, 7, 1, 1, 1), stage.now)
    assert [vote.consent for vote in stage.peer("b2").votes] == [False]


def test_it_does_not_stand() -> None:
    stage = stopped()
    stage.node("", 1, "b1", "b2")
    assert not stage.replica.tick(stage.now)
    assert stage.replica.standing.candidacy is None
    assert stage.replica.role == "stopped"


def test_every_leader_that_it_follows_is_told_that_it_would_not_lead() -> None:
    stage = stopped()
    for name, epoch in (("b2", 1), ("b3", 2)):
        stage.append(name, epoch, (0, 0))
        frame = stage.peer(name).build_frame(stage.ctx.settings, stage.now)
        assert [(item.epoch, item.leads) for item in frame.leaderships] == [(epoch, False)]


def test_a_leader_counts_no_heir_that_would_not_lead_until_it_has_started_anew() -> None:
    stage = Stage()
    stage.lead("b1", "b2")
    leading = stage.replica.leading
    assert leading is not None
    stage.acked_by("b2", leading.barrier)
    assert leading.has_heir()
    assert leading.could_lead("b2", stage.now)
    leading.declined(stage.peer("b2"))
    assert not leading.has_heir()
    assert not leading.could_lead("b2", stage.now)
    stage.peer("b2").incarnation += 1
    assert leading.has_heir()
