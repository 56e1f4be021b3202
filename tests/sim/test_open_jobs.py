"""A job that nobody decides for hours holds up nothing but itself: not what is due behind it, and no memory.

Home is away while the job's `until` passes. Its messages then lie in the index where everything that is due
lies, many times as many as memory may hold.
"""

from __future__ import annotations

from itertools import islice
from zlib import crc32

import pytest

from dueq_chaos.scenarios.hand import Stored
from dueq_chaos.scenarios.stage import Stage
from dueq_codecs.records import JobAction, JobState, Outcome

PARTITIONS = 3
ROWS = 200
HOT_ROWS = 16
PATIENCE_MS = 4_000


def key_of(number: int) -> bytes:
    """One of the jobs whose home is the last partition."""
    keys = (count.to_bytes(16, "big") for count in range(1, 10_000))
    return next(islice((key for key in keys if crc32(key) % PARTITIONS == PARTITIONS - 1), number, None))


class OpenStage(Stage):
    """The first partition has hidden messages of jobs that the last, which shares no broker with it, decides about."""

    def __init__(self, replicas: int = 1) -> None:
        super().__init__(
            brokers=4, partitions=PARTITIONS, replicas=replicas, min_isr=1, hot_rows_total=HOT_ROWS
        )
        self.here, self.home = self.uids[0], self.uids[-1]
        self.home_broker = self.leader_of(self.home) or ""
        self.driver = self.hand("driver")
        self.eater = self.hand("eater")
        self.untils: dict[bytes, int] = {}
        for broker in self.names:
            self.eater.attach(broker, credit=10_000, lease_ms=600_000)
        self.eater.stay()

    def hide(self, job: bytes, until: int, dues: list[int]) -> list[Stored]:
        """Load messages of a job into the first partition."""
        self.untils[job] = until
        found = []
        for at in range(0, len(dues), 100):
            some = dues[at : at + 100]
            payloads = [b"hidden %d" % (at + row) for row in range(len(some))]
            request = self.driver.insert(
                self.leader_of(self.here) or "", payloads, some, uid=self.here, job=job, until=until
            )
            found += self.settled(self.driver, request).stored()
        return found

    def all_came(self, messages: list[Stored]) -> bool:
        """Whether each was delivered. One look at what came does for all: `got` looks through it for each message."""
        return {message.key for message in messages} <= {pushed.key for pushed in self.eater.pushes}

    def comes_in_time(self, due: int = 0) -> None:
        """Something ordinary is due, and is delivered."""
        [message] = self.stored(b"ordinary", due=due or self.now_ms + 500, uid=self.here, by="other")
        self.run_ms(max(message.due - self.now_ms, 0))
        self.until(lambda: self.eater.got(message), "an ordinary message", within_ms=PATIENCE_MS)

    def small(self) -> None:
        """Memory holds no more than it may: the window, what is leased, and half a window of what is hidden."""
        self.run_ms(10_000)
        for name in self.replica(self.leader_of(self.here) or "", self.here).replicas:
            timeline = self.replica(name, self.here).timeline
            rows = timeline.memory_rows - timeline.leased_count
            self.expect(rows <= 2 * HOT_ROWS, f"{name} holds {rows} rows in memory")

    def act(self, job: bytes, action: JobAction, *uids: int) -> None:
        """Decide a job, at home first."""
        for uid in uids or (self.home, self.here):
            self.until(lambda uid=uid: self.leader_of(uid), "a leader")  # type: ignore[misc]
            request = self.driver.act(self.leader_of(uid) or "", action, job, self.untils[job], uid=uid)
            outcomes = self.settled(self.driver, request).outcomes
            self.expect(outcomes == [Outcome.DONE], f"{action.name}: {outcomes}")

    def state_of(self, job: bytes, uid: int) -> JobState | None:
        """The state of a job, as a partition knows it."""
        found = self.replica(self.leader_of(uid) or "", uid).timeline.jobs.by_key.get(job)
        return found.state if found is not None else None


