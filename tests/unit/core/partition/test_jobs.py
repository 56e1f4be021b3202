"""Care for jobs: what a leader decides, and how it works off what is decided."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from dueq import limits
from dueq.core.partition.jobs import ASKS_MAX, Jobs
from dueq.core.ports.entry import FULL, Entries, State
from dueq.core.ports.persistence import IndexScanned, ScanIndex
from dueq.core.state.applied import Applied
from dueq.core.state.job import Job
from dueq.core.state.job_table import JobTable
from dueq.core.turn.context import Context
from dueq.core.turn.settings import CoreSettings
from dueq.instant import Now
from dueq_codecs.messages import JobAsk, JobTell
from dueq_codecs.records import JobAction, JobState, Record, RecordKind
from dueq_codecs.rules import home_of

UID = 1
UNTIL = 10_000
KEY = next(key for n in range(100) if home_of(key := n.to_bytes(16, "big"), 2) == 0)
"""At home in the first of two partitions."""
Durable = Callable[[frozenset[int], Now], None]


def at(ms: int) -> Now:
    return Now(ms * 1000, ms * 1000)


class Led:
    """A led partition, the first or second of two; its disk and its log answer when the test says so."""

    def __init__(self, index: int = 0) -> None:
        self.uid, self.serving = UID, True
        self.ctx = Context(CoreSettings("b1", 11, "s1", "cluster", "tcp://b1"))
        self.clock = SimpleNamespace(hold=False, mesh_now_us=lambda now: now.mono_us)
        context: Any = self.ctx
        context.clock = self.clock
        self.jobs = JobTable(index, 2)
        order = SimpleNamespace(class_bytes=0)
        self.timeline = SimpleNamespace(jobs=self.jobs, applied=5, order=order, low_water=3)
        self.topic = SimpleNamespace(
            home_partitions=2, partitions=[SimpleNamespace(uid=UID), SimpleNamespace(uid=UID + 1)]
        )
        self.durable: list[Durable] = []
        self.checkpoints = SimpleNamespace(after=lambda then, now: self.durable.append(then))
        self.full = False
        self.log_end = 5
        self.proposed: list[Record] = []
        partition: Any = self
        self.care = Jobs(self.ctx, partition)
        self.care.begin(at(1))

    def propose(self, record: Record, now: Now) -> int:
        if self.full:
            return 0
        self.log_end += 1
        record.sequence = self.log_end
        self.proposed.append(record)
        return record.sequence

    def job(self, action: JobAction, stamp: int = 1) -> Job:
        """A record about the job is applied that somebody else has proposed."""
        record = Record(RecordKind.JOB, UID, 0, 0, stamp)
        record.job, record.job_until, record.job_action = KEY, UNTIL, action
        _, job = self.jobs.act(record, 0)
        assert job is not None
        self.care.applied(record, Applied(job=job), at(2))
        return job

    def waits(self, count: int) -> None:
        """Let this many messages of the job wait."""
        self.jobs.count(self.rows(*[5_000] * count), 1, 0)

    def rows(self, *due: int, wait_at: int = UNTIL) -> Entries:
        """Messages of the job as the index has them."""
        rows = np.zeros(len(due), FULL)
        rows["state"], rows["job"], rows["sequence"] = State.WAITING, 1, np.arange(len(due)) + 1
        rows["due"], rows["wait_at"] = due, wait_at
        return rows

    def saved(self) -> ScanIndex:
        """The checkpoint is on the disk; returns the read of the index that follows."""
        self.durable.pop(0)(frozenset(), at(2))
        return self.read()

    def read(self) -> ScanIndex:
        [read] = [request for effect in self.ctx.take() if (request := getattr(effect, "request", None))]
        assert isinstance(read, ScanIndex)
        return read

    def page(self, read: ScanIndex, rows: Entries, exhausted: bool = True) -> None:
        self.ctx.read_done(read.token, IndexScanned(read.token, UID, rows, exhausted=exhausted), at(3))

    def applied(self) -> None:
        """All that was proposed is applied."""
        for record in self.proposed[self.timeline.applied - 5 :]:
            self.timeline.applied = record.sequence
            self.care.applied(record, Applied(), at(3))

    @property
    def actions(self) -> list[int]:
        """What was proposed of jobs."""
        return [record.job_action for record in self.proposed if record.kind == RecordKind.JOB]


def committed() -> Led:
    """Three hidden messages of a committed job wait for its instant."""
    led = Led()
    led.job(JobAction.COMMIT)
    led.waits(3)
    return led


# ---------------------------------------------------------------- deciding


def test_home_aborts_once_what_nobody_has_committed_in_time() -> None:
    led = Led()
    led.jobs.insert(_inserted(), 0)
    late_ms = UNTIL + limits.JOB_ABORT_AFTER_MS
    assert led.care.tick(at(late_ms))
    assert led.actions == []
    led.care.tick(at(late_ms + 1))
    led.care.tick(at(late_ms + 2))
    assert led.actions == [JobAction.ABORT]


def test_a_commit_that_comes_too_late_has_nothing_aborted_twice() -> None:
    led = Led()
    led.jobs.insert(_inserted(), 0)
    late_ms = UNTIL + limits.JOB_ABORT_AFTER_MS + 1
    led.care.tick(at(late_ms))
    assert led.job(JobAction.COMMIT, stamp=UNTIL + 1).state == JobState.OPEN
    led.care.tick(at(late_ms + 1))
    assert led.actions == [JobAction.ABORT], "it is on its way"


def test_a_clock_that_may_be_ahead_aborts_nothing() -> None:
    led = Led()
    led.jobs.insert(_inserted(), 0)
    led.clock.hold = True
    led.care.tick(at(10 * UNTIL))
    assert led.actions == []


def test_a_decision_that_an_earlier_leadership_has_proposed_in_vain_is_proposed_anew() -> None:
    """Else the job's messages would be hidden for as long as nothing else is logged."""
    led = Led()
    led.jobs.insert(_inserted(), 0)
    led.care.tick(at(10 * UNTIL))
    led.care.end()
    led.log_end = 5  # the next leader had no such record
    led.care.begin(at(10 * UNTIL))
    led.care.tick(at(10 * UNTIL))
    assert led.actions == [JobAction.ABORT] * 2


