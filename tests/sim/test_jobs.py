"""Jobs on a whole mesh, when what matters fails at the moment at which it matters."""

from __future__ import annotations

from zlib import crc32

import pytest

from dueq import limits
from dueq.core.ports.persistence import IndexScanned
from dueq.core.state.job import Job
from dueq_chaos.scenarios.hand import Hand, Stored
from dueq_chaos.scenarios.stage import Stage
from dueq_chaos.scenarios.taps import Caught
from dueq_chaos.sim.environment import scale
from dueq_codecs.messages import Code
from dueq_codecs.records import JobAction, JobState, Outcome, RecordKind

JOB = b"campaign of june"
PARTITIONS = 3
HOME = crc32(JOB) % PARTITIONS


class JobStage(Stage):
    """A topic of three partitions, and one job.

    Attributes:
        until: instant by which the job must be committed.
    """

    def __init__(self, hidden_ms: int, **options: int) -> None:
        super().__init__(partitions=PARTITIONS, **options)
        self.hidden_until = self.now_ms + hidden_ms if hidden_ms else 0
        self.driver = self.hand("driver")

    @property
    def home(self) -> int:
        """The partition that decides."""
        return self.uids[HOME]

    def load(self, rows: int, due: int = 0, *uids: int) -> list[Stored]:
        """Put so many messages into each of these partitions (all by default)."""
        found = []
        for uid in uids or self.uids:
            payloads = [b"%d" % row for row in range(rows)]
            request = self.driver.insert(
                self.leader_of(uid) or "", payloads, [due or self.now_ms + 500] * rows, uid=uid, job=JOB,
                until=self.hidden_until,
            )  # fmt: skip
            found += self.settled(self.driver, request).stored()
        return found

    def act(self, action: JobAction, uid: int) -> Outcome:
        """Decide in one partition, until it is confirmed."""
        leader = self.leader_of(uid) or ""
        request = self.driver.act(leader, action, JOB, self.hidden_until, uid=uid)
        return self.settled(self.driver, request).outcomes[0]

    def job(self, uid: int) -> Job | None:
        """The job, as the leader of a partition knows it."""
        leader = self.leader_of(uid)
        return self.replica(leader, uid).timeline.jobs.by_key.get(JOB) if leader is not None else None

    def everywhere(self, state: JobState) -> None:
        """Wait until every partition that knows the job knows this of it, and has worked it off."""

        def so() -> bool:
            jobs = [self.job(uid) for uid in self.uids]
            return all(job is None or (job.state == state and job.cleared) for job in jobs)

        self.until(so, f"a job that is {state.name} everywhere")

    def greedy(self) -> Hand:
        """A consumer at every broker, for the whole story."""
        hand = self.hand("consumer")
        for broker in self.names:
            hand.attach(broker, credit=10_000, lease_ms=600_000)
        hand.stay()
        return hand

    def waiting(self) -> list[int]:
        """How many messages wait in each partition."""
        return [self.replica(self.leader_of(uid) or "", uid).timeline.scheduled_count for uid in self.uids]


def test_a_commit_counts_though_home_changes_its_leader_over_it() -> None:
    stage = JobStage(hidden_ms=60_000)
    consumer = stage.greedy()
    messages = stage.load(20)
    stage.run_ms(2_000)
    stage.expect(not consumer.pushes, "nothing before the commit")
    stage.step("the commit is on its way when home's leader dies")
    leader = stage.leader_of(stage.home) or ""
    request = stage.driver.act(leader, JobAction.COMMIT, JOB, stage.hidden_until, uid=stage.home)
    stage.run_ms(1)
    stage.nodes[leader].crash()
    stage.settled(stage.driver, request)
    stage.expect(request.outcomes == [Outcome.DONE], "it is committed")
    stage.nodes[leader].start()
    stage.delivered(consumer, *messages)
    stage.everywhere(JobState.COMMITTED)
    stage.expect(stage.now_ms < stage.hidden_until, "long before the last moment")
    stage.finish()


def test_a_driver_that_dies_after_home_knows_leaves_a_job_that_is_delivered_whole() -> None:
    stage = JobStage(hidden_ms=60_000)
    consumer = stage.greedy()
    messages = stage.load(5)
    stage.act(JobAction.COMMIT, stage.home)
    stage.step("nobody tells the others: they ask")
    stage.delivered(consumer, *messages)
    stage.everywhere(JobState.COMMITTED)
    stage.finish()


