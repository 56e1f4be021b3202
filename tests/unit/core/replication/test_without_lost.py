"""Snapshots that may lack a chunk which the leader's disk has lost: whose they are, and for how long."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq.core.ports.effects import Read, SendPeer
from dueq.core.ports.persistence import ReadSnapshot, SnapshotRead
from dueq.core.replication.installing import SnapshotService
from dueq_codecs.messages import Code, SnapshotChunk, SnapshotRequest
from tests.unit.core.replica_stage import UID, Stage, entry

SAVED = 2


class Leader:
    """Broker b1, which leads; its disk and its followers are played by the test."""

    def __init__(self) -> None:
        self.stage = Stage()
        self.stage.lead("b2", "b3")
        for sequence in (2, 3, 4):
            self.stage.replica.append_own(entry(sequence, 1), self.stage.now)
        self.stage.sync()
        self.service = SnapshotService(self.stage.ctx, self.stage.replica)

    def offered(self, name: str = "b3", saved: int = SAVED) -> int:
        """A snapshot is offered, as a chunk is lost; returns the record that the offer names."""
        self.service.offer_without_lost(self.stage.peer(name), saved)
        [chunk] = self.sent()
        assert chunk.snapshot == 0
        return chunk.applied

    def asked(self, name: str = "b3", snapshot: int = 0, part: int = 0) -> ReadSnapshot:
        """A follower asks for a part; returns what is read for it."""
        stage = self.stage
        request = SnapshotRequest(
            name, stage.peer(name).incarnation, UID, stage.replica.epoch, snapshot, part
        )
        self.service.requested(stage.peer(name), request, stage.now)
        [read] = [effect.request for effect in stage.ctx.take() if isinstance(effect, Read)]
        assert isinstance(read, ReadSnapshot)
        return read

    def read(self, read: ReadSnapshot, *, last: bool = False, failed: bool = False) -> list[SnapshotChunk]:
        """The disk gives a part; returns what is sent."""
        stage = self.stage
        answer = SnapshotRead(read.token, UID, 5, read.part, SAVED, 1, b"rows", last, failed)
        stage.ctx.read_done(read.token, answer, stage.now)
        return self.sent()

    def sent(self) -> list[SnapshotChunk]:
        messages = [effect.message for effect in self.stage.ctx.take() if isinstance(effect, SendPeer)]
        return [message for message in messages if isinstance(message, SnapshotChunk)]


@pytest.fixture
def leader() -> Leader:
    return Leader()


def test_every_part_for_a_follower_that_was_offered_one_may_lack_what_is_lost(leader: Leader) -> None:
    """The follower may have to begin anew: then it is the first part once more."""
    leader.offered()
    first = leader.asked()
    assert first.without_lost
    leader.read(first)
    assert leader.asked(snapshot=5, part=1).without_lost
    assert leader.asked().without_lost


def test_for_another_follower_a_lost_chunk_is_damage(leader: Leader) -> None:
    """Another member may have the chunk, and is to lead before anybody does without it."""
    leader.offered("b3")
    assert not leader.asked("b2").without_lost


def test_when_it_was_read_to_its_end_the_next_snapshot_is_a_whole_one_again(leader: Leader) -> None:
    leader.offered()
    leader.read(leader.asked(), last=True)
    assert not leader.asked().without_lost


def test_the_next_life_of_the_follower_has_to_be_offered_one_anew(leader: Leader) -> None:
    """Its disk may be another one, and lack far more than a chunk."""
    leader.offered()
    leader.stage.peer("b3").reborn(34, "s3", "tcp://b3", "", leader.stage.now)
    whole = leader.asked()
    assert not whole.without_lost
    leader.read(whole)
    leader.offered()
    assert leader.asked().without_lost


def test_the_next_leadership_has_to_offer_one_anew(leader: Leader) -> None:
    """Another member has led meanwhile, and may have sent the chunk here."""
    leader.offered()
    leader.stage.replica.give_up(leader.stage.now, "another leads")
    leader.stage.replica.lead(3, leader.stage.now)
    leader.stage.ctx.take()
    assert not leader.asked().without_lost


def test_the_offer_names_what_the_checkpoint_has_or_what_the_log_goes_on_from(leader: Leader) -> None:
    """A follower that holds that record ignores the offer: the log gives it all the rest."""
    assert leader.offered() == SAVED
    leader.stage.replica.log.trim(4)
    assert leader.offered() == 3


def test_a_part_that_is_read_when_the_leadership_has_ended_is_not_sent(leader: Leader) -> None:
    read = leader.asked()
    leader.stage.replica.give_up(leader.stage.now, "another leads")
    assert leader.read(read) == []


@pytest.mark.parametrize("failed", [False, True])
def test_a_follower_is_told_when_its_snapshot_is_gone(leader: Leader, failed: bool) -> None:
    """It has to begin anew; what comes instead is no part."""
    [chunk] = leader.read(leader.asked(snapshot=5, part=1), failed=failed)
    assert (chunk.part, chunk.code) == (1, Code.BUSY if failed else Code.OK)


def test_who_has_read_a_snapshot_to_its_end_is_sent_what_comes_after_it(leader: Leader) -> None:
    leader.read(leader.asked(), last=True)
    leader.stage.peer("b3").appends.clear()
    leader.stage.replica.send(leader.stage.now)
    assert [append.previous_sequence for append in leader.stage.peer("b3").appends] == [SAVED]


def test_the_log_is_kept_until_nothing_was_asked_for_longer_than_a_snapshot_may_be_idle(
    leader: Leader,
) -> None:
    leader.read(leader.asked())
    leader.stage.mono_us += limits.SNAPSHOT_IDLE_MS * 1000
    assert leader.service.needed_from(leader.stage.now) == SAVED + 1


def test_the_log_is_kept_for_the_follower_that_has_read_least(leader: Leader) -> None:
    leader.read(leader.asked("b3"))
    late = leader.asked("b2")
    answer = SnapshotRead(late.token, UID, 6, 0, SAVED + 1, 1, b"rows", False)
    leader.stage.ctx.read_done(late.token, answer, leader.stage.now)
    assert leader.service.needed_from(leader.stage.now) == SAVED + 1
