"""The rules of replication, each with the story that breaks without it (protocol cases B3–B7, B13, V1–V3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dueq import limits
from dueq.core.ports.effects import Persist
from dueq.core.ports.membership import Member, ReadNode, SetOutcome
from dueq.core.ports.persistence import AppendLog
from dueq.core.replication.confirming import CONFIRM_US
from dueq.core.replication.installing import Installation
from dueq_codecs.messages import Ack, Fence, Mismatch, PeerFrame, VoteRequest
from dueq_codecs.records import Record, RecordKind
from tests.unit.core.replica_stage import UID, Stage, entry, filled

B1, B2, B3 = (Member(f"b{i}", f"s{i}") for i in (1, 2, 3))


@pytest.fixture
def stage() -> Stage:
    return Stage()


# ---------------------------------------------------------------- elections


def test_who_is_not_in_the_isr_does_not_try(stage: Stage) -> None:
    stage.node("", 3, "b2", "b3")
    stage.pass_ms(3_000, "b2", "b3")
    assert not stage.peer("b2").vote_requests


def test_a_living_leader_is_left_alone(stage: Stage) -> None:
    stage.node("b2", 3, "b1", "b2", "b3", incarnation=22)
    stage.pass_ms(3_000, "b2", "b3")
    assert not stage.peer("b3").vote_requests


def test_a_silent_leader_is_replaced_with_consents_that_make_min_isr(stage: Stage) -> None:
    stage.node("b2", 3, "b1", "b2", "b3", incarnation=22)
    stage.pass_ms(2_000, "b3")
    stage.votes(b3=True)
    stage.pass_ms(400, "b3")
    node = stage.orders[0].node
    assert (node.leader, node.epoch, node.isr) == ("b1", 4, (B1, B3))


def test_who_did_not_know_a_new_partition_yet_is_asked_again_before_less_preferred_members_stand(
    stage: Stage,
) -> None:
    stage.node("", 0, "b1", "b2", "b3")
    stage.pass_ms(50, "b2", "b3")
    for name in ("b2", "b3"):
        assert stage.peer(name).vote_requests.pop()
    stage.pass_ms(50, "b2", "b3")
    stage.votes(b2=True, b3=True)
    assert [order.node.leader for order in stage.orders] == ["b1"]


def test_who_has_answered_is_not_asked_again(stage: Stage) -> None:
    stage.node("", 0, "b1", "b2", "b3")
    stage.pass_ms(50, "b2", "b3")
    stage.votes(b2=True)
    stage.pass_ms(100, "b2", "b3")
    assert not stage.peer("b2").vote_requests
    assert len(stage.peer("b3").vote_requests) == 3


def test_a_silent_leader_is_not_replaced_without_consents(stage: Stage) -> None:
    stage.node("b2", 3, "b1", "b2", incarnation=22)
    stage.pass_ms(4_000, "b3")
    assert stage.orders == []


def test_a_changed_incarnation_is_a_dead_leader_and_one_survivor_takes_over_with_the_isr_unchanged(
    stage: Stage,
) -> None:
    """Protocol case V2."""
    stage.node("b2", 3, "b1", "b2", incarnation=99)
    stage.peer("b2").store_id = "another"
    stage.pass_ms(600, "b2", "b3")
    node = stage.orders[0].node
    assert (node.leader, node.epoch, node.isr) == ("b1", 4, (B1, B2))


@pytest.mark.parametrize("isr", [("b2", "b3"), ("b1", "b2", "b3")])
def test_consents_to_an_earlier_node_count_for_nothing(stage: Stage, isr: tuple[str, ...]) -> None:
    """Somebody has begun to lead since, perhaps without us: what he has committed we may lack."""
    stage.node("", 0, "b1", "b2", "b3")
    stage.pass_ms(100, "b2", "b3")
    stage.node("b2", 1, *isr, version=1, incarnation=22)
    stage.votes(b2=True, b3=True)
    stage.pass_ms(1_000, "b2", "b3")
    assert stage.orders == []


def test_who_stands_asks_anew_when_the_node_has_changed_and_still_nobody_leads(stage: Stage) -> None:
    stage.node("", 0, "b1", "b2", "b3")
    stage.pass_ms(50, "b2", "b3")
    for name in ("b2", "b3"):
        assert stage.peer(name).vote_requests.pop()
    stage.node("", 1, "b1", "b2", "b3", version=1)
    stage.pass_ms(50, "b2", "b3")
    stage.votes(b2=True, b3=True)
    assert [(order.version, order.node.leader, order.node.epoch) for order in stage.orders] == [(1, "b1", 2)]


def test_a_takeover_whose_reply_was_lost_is_led_once_the_node_shows_it(stage: Stage) -> None:
    """Protocol case V3."""
    stage.node("", 0, "b1", "b2", "b3")
    stage.pass_ms(100, "b2", "b3")
    stage.votes(b2=True, b3=True)
    stage.answer(SetOutcome.UNKNOWN)
    assert not stage.replica.is_leader
    stage.node("b1", 1, "b1", "b2", "b3", version=1, incarnation=11)
    assert stage.replica.is_leader


def test_a_takeover_whose_reply_comes_after_the_next_ones_node_is_not_led(stage: Stage) -> None:
    """What it sets while it believes that it leads would take the node back to its own epoch."""
    stage.node("", 0, "b1", "b2", "b3")
    stage.pass_ms(100, "b2", "b3")
    stage.votes(b2=True, b3=True)
    stage.node("b2", 2, "b2", "b3", version=2, incarnation=22)
    stage.answer(SetOutcome.DONE)
    assert not stage.replica.is_leader
    stage.pass_ms(4_000)
    assert not stage.orders


def test_an_earlier_life_named_in_the_node_does_not_make_a_leader(stage: Stage) -> None:
    """Protocol case B4."""
    stage.node("b1", 5, "b1", "b2", "b3", incarnation=10)
    assert not stage.replica.is_leader


def test_consent_needs_a_lost_leader_and_a_log_that_is_not_later(stage: Stage) -> None:
    stage.append("b2", 1, (0, 0), 1, 1)
    stage.sync()
    stage.node("b2", 1, "b1", "b2", "b3", incarnation=22)
    stage.replica.vote_requested(stage.peer("b3"), VoteRequest(UID, 1, 1, 1, 2), stage.now)
    stage.pass_ms(2_000, "b3")
    stage.replica.vote_requested(stage.peer("b3"), VoteRequest(UID, 2, 1, 1, 1), stage.now)
    stage.replica.vote_requested(stage.peer("b3"), VoteRequest(UID, 3, 1, 1, 2), stage.now)
    assert [vote.consent for vote in stage.peer("b3").votes] == [False, False, True]


# ---------------------------------------------------------------- leading


def test_a_longer_log_of_an_older_epoch_is_no_later_one(stage: Stage) -> None:
    """Raft §5.4.1: what the older leader appended alone may be cut, and what the later one committed is here."""
    stage.append("b2", 2, (0, 0), 1, 2)
    stage.sync()
    stage.node("", 2, "b1", "b2", "b3")
    votes = []
    for last in ((1, 9), (2, 1), (2, 2), (3, 1)):
        stage.replica.vote_requested(stage.peer("b3"), VoteRequest(UID, 1, 2, *last), stage.now)
        votes.append(stage.peer("b3").votes.pop().consent)
    assert votes == [False, False, True, True]


def test_a_refusal_keeps_a_candidate_from_taking_over_with_the_isr_unchanged(stage: Stage) -> None:
    """A voter that refuses holds later records, or hears a leader."""
    stage.node("", 3, "b1", "b2", "b3")
    stage.peer("b3").registered = False
    stage.pass_ms(50, "b2")
    stage.votes(b2=False)
    stage.pass_ms(50, "b2")
    assert stage.orders == []


def test_who_has_followed_in_a_later_epoch_consents_to_nobody_of_an_earlier_node(stage: Stage) -> None:
    stage.append("b3", 4, (0, 0), 4)
    stage.sync()
    stage.node("", 3, "b1", "b2", "b3")
    stage.replica.vote_requested(stage.peer("b2"), VoteRequest(UID, 1, 3, 9, 9), stage.now)
    assert [vote.consent for vote in stage.peer("b2").votes] == [False]


def test_nothing_of_an_epoch_is_sent_before_the_epoch_is_synced(stage: Stage) -> None:
    stage.node("", 0, "b1", "b2", "b3")
    stage.pass_ms(100, "b2", "b3")
    stage.votes(b2=True, b3=True)
    stage.answer(SetOutcome.DONE)
    assert stage.replica.leading is not None
    stage.replica.leading.followers.send_all(stage.now)
    assert stage.peer("b2").appends == []
    stage.sync()
    stage.replica.leading.followers.send_all(stage.now)
    assert len(stage.peer("b2").appends) == 1


def test_a_record_is_committed_when_every_member_has_acked_it(stage: Stage) -> None:
    stage.lead("b2", "b3")
    stage.acked_by("b2", 1)
    assert stage.replica.commit == 0
    stage.acked_by("b3", 1)
    assert stage.replica.commit == 1


def test_an_ack_of_another_epoch_counts_for_nothing(stage: Stage) -> None:
    """It speaks of the log of another leader."""
    stage.lead("b2", "b3")
    stage.acked_by("b3", 1)
    for epoch in (0, 2):
        stage.replica.ack_received(stage.peer("b2"), Ack(UID, epoch, 1), stage.mono_us, stage.now)
    assert stage.replica.commit == 0
    assert not stage.replica.confirmed(stage.now)


def test_the_end_of_a_turn_sees_to_an_ack_only_where_somebody_waits_for_it(stage: Stage) -> None:
    """Else each record would cost its leader two turns more, in which there is nothing to do."""
    stage.lead("b2", "b3")

    def acked(name: str, sequence: int, asked_us: int) -> bool:
        ack = Ack(UID, stage.replica.epoch, sequence)
        return stage.replica.ack_received(stage.peer(name), ack, asked_us, stage.now)

    for name in ("b2", "b3"):
        assert acked(name, 1, stage.mono_us), "nothing was known of it, so nothing more was sent to it"
    stage.replica.append(Record(RecordKind.BARRIER, UID, 0, 0, 0), b"", stage.now)
    assert acked("b2", 1, stage.mono_us), "it may be sent more now"
    stage.replica.send(stage.now)
    stage.sync()
    assert not acked("b2", 2, stage.mono_us), "another one lacks the record"
    assert stage.replica.commit == 1
    stage.mono_us += CONFIRM_US + 1
    stage.replica.ask(stage.now)
    assert acked("b3", 2, stage.mono_us), "it was asked"
    assert stage.replica.commit == 2
    assert not acked("b3", 2, stage.mono_us)


@pytest.mark.parametrize(("isr", "silent"), [(("b2", "b3"), True), (("b2",), False)])
def test_the_log_is_kept_from_the_record_on_that_a_member_or_a_follower_within_reach_lacks(
    stage: Stage, isr: tuple[str, ...], silent: bool
) -> None:
    stage.ctx.settings = replace(stage.ctx.settings, log_retain_bytes=0)
    stage.lead(*isr)
    for sequence in range(2, 11):
        stage.replica.append_own(entry(sequence, 1), stage.now)
    stage.sync()
    stage.acked_by("b2", 10)
    stage.acked_by("b3", 4)
    if silent:
        stage.mono_us += limits.SNAPSHOT_IDLE_MS * 1000 + 1
    assert stage.replica.trim(11, stage.now) == 5
    leading = stage.replica.leading
    assert leading is not None
    stage.pass_ms(50, "b2", "b3")
    stage.peer("b3").appends.clear()
    leading.mismatch_received(stage.peer("b3"), Mismatch(UID, 1, 4, 1, 4), stage.now)
    [append] = stage.peer("b3").appends
    assert (append.previous_sequence, append.previous_epoch, len(append.entries)) == (4, 1, 6)


def test_a_follower_with_records_of_an_epoch_that_is_not_here_goes_on_from_the_epoch_before(
    stage: Stage,
) -> None:
    """KIP-279: its records of epoch 2 are nobody's; to ask for the end of ours would be answered alike for ever."""
    stage.append("b2", 1, (0, 0), 1, 1)
    stage.sync()
    stage.node("", 2, "b1", "b2")
    stage.pass_ms(600, "b2", "b3")
    stage.votes(b2=True)
    stage.answer(SetOutcome.DONE)
    stage.sync()
    leading = stage.replica.leading
    assert leading is not None
    assert leading.epoch == 3
    stage.peer("b3").appends.clear()
    leading.mismatch_received(stage.peer("b3"), Mismatch(UID, 3, 5, 2, 5), stage.now)
    [append] = stage.peer("b3").appends
    assert (append.previous_sequence, append.previous_epoch) == (2, 1)