def test_home_decides_nothing_about_what_it_may_have_committed_and_forgotten() -> None:
    led = Led()
    ask = JobAsk(UID, UID + 1, *_halves(), UNTIL)
    forgotten_ms = UNTIL + limits.JOB_ANSWERED_MS
    for ms in (UNTIL + limits.JOB_ABORT_AFTER_MS, forgotten_ms):
        tell = led.care.asked(ask, at(ms))
        assert tell is not None
        assert tell.state == JobState.OPEN
    assert led.actions == []
    led.care.asked(ask, at(forgotten_ms - 1))
    assert led.actions == [JobAction.ABORT]


def test_only_home_answers_and_only_others_are_told() -> None:
    home, other = Led(), Led(index=1)
    ask = JobAsk(UID, UID + 1, *_halves(), UNTIL)
    tell = JobTell(UID + 1, *_halves(), JobState.COMMITTED)
    for led in (home, other):
        led.jobs.insert(_inserted(), 0)
        led.care.told(tell, at(2))
    assert other.care.asked(ask, at(10 * UNTIL)) is None
    assert (home.actions, other.actions) == ([], [JobAction.COMMIT])
    other.care.told(tell, at(2))
    assert other.actions == [JobAction.COMMIT], "one is on its way"


def test_an_old_answer_that_it_is_open_decides_nothing() -> None:
    led = Led(index=1)
    led.jobs.insert(_inserted(), 0)
    led.care.told(JobTell(UID + 1, *_halves(), JobState.OPEN), at(2))
    led.care.told(JobTell(UID + 1, *_halves(), 77), at(2))
    assert led.actions == []


def test_home_decides_nothing_more_about_a_job_that_it_knows() -> None:
    """Who was decided for is told so, however late it asks."""
    led = Led()
    led.job(JobAction.COMMIT)
    tell = led.care.asked(JobAsk(UID, UID + 1, *_halves(), UNTIL), at(10 * UNTIL))
    assert tell == JobTell(UID + 1, *_halves(), JobState.COMMITTED)
    assert led.actions == []


# ---------------------------------------------------------------- asking home


def test_home_is_asked_ever_more_seldom_and_often_again_once_it_should_have_decided() -> None:
    """Until its answer is known, messages that may be delivered are held back."""
    led = Led(index=1)
    led.jobs.insert(_inserted(), 0)
    asked_ms = []
    for ms in range(0, UNTIL + 4_000, 100):
        assert led.care.tick(at(ms))
        asks = led.care.take_asks()
        assert asks in ([], [JobAsk(UID, UID, *_halves(), UNTIL)])
        asked_ms += [ms] * len(asks)
    assert asked_ms == [500, 1_500, 3_500, 7_500, 12_500, 13_000, 13_500]
    assert led.actions == []