def test_an_abandoned_job_leaves_nothing_even_where_home_has_none_of_it() -> None:
    stage = JobStage(hidden_ms=4_000)
    consumer = stage.greedy()
    others = [uid for uid in stage.uids if uid != stage.home]
    stage.load(5, 0, *others)
    stage.step("a broker is away for a while; nobody commits")
    stage.nodes["b2"].crash()
    stage.run_ms(6_000)
    stage.nodes["b2"].start()
    stage.until(lambda: stage.waiting() == [0] * PARTITIONS, "an empty topic")
    stage.everywhere(JobState.ABORTED)
    late = stage.act(JobAction.COMMIT, stage.home)
    stage.expect(late == Outcome.ENDED and not consumer.pushes, "too late, and nothing was delivered")
    stage.finish()


def test_a_job_that_is_cancelled_leaves_its_consumers_what_they_have() -> None:
    stage = JobStage(hidden_ms=0)
    uid = stage.uid
    holder = stage.hand("holder")
    holder.attach(stage.leader, credit=2, lease_ms=3_000)
    messages = stage.load(6, 0, uid)
    stage.until(lambda: len(holder.pushes) == 2, "two deliveries")
    stage.act(JobAction.CANCEL, uid)
    rest = stage.greedy()
    stage.until(lambda: stage.waiting()[0] == 0, "what waits is withdrawn")
    first, second = holder.pushes
    acked = stage.settled(holder, holder.settle(stage.leader, RecordKind.ACK, [first]))
    stage.expect(acked.outcomes == [Outcome.DONE], "the ack counts")
    stage.step("the other lease runs out: the message goes instead of coming again")
    stage.until(lambda: not stage.replica(stage.leader).timeline.live_count, "nothing left")
    stage.run_ms(2_000)
    stage.expect(not rest.pushes, "nothing is newly delivered")
    refused = stage.driver.insert(stage.leader, [b"late"], [stage.now_ms], job=JOB)
    stage.expect(stage.settled(stage.driver, refused).codes[-1] == Code.JOB_ENDED, "it takes no more")
    stage.expect(len(messages) == 6 and second.attempt == 1, "six were there")
    stage.finish()


def test_a_cancel_after_the_commit_withdraws_what_was_revealed() -> None:
    stage = JobStage(hidden_ms=600_000)
    due = stage.now_ms + 300_000
    stage.load(5, due)
    stage.act(JobAction.COMMIT, stage.home)
    stage.everywhere(JobState.COMMITTED)
    browser, leader = stage.hand("browser"), stage.leader_of(stage.home) or ""
    shown = stage.browsed(browser, leader, uid=stage.home)
    stage.expect({row.wait_at for row in shown} == {due}, "they wait for their own instants")
    for uid in stage.uids:
        stage.act(JobAction.CANCEL, uid)
    stage.until(lambda: stage.waiting() == [0] * PARTITIONS, "nothing left")
    stage.everywhere(JobState.CANCELLED)
    stage.finish()