def test_records_of_older_epochs_are_committed_only_with_the_barrier(stage: Stage) -> None:
    """Raft §5.4.2: an older record that is on all disks may still be replaced by a later leader that lacks it."""
    stage.append("b2", 1, (0, 0), 1, 1)
    stage.sync()
    stage.node("", 1, "b1", "b2")
    stage.pass_ms(600, "b2", "b3")
    stage.votes(b2=True)
    stage.answer(SetOutcome.DONE)
    stage.sync()
    stage.acked_by("b2", 2)
    assert stage.replica.commit == 0
    stage.acked_by("b2", 3)
    assert stage.replica.commit == 3


def test_a_silent_member_leaves_but_never_below_min_isr(stage: Stage) -> None:
    """Protocol case B7."""
    stage.lead("b2", "b3")
    stage.acked_by("b2", 1)
    stage.pass_ms(2_500, "b2")
    assert stage.answer(SetOutcome.DONE).node.isr == (B1, B2)
    assert stage.replica.commit == 1
    stage.pass_ms(1_400, "b3")
    assert stage.orders == []


def test_a_shrink_of_unknown_outcome_shrinks_nothing(stage: Stage) -> None:
    """Protocol case B6: a read does not settle it."""
    stage.lead("b2", "b3")
    stage.acked_by("b2", 1)
    stage.pass_ms(2_500, "b2")
    stage.answer(SetOutcome.UNKNOWN)
    stage.node("b1", 1, "b1", "b2", version=5, incarnation=11)
    leading = stage.replica.leading
    assert leading is not None
    assert leading.isr.maximal() >= {B1, B2}
    stage.pass_ms(100, "b2")
    assert stage.orders[0].version == 5


