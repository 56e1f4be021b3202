"""Care for jobs: the leader of a partition sees to it that each is decided, and worked off.

    OPEN, at home      the time to commit is over ──► JOB abort
    OPEN, elsewhere    home's leader is asked, now and then; what it tells ──► JOB commit, abort or cancel
    COMMITTED          hidden messages that are due sooner ──► REVEAL … ──► JOB cleared
    ABORTED, CANCELLED waiting messages ──► CANCEL …, dead ones ──► DISCARD …, until none is left

Nothing here is replicated. All of it follows from the table of jobs, with which a new leader begins. Home answers
from its table alone. OPEN may change, and every other state is final, so an old answer is never wrong. An abort for
lateness is logged before any other partition is told, as the stamps of two leaders may differ by as much as their
clocks.

Messages to be revealed or withdrawn are found by reading the index page by page, from a checkpoint that contains the
decision: since then none of the job has begun to wait (or to be hidden) that the disk does not have. At most one page
is worked on at a time. So memory and the log hold little of a job, however large it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from dueq import limits
from dueq.core.partition.care import CaredPartition
from dueq.core.partition.index_walk import IndexWalk
from dueq.core.ports.entry import NO_ENTRIES, Entries, State
from dueq.core.ports.persistence import IndexScanned
from dueq.core.state.applied import Applied
from dueq.core.state.job import Job
from dueq.core.state.job_table import JobTable
from dueq.core.turn.context import Context
from dueq.instant import Now
from dueq_codecs.messages import JobAsk, JobTell
from dueq_codecs.records import JobAction, JobState, Record, RecordKind
from dueq_codecs.rules import home_of

ASK_US_MIN: Final = 500_000
ASK_US_MAX: Final = 5_000_000
ASKS_MAX: Final = 64
"""Questions of one partition in one turn."""

_ACTION_OF: Final = {
    JobState.COMMITTED: JobAction.COMMIT,
    JobState.ABORTED: JobAction.ABORT,
    JobState.CANCELLED: JobAction.CANCEL,
}


@dataclass(slots=True)
class _Open:
    """A job that is not decided.

    Attributes:
        ask_at_us: (mono) when home is asked next.
        pause_us: and how long after that again.
        proposed: sequence of the record that decides it, 0 for none.
    """

    ask_at_us: int
    pause_us: int = ASK_US_MIN
    proposed: int = 0


@dataclass(slots=True)
class _Pass:
    """One way through the index, for one job.

    Attributes:
        job, state: whose messages, and what has been decided.
        walk: where it is; None: nothing has to be read.
        reading: a page, or the checkpoint before the first, is on its way.
        chosen: messages of the last page that no record names yet.
        last: sequence of the last record proposed.
        cleared: the record that ends it was proposed.
    """

    job: Job
    state: JobState
    walk: IndexWalk | None = None
    reading: bool = True
    chosen: Entries = field(default_factory=lambda: NO_ENTRIES)
    last: int = 0
    cleared: bool = False

    @property
    def reveals(self) -> bool:
        """Whether it reveals; else it withdraws."""
        return self.state == JobState.COMMITTED


class Jobs:
    """The jobs of one partition, while it is led here.

    Attributes:
        asks: questions to the leaders of other partitions, until they are taken.
    """

    def __init__(self, ctx: Context, partition: CaredPartition) -> None:
        self._ctx, self._partition = ctx, partition
        self.asks: list[JobAsk] = []
        self._open: dict[bytes, _Open] = {}
        self._passes: dict[bool, _Pass] = {}  # by whether it reveals

    @property
    def _table(self) -> JobTable:
        return self._partition.timeline.jobs

    def begin(self, now: Now) -> None:
        """The partition is served from now on."""
        self.end()
        if self._table.by_key:
            self._ctx.attend(self._partition.uid)

    def end(self) -> None:
        """The partition is led no more."""
        self.asks = []
        self._open.clear()
        self._passes.clear()

    # -------------------------------------------------------------- what happens

    def applied(self, record: Record, applied: Applied, now: Now) -> None:
        """A record was applied: go on with what waited for it."""
        if record.job:
            self._ctx.attend(self._partition.uid)
        job = applied.job
        if job is not None and job.state != JobState.OPEN:
            self._open.pop(job.key, None)
        for work in list(self._passes.values()):
            if work.job is job and work.state != job.state:
                del self._passes[work.reveals]
            elif record.sequence == work.last:
                self._go_on(work, now)

    def take_asks(self) -> list[JobAsk]:
        """Return the questions that are to be sent, and begin a new list."""
        asks, self.asks = self.asks, []
        return asks

    def asked(self, ask: JobAsk, now: Now) -> JobTell | None:
        """Answer the leader of another partition; None where this one does not decide."""
        key = _key_of(ask)
        if not self._partition.serving or not self._table.is_home(key):
            return None
        job = self._table.by_key.get(key)
        state = JobState.OPEN if job is None else job.state
        if job is None and self._is_late(ask.until, now) and self._would_know(ask.until, now):
            self._decide(key, ask.until, JobAction.ABORT, now)
        return JobTell(ask.asker, ask.job_high, ask.job_low, state)

    def told(self, tell: JobTell, now: Now) -> None:
        """Log what home has decided."""
        key = _key_of(tell)
        job = self._table.by_key.get(key)
        action = _ACTION_OF.get(JobState(tell.state)) if tell.state in tuple(JobState) else None
        if job is None or job.state != JobState.OPEN or action is None or self._table.is_home(key):
            return
        if self._partition.serving:
            self._decide(key, job.until, action, now)

    def tick(self, now: Now) -> bool:
        """Ask, abort what is late, begin to work off; returns whether anything is left to do."""
        if not self._partition.serving:
            return False
        undecided = self._table.open
        for job in undecided:
            self._look_after(job, now)
        for reveals in (True, False):
            if reveals and self._ctx.clock.hold:
                continue  # what is hidden may seem over: it is looked at again when the clock is released
            work = self._passes.get(reveals)
            job_left = self._table.to_reveal if reveals else self._table.to_withdraw
            if work is not None:
                self._go_on(work, now)
            elif job_left is not None:
                self._start(job_left, now)
        return bool(undecided or self._passes)

    # -------------------------------------------------------------- deciding

    def _look_after(self, job: Job, now: Now) -> None:
        care = self._open.get(job.key)
        if care is None:
            care = self._open[job.key] = _Open(now.mono_us + ASK_US_MIN)
        if self._table.is_home(job.key):
            if self._is_late(job.until, now):
                self._decide(job.key, job.until, JobAction.ABORT, now)
            return
        if now.mono_us < care.ask_at_us or len(self.asks) >= ASKS_MAX:
            return
        overdue = self._mesh_ms(now) > job.until
        care.pause_us = ASK_US_MIN if overdue else min(2 * care.pause_us, ASK_US_MAX)
        care.ask_at_us = now.mono_us + care.pause_us
        topic = self._partition.topic
        home = topic.partitions[home_of(job.key, topic.home_partitions)].uid
        high, low = (int.from_bytes(half, "big") for half in (job.key[:8], job.key[8:]))
        self.asks.append(JobAsk(home, self._partition.uid, high, low, job.until))

    def _is_late(self, until: int, now: Now) -> bool:
        """Whether nobody can commit any more; a clock that is on hold does not say so."""
        return not self._ctx.clock.hold and self._mesh_ms(now) - until > limits.JOB_ABORT_AFTER_MS

    def _would_know(self, until: int, now: Now) -> bool:
        """Whether home would still know of a job if it had been committed."""
        return self._mesh_ms(now) - until < limits.JOB_ANSWERED_MS

    def _mesh_ms(self, now: Now) -> int:
        return self._ctx.clock.mesh_now_us(now) // 1000

    def _decide(self, key: bytes, until: int, action: JobAction, now: Now) -> None:
        """Log a decision, unless one is on its way already."""
        care = self._open.setdefault(key, _Open(now.mono_us + ASK_US_MIN))
        if care.proposed <= self._partition.timeline.applied:
            care.proposed = self._propose_job(key, until, action, now)

    def _propose_job(self, key: bytes, until: int, action: JobAction, now: Now) -> int:
        record = Record(RecordKind.JOB, self._partition.uid, 0, 0, 0)
        record.job, record.job_until, record.job_action = key, until, action
        return self._partition.propose(record, now)

    # -------------------------------------------------------------- working off

    def _start(self, job: Job, now: Now) -> None:
        work = self._passes[job.state == JobState.COMMITTED] = _Pass(job, job.state)
        if work.reveals and (not job.waiting or self._mesh_ms(now) >= job.until):
            work.reading = False  # nothing is hidden (any more)
            self._go_on(work, now)
            return

        def durable(hidden: frozenset[int], then: Now) -> None:
            if self._passes.get(work.reveals) is work:
                timeline = self._partition.timeline
                from_ms = timeline.low_water if job.state == JobState.CANCELLED else job.until
                # Hidden messages wait for that instant exactly.
                until_ms = job.until if work.reveals else None
                if not work.reveals and not job.waiting:
                    work.walk = IndexWalk(self._partition.uid, 0, 0, dead=True)
                else:
                    class_bytes = timeline.order.class_bytes
                    work.walk = IndexWalk(self._partition.uid, class_bytes, from_ms, until_ms)
                self._read(work, work.walk)

        self._partition.checkpoints.after(durable, now)

    def _read(self, work: _Pass, walk: IndexWalk) -> None:
        work.reading = True

        def read(answer: object, now: Now) -> None:
            assert isinstance(answer, IndexScanned)
            if self._passes.get(work.reveals) is work:
                work.reading = False
                work.chosen = _of_job(work, walk.take(answer))
                self._go_on(work, now)

        self._ctx.read(walk.request, read)

    def _go_on(self, work: _Pass, now: Now) -> None:
        """Do the next step, if nothing is on its way."""
        if work.reading or (work.reveals and self._ctx.clock.hold):
            return
        while len(work.chosen):
            sequence = self._partition.propose(self._record(work, work.chosen[: limits.RECORD_ROWS_MAX]), now)
            if not sequence:
                return
            work.last = sequence
            work.chosen = work.chosen[limits.RECORD_ROWS_MAX :]
        if self._partition.timeline.applied < work.last:
            return
        if work.walk is not None and not work.walk.ended:
            self._read(work, work.walk)
        elif work.reveals and not work.cleared:
            work.last = self._propose_job(work.job.key, work.job.until, JobAction.CLEARED, now)
            work.cleared = work.last > 0
        else:
            del self._passes[work.reveals]
            self._ctx.attend(self._partition.uid)

    def _record(self, work: _Pass, entries: Entries) -> Record:
        record = Record(RecordKind.REVEAL, self._partition.uid, 0, 0, 0)
        if work.reveals:
            record.job = work.job.key
        elif (entries["state"] == State.DEAD).all():
            record.kind = RecordKind.DISCARD
        else:
            record.kind = RecordKind.CANCEL
            record.token = np.zeros(len(entries), np.uint64)
        record.first = np.ascontiguousarray(entries["first"])
        record.target_sequence = np.ascontiguousarray(entries["sequence"])
        record.target_row = np.ascontiguousarray(entries["row"])
        return record


def _key_of(message: JobAsk | JobTell) -> bytes:
    return message.job_high.to_bytes(8, "big") + message.job_low.to_bytes(8, "big")


def _of_job(work: _Pass, entries: Entries) -> Entries:
    """Return those that the pass is looking for."""
    wanted = entries["job"] == work.job.number
    if work.reveals:
        wanted &= (entries["wait_at"] == work.job.until) & (entries["due"] < work.job.until)
    return entries.take(np.flatnonzero(wanted))
