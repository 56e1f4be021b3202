"""The jobs of one partition: which messages belong together, and whether they may be delivered.

             INSERT            JOB commit (home: while stamp ≤ until)
  (unknown) ───────► OPEN ──────────────────────────────► COMMITTED ──┐ JOB cancel
     │                │ JOB abort; home: stamp > until                ▼
     │                └────────────────────────► ABORTED         CANCELLED
     └ INSERT of a job that is not hidden (until = 0) ───► COMMITTED

One partition of the topic, the job's *home*, decides; it alone looks at the instant of a commit. The other partitions
are told its decision, and take it as it comes. Everything here happens inside `apply`: a function of
the log. The entries of messages carry a job's number in this partition; numbers are never used again.

A job is forgotten a week after its last record and a week after `until`, and never while messages of it are left.
It is first looked at when the partition has aged by a week since that record, and then once a day. So no record goes
through all jobs.
"""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush

import numpy as np
import numpy.typing as npt

from dueq.core.ports.entry import Entries
from dueq.core.ports.tables import TableRow
from dueq.core.state.applied import Applied
from dueq.core.state.job import Job
from dueq.core.state.side_table import Messages
from dueq.errors import invariant
from dueq.limits import JOB_ANSWERED_MS, JOB_LOOK_AGAIN_MS, JOB_MEMORY_MS
from dueq_codecs.records import U8, U64, JobAction, JobState, Outcome, Record
from dueq_codecs.rules import home_of

Mask = npt.NDArray[np.bool_]