def test_an_expansion_counts_before_it_is_sent(stage: Stage) -> None:
    stage.lead("b2")
    stage.acked_by("b2", 1)
    stage.acked_by("b3", 1)
    stage.pass_ms(100, "b2", "b3")
    leading = stage.replica.leading
    assert leading is not None
    assert leading.isr.maximal() == {B1, B2, B3}
    stage.answer(SetOutcome.UNKNOWN)
    assert leading.isr.maximal() == {B1, B2, B3}


def test_a_follower_is_not_level_before_it_has_the_barrier(stage: Stage) -> None:
    """Protocol case B5."""
    stage.append("b2", 1, (0, 0), 1, 1, commit=2)
    stage.sync()
    stage.node("", 1, "b1", "b2")
    stage.pass_ms(600, "b2", "b3")
    stage.votes(b2=True)
    stage.answer(SetOutcome.DONE)
    stage.sync()
    stage.acked_by("b2", 3)
    stage.acked_by("b3", 2)
    stage.pass_ms(200, "b2", "b3")
    assert stage.orders == []
    stage.acked_by("b3", 3)
    stage.pass_ms(100, "b2", "b3")
    assert stage.orders[0].node.isr == (B1, B2, B3)


def test_a_member_with_another_disk_does_not_commit_anything(stage: Stage) -> None:
    stage.lead("b2", "b3")
    stage.peer("b3").reborn(34, "other", "tcp://b3", "", stage.now)
    stage.acked_by("b2", 1)
    stage.acked_by("b3", 1)
    assert stage.replica.commit == 0


