"""The follower's rules: log matching, acks, cuts, and what is on its disk (protocol cases B3, V1)."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq.core.ports.effects import Persist
from dueq.errors import InvariantViolated
from dueq_codecs.messages import Fence, Mismatch
from tests.unit.core.replica_stage import UID, Stage, filled


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_nothing_is_acked_before_it_is_synced(stage: Stage) -> None:
    stage.append("b2", 1, (0, 0), 1, 1)
    assert stage.ack_to("b2") is None
    stage.sync()
    ack = stage.ack_to("b2")
    assert ack is not None
    assert (ack.epoch, ack.sequence) == (1, 2)


def test_a_late_duplicate_cuts_nothing(stage: Stage) -> None:
    stage.append("b2", 1, (0, 0), 1, 1, 1, 1)
    stage.sync()
    stage.append("b2", 1, (0, 0), 1, 1)
    stage.sync()
    assert stage.replica.log.end == 4
    ack = stage.ack_to("b2")
    assert ack is not None
    assert ack.sequence == 4


def test_an_append_that_overtakes_changes_nothing_and_is_answered_with_the_end(stage: Stage) -> None:
    stage.append("b2", 1, (0, 0), 1)
    stage.sync()
    stage.ack_to("b2")
    stage.append("b2", 1, (2, 1), 1)
    assert stage.mismatch_to("b2") == Mismatch(UID, 1, 1, 1, 1)
    assert stage.replica.log.end == 1


def test_only_what_differs_is_cut(stage: Stage) -> None:
    stage.append("b2", 1, (0, 0), 1, 1, 1)
    stage.sync()
    stage.append("b3", 2, (1, 1), 2)
    stage.sync()
    assert [stage.replica.log.epoch_at(sequence) for sequence in (1, 2, 3)] == [1, 2, None]


def test_an_ack_speaks_only_of_what_this_leader_has_verified(stage: Stage) -> None:
    stage.append("b2", 1, (0, 0), 1, 1, 1)
    stage.sync()
    stage.append("b3", 2, (1, 1))
    stage.sync()
    ack = stage.ack_to("b3")
    assert ack is not None
    assert (ack.epoch, ack.sequence) == (2, 1)


def test_a_followers_commit_position_is_not_above_what_was_verified(stage: Stage) -> None:
    stage.append("b2", 1, (0, 0), 1, 1, 1)
    stage.append("b3", 2, (1, 1), commit=3)
    assert stage.replica.commit == 1


def test_what_an_earlier_epoch_of_the_same_leader_has_verified_counts_for_nothing(stage: Stage) -> None:
    """It may have lost the end of its log in between, and have written another one."""
    stage.append("b2", 1, (0, 0), 1, 1)
    stage.sync()
    stage.ack_to("b2")
    stage.append("b2", 2, (1, 1), commit=2)
    assert stage.replica.commit == 1
    stage.sync()
    ack = stage.ack_to("b2")
    assert ack is not None
    assert (ack.epoch, ack.sequence) == (2, 1)


def test_what_is_committed_is_told_before_the_records_that_came_along(stage: Stage) -> None:
    """A LEASE comes with the commit position of its INSERT. Looked at before that was applied, it would name messages
    that are not in memory, and each of them would be asked from the disk."""
    stage.append("b3", 2, (0, 0), 2)
    stage.append("b3", 2, (1, 2), 2, commit=1)
    assert stage.told == ["appended 1", "committed 1", "appended 2"]


def test_an_older_epoch_is_ignored_and_fenced(stage: Stage) -> None:
    stage.append("b3", 2, (0, 0), 2)
    stage.append("b2", 1, (0, 0), 1)
    stage.sync()
    assert stage.replica.log.epoch_at(1) == 2
    frame = stage.peer("b2").build_frame(stage.ctx.settings, stage.now)
    assert frame.fences == [Fence(UID, 2)]


def test_a_committed_record_is_never_cut(stage: Stage) -> None:
    stage.append("b2", 1, (0, 0), 1, 1, commit=2)
    with pytest.raises(InvariantViolated, match="a committed record is never cut"):
        stage.append("b3", 2, (1, 1), 2)


def test_a_record_of_the_current_epoch_is_never_cut(stage: Stage) -> None:
    stage.append("b2", 2, (0, 0), 1, 2)
    with pytest.raises(InvariantViolated, match="current epoch"):
        stage.append("b2", 2, (0, 0), 1, 1)


def test_the_epoch_is_synced_before_it_is_acked_in(stage: Stage) -> None:
    """Protocol case V1: also where nothing new came with it."""
    stage.append("b2", 1, (0, 0), 1)
    stage.sync()
    stage.ack_to("b2")
    stage.append("b3", 2, (1, 1))
    assert stage.ack_to("b3") is None
    stage.replica.end_turn(stage.now)
    stage.ctx.close_writes()
    saved = [w for effect in stage.ctx.take() if isinstance(effect, Persist) for w in effect.writes]
    assert [write.epoch for write in saved] == [2]  # type: ignore[union-attr]
    assert stage.ack_to("b3") is None


def test_an_ack_that_says_nothing_new_is_its_last_one_all_the_same(stage: Stage) -> None:
    """It lets the leader push for a while more. A later leader counts inherited leases from then on."""
    stage.append("b2", 1, (0, 0), 1)
    stage.sync()
    stage.ack_to("b2")
    stage.mono_us += 3_000_000
    stage.append("b2", 1, (1, 1))
    assert stage.ack_to("b2") is not None
    assert stage.replica.acked_at_us == stage.mono_us


def test_a_write_of_before_does_not_count_for_an_epoch_that_came_since(stage: Stage) -> None:
    """It was on its way when the epoch rose: the epoch goes with the next write."""
    stage.append("b2", 1, (0, 0), 1)
    earlier = stage.begin_write()
    stage.append("b3", 2, (1, 1))
    stage.ctx.persisted(earlier, stage.now)
    assert stage.ack_to("b3") is None
    stage.sync()
    ack = stage.ack_to("b3")
    assert ack is not None
    assert (ack.epoch, ack.sequence) == (2, 1)


def test_what_was_cut_while_its_write_was_on_its_way_is_not_on_the_disk(stage: Stage) -> None:
    """Records 2 and 3 were cut and others took their places. The end of the older write says nothing of those."""
    stage.append("b2", 1, (0, 0), 1, 1, 1)
    older = stage.begin_write()
    stage.append("b3", 2, (1, 1), 2)
    newer = stage.begin_write()
    stage.ctx.persisted(older, stage.now)
    assert stage.replica.synced == 1
    stage.append("b3", 2, (2, 2), 2)
    last = stage.begin_write()
    stage.ctx.persisted(newer, stage.now)
    ack = stage.ack_to("b3")
    assert ack is not None
    assert (ack.epoch, ack.sequence) == (2, 2)
    stage.ctx.persisted(last, stage.now)
    ack = stage.ack_to("b3")
    assert ack is not None
    assert ack.sequence == 3


def test_what_was_cut_after_its_write_is_not_on_the_disk_either(stage: Stage) -> None:
    stage.append("b2", 1, (0, 0), 1, 1, 1)
    stage.sync()
    stage.append("b3", 2, (1, 1), 2)
    assert stage.replica.synced == 1


def test_records_are_written_before_a_cut_of_the_same_turn(stage: Stage) -> None:
    """Otherwise the cut records would be written after it, and stand where the newer ones belong."""
    stage.append("b2", 1, (0, 0), 1, 1)
    stage.append("b3", 2, (1, 1), 2)
    stage.replica.end_turn(stage.now)
    stage.ctx.close_writes()
    writes = [w for effect in stage.ctx.take() if isinstance(effect, Persist) for w in effect.writes]
    told = [(type(w).__name__, [e.record.epoch for e in getattr(w, "entries", [])]) for w in writes]
    assert told == [("AppendLog", [1, 1]), ("TruncateLog", []), ("AppendLog", [2]), ("SaveMeta", [])]


def test_what_was_written_before_a_wipe_is_not_acked_after_it(stage: Stage) -> None:
    """The leader would count on records that this disk does not hold any more."""
    stage.append("b2", 1, (0, 0), 1, 1)
    write = stage.begin_write()
    stage.replica.wiped()
    stage.ctx.persisted(write, stage.now)
    assert stage.ack_to("b2") is None


def test_what_is_applied_and_not_yet_written_stays_in_memory(stage: Stage) -> None:
    """The disk could not give it to whoever needs its payload."""
    stage.append("b2", 1, (0, 0), 1, 1)
    stage.append("b2", 1, (2, 1), commit=2)
    stage.replica.shrink_cache(applied=2, bytes_max=0)
    assert stage.replica.entry(1) is not None
    stage.sync()
    stage.replica.shrink_cache(applied=2, bytes_max=0)
    assert stage.replica.entry(1) is None


def test_a_filled_replica_that_lacks_nothing_any_more_does_not_ack_before_its_disk_says_so() -> None:
    """As a member it would be counted on to lead, and could not after a failure of its power."""
    stage = Stage(filled(9, 1))
    stage.append("b2", 2, (9, 1), 2)
    stage.sync()
    assert stage.ack_to("b2") is not None
    stage.mono_us += limits.RESEND_MS * 1000
    stage.append("b2", 2, (10, 2), commit=10)
    assert not stage.replica.unproven
    assert stage.ack_to("b2") is None
    stage.sync()
    assert stage.ack_to("b2") is not None


def test_a_write_of_before_a_snapshot_was_installed_has_nothing_acked_of_what_was_installed(
    stage: Stage,
) -> None:
    """It was of another log, and what is there now has not been verified yet."""
    stage.append("b2", 1, (0, 0), 1)
    written = stage.begin_write()
    stage.replica.wiped()
    stage.replica.installed(filled(9, 1))
    stage.ctx.persisted(written, stage.now)
    assert stage.ack_to("b2") is None
