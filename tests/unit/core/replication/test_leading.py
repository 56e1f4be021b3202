"""What begins, keeps and ends a leadership where messages are late, brokers new and processes paused."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq.core.ports.effects import Read
from dueq.core.ports.membership import Member, SetOutcome
from dueq.core.ports.persistence import LogRead, ReadLog
from dueq_codecs.messages import Append, Fence, Leadership, Mismatch, Vote, VoteRequest
from dueq_codecs.records import Record, RecordKind
from tests.unit.core.replica_stage import UID, Stage, entry

B1, B2, B3 = (Member(f"b{i}", f"s{i}") for i in (1, 2, 3))


@pytest.fixture
def stage() -> Stage:
    return Stage()


def leads_level(stage: Stage) -> None:
    """All three are in the ISR and have everything."""
    stage.lead("b2", "b3")
    for name in ("b2", "b3"):
        stage.acked_by(name, 1)


# ---------------------------------------------------------------- its beginning


def test_an_ack_of_a_follower_that_leads_from_now_on_does_not_leave(stage: Stage) -> None:
    """It would echo a later frame of the leader before, which would believe that nobody has led since."""
    stage.append("b2", 1, (0, 0), 1)
    stage.sync()
    stage.node("", 1, "b1", "b2", "b3")
    stage.pass_ms(100, "b2", "b3")
    stage.votes(b2=True, b3=True)
    stage.append("b2", 1, (1, 1), 1)
    stage.sync()
    assert stage.peer("b2").acks
    stage.answer(SetOutcome.DONE)
    assert stage.replica.is_leader
    assert stage.ack_to("b2") is None


def test_a_vote_of_the_round_before_counts_for_nothing(stage: Stage) -> None:
    """Whoever gave it may have followed another leader since."""
    stage.node("", 0, "b1", "b2", "b3")
    stage.pass_ms(50, "b2", "b3")
    before = stage.peer("b2").vote_requests.pop().round
    stage.node("", 1, "b1", "b2", "b3", version=1)
    stage.pass_ms(50, "b2", "b3")
    for name in ("b2", "b3"):
        stage.replica.vote_received(stage.peer(name), Vote(UID, before, True, 0, 0), stage.now)
    stage.pass_ms(100, "b2", "b3")
    assert stage.orders == []


def test_a_consent_to_an_earlier_node_is_not_counted_with_those_to_the_present_one(stage: Stage) -> None:
    """Whoever gave it need not consent any more."""
    stage.node("", 0, "b1", "b2", "b3")
    stage.pass_ms(50, "b2", "b3")
    stage.votes(b2=True)
    stage.node("", 1, "b1", "b2", "b3", version=1)
    stage.pass_ms(50, "b2", "b3")
    stage.votes(b3=True)
    assert stage.orders == []
    stage.votes(b2=False)
    assert [order.node.isr for order in stage.orders] == [(B1, B3)]


def test_a_replica_that_is_being_filled_neither_consents_nor_refuses(stage: Stage) -> None:
    """It holds nothing: it must keep no member from leading, nor be the second one that a takeover needs."""
    stage.append("b2", 1, (0, 0), 1, 1)
    stage.sync()
    stage.node("b2", 1, "b1", "b2", "b3", incarnation=22)
    stage.replica.wiped()
    stage.pass_ms(2_000, "b3")
    for last in ((0, 0), (1, 2)):
        stage.replica.vote_requested(stage.peer("b3"), VoteRequest(UID, 5, 1, *last), stage.now)
    assert stage.peer("b3").votes == []


def test_who_has_read_the_newer_node_stands_by_it(stage: Stage) -> None:
    """It was told of that node before. Else it would go on to ask for it, and never lead."""
    stage.node("", 0, "b1", "b2", "b3")
    stage.pass_ms(100, "b2", "b3")
    stage.votes(b2=True, b3=True)
    stage.answer(SetOutcome.BAD_VERSION)
    stage.node("", 1, "b1", "b2", "b3", version=1)
    stage.pass_ms(100, "b2", "b3")
    stage.votes(b2=True, b3=True)
    assert [(order.version, order.node.epoch) for order in stage.orders] == [(1, 2)]


# ---------------------------------------------------------------- its members


def test_a_member_that_takes_not_even_the_barrier_leaves(stage: Stage) -> None:
    """Its process answers and its disk hangs: else this leadership would never commit anything."""
    stage.lead("b2", "b3")
    stage.acked_by("b2", 1)
    stage.pass_ms(limits.REPLICA_LAG_MS + 100, "b2", "b3")
    assert [order.node.isr for order in stage.orders] == [(B1, B2)]
    stage.answer(SetOutcome.DONE)
    assert stage.replica.commit == 1


def test_what_waited_while_the_process_was_paused_puts_nobody_out(stage: Stage) -> None:
    leads_level(stage)
    stage.replica.append(Record(RecordKind.LEASE, UID, 0, 0, 0), b"", stage.now)
    stage.sync()
    stage.acked_by("b2", 2)
    stage.mono_us += 60_000_000
    stage.replica.shift(60_000_000)
    stage.pass_ms(limits.REPLICA_LAG_MS - 100, "b2", "b3")
    assert stage.orders == []
    stage.pass_ms(200, "b2", "b3")
    assert [order.node.isr for order in stage.orders] == [(B1, B2)]


def test_a_member_that_lacks_what_it_had_is_not_trusted_again_before_it_has_the_barrier(stage: Stage) -> None:
    """An older record says nothing of those between: it must not be elected with them missing."""
    stage.append("b2", 1, (0, 0), 1, 1, commit=2)
    stage.sync()
    stage.node("", 1, "b1", "b2", "b3")
    stage.pass_ms(600, "b2", "b3")
    stage.votes(b2=True, b3=True)
    stage.answer(SetOutcome.DONE)
    stage.sync()
    for name in ("b2", "b3"):
        stage.acked_by(name, 3)
    stage.peer("b3").reborn(34, "s3", "tcp://b3", "", stage.now)
    stage.replica.mismatch_received(stage.peer("b3"), Mismatch(UID, 2, 0, 0, 0), stage.now)
    stage.acked_by("b3", 1)
    stage.pass_ms(100, "b2", "b3")
    assert [order.node.isr for order in stage.orders] == [(B1, B2)]
    stage.answer(SetOutcome.DONE)
    stage.acked_by("b3", 3)
    stage.pass_ms(100, "b2", "b3")
    assert stage.answer(SetOutcome.DONE).node.isr == (B1, B2, B3)
    stage.pass_ms(100, "b2", "b3")
    assert stage.orders == [], "and stays"


def test_a_member_that_lacks_what_it_had_is_not_trusted_again_before_it_has_all_of_that(stage: Stage) -> None:
    """The barrier of an old leadership lies long before: it must not be elected with later records missing."""
    leads_level(stage)
    for _ in range(9):
        stage.replica.append_own(entry(stage.replica.log.end + 1, 1), stage.now)
    stage.sync()
    stage.acked_by("b2", 9)
    stage.acked_by("b3", 10)
    assert stage.replica.commit == 9
    stage.peer("b3").reborn(34, "s3", "tcp://b3", "", stage.now)
    stage.replica.mismatch_received(stage.peer("b3"), Mismatch(UID, 1, 0, 0, 0), stage.now)
    stage.acked_by("b3", 8)
    stage.pass_ms(100, "b2", "b3")
    assert [order.node.isr for order in stage.orders] == [(B1, B2)]
    stage.answer(SetOutcome.DONE)
    stage.acked_by("b3", 9)
    stage.pass_ms(100, "b2", "b3")
    assert stage.orders == []
    stage.acked_by("b3", 10)
    stage.pass_ms(100, "b2", "b3")
    assert stage.answer(SetOutcome.DONE).node.isr == (B1, B2, B3)
    stage.pass_ms(100, "b2", "b3")
    assert stage.orders == [], "and stays"


def test_a_member_that_is_filled_is_not_trusted_again_before_it_has_all_that_it_had_acked(
    stage: Stage,
) -> None:
    """In the same life, too: what it had acked before it was wiped counts."""
    leads_level(stage)
    for _ in range(8):
        stage.replica.append_own(entry(stage.replica.log.end + 1, 1), stage.now)
    stage.sync()
    for name in ("b2", "b3"):
        stage.acked_by(name, 9)
    stage.replica.mismatch_received(stage.peer("b3"), Mismatch(UID, 1, 0, 0, 0, installing=True), stage.now)
    stage.acked_by("b3", 1)
    stage.pass_ms(100, "b2", "b3")
    assert [order.node.isr for order in stage.orders] == [(B1, B2)]
    stage.answer(SetOutcome.DONE)
    stage.acked_by("b3", 9)
    stage.pass_ms(100, "b2", "b3")
    assert stage.answer(SetOutcome.DONE).node.isr == (B1, B2, B3)


def test_a_level_follower_that_has_started_anew_is_probed_though_nothing_is_to_be_sent(stage: Stage) -> None:
    """Else it would confirm nothing, and consumers would wait until the next record."""
    leads_level(stage)
    stage.replica.send(stage.now)
    peer = stage.peer("b3")
    peer.reborn(34, "s3", "tcp://b3", "", stage.now)
    stage.replica.send(stage.now)
    assert [(append.previous_sequence, append.entries) for append in peer.appends] == [(1, [])]


def test_a_follower_that_wanted_no_old_records_when_their_turn_came_is_sent_the_next_ones(
    stage: Stage,
) -> None:
    """Nor does it keep its place among the few reads for followers: nobody would get any more."""
    stage.lead("b2")
    for sequence in range(2, 6):
        stage.replica.append_own(entry(sequence, 1), stage.now)
    stage.sync()
    stage.replica.log.shrink_cache(keep_from=6, bytes_max=0)
    for _ in range(limits.FOLLOWER_READS_MAX):
        stage.ctx.follower_reads.begin(lambda: True, first=False)
    stage.replica.mismatch_received(stage.peer("b3"), Mismatch(UID, 1, 1, 1, 1), stage.now)
    stage.acked_by("b3", 5)
    stage.ctx.follower_reads.ended()
    assert not [effect for effect in stage.ctx.take() if isinstance(effect, Read)]
    began: list[str] = []

    def begin() -> bool:
        began.append("another")
        return True

    stage.ctx.follower_reads.begin(begin, first=False)
    assert began == ["another"]
    stage.peer("b3").appends.clear()
    stage.replica.append_own(entry(6, 1), stage.now)
    stage.replica.send(stage.now)
    [append] = stage.peer("b3").appends
    assert [each.record.sequence for each in append.entries] == [6]


def test_old_records_that_are_trimmed_while_they_are_read_bring_a_snapshot(stage: Stage) -> None:
    """The disk has not lost them: nobody else has to lead for that."""
    stage.lead("b2")
    for sequence in range(2, 6):
        stage.replica.append_own(entry(sequence, 1), stage.now)
    stage.sync()
    stage.replica.log.shrink_cache(keep_from=6, bytes_max=0)
    stage.replica.mismatch_received(stage.peer("b3"), Mismatch(UID, 1, 1, 1, 1), stage.now)
    [read] = [effect.request for effect in stage.ctx.take() if isinstance(effect, Read)]
    assert isinstance(read, ReadLog)
    stage.replica.log.trim(5)
    stage.ctx.read_done(read.token, LogRead(read.token, UID, 2, []), stage.now)
    assert stage.lost == ["snapshot for b3"]


def test_who_lacks_what_was_trimmed_is_offered_a_snapshot_and_nothing_is_read_for_it(stage: Stage) -> None:
    """Others wait for the few reads of old records, and this one could find nothing."""
    stage.lead("b2")
    for sequence in range(2, 6):
        stage.replica.append_own(entry(sequence, 1), stage.now)
    stage.sync()
    stage.acked_by("b3", 1)
    stage.replica.log.trim(5)
    stage.replica.log.shrink_cache(keep_from=6, bytes_max=0)
    stage.peer("b3").appends.clear()
    stage.mono_us += limits.RESEND_MS * 1000
    stage.peer("b3").heard_at_us = stage.mono_us
    leading = stage.replica.leading
    assert leading is not None
    leading.followers.resend(stage.now)
    stage.replica.send(stage.now)
    assert (stage.lost, stage.peer("b3").appends) == (["snapshot for b3"], [])
    assert not [effect for effect in stage.ctx.take() if isinstance(effect, Read)]


def test_a_new_life_of_a_follower_is_told_who_leads(stage: Stage) -> None:
    """The one before was, and told nothing to this one: it would ask for an election."""
    leads_level(stage)
    peer = stage.peer("b3")
    peer.reborn(34, "s3", "tcp://b3", "", stage.now)
    stage.replica.introduce(peer)
    frame = peer.build_frame(stage.ctx.settings, stage.now)
    assert frame.leaderships == [Leadership(UID, 1, leads=True, serving=False)]


# ---------------------------------------------------------------- its end


def test_a_fence_that_tells_of_its_own_epoch_ends_nothing(stage: Stage) -> None:
    """It answers a late frame of a leadership that this broker had before."""
    leads_level(stage)
    stage.replica.fenced(Fence(UID, 1), stage.now)
    assert stage.replica.is_leader
    stage.replica.fenced(Fence(UID, 2), stage.now)
    assert not stage.replica.is_leader


def test_leadership_is_not_handed_over_while_nobody_is_within_reach(stage: Stage) -> None:
    leads_level(stage)
    stage.mono_us += limits.REPLICA_LAG_MS * 1000 + 1
    stage.replica.hand_over(stage.now, "wanted")
    assert stage.replica.is_leader
    stage.peer("b2").heard_at_us = stage.mono_us
    stage.replica.hand_over(stage.now, "wanted")
    assert not stage.replica.is_leader


def test_who_says_that_an_earlier_leadership_of_its_own_has_ended_may_lead_again(stage: Stage) -> None:
    """Only who gives up the present epoch, in which it does not lead, says by this that it is stopped."""
    leads_level(stage)
    for name in ("b2", "b3"):
        ended = Leadership(UID, 0, leads=False, serving=False)
        assert not stage.replica.declined(stage.peer(name), ended)
    stage.replica.hand_over(stage.now, "wanted")
    assert not stage.replica.is_leader


def test_a_commit_that_travelled_with_records_of_another_partition_is_told_surely_all_the_same(
    stage: Stage,
) -> None:
    """That frame may be lost, and nothing follows it: the follower would never apply the last records."""
    leads_level(stage)
    assert stage.replica.leading is not None
    peer = stage.peer("b2")
    peer.appends.append(Append(UID + 1, 1, 0, 0, 0, []))
    stage.replica.leading.followers.send_all(stage.now)
    lost = peer.build_frame(stage.ctx.settings, stage.now)
    assert [(append.uid, append.commit) for append in lost.appends] == [(UID + 1, 0), (UID, 1)]
    stage.pass_ms(1_000, "b2", "b3")
    later = peer.build_frame(stage.ctx.settings, stage.now)
    assert [(append.uid, append.commit) for append in later.appends] == [(UID, 1)]


def test_a_leader_is_busy_while_a_record_waits_for_its_commit(stage: Stage) -> None:
    """A leadership that nobody waits for is the one to give back."""
    leads_level(stage)
    assert not stage.replica.busy
    stage.replica.append(Record(RecordKind.BARRIER, UID, 0, 0, 0), b"", stage.now)
    stage.sync()
    assert stage.replica.busy
    for name in ("b2", "b3"):
        stage.acked_by(name, 2)
    assert not stage.replica.busy


# ---------------------------------------------------------------- what its followers are sent


def under_way_to(stage: Stage, name: str) -> list[int]:
    """Take the sequences of the records that leave for a follower."""
    found, stage.peer(name).appends = stage.peer(name).appends, []
    return [entry.record.sequence for append in found for entry in append.entries]


def record(stage: Stage) -> None:
    """A record is appended in a turn of its own."""
    stage.replica.append(Record(RecordKind.LEASE, UID, 0, 0, 0), b"", stage.now)
    stage.sync()
    stage.tick()


def test_its_first_record_bears_the_time_of_the_mesh(stage: Stage) -> None:
    """By that the partition grows older, and forgets what it keeps for a while."""
    begun_ms = stage.now.wall_ms
    stage.lead("b2", "b3")
    barrier = stage.replica.entry(1)
    assert barrier is not None
    assert begun_ms <= barrier.record.stamp <= stage.now.wall_ms


def test_an_ack_that_says_nothing_new_does_not_put_off_what_is_sent_again(stage: Stage) -> None:
    leads_level(stage)
    record(stage)
    under_way_to(stage, "b2")
    for _ in range(limits.RESEND_MS // 50 + 2):
        stage.acked_by("b2", 1)
        stage.pass_ms(50, "b2", "b3")
    assert 2 in under_way_to(stage, "b2")


def test_no_more_than_a_window_is_under_way_to_a_follower(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has no room for would fill the memory of both, and be sent again and again."""
    monkeypatch.setattr(limits, "APPEND_WINDOW_RECORDS", 2)
    leads_level(stage)
    under_way_to(stage, "b2")
    for _ in range(5):
        record(stage)
    assert under_way_to(stage, "b2") == [2, 3]
    stage.acked_by("b2", 3)
    stage.tick()
    assert under_way_to(stage, "b2")[0] == 4