def test_a_leader_that_hears_too_few_gives_up_and_says_so(stage: Stage) -> None:
    stage.lead("b2", "b3")
    stage.pass_ms(4_000)
    assert stage.lost == ["leadership"]
    assert stage.orders[-1].node.leader == ""


def test_a_fence_ends_a_leadership_that_has_been_replaced(stage: Stage) -> None:
    stage.lead("b2", "b3")
    stage.replica.fenced(Fence(UID, 2), stage.now)
    assert not stage.replica.is_leader
    assert stage.lost == ["leadership"]


def test_pushes_need_an_answer_of_every_member(stage: Stage) -> None:
    """Protocol case B13."""
    stage.lead("b2", "b3")
    leading = stage.replica.leading
    assert leading is not None
    assert not leading.confirmed(stage.now)
    stage.acked_by("b2", 1)
    stage.peer("b3").answered_to_us = stage.mono_us
    assert not leading.confirmed(stage.now), "what names no epoch says nothing about later ones"
    stage.acked_by("b3", 1, asked_us=stage.mono_us - 400_000)
    assert leading.confirmed(stage.now)
    stage.mono_us += 100_001
    assert not leading.confirmed(stage.now), "an ack counts from when it was asked for"
    stage.acked_by("b3", 1)
    assert leading.confirmed(stage.now)
    stage.mono_us += 600_000
    assert not leading.confirmed(stage.now)


