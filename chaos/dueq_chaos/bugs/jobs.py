"""Planted bugs of jobs: which messages are hidden, who decides, which messages are taken back."""

from __future__ import annotations

from typing import Final

from dueq_chaos.bugs.bug import Bug, change

JOBS: Final = (
    Bug(
        "hidden-job-delivered",
        "Messages of a job that nobody has committed are leased like any others.",
        "Kafka KIP-98: a consumer that reads committed messages must not be shown others",
        (change("core.state.job_table:JobTable.barred", "if not self.closed:", "if True:"),),
        seeds=48,
        finders=(12,),
    ),
    Bug(
        "decision-not-learnt",
        "A partition asks what has become of a job, and ignores the answer.",
        "Kafka KIP-664: transactions that hang, since nobody tells a partition how they have ended",
        (change("core.partition.jobs:Jobs.told", "if self._partition.serving:", "if False:"),),
        seeds=48,
        finders=(12,),
    ),
    Bug(
        "ended-job-not-withdrawn",
        "The waiting messages of a cancelled or aborted job stay where they are.",
        "Kafka KIP-98: aborted messages stay in the log; here nothing of them may be left",
        (
            change(
                "core.state.job_table:JobTable._sort",
                "done = not job.ended or not job.to_withdraw",
                "done = job.state > 1",
            ),
        ),
        seeds=48,
        finders=(12,),
    ),
    Bug(
        "left-out-job-not-read",
        "Messages that were left out of memory because their job was undecided stay out when it is committed.",
        "a cache that skips rows by a filter, and is not told when the filter changes",
        (change("core.state.residency:Residency.decided", "if window.go_back(job.until):", "if False:"),),
        seeds=24,
        finders=(5,),
    ),
    Bug(
        "window-goes-on-at-a-commit",
        "When a job is committed, all that is due before the end of its hiding counts as known, and stays on the disk.",
        "a watermark that is set to where it should be, and not to what was read",
        (
            change(
                "core.state.window:HotWindow.go_back",
                "if self.end is not None and self.end <= end:",
                "if False:",
            ),
        ),
        seeds=0,
        finders=(92000013, 92000024),
    ),
    Bug(
        "revealed-messages-outlive-the-cancel",
        "A job that is cancelled after its commit is withdrawn from the end of its hiding on: what was revealed stays.",
        "a clean-up that looks where things were when they began",
        (
            change(
                "core.partition.jobs:Jobs._start",
                "timeline.low_water if job.state == JobState.CANCELLED else job.until",
                "job.until",
            ),
        ),
        seeds=0,
        finders=(88000018,),
    ),
)
