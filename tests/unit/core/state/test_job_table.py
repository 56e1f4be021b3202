"""The rules of jobs one by one; `tests/property/test_timeline_twin.py` has them all at once."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest

from dueq.core.ports.entry import Entries
from dueq.core.ports.tables import TableRow
from dueq.core.state.applied import Applied
from dueq.core.state.job_table import JobTable
from dueq.core.state.timeline import AGE_STEP_MS, Timeline
from dueq.errors import UnknownVersion
from dueq.limits import JOB_ANSWERED_MS, JOB_MEMORY_MS
from dueq_codecs.messages import Code
from dueq_codecs.records import JobAction, JobState, Outcome, Record, RecordKind, RequestRef

UID = 3
NOON = 1_800_000_000_000
MINUTE = 60_000
DAY = 24 * 60 * MINUTE
HOME = next(bytes([number]) * 16 for number in range(99) if crc32(bytes([number]) * 16) % 2 == 0)
AWAY = next(bytes([number]) * 16 for number in range(99) if crc32(bytes([number]) * 16) % 2 == 1)
"""Jobs about which the partition of these tests decides, and does not."""


class Story:
    """A timeline, the first of two partitions, and the records that it is told."""

    def __init__(self) -> None:
        self.timeline = Timeline(UID, place=(0, 2))
        self.stamp = NOON
        self.number = 0

    def apply(self, kind: RecordKind, job: bytes, rows: int, **columns: object) -> Applied:
        record = Record(kind, UID, self.timeline.applied + 1, 1, self.stamp, job=job, **columns)  # type: ignore[arg-type]
        if kind in (RecordKind.INSERT, RecordKind.JOB):
            self.number += 1
            record.requests = (RequestRef(b"c" * 16, self.number, self.number, rows),)
        assert self.timeline.cold(record) is None
        return self.timeline.apply(record)

    def insert(self, job: bytes, *dues: int, until: int = NOON + 10 * MINUTE) -> Code:
        due = np.array(dues, np.uint64)
        zeros = np.zeros(len(dues), np.uint32)
        applied = self.apply(
            RecordKind.INSERT, job, len(dues), due=due, size=zeros, crc=zeros, job_until=until if job else 0
        )
        return applied.results[0].code

    def act(self, job: bytes, action: JobAction, until: int = NOON + 10 * MINUTE) -> Outcome:
        applied = self.apply(RecordKind.JOB, job, 1, job_action=action, job_until=until)
        return Outcome(applied.results[0].outcomes[0])

    def named(self, kind: RecordKind, entries: Entries, job: bytes = b"", **columns: object) -> Applied:
        return self.apply(
            kind, job, len(entries), first=entries["first"].copy(), target_sequence=entries["sequence"].copy(),
            target_row=entries["row"].copy(), **columns,
        )  # fmt: skip

    def lease(self) -> Entries:
        """Lease all that waits; returns what was granted."""
        waiting = self.timeline.waiting_hot()
        consumer = np.zeros(len(waiting), np.uint16)
        applied = self.named(
            RecordKind.LEASE, waiting, consumer=consumer, consumers=(b"x" * 16,),
            lease_ms=np.array([1000], np.uint64),
        )  # fmt: skip
        return applied.leased

    def waits(self) -> list[int]:
        return [at - NOON for at in self.timeline.waiting_hot()["wait_at"].tolist()]


def test_what_is_hidden_waits_until_its_job_is_decided_and_is_leased_only_once_it_is_committed() -> None:
    story = Story()
    story.insert(AWAY, NOON + 1, NOON + 20 * MINUTE)
    assert story.waits() == [10 * MINUTE, 20 * MINUTE]
    assert not len(story.lease())
    assert story.act(AWAY, JobAction.COMMIT) == Outcome.DONE
    assert len(story.lease()) == 2


def test_a_reveal_moves_what_is_due_before_the_decision_and_nothing_else() -> None:
    story = Story()
    story.insert(AWAY, NOON + 1, NOON + 20 * MINUTE)
    story.insert(b"", NOON + 10 * MINUTE)
    story.named(RecordKind.REVEAL, story.timeline.waiting_hot(), AWAY)
    assert story.waits() == [10 * MINUTE, 10 * MINUTE, 20 * MINUTE], "it is not committed"
    story.act(AWAY, JobAction.COMMIT)
    story.named(RecordKind.REVEAL, story.timeline.waiting_hot(), AWAY)
    assert story.waits() == [1, 10 * MINUTE, 20 * MINUTE]


def test_home_refuses_a_commit_that_comes_too_late_and_others_take_what_home_has_decided() -> None:
    story = Story()
    for job in (HOME, AWAY):
        story.insert(job, NOON + 1)
    story.stamp = NOON + 10 * MINUTE + 1
    assert story.act(HOME, JobAction.COMMIT) == Outcome.ENDED
    assert story.act(AWAY, JobAction.COMMIT) == Outcome.DONE
    assert story.timeline.jobs.by_key[HOME].state == JobState.OPEN


def test_a_decision_is_final_and_the_same_again_is_done() -> None:
    story = Story()
    story.insert(HOME, NOON + 1)
    assert story.act(HOME, JobAction.ABORT) == Outcome.DONE
    assert story.act(HOME, JobAction.ABORT) == Outcome.DONE
    assert story.act(HOME, JobAction.COMMIT) == Outcome.ENDED
    assert story.act(HOME, JobAction.CANCEL) == Outcome.DONE
    assert story.timeline.jobs.by_key[HOME].state == JobState.ABORTED


def test_a_job_that_has_ended_takes_no_more_messages_but_answers_for_the_old_ones() -> None:
    story = Story()
    assert story.insert(AWAY, NOON + 1) == Code.OK
    assert story.insert(AWAY, NOON + 1, until=NOON + 5 * MINUTE) == Code.JOB_ENDED, "another time to commit"
    story.act(AWAY, JobAction.COMMIT)
    assert story.insert(AWAY, NOON + 1) == Code.JOB_ENDED
    story.number = 0
    assert story.insert(AWAY, NOON + 1) == Code.OK, "the first request once more"
    assert story.timeline.scheduled_count == 1


def test_what_a_consumer_gives_back_of_a_cancelled_job_goes() -> None:
    story = Story()
    story.insert(AWAY, NOON, NOON, until=0)
    held = story.lease()
    story.insert(AWAY, NOON + MINUTE, until=0)
    story.act(AWAY, JobAction.CANCEL, until=0)
    story.named(RecordKind.EXPIRE, held[:1], token=held["token"][:1].copy())
    assert not len(story.lease()), "the third is finished where it would have been leased"
    job = story.timeline.jobs.by_key[AWAY]
    assert (job.waiting, job.leased, job.cleared) == (0, 1, True)
    assert story.timeline.jobs.to_withdraw is None


def test_a_job_is_forgotten_a_week_after_its_end_once_nothing_is_left_of_it() -> None:
    story = Story()
    story.insert(AWAY, NOON + 1)
    story.insert(HOME, NOON + 1)
    story.act(AWAY, JobAction.COMMIT)
    story.act(HOME, JobAction.ABORT)
    story.named(RecordKind.CANCEL, story.timeline.waiting_hot()[1:], token=np.zeros(1, np.uint64))
    for _ in range((JOB_MEMORY_MS + 24 * 60 * MINUTE) // AGE_STEP_MS + 5):
        story.stamp += AGE_STEP_MS
        story.apply(RecordKind.BARRIER, b"", 0)
    assert list(story.timeline.jobs.by_key) == [AWAY], "a message of it is left"
    assert not story.timeline.jobs.closed
    story.insert(HOME, NOON, until=0)
    assert story.timeline.jobs.by_key[HOME].number == 3, "numbers are never used again"


def test_home_does_not_decide_again_what_it_may_have_forgotten() -> None:
    story = Story()
    until = NOON + 10 * MINUTE
    story.stamp = until + JOB_ANSWERED_MS
    for action in (JobAction.COMMIT, JobAction.ABORT):
        assert story.act(HOME, action, until) == Outcome.ENDED
    assert HOME not in story.timeline.jobs.by_key
    assert story.act(AWAY, JobAction.COMMIT, until) == Outcome.DONE, "others learn what home has decided"
    assert story.act(HOME, JobAction.CANCEL, until) == Outcome.DONE, "which needs no decision"


def test_a_row_of_a_newer_build_is_refused() -> None:
    with pytest.raises(UnknownVersion):
        JobTable().recover([TableRow(AWAY, b"\xff" * 48)])


def test_a_committed_job_is_unrevealed_until_the_record_that_says_so() -> None:
    story = Story()
    story.insert(AWAY, NOON + 1)
    story.insert(HOME, NOON + 1)
    jobs = story.timeline.jobs
    assert not jobs.unrevealed
    story.act(AWAY, JobAction.COMMIT)
    story.act(HOME, JobAction.ABORT)
    assert jobs.unrevealed == {jobs.by_key[AWAY].number}
    story.act(AWAY, JobAction.CLEARED)
    assert not jobs.unrevealed


def test_nothing_says_when_the_messages_of_a_job_wait_that_was_committed_and_then_cancelled() -> None:
    """They have been shown, and wait for their own instants: a search that began at `until` would miss them."""
    story = Story()
    story.insert(HOME, NOON + 1)
    story.insert(AWAY, NOON + 1)
    story.act(HOME, JobAction.COMMIT)
    story.act(HOME, JobAction.CANCEL)
    jobs = story.timeline.jobs
    numbers = [jobs.by_key[key].number for key in (HOME, AWAY)]
    assert jobs.wait_from(set(numbers), NOON) == [NOON, NOON + 10 * MINUTE]


def grow_old(story: Story, days: int) -> None:
    """Let the partition age, a step with each record."""
    for _ in range(days * DAY // AGE_STEP_MS):
        story.stamp += AGE_STEP_MS
        story.apply(RecordKind.BARRIER, b"", 0)


def test_home_remembers_what_it_has_decided_for_a_week_after_the_instant_of_the_commit() -> None:
    """Counted from the decision, home would forget it while others may still ask, and decide anew."""
    story, until = Story(), NOON + 6 * DAY
    story.insert(HOME, NOON + 1, until=until)
    story.act(HOME, JobAction.COMMIT, until)
    story.named(RecordKind.CANCEL, story.timeline.waiting_hot(), token=np.zeros(1, np.uint64))
    grow_old(story, 9)
    assert story.act(HOME, JobAction.ABORT, until) == Outcome.ENDED
    assert story.act(HOME, JobAction.COMMIT, until) == Outcome.DONE


def test_when_a_job_is_looked_at_again_a_restarted_replica_knows_too() -> None:
    story = Story()
    story.insert(AWAY, NOON + 1, until=0)
    jobs = story.timeline.jobs
    disk = {row.key: row for row in jobs.changed_rows()}
    grow_old(story, 8)
    disk |= {row.key: row for row in jobs.changed_rows()}
    again = JobTable(0, 2, jobs.given)
    again.recover(list(disk.values()))
    assert again.export() == jobs.export()


def test_a_job_that_was_forgotten_does_not_come_back_with_a_restart() -> None:
    """Home would know for another week what it has said that it does not know."""
    story = Story()
    story.insert(HOME, NOON + 1)
    story.act(HOME, JobAction.ABORT)
    story.named(RecordKind.CANCEL, story.timeline.waiting_hot(), token=np.zeros(1, np.uint64))
    jobs = story.timeline.jobs
    [saved] = jobs.changed_rows()
    grow_old(story, 9)
    assert jobs.changed_rows() == [TableRow(saved.key, None)]


def test_a_job_is_worked_off_once_nothing_of_it_is_hidden_or_left_to_be_withdrawn() -> None:
    story = Story()
    for job in (HOME, AWAY):
        story.insert(job, NOON + 1)
    home, away = (story.timeline.jobs.by_key[job] for job in (HOME, AWAY))
    hidden = story.timeline.waiting_hot()
    assert (home.cleared, away.cleared) == (False, False)
    story.act(HOME, JobAction.COMMIT)
    story.act(AWAY, JobAction.ABORT)
    assert (home.cleared, away.cleared) == (False, False)
    story.act(HOME, JobAction.CLEARED)
    story.named(RecordKind.CANCEL, hidden[hidden["job"] == away.number], token=np.zeros(1, np.uint64))
    assert (home.cleared, away.cleared) == (True, True)


def test_what_comes_at_the_very_instant_of_the_commit_is_in_time() -> None:
    story = Story()
    story.stamp = until = NOON + 10 * MINUTE
    assert story.insert(HOME, until, until=until) == Code.OK
    assert story.act(HOME, JobAction.COMMIT, until) == Outcome.DONE
    assert story.timeline.jobs.by_key[HOME].state == JobState.COMMITTED


def test_an_open_job_is_not_worked_off_nor_after_a_restart() -> None:
    """Its messages would be revealed before anybody has decided about it."""
    story = Story()
    story.insert(AWAY, NOON + 1)
    jobs = story.timeline.jobs
    restarted = JobTable(0, 2, jobs.given)
    restarted.recover(jobs.changed_rows())
    for table in (jobs, restarted):
        assert (table.to_reveal, table.to_withdraw, table.unrevealed) == (None, None, frozenset())
        assert [job.key for job in table.open] == [AWAY]