def test_after_a_pause_old_confirmations_do_not_count(stage: Stage) -> None:
    stage.lead("b2", "b3")
    leading = stage.replica.leading
    assert leading is not None
    stage.acked_by("b2", 1)
    stage.acked_by("b3", 1)
    assert leading.confirmed(stage.now)
    stage.ctx.confirm_floor_us = stage.mono_us + 1
    leading.shift(300_000)
    assert not leading.confirmed(stage.now)


def test_a_member_that_holds_less_than_its_disk_had_acked_must_leave(stage: Stage) -> None:
    """A rolled back folder (protocol case S12c)."""
    stage.lead("b2", "b3")
    stage.acked_by("b2", 1)
    stage.acked_by("b3", 1)
    stage.peer("b3").reborn(34, "s3", "tcp://b3", "", stage.now)
    leading = stage.replica.leading
    assert leading is not None
    leading.mismatch_received(stage.peer("b3"), Mismatch(UID, 1, 0, 0, 0), stage.now)
    stage.pass_ms(100, "b2", "b3")
    assert stage.orders[0].node.isr == (B1, B2)


def test_a_member_that_lacks_what_was_trimmed_has_lost_it_and_is_filled(stage: Stage) -> None:
    """A leader that never saw what this disk had acked: the one that did has died meanwhile."""
    stage.lead("b2", "b3")
    leading = stage.replica.leading
    assert leading is not None
    for _ in range(9):
        stage.replica.append_own(entry(stage.replica.log.end + 1, 1), stage.now)
    stage.sync()
    stage.acked_by("b2", 10)
    stage.replica.log.trim(6)
    for name in ("b2", "b3"):
        leading.mismatch_received(stage.peer(name), Mismatch(UID, 1, 4, 1, 4), stage.now)
    assert stage.lost == ["snapshot for b3"]


