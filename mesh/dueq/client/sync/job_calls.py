# Made of aio/job_calls.py by scripts/generate-faces: write there.
"""The part of a client that works with jobs (see `jobs`)."""

from __future__ import annotations

from dueq.client import arguments, jobs
from dueq.client.jobs import Job, JobInfo
from dueq.client.sync.connection import Connection
from dueq.client.times import Seconds
from dueq_codecs.records import JobAction


class JobCalls:
    """A client's calls that concern jobs. All raise `Unavailable` subclasses and `OutcomeUnknown` as producers do."""

    connection: Connection

    def begin_job(
        self, topic: str, job_id: str, *, hidden_for: Seconds | None = None, timeout: float | None = None
    ) -> Job:
        """Begin a job, or find the one of this name; nothing is sent to the mesh before messages are.

        Hidden messages are not delivered, nor shown while browsing, before the job is committed; if that has not
        happened after `hidden_for`, the mesh drops them. A job that was aborted can be begun again.

        Args:
            topic: an existing topic.
            job_id: a name, at most 1,024 bytes of UTF-8.
            hidden_for: seconds (at most 7 days) or a timedelta: hide the job's messages until `commit_job`, which must
                come within this time. A hidden job that is open keeps the time that it was begun with.
                None: its messages are ordinary ones that can be taken back together.
            timeout: seconds for each request.

        Returns:
            The job. A "committed" or "cancelled" job takes no more messages.

        Raises:
            InvalidRequest: an argument is not of these, or the job exists and is not hidden.
            TopicNotFound
        """
        clock = self.connection.clock(True, timeout)
        return self.connection.follow(jobs.begin(topic, job_id, hidden_for, clock), timeout)

    def commit_job(self, job: Job, *, timeout: float | None = None) -> None:
        """Have all messages of a hidden job delivered; repeated, it changes nothing.

        Once this returns, none of the job is lost or left out, whatever fails.

        Raises:
            JobEnded: the job was aborted (its time is over, too) or cancelled.
        """
        self.connection.follow(jobs.end(job, JobAction.COMMIT), timeout)

    def abort_job(self, job: Job, *, timeout: float | None = None) -> None:
        """Drop all messages of a hidden job, as if they had never been scheduled.

        Raises:
            JobEnded: the job was committed or cancelled, or is not hidden: see `cancel_job`.
        """
        self.connection.follow(jobs.end(job, JobAction.ABORT), timeout)

    def cancel_job(self, topic: str, job_id: str, *, timeout: float | None = None) -> None:
        """Take back those messages of a job, hidden or not, that no consumer has; the job takes no more
        messages.

        Once this returns, no message of the job is newly delivered. Waiting messages are withdrawn in the
        background: `job` says how many messages are left. A message that a consumer gives back is not delivered again.

        Args:
            topic: name.
            job_id: the job's name, or the key that `jobs` shows.
            timeout: seconds for each request.

        Raises:
            JobNotFound: nothing is known of such a job, or not any more.
        """
        self.connection.follow(jobs.cancel(topic, job_id), timeout)

    def job(self, topic: str, job_id: str, *, timeout: float | None = None) -> JobInfo | None:
        """Return the mesh's knowledge of a job; None if it has no messages yet, or ended over 7 days ago."""
        return self.connection.follow(jobs.look(topic, job_id), timeout)

    def jobs(self, topic: str, *, timeout: float | None = None) -> list[JobInfo]:
        """Return all jobs of a topic that the mesh knows; without names, since the mesh has only keys."""
        return self.connection.run(jobs.read_all(arguments.topic_name(topic)), timeout)