class JobTable:
    """All jobs that one partition knows.

    Args:
        index: the partition's place in its topic.
        partitions: how many of the topic's are home to jobs, the first.
        given: how many numbers had been given out by the last checkpoint.

    Attributes:
        by_key: every job, the oldest first.
        given: numbers given out; the next job gets `given + 1`.
        closed: number -> job of those whose messages must not be delivered: open, aborted, cancelled.
    """

    def __init__(self, index: int = 0, partitions: int = 1, given: int = 0) -> None:
        self._index, self._partitions = index, partitions
        self.given = given
        self.by_key: dict[bytes, Job] = {}
        self.closed: dict[int, Job] = {}
        self._by_number: dict[int, Job] = {}
        self._unfinished: dict[int, Job] = {}
        self._changed: dict[bytes, None] = {}
        # Heap: (not after its `look_at_ms`, number) of each job. A record never sets that to an earlier one.
        self._looks: list[tuple[int, int]] = []

    def recover(self, rows: list[TableRow]) -> None:
        """Begin with what the last checkpoint left.

        Raises:
            UnknownVersion: a newer build wrote a row.
        """
        jobs = [Job.unpack(key, value) for key, value in rows if value is not None]
        for job in sorted(jobs, key=lambda job: job.number):
            self._add(job)

    def is_home(self, job: bytes) -> bool:
        """Whether this partition decides about the job."""
        return home_of(job, self._partitions) == self._index

    # ------------------------------------------------------------ records

    def refuses(self, record: Record) -> bool:
        """Whether an INSERT's new rows are too late: its job has ended, is complete, or has another `until`."""
        job = self.by_key.get(record.job)
        if record.job_until and record.stamp > record.job_until:
            return True
        if job is None:
            return False
        if job.until != record.job_until:
            return True
        return not (job.state == JobState.OPEN or (job.state == JobState.COMMITTED and not job.until))

    def insert(self, record: Record, age_ms: int) -> int:
        """Note that rows of an INSERT take effect that was not refused; returns their job's number."""
        job = self.by_key.get(record.job)
        if job is None:
            job = self._begin(record, JobState.OPEN if record.job_until else JobState.COMMITTED)
        self._concerns(job, record, age_ms)
        return job.number

    def apply(self, record: Record, age_ms: int, messages: Messages, applied: Applied) -> U8:
        """Apply a JOB record; where it decides, the job's messages may be delivered from now on, or no more."""
        before = self.by_key.get(record.job)
        state = before.state if before is not None else JobState.OPEN
        outcome, applied.job = self.act(record, age_ms)
        if applied.job is not None and applied.job.state != state:
            applied.waiting = messages.decided(applied.job)
        return np.array([outcome], np.uint8)

    def act(self, record: Record, age_ms: int) -> tuple[Outcome, Job | None]:
        """Decide what a JOB record asks for; returns its outcome and the job as it is now."""
        job = self.by_key.get(record.job)
        if job is None:
            if record.job_action == JobAction.CLEARED:
                return Outcome.NOT_FOUND, None
            if self._may_be_forgotten(record):
                return Outcome.ENDED, None
            job = self._begin(record, JobState.OPEN)
        outcome = self._decide(job, record)
        self._concerns(job, record, age_ms)
        self._sort(job)
        return outcome, job

    def _may_be_forgotten(self, record: Record) -> bool:
        """Whether home may have decided about this unknown job, and forgotten it: it does not decide twice."""
        final = record.job_action in (JobAction.COMMIT, JobAction.ABORT) and record.job_until
        return bool(final) and self.is_home(record.job) and record.stamp >= record.job_until + JOB_ANSWERED_MS

    def _begin(self, record: Record, state: JobState) -> Job:
        self.given += 1
        job = Job(record.job, self.given, state, record.job_until)
        self._add(job)
        return job

    def _add(self, job: Job) -> None:
        self.by_key[job.key] = self._by_number[job.number] = job
        heappush(self._looks, (job.look_at_ms, job.number))
        self._sort(job)

    def _decide(self, job: Job, record: Record) -> Outcome:
        action, state = record.job_action, job.state
        if action == JobAction.CLEARED:
            job.cleared_flag |= state == JobState.COMMITTED
            return Outcome.DONE if state == JobState.COMMITTED else Outcome.ENDED
        if action == JobAction.CANCEL:
            if state != JobState.ABORTED:
                job.state = JobState.CANCELLED
            return Outcome.DONE
        wanted = JobState.COMMITTED if action == JobAction.COMMIT else JobState.ABORTED
        if state == JobState.OPEN:
            late = action == JobAction.COMMIT and job.until and record.stamp > job.until
            if not (late and self.is_home(job.key)):
                job.state = wanted
        return Outcome.DONE if job.state == wanted else Outcome.ENDED

    def _concerns(self, job: Job, record: Record, age_ms: int) -> None:
        job.stamp, job.look_at_ms = record.stamp, age_ms + JOB_MEMORY_MS
        self._changed[job.key] = None

    def expire(self, age_ms: int, stamp: int) -> None:
        """Forget jobs that are too old at this age of the partition."""
        while self._looks and self._looks[0][0] < age_ms:
            job = self._by_number[heappop(self._looks)[1]]
            if job.look_at_ms < age_ms:
                if not (job.messages or job.state == JobState.OPEN or stamp <= job.until + JOB_MEMORY_MS):
                    self._forget(job)
                    continue
                job.look_at_ms = age_ms + JOB_LOOK_AGAIN_MS
                self._changed[job.key] = None
            heappush(self._looks, (job.look_at_ms, job.number))

    def _forget(self, job: Job) -> None:
        del self.by_key[job.key], self._by_number[job.number]
        self.closed.pop(job.number, None)
        self._unfinished.pop(job.number, None)
        if job.saved:
            self._changed[job.key] = None
        else:
            self._changed.pop(job.key, None)

    # ------------------------------------------------------------ messages

    def count(self, rows: Entries, waiting: int, leased: int, dead: int = 0) -> None:
        """Count messages that begin (1) or stop (-1) to wait, to be leased or to be dead."""
        if not self._by_number:
            return
        column = rows["job"]
        if not np.count_nonzero(column):
            return
        for number, count in Counter(column.tolist()).items():
            if not number:
                continue
            job = self._by_number[number]
            job.waiting += waiting * count
            job.leased += leased * count
            job.dead += dead * count
            invariant(
                min(job.waiting, job.leased, job.dead) >= 0,
                "a job has fewer messages than none",
                job=job.key.hex(),
                waiting=job.waiting,
                leased=job.leased,
                dead=job.dead,
            )
            self._changed[job.key] = None
            if job.ended:
                self._sort(job)

    def barred(self, rows: Entries) -> Mask | None:
        """Return which rows must not be delivered: their job is not committed. None: all may."""
        if not self.closed:
            return None
        column = rows["job"]
        if not np.count_nonzero(column):
            return None
        found = self.closed.keys() & set(column.tolist())
        return np.isin(column, list(found)) if found else None

    def ended(self, rows: Entries) -> Mask | None:
        """Return which rows are of an aborted or cancelled job: they wait for nothing. None: none is."""
        barred = self.barred(rows)
        if barred is None:
            return None
        numbers = self.closed.keys() & set(rows["job"].tolist())
        ended = [number for number in numbers if self.closed[number].ended]
        return np.isin(rows["job"], ended) if ended else None

    def not_before(self, rows: Entries) -> U64 | None:
        """Return before which instant each row may not be due: the `until` of open jobs. None: none has one."""
        if self.barred(rows) is None:
            return None
        until = {number: job.until for number, job in self.closed.items() if job.state == JobState.OPEN}
        return np.array([until.get(number, 0) for number in rows["job"].tolist()], np.uint64)

    # ------------------------------------------------------------ what is left to do

    def _sort(self, job: Job) -> None:
        """Put a job where its state and its messages belong."""
        if job.state == JobState.COMMITTED:
            self.closed.pop(job.number, None)
            done = job.cleared_flag or not job.until
        else:
            self.closed[job.number] = job
            done = not job.ended or not job.to_withdraw
        self._unfinished.pop(job.number, None)
        if not done:
            self._unfinished[job.number] = job

    @property
    def hidden(self) -> frozenset[int]:
        """The numbers of the jobs that have messages which nobody is given or shown."""
        return frozenset(number for number, job in self.closed.items() if job.waiting)

    def wait_from(self, numbers: set[int], before: int) -> list[int]:
        """Return for each of these closed jobs an instant before which nothing of it waits.

        Args:
            numbers: of jobs that are not committed.
            before: such an instant of the whole partition, for jobs that were committed once.
        """
        jobs = [self.closed[number] for number in sorted(numbers)]
        return [before if job.state == JobState.CANCELLED else job.until for job in jobs]

    @property
    def open(self) -> list[Job]:
        """The jobs that are not decided yet."""
        return [job for job in self.closed.values() if job.state == JobState.OPEN]

    @property
    def to_reveal(self) -> Job | None:
        """The oldest committed job of which hidden messages may be left; None when there is none."""
        return next((job for job in self._unfinished.values() if not job.ended), None)

    @property
    def unrevealed(self) -> frozenset[int]:
        """The numbers of the committed jobs of which hidden messages may be left."""
        return frozenset(number for number, job in self._unfinished.items() if not job.ended)

    @property
    def to_withdraw(self) -> Job | None:
        """The oldest aborted or cancelled job of which messages wait or are dead; None when there is none."""
        return next((job for job in self._unfinished.values() if job.ended), None)

    # ------------------------------------------------------------ checkpoints

    def changed_rows(self) -> list[TableRow]:
        """Return the rows that changed since the last call; from now on they count as being on disk."""
        rows = []
        for key in self._changed:
            job = self.by_key.get(key)
            rows.append(TableRow(key, job.pack() if job is not None else None))
            if job is not None:
                job.saved = True
        self._changed.clear()
        return rows

    def export(self) -> list[tuple[str, str]]:
        """Return everything known: (job, its packed row) in hex, sorted."""
        return sorted((job.key.hex(), job.pack().hex()) for job in self.by_key.values())