# ---------------------------------------------------------------- a member that was filled anew


def test_a_filled_member_leads_only_after_it_has_a_commit_of_its_leaders_epoch() -> None:
    stage = Stage(filled(5, 1))
    stage.node("b2", 2, "b1", "b2", incarnation=22)
    stage.append("b2", 2, (5, 1), 1, commit=5)
    stage.append("b2", 2, (6, 1), 1, 2, commit=5)
    stage.sync()
    stage.node("", 2, "b1", "b2", version=1)
    stage.pass_ms(1_000, "b2", "b3")
    assert stage.replica.role == "unproven"
    assert stage.peer("b2").vote_requests == []
    stage.append("b2", 2, (8, 2), commit=8)
    stage.pass_ms(1_000, "b2", "b3")
    stage.votes(b2=True)
    assert stage.orders[0].node.leader == "b1"


def test_a_filled_member_is_not_proven_by_a_commit_beyond_what_it_has_verified() -> None:
    """It holds the record at the commit position, but of that it does not know that it is this leader's."""
    stage = Stage(filled(applied=4, epoch=1))
    stage.append("b2", 2, (4, 1), 2, 2)
    stage.replica.following.forget_leader()
    stage.append("b2", 2, (4, 1), 2, commit=6)
    assert stage.replica.unproven
    stage.append("b2", 2, (5, 2), 2, commit=6)
    assert not stage.replica.unproven


def test_a_filled_replica_consents_but_does_not_refuse() -> None:
    """It does not lead itself: its refusal would keep the one that may from doing so."""
    stage = Stage(filled(5, 1))
    stage.node("", 1, "b1", "b2")
    for last_sequence, consents in ((4, []), (5, [True])):
        stage.replica.vote_requested(stage.peer("b2"), VoteRequest(UID, 7, 1, 1, last_sequence), stage.now)
        assert [vote.consent for vote in stage.peer("b2").votes] == consents


def test_a_replica_that_is_filled_anew_while_not_proven_stays_marked() -> None:
    stage = Stage(filled(5, 1))
    stage.node("b2", 1, "b1", "b2", incarnation=22)
    Installation(stage.ctx, stage.replica, "t", "b2", lambda recovered, now: None, stage.now)
    assert (stage.replica.role, stage.replica.unproven) == ("installing", False)


def test_an_epoch_that_was_seen_during_an_installation_outlives_it(stage: Stage) -> None:
    """The store was told the epoch of its beginning. An older leader's records must not be taken after it."""
    stage.append("b2", 1, (0, 0), 1)
    stage.replica.wiped()
    stage.append("b3", 5, (0, 0), 5)
    stage.replica.installed(filled(applied=4, epoch=1))
    assert stage.replica.epoch == 5
    stage.append("b2", 1, (4, 1), 1)
    assert stage.replica.end == 4
    assert stage.ack_to("b2") is None
    stage.append("b3", 5, (4, 1), 5)
    assert stage.ack_to("b3") is None, "the epoch has to be synced first"
    stage.sync()
    ack = stage.ack_to("b3")
    assert ack is not None
    assert (ack.epoch, ack.sequence) == (5, 5)


def test_what_was_appended_in_the_turn_of_the_wipe_is_not_written_after_it(stage: Stage) -> None:
    """The record lay there as a piece of another log, and the replica that had just been filled counted as damaged."""
    stage.node("b2", 1, "b2", "b3", incarnation=22)
    stage.append("b2", 1, (0, 0), 1, 1)
    Installation(stage.ctx, stage.replica, "t", "b2", lambda recovered, now: None, stage.now)
    stage.replica.end_turn(stage.now)
    stage.ctx.close_writes()
    [persist] = [effect for effect in stage.ctx.take() if isinstance(effect, Persist)]
    assert [write for write in persist.writes if isinstance(write, AppendLog)] == []