def test_about_many_jobs_home_is_asked_in_several_turns() -> None:
    led = Led(index=1)
    keys = [key for n in range(1_000) if home_of(key := n.to_bytes(16, "big"), 2) == 0][: ASKS_MAX + 1]
    for key in keys:
        record = _inserted()
        record.job = key
        led.jobs.insert(record, 0)
    counts = []
    for ms in (0, 500, 501):
        led.care.tick(at(ms))
        counts.append(len(led.care.take_asks()))
    assert counts == [0, ASKS_MAX, 1]


# ---------------------------------------------------------------- working off


def test_what_is_hidden_is_revealed_before_the_job_is_said_to_be_clear() -> None:
    led = committed()
    led.care.tick(at(2))
    rows = led.rows(5_000, 6_000)
    led.page(led.saved(), rows)
    [reveal] = led.proposed
    assert (reveal.kind, reveal.target_sequence.tolist()) == (RecordKind.REVEAL, [1, 2])
    led.care.tick(at(3))
    assert led.actions == []
    led.applied()
    led.care.tick(at(4))
    assert led.actions == [JobAction.CLEARED]
    led.care.tick(at(4))
    assert led.actions == [JobAction.CLEARED]


def test_what_waits_for_its_own_instant_is_not_revealed() -> None:
    """Messages of others, and those that are due at it, wait for the very instant of the job, too."""
    led = committed()
    led.care.tick(at(2))
    rows = led.rows(5_000, UNTIL, 5_000)
    rows["job"][2] = 2
    led.page(led.saved(), rows)
    assert led.proposed[0].target_sequence.tolist() == [1]


def test_who_leads_again_reveals_though_the_disk_of_the_leadership_before_never_answered() -> None:
    led = committed()
    led.care.tick(at(2))
    led.care.end()
    led.durable.clear()
    led.care.begin(at(3))
    led.care.tick(at(3))
    led.page(led.saved(), led.rows(5_000))
    assert [record.kind for record in led.proposed] == [RecordKind.REVEAL]


def test_a_page_that_an_earlier_leadership_has_asked_for_is_not_worked_on() -> None:
    led = committed()
    led.care.tick(at(2))
    late = led.saved()
    led.care.end()
    led.care.begin(at(3))
    led.care.tick(at(3))
    led.page(late, led.rows(5_000))
    assert led.proposed == []


def test_a_job_that_is_cancelled_is_revealed_no_more_and_withdrawn_wherever_it_waits() -> None:
    """Some of it was revealed, and waits before the instant at which it was hidden."""
    led = committed()
    led.care.tick(at(2))
    revealing = led.saved()
    led.job(JobAction.CANCEL)
    led.page(revealing, led.rows(5_000))
    assert led.proposed == []
    led.care.tick(at(3))
    withdrawing = led.saved()
    assert withdrawing.after_wait_at == 3
    led.page(withdrawing, led.rows(5_000, wait_at=5_000))
    assert [record.kind for record in led.proposed] == [RecordKind.CANCEL]


def test_nothing_is_revealed_while_the_clock_is_on_hold() -> None:
    """It may seem too late for that, and the messages would be said to be clear while they are hidden."""
    led = committed()
    led.clock.hold = True
    led.care.tick(at(10 * UNTIL))
    assert (led.actions, led.durable) == ([], [])
    led.clock.hold = False
    led.care.tick(at(2))
    reading = led.saved()
    led.clock.hold = True
    led.page(reading, led.rows(5_000))
    assert led.proposed == []
    led.clock.hold = False
    led.care.tick(at(4))
    assert [record.kind for record in led.proposed] == [RecordKind.REVEAL]


def test_the_next_page_is_read_once_what_was_found_in_the_one_before_is_revealed() -> None:
    """A job is said to be clear only behind the last page: what is hidden then would stay so until its instant."""
    led = committed()
    led.care.tick(at(2))
    led.page(led.saved(), led.rows(5_000), exhausted=False)
    led.applied()
    assert led.actions == []
    led.page(led.read(), led.rows(6_000))
    assert [record.kind for record in led.proposed] == [RecordKind.REVEAL] * 2
    led.applied()
    assert led.actions == [JobAction.CLEARED]


def test_what_the_log_does_not_take_now_is_revealed_later() -> None:
    led = committed()
    led.care.tick(at(2))
    led.full = True
    led.page(led.saved(), led.rows(5_000))
    led.full = False
    led.care.tick(at(3))
    assert [record.kind for record in led.proposed] == [RecordKind.REVEAL]


def _inserted() -> Record:
    record = Record(RecordKind.INSERT, UID, 1, 1, 1)
    record.job, record.job_until = KEY, UNTIL
    return record


def _halves() -> tuple[int, int]:
    return int.from_bytes(KEY[:8], "big"), int.from_bytes(KEY[8:], "big")
