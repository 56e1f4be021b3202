"""Old records that followers lack are read from the disk."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq.core.ports.effects import Read
from dueq.core.ports.persistence import LogRead, ReadLog
from dueq.core.replication.leading import Leading
from dueq_codecs.messages import Mismatch
from tests.unit.core.replica_stage import UID, Stage, entry


@pytest.fixture
def stage() -> Stage:
    return Stage()


def leading_without_cache(stage: Stage) -> Leading:
    """Lead with records that are only on the disk."""
    stage.lead("b2")
    for sequence in range(2, 6):
        stage.replica.append_own(entry(sequence, 1), stage.now)
    stage.sync()
    stage.replica.log.shrink_cache(keep_from=6, bytes_max=0)
    leading = stage.replica.leading
    assert leading is not None
    return leading


def test_records_that_were_read_for_a_follower_are_sent_only_where_it_still_wants_them(stage: Stage) -> None:
    """While they were read it may have acked them."""
    leading = leading_without_cache(stage)
    leading.mismatch_received(stage.peer("b3"), Mismatch(UID, 1, 1, 1, 1), stage.now)
    [read] = [effect.request for effect in stage.ctx.take() if isinstance(effect, Read)]
    assert isinstance(read, ReadLog)
    assert read.from_sequence == 2
    stage.acked_by("b3", 5)
    stage.peer("b3").appends.clear()
    found = [entry(sequence, 1) for sequence in range(2, 6)]
    stage.ctx.read_done(read.token, LogRead(read.token, UID, 2, found), stage.now)
    assert stage.peer("b3").appends == []


def test_old_records_are_read_when_a_few_other_reads_for_followers_have_ended(stage: Stage) -> None:
    """Else consumers would wait until the records for all partitions of a broker that has come back are read."""
    leading = leading_without_cache(stage)
    for _ in range(limits.FOLLOWER_READS_MAX):
        stage.ctx.follower_reads.begin(lambda: True, first=False)
    leading.mismatch_received(stage.peer("b3"), Mismatch(UID, 1, 1, 1, 1), stage.now)
    assert not [effect for effect in stage.ctx.take() if isinstance(effect, Read)]
    stage.ctx.follower_reads.ended()
    [read] = [effect.request for effect in stage.ctx.take() if isinstance(effect, Read)]
    assert isinstance(read, ReadLog)
    stage.peer("b3").appends.clear()
    found = [entry(sequence, 1) for sequence in range(2, 6)]
    stage.ctx.read_done(read.token, LogRead(read.token, UID, 2, found), stage.now)
    assert [append.previous_sequence for append in stage.peer("b3").appends] == [1]
    began: list[str] = []

    def begin() -> bool:
        began.append("another")
        return True

    stage.ctx.follower_reads.begin(begin, first=True)
    stage.ctx.follower_reads.begin(begin, first=True)
    assert began == ["another"], "the read for b3 has ended, and no other one"


def test_what_follows_the_records_that_were_read_is_read_next(stage: Stage) -> None:
    """Else a follower that lacks more than one read brings would never have the rest."""
    leading = leading_without_cache(stage)
    leading.mismatch_received(stage.peer("b3"), Mismatch(UID, 1, 1, 1, 1), stage.now)
    [read] = [effect.request for effect in stage.ctx.take() if isinstance(effect, Read)]
    stage.ctx.read_done(read.token, LogRead(read.token, UID, 2, [entry(2, 1), entry(3, 1)]), stage.now)
    stage.acked_by("b3", 3)
    leading.followers.send_all(stage.now)
    reads = [effect.request for effect in stage.ctx.take() if isinstance(effect, Read)]
    assert 4 in [each.from_sequence for each in reads if isinstance(each, ReadLog)]