def test_leadership_is_handed_over_only_to_who_holds_what_is_committed(stage: Stage) -> None:
    stage.lead("b2")
    leading = stage.replica.leading
    assert leading is not None
    stage.acked_by("b2", 1)
    assert leading.has_heir()
    stage.peer("b2").reborn(34, "s2", "tcp://b2", "", stage.now)
    leading.mismatch_received(stage.peer("b2"), Mismatch(UID, 1, 0, 0, 0, installing=True), stage.now)
    assert not leading.has_heir()


def test_a_filled_replica_leads_when_a_person_has_made_it_the_only_member() -> None:
    stage = Stage(filled(5, 1))
    stage.node("", 1, "b1", "b2")
    stage.pass_ms(1_000, "b2", "b3")
    assert stage.orders == []
    stage.node("", 1, "b1", version=1)
    stage.pass_ms(1_000, "b2", "b3")
    assert stage.orders[0].node.leader == "b1"


# ---------------------------------------------------------------- the last commit of all


def test_a_leader_whose_own_disk_is_the_last_to_sync_still_tells_of_that_commit(stage: Stage) -> None:
    """With every follower level there seemed to be nothing left to care for, and nothing came after."""
    stage.lead("b2", "b3")
    for name in ("b2", "b3"):
        stage.acked_by(name, 1)
    assert stage.replica.leading is not None
    stage.replica.leading.serve()
    stage.replica.append_own(entry(2, 1), stage.now)
    stage.replica.end_turn(stage.now)
    for name in ("b2", "b3"):
        stage.acked_by(name, 2)
    stage.pass_ms(100, "b2", "b3")
    assert stage.replica.commit == 1
    assert stage.replica.tick(stage.now)
    stage.sync()
    assert stage.replica.commit == 2
    stage.pass_ms(100, "b2", "b3")
    frame = stage.peer("b2").build_frame(stage.ctx.settings, stage.now)
    assert [append.commit for append in frame.appends][-1] == 2


# ---------------------------------------------------------------- what a silent or deaf follower comes to


def test_a_follower_that_was_silent_for_long_is_still_probed(stage: Stage) -> None:
    """The probe must not run away from it, beyond the window: it would never be sent anything again."""
    stage.lead("b2")
    stage.acked_by("b2", 1)
    replica = stage.replica
    for _ in range(700):
        replica.append_own(entry(replica.log.end + 1, 1), stage.now)
    for _ in range(8):
        stage.sync()
        stage.acked_by("b2", replica.log.end)
        stage.pass_ms(500, "b2")
    stage.peer("b3").appends.clear()
    stage.pass_ms(500, "b2", "b3")
    probes = stage.peer("b3").appends
    assert probes
    assert {probe.previous_sequence for probe in probes} == {0}


def test_a_member_that_has_verified_nothing_yet_is_not_sent_what_the_log_no_longer_holds(
    stage: Stage,
) -> None:
    """It may hold all of that: asked to begin anew it cannot be, being counted on."""
    stage.lead("b2", "b3")
    for name in ("b2", "b3"):
        stage.acked_by(name, 1)
    stage.replica.log.trim(2)
    stage.replica.give_up(stage.now, "for this test")
    stage.pass_ms(100, "b2", "b3")
    stage.answer(SetOutcome.DONE)
    stage.pass_ms(100, "b2", "b3")
    stage.votes(b2=True, b3=True)
    stage.answer(SetOutcome.DONE)
    stage.sync()
    stage.acked_by("b2", 0)
    stage.peer("b2").appends.clear()
    stage.pass_ms(1_000, "b2", "b3")
    assert {append.previous_sequence for append in stage.peer("b2").appends} == {1}
    assert stage.replica.leading is not None
    assert stage.replica.leading.followers.lowest_needed(stage.now) == 2


