"""The driver's side of a load: the mesh reached, the topic found, the job begun."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from dueq import limits
from dueq.client.numbered import mesh_time_ms
from dueq.errors import Disconnected, DueqError, InvalidRequest, JobEnded, TopicNotFound
from dueq.spark.hints import did_you_mean

if TYPE_CHECKING:
    from dueq import Client
    from dueq.client.jobs import Job
    from dueq.client.topics import TopicInfo

PATIENCE_S: Final = 300.0
"""Seconds for which a task repeats a request that the mesh cannot take just now."""
HIDDEN_FOR_S: Final = 6 * 3600.0
HIDDEN_FOR_MAX_S: Final = limits.JOB_HIDDEN_MS_MAX / 1000
_REACH_S: Final = 15.0


def reach(client: Client, endpoints: Sequence[str]) -> None:
    """See that the driver reaches the mesh.

    Raises:
        Disconnected: no endpoint answers; the text says from where, and which.
    """
    try:
        client.topics(timeout=_REACH_S)
    except Disconnected as error:
        text = (
            f"the Spark driver on {socket.gethostname()} reaches no broker at {', '.join(endpoints)}: {error}"
        )
        raise Disconnected(text) from error


def topic_of(client: Client, topic: str) -> TopicInfo:
    """Return a topic's settings.

    Raises:
        TopicNotFound: there is none; the text says what it may have been meant to be.
    """
    try:
        return client.describe(topic)
    except TopicNotFound as error:
        names = [info.name for info in client.topics()]
        raise TopicNotFound(f"there is no topic {topic!r}{did_you_mean(topic, names)}") from error


def horizon_end_ms(info: TopicInfo, now_ms: int) -> int | None:
    """Return the last instant for which a topic takes messages, Unix ms; None: it has no horizon."""
    return None if info.horizon is None else now_ms + info.horizon // timedelta(milliseconds=1)


@dataclass(frozen=True)
class Begun:
    """A job that is being loaded; travels to the executors.

    Attributes:
        job: the mesh's.
        began_ms: mesh time before it began, Unix ms.
        complete: an earlier call has loaded all of it, so nothing is left to send.
    """

    job: Job
    began_ms: int
    complete: bool = False


def begin(client: Client, topic: str, job_id: str | None, hidden_for: float | None) -> Begun:
    """Begin a job, or go on with it.

    An open hidden job was left by a call that died (or belongs to another call, which then fails). Its rows may have
    been cut into other requests than this call would make of them. So it is aborted and begun again.

    Args:
        client: of the driver.
        topic: its name.
        job_id: the job's; None draws one.
        hidden_for: seconds; None: its messages are not hidden.

    Raises:
        JobEnded: it was cancelled.
        InvalidRequest: it was begun as one that is hidden, and this is not, or the other way round.
    """
    began_ms = mesh_time_ms(client)
    if job_id is None:
        drawn = f"spark-{secrets.token_hex(8)}"
        return Begun(client.begin_job(topic, drawn, hidden_for=hidden_for), began_ms)
    earlier = client.job(topic, job_id)
    job = client.begin_job(topic, job_id, hidden_for=hidden_for)
    if job.state == "cancelled":
        raise JobEnded(f"job {job_id!r} of {topic!r} was cancelled; to load it again, give it another job_id")
    if job.state == "open" and job.until_ms:
        if hidden_for is None:
            raise InvalidRequest(
                f"job {job_id!r} of {topic!r} was begun with atomic=True: go on with that, or abort it"
            )
        if earlier is not None and earlier.state == "open":
            with suppress(JobEnded):  # its own time may be over just now
                client.abort_job(job)
            job = client.begin_job(topic, job_id, hidden_for=hidden_for)
    return Begun(job, began_ms, job.state == "committed")


def commit(client: Client, begun: Begun, messages: int) -> None:
    """Show all of a hidden job.

    Args:
        client: of the driver.
        begun: the job.
        messages: how many it has; with none the mesh does not know it.

    Raises:
        JobEnded: its time was over, or it was aborted or cancelled. None of its messages is delivered.
    """
    if messages and not begun.complete:
        client.commit_job(begun.job)


def abort(client: Client, begun: Begun) -> None:
    """Withdraw all of a hidden job; what cannot be withdrawn now the mesh withdraws when its time is over."""
    if begun.job.until_ms and not begun.complete:
        with suppress(DueqError):
            client.abort_job(begun.job)