def test_a_pass_right_after_the_commit_leaves_nothing_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Page by page its messages are revealed, and some of them behind the place that the pass has reached."""
    monkeypatch.setattr("dueq.core.partition.index_walk.HOT_SCAN_ROWS", 8)
    monkeypatch.setattr("dueq.limits.CHECKPOINT_MS", 20)
    stage = Stage()
    driver, now_ms = stage.hand("driver"), stage.now_ms
    until = now_ms + 3_600_000
    for _ in range(2):
        stage.stored(*[b"other"] * 500, due=until - 600_000)
        request = driver.insert(
            stage.leader, [b"of it"] * 500, [now_ms + 600_000] * 500, job=JOB, until=until
        )
        stage.settled(driver, request)
    stage.settled(driver, driver.act(stage.leader, JobAction.COMMIT, JOB, until, uid=stage.uid))
    passes = stage.replica(stage.leader).timeline.passes
    stage.settled(driver, driver.work(stage.leader, "all", do="purge", filter={"state": "waiting"}))
    stage.until(lambda: passes.running is None, "the end of the pass")
    stage.expect(passes.by_name["all"].done == 2_000, f"all is purged, not {passes.by_name['all'].done}")
    stage.finish()


@pytest.mark.parametrize("early_ms", [-1_200, -3, -1, 0, 1, 4, 30])
def test_a_commit_at_the_last_moment_is_all_or_nothing(early_ms: int) -> None:
    stage = JobStage(hidden_ms=3_000, seed=40 + early_ms)
    consumer = stage.greedy()
    messages = stage.load(4)
    stage.run_ms(stage.hidden_until - stage.now_ms - early_ms)
    outcome = stage.act(JobAction.COMMIT, stage.home)
    if outcome == Outcome.DONE:
        stage.delivered(consumer, *messages)
        stage.everywhere(JobState.COMMITTED)
    else:
        stage.until(lambda: stage.waiting() == [0] * PARTITIONS, "nothing left")
        stage.everywhere(JobState.ABORTED)
        stage.run_ms(2_000)
        stage.expect(not consumer.pushes, "nothing was delivered")
    stage.finish()


def _lone_with_a_job() -> tuple[Stage, int, int]:
    """Return a broker that has no peer to measure, the instant for which its one job's message is due, and `until`."""
    stage = Stage(brokers=1, replicas=1, min_isr=1)
    due, until = stage.now_ms + 600_000, stage.now_ms + 3_600_000
    driver = stage.hand("driver")
    stage.settled(driver, driver.insert("b1", [b"hidden"], [due], job=JOB, until=until))
    return stage, due, until


def _clock_steps_there_and_back(stage: Stage, *meanwhile: Caught) -> None:
    """Two hours ahead, and back before anything is pushed by that clock."""
    stage.nodes["b1"].wall_error_us = 2 * 3_600_000_000
    stage.run_ms(100)
    for caught in meanwhile:
        caught.let_go()
    stage.run_ms(200)
    stage.nodes["b1"].wall_error_us = 0
    stage.run_ms(3_000)


def test_an_open_job_is_not_late_by_a_clock_that_is_on_hold() -> None:
    stage, _, until = _lone_with_a_job()
    _clock_steps_there_and_back(stage)
    stage.expect(stage.replica("b1").timeline.jobs.by_key[JOB].state == JobState.OPEN, "still open")
    stage.run_ms(until - stage.now_ms + limits.JOB_ABORT_AFTER_MS + 1_000)
    stage.expect(stage.replica("b1").timeline.jobs.by_key[JOB].state == JobState.ABORTED, "too late")
    stage.finish()


@pytest.mark.parametrize("begun", [False, True], ids=["not begun yet", "a page is being read"])
def test_what_is_hidden_is_revealed_though_its_time_seems_over_by_a_clock_that_is_on_hold(
    begun: bool,
) -> None:
    stage, due, until = _lone_with_a_job()
    driver = stage.hand("driver")
    page = stage.hold("b1", lambda event: isinstance(event, IndexScanned))
    stage.settled(driver, driver.act("b1", JobAction.COMMIT, JOB, until, uid=stage.uid))
    if begun:
        stage.until(lambda: page.events, "a page")
    _clock_steps_there_and_back(stage, page)
    [row] = stage.browsed(stage.hand("browser"), "b1")
    stage.expect(row.wait_at == due, f"it waits for its own instant, not for {row.wait_at}")
    stage.finish()


@pytest.mark.parametrize("action", [JobAction.COMMIT, JobAction.ABORT, JobAction.CANCEL])
def test_a_new_leader_goes_on_with_what_the_old_one_had_begun_to_reveal_or_withdraw(
    action: JobAction,
) -> None:
    """More than a page, most of it on disk only; the leader dies in the middle."""
    stage = JobStage(hidden_ms=600_000, hot_rows_total=64)
    due, uid = stage.now_ms + 300_000, stage.home
    for _ in range(6):
        stage.load(1_000, due, uid)
    leader = stage.leader_of(uid) or ""
    stage.step("the decision, and its first records")
    stage.act(action, uid)

    def begun() -> bool:
        timeline = stage.replica(leader, uid).timeline
        if action == JobAction.COMMIT:
            return bool(timeline.forecast(due - 1_000, 3))
        return timeline.jobs.by_key[JOB].waiting < 6_000

    stage.until(begun, "some of it")
    stage.expect(not stage.replica(leader, uid).timeline.jobs.by_key[JOB].cleared, "not all of it")
    stage.nodes[leader].crash()
    stage.until(lambda: stage.leader_of(uid) not in (None, leader), "another leader")
    state = {JobAction.COMMIT: JobState.COMMITTED, JobAction.ABORT: JobState.ABORTED}
    stage.everywhere(state.get(action, JobState.CANCELLED))
    stage.nodes[leader].start()
    stage.finish()
    timeline = stage.replica(stage.leader_of(uid) or "", uid).timeline
    left = 6_000 if action == JobAction.COMMIT else 0
    stage.expect(timeline.scheduled_count == left, f"{left} messages")
    if action == JobAction.COMMIT:
        browser = stage.hand("browser")
        shown = stage.browsed(browser, stage.leader_of(uid) or "", uid=uid)
        stage.expect({row.wait_at for row in shown} == {due}, "all is revealed")


