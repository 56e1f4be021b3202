"""The jobs of a partition in the reference: the state of each, and how it is decided."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from dueq import limits
from dueq_chaos.sim.reference.naive_entry import NaiveEntry
from dueq_codecs.records import JobAction, JobState, Outcome, Record

ENDED: Final = (JobState.ABORTED, JobState.CANCELLED)


@dataclass(slots=True)
class NaiveJob:
    """One job, as this partition knows it."""

    key: bytes
    number: int
    state: JobState
    until: int
    cleared: bool = False
    look_at: int = 0
    """Age of the partition at which to look whether it may be forgotten."""


class NaiveJobs:
    """The jobs of one partition.

    Args:
        place: the partition's place in its topic, and how many the topic has.

    Attributes:
        by_key, by_number: what is known of jobs.
        given: numbers that were given out.
    """

    def __init__(self, place: tuple[int, int]) -> None:
        self._place = place
        self.by_key: dict[bytes, NaiveJob] = {}
        self.by_number: dict[int, NaiveJob] = {}
        self.given = 0

    def state_of(self, entry: NaiveEntry) -> JobState:
        """Return the state of a message's job; a message of none counts as committed."""
        return self.by_number[entry.job].state if entry.job else JobState.COMMITTED

    def of(self, record: Record, state: JobState, age: int) -> NaiveJob:
        """Return the job that a record names; an unknown one begins in this state."""
        job = self.by_key.get(record.job)
        if job is None:
            self.given += 1
            job = NaiveJob(record.job, self.given, state, record.job_until)
            self.by_key[record.job] = self.by_number[job.number] = job
        job.look_at = age + limits.JOB_MEMORY_MS
        return job

    def take_no_more(self, record: Record) -> bool:
        """Whether this INSERT comes too late for its job, or contradicts it."""
        job = self.by_key.get(record.job)
        if record.job_until and record.stamp > record.job_until:
            return True
        if job is None:
            return False
        open_state = JobState.OPEN if job.until else JobState.COMMITTED
        return job.until != record.job_until or job.state != open_state

    def forget(self, age: int, stamp: int, entries: Collection[NaiveEntry]) -> None:
        """Forget jobs that are decided and old, and of which no message is left."""
        for job in list(self.by_key.values()):
            if job.look_at >= age:
                continue
            left = any(entry.job == job.number for entry in entries)
            if left or job.state == JobState.OPEN or stamp <= job.until + limits.JOB_MEMORY_MS:
                job.look_at = age + limits.JOB_LOOK_AGAIN_MS
            else:
                del self.by_key[job.key], self.by_number[job.number]

    def act(self, record: Record, age: int) -> tuple[Outcome, NaiveJob | None]:
        """Apply a JOB record; return the job, too, if this has committed it."""
        if record.job_action == JobAction.CLEARED and record.job not in self.by_key:
            return Outcome.NOT_FOUND, None
        if record.job not in self.by_key and self._may_be_forgotten(record):
            return Outcome.ENDED, None
        job = self.of(record, JobState.OPEN, age)
        before = job.state
        outcome = self._decide(record, job)
        return outcome, job if before != job.state == JobState.COMMITTED else None

    def _is_home(self, record: Record) -> bool:
        return crc32(record.job) % self._place[1] == self._place[0]

    def _may_be_forgotten(self, record: Record) -> bool:
        if record.job_action == JobAction.CANCEL or not record.job_until or not self._is_home(record):
            return False
        return record.stamp >= record.job_until + limits.JOB_ANSWERED_MS

    def _decide(self, record: Record, job: NaiveJob) -> Outcome:
        action = record.job_action
        if action == JobAction.CLEARED:
            job.cleared |= job.state == JobState.COMMITTED
            return Outcome.DONE if job.state == JobState.COMMITTED else Outcome.ENDED
        if action == JobAction.CANCEL:
            job.state = job.state if job.state == JobState.ABORTED else JobState.CANCELLED
            return Outcome.DONE
        wanted = JobState.COMMITTED if action == JobAction.COMMIT else JobState.ABORTED
        too_late = action == JobAction.COMMIT and self._is_home(record) and 0 < job.until < record.stamp
        if job.state == JobState.OPEN and not too_late:
            job.state = wanted
        return Outcome.DONE if job.state == wanted else Outcome.ENDED