def test_what_is_due_behind_an_undecided_job_comes_and_so_does_the_job_once_home_is_back() -> None:
    stage = OpenStage()
    job, until = key_of(0), stage.now_ms + 3_000
    hidden = stage.hide(job, until, [until - 2_000] * ROWS)
    later = stage.stored(
        *[b"%d" % n for n in range(40)], dues=[until + 1_000 + 50 * n for n in range(40)], uid=stage.here
    )
    stage.act(job, JobAction.COMMIT, stage.home)
    stage.step("the driver dies, and home with it, before anybody else knows")
    stage.nodes[stage.home_broker].crash()
    stage.run_ms(4_000)
    stage.delivered(stage.eater, *later)
    stage.comes_in_time()
    stage.expect(not any(stage.eater.got(message) for message in hidden), "nothing of what is hidden")
    stage.small()
    stage.step("home comes back after a long time")
    stage.run_ms(600_000)
    stage.comes_in_time()
    stage.nodes[stage.home_broker].start()
    stage.until(
        lambda: stage.all_came(hidden),
        "the job, whole",
        within_ms=PATIENCE_MS + 6_000,
    )
    stage.comes_in_time()
    stage.finish()


def test_an_aborted_job_that_was_left_out_is_withdrawn_whole() -> None:
    stage = OpenStage()
    job, until = key_of(0), stage.now_ms + 3_000
    hidden = stage.hide(job, until, [until - 2_000] * ROWS)
    stage.nodes[stage.home_broker].crash()
    stage.run_ms(60_000)
    stage.comes_in_time()
    stage.nodes[stage.home_broker].start()
    leader = stage.leader_of(stage.here) or ""
    stage.until(lambda: stage.state_of(job, stage.here) == JobState.ABORTED, "an abort", within_ms=60_000)
    stage.until(lambda: not stage.replica(leader, stage.here).timeline.scheduled_count, "nothing is left")
    stage.expect(not any(stage.eater.got(message) for message in hidden), "nothing of it was delivered")
    stage.comes_in_time()
    stage.small()
    stage.finish()


@pytest.mark.parametrize("restarted", [False, True])
def test_jobs_of_several_instants_are_each_served_when_they_are_committed(*, restarted: bool) -> None:
    """Later ones first; those due behind their `until` wait for their own instants."""
    stage = OpenStage()
    jobs = [key_of(number) for number in range(3)]
    untils = [stage.now_ms + 2_000 + 1_500 * number for number in range(3)]
    hidden = {
        job: stage.hide(job, until, [until - 1_000] * 100 + [until + 20 * row for row in range(100)])
        for job, until in zip(jobs, untils, strict=True)
    }
    for job in jobs:
        stage.act(job, JobAction.COMMIT, stage.home)
    stage.nodes[stage.home_broker].crash()
    stage.run_ms(8_000)
    stage.comes_in_time()
    if restarted:
        leader = stage.leader_of(stage.here) or ""
        stage.nodes[leader].crash()
        stage.nodes[leader].start()
        stage.until(lambda: stage.leader_of(stage.here), "a leader")
        stage.run_ms(2_000)
        stage.comes_in_time()
    stage.small()
    for job in reversed(jobs):
        stage.act(job, JobAction.COMMIT, stage.here)
        stage.until(
            lambda job=job: stage.all_came(hidden[job]),  # type: ignore[misc]
            "a job, whole", within_ms=PATIENCE_MS,
        )  # fmt: skip
        stage.comes_in_time()
    stage.nodes[stage.home_broker].start()
    stage.run_ms(5_000)
    stage.finish()


def test_a_new_leader_passes_by_what_is_undecided_and_serves_it_when_it_is_decided() -> None:
    stage = OpenStage(replicas=2)
    job, until = key_of(0), stage.now_ms + 3_000
    hidden = stage.hide(job, until, [until - 2_000] * ROWS)
    stage.act(job, JobAction.COMMIT, stage.home)
    away = stage.replica(stage.home_broker, stage.home).replicas
    stage.step("all of home's replicas are gone")
    for name in away:
        stage.nodes[name].crash()
    stage.run_ms(4_000)
    stage.comes_in_time()
    stage.step("the follower leads, with a window of its own")
    first = stage.leader_of(stage.here) or ""
    stage.nodes[first].crash()
    stage.until(lambda: stage.leader_of(stage.here) not in (None, first), "another leader")
    stage.run_ms(2_000)
    stage.comes_in_time()
    stage.nodes[first].start()
    stage.until(lambda: len(stage.isr(stage.here)) == 2, "both replicas")
    stage.small()
    stage.step("and one that begins with what its disk has")
    second = stage.leader_of(stage.here) or ""
    stage.nodes[second].crash()
    stage.until(lambda: stage.leader_of(stage.here) not in (None, second), "another leader")
    stage.run_ms(2_000)
    stage.comes_in_time()
    for name in (second, *away):
        stage.nodes[name].start()
    stage.until(lambda: stage.all_came(hidden), "the job, whole")
    stage.comes_in_time()
    stage.finish()