def test_a_replica_that_begins_anew_knows_the_jobs_and_what_was_loaded() -> None:
    """The log no longer has them: they come with a snapshot, and are there again after a crash."""
    stage = JobStage(hidden_ms=600_000, log_retain_bytes=1_000)
    stage.nodes["b3"].crash()
    stage.until(lambda: all("b3" not in stage.isr(uid) for uid in stage.uids), "an ISR without b3")
    stage.until(lambda: all(stage.leader_of(uid) for uid in stage.uids), "leaders")
    stage.load(200)
    stage.run_ms(6_000)
    stage.load(1)
    stage.run_ms(6_000)
    stage.nodes["b3"].start()
    stage.until(lambda: stage.told("b3", "replica.installed"), "a snapshot")
    stage.until(stage.whole, "a whole mesh")
    stage.nodes["b3"].crash()
    stage.nodes["b3"].start()
    stage.finish()
    table = stage.replica("b3").timeline.jobs
    stage.expect(table.by_key[JOB].waiting == 201, "it counts the job's messages")


def test_a_partition_takes_no_more_jobs_than_it_can_remember(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dueq.limits.JOBS_MAX", 1)
    stage = JobStage(hidden_ms=600_000)
    stage.load(1, 0, stage.uid)
    hand = stage.hand("another")
    one_more = hand.insert(stage.leader, [b"x"], [stage.now_ms], job=b"x" * 16, until=stage.hidden_until)
    stage.answered(one_more)
    stage.expect(one_more.codes == [Code.BUSY], "one too many")
    stage.load(1, 0, stage.uid)
    stage.finish()


def test_a_partition_that_is_full_of_jobs_takes_more_once_time_has_passed_though_nothing_else_happens() -> (
    None
):
    small = ("JOBS_MAX", 8), ("JOB_MEMORY_MS", 60_000), ("JOB_ANSWERED_MS", 50_000)
    with scale.scaled(small):
        stage = JobStage(hidden_ms=0)
        hand = stage.greedy()

        def load(job: bytes) -> Code:
            request = hand.insert(stage.leader, [b"x"], [stage.now_ms], job=job)
            stage.answered(request)
            return request.codes[-1]

        for number in range(8):
            stage.expect(load(b"%16d" % number) == Code.OK, "eight are taken")
        stage.delivered(hand)
        stage.until(lambda: len(hand.pushes) == 8, "they are delivered")
        stage.acked(hand, hand.pushes)
        stage.expect(load(b"x" * 16) == Code.BUSY, "the ninth is not")
        stage.run_ms(200_000)
        stage.expect(load(b"x" * 16) == Code.OK, "as the eight are forgotten")
        stage.finish()


def test_home_aborts_what_was_open_all_the_time_that_it_was_away() -> None:
    """Home was away for longer than it remembers decisions: it would have forgotten its own."""
    with scale.scaled((("JOB_MEMORY_MS", 60_000), ("JOB_ANSWERED_MS", 50_000))):
        stage = JobStage(hidden_ms=5_000)
        stage.load(3)
        for name in stage.names:
            stage.nodes[name].crash()
        stage.run_ms(90_000)
        for name in stage.names:
            stage.nodes[name].start()
        stage.until(stage.whole, "a whole mesh")
        stage.until(lambda: stage.waiting() == [0] * PARTITIONS, "an empty topic")
        stage.everywhere(JobState.ABORTED)
        stage.finish()