def test_the_last_commit_position_is_told_until_it_was_heard(stage: Stage) -> None:
    """No record follows it that would carry it once more."""
    stage.lead("b2", "b3")
    for name in ("b2", "b3"):
        stage.acked_by(name, 1)
    assert stage.replica.commit == 1
    stage.pass_ms(50, "b2", "b3")
    peer = stage.peer("b2")

    def told() -> list[int]:
        return [append.commit for append in peer.build_frame(stage.ctx.settings, stage.now).appends]

    assert told()[-1] == 1  # lost on its way
    stage.pass_ms(200, "b2", "b3")
    again = peer.build_frame(stage.ctx.settings, stage.now)
    assert [append.commit for append in again.appends] == [1]
    peer.frame_received(PeerFrame("b2", 22, "b1", 11, 1, 1, again.sent_mono_us, 1, 1, False), stage.now)
    assert told() == []


def test_a_leader_of_a_dead_replica_is_at_rest_once_the_others_are_level(stage: Stage) -> None:
    """With thousands of partitions, care for what cannot be changed would take all the time there is."""
    stage.lead("b2", "b3")
    for name in ("b2", "b3"):
        stage.acked_by(name, 1)
    assert stage.replica.leading is not None
    stage.replica.leading.serve()
    stage.peer("b3").registered = False
    stage.pass_ms(50, "b2")
    stage.answer(SetOutcome.DONE)
    assert [member.broker_id for member in stage.replica.leading.isr.members] == ["b1", "b2"]
    assert not stage.replica.tick(stage.now)
    stage.peer("b3").registered = True
    assert stage.replica.tick(stage.now)


def test_a_leader_is_not_at_rest_while_a_member_is_filled_that_was_level_before(stage: Stage) -> None:
    """The offer of the snapshot may be lost, and only its care repeats it: nothing would commit any more."""
    stage.lead("b2")
    stage.acked_by("b2", 1)
    assert stage.replica.leading is not None
    stage.replica.leading.serve()
    stage.peer("b3").registered = False
    assert not stage.replica.tick(stage.now)
    stage.replica.mismatch_received(stage.peer("b2"), Mismatch(UID, 1, 0, 0, 0, True), stage.now)
    assert stage.replica.tick(stage.now)


def test_nothing_is_sent_to_a_silent_follower_until_it_is_heard_again(stage: Stage) -> None:
    stage.lead("b2", "b3")
    stage.acked_by("b2", 1)
    stage.peer("b3").appends.clear()
    stage.pass_ms(2_000, "b2")
    stage.peer("b3").appends.clear()
    stage.pass_ms(1_000, "b2")
    assert not stage.peer("b3").appends
    stage.pass_ms(50, "b2", "b3")
    assert stage.peer("b3").appends


def test_a_takeover_that_came_too_late_waits_for_the_node_and_then_asks_for_it(stage: Stage) -> None:
    """Its watch has fired, or will: asking at once would double the work where thousands are elected."""
    stage.node("b2", 5, "b1", "b2", "b3", incarnation=22)
    stage.pass_ms(2_000, "b3")
    stage.votes(b3=True)
    stage.pass_ms(400, "b3")
    stage.answer(SetOutcome.BAD_VERSION)
    stage.pass_ms(limits.RESEND_MS - 50, "b3")
    assert stage.asked == []
    stage.pass_ms(100, "b3")
    assert stage.asked == [ReadNode(UID)]
    assert not stage.orders


def test_a_takeover_that_came_too_late_is_tried_anew_at_once_where_the_newer_node_is_known(
    stage: Stage,
) -> None:
    stage.node("b2", 5, "b1", "b2", "b3", incarnation=22)
    stage.pass_ms(2_000, "b3")
    stage.votes(b3=True)
    stage.pass_ms(400, "b3")
    stage.node("", 5, "b1", "b2", "b3", version=1)
    stage.answer(SetOutcome.BAD_VERSION)
    stage.pass_ms(100, "b3")
    stage.votes(b3=True)
    stage.pass_ms(350, "b3")
    assert [order.version for order in stage.orders] == [1]