# ---------------------------------------------------------------- who takes over


def test_a_takeover_whose_reply_comes_after_records_of_a_later_leader_is_not_led(stage: Stage) -> None:
    """The node that names that one has not been read yet."""
    stage.node("", 0, "b1", "b2", "b3")
    stage.pass_ms(100, "b2", "b3")
    stage.votes(b2=True, b3=True)
    stage.append("b2", 2, (0, 0), 2)
    stage.answer(SetOutcome.DONE)
    assert not stage.replica.is_leader


def test_who_asks_for_votes_is_not_taken_for_the_leader_that_the_node_still_names(stage: Stage) -> None:
    """It has given up, and is heard: nobody would lead for as long as it lives."""
    stage.append("b2", 1, (0, 0), 1)
    stage.sync()
    stage.node("b2", 1, "b1", "b2", "b3", incarnation=22)
    for name, consent in (("b3", False), ("b2", True)):
        stage.replica.vote_requested(stage.peer(name), VoteRequest(UID, 5, 1, 1, 1), stage.now)
        assert stage.peer(name).votes.pop().consent is consent


@pytest.mark.parametrize("alive", [True, False])
def test_the_only_member_that_lives_takes_over_where_another_replica_can_replace_the_dead_one(
    stage: Stage, alive: bool
) -> None:
    stage.node("", 1, "b1", "b2")
    stage.peer("b2").registered, stage.peer("b3").registered = False, alive
    stage.pass_ms(600, "b3")
    assert [order.node.isr for order in stage.orders] == ([(B1, B2)] if alive else [])
