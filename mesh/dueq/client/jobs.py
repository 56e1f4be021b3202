"""Jobs: messages that are loaded together, shown together and taken back together.

A job has a name that its owner chooses, and a key of 16 bytes for the mesh, which is derived from the name
and the number of the attempt. After an aborted attempt the same name begins another one, whose messages are
new.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final, Literal
from zlib import crc32

from dueq import limits
from dueq.client import arguments, times
from dueq.client.calls import NO_JOB, Call, Steps
from dueq.client.core import PartsCall
from dueq.client.core.asking.inspecting import Inspection
from dueq.client.core.ports import events
from dueq.client.times import Seconds
from dueq.errors import (
    DueqError,
    InvalidRequest,
    JobEnded,
    JobNotFound,
    NotLeader,
    OutcomeUnknown,
    PartialFailure,
    Unavailable,
)
from dueq_codecs.records import JobAction, Outcome

_KEY: Final = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Job:
    """A job to load messages into; it may be sent to other processes.

    Attributes:
        topic: whose messages.
        job_id: its name.
        key: its key in the mesh, 16 bytes.
        until_ms: hidden, and to be committed by this instant (Unix ms); 0: not hidden.
        state: "open": it takes messages; "committed": it is complete; "cancelled".
    """

    topic: str
    job_id: str
    key: bytes
    until_ms: int
    state: Literal["open", "committed", "cancelled"]


@dataclass(frozen=True, slots=True)
class JobInfo:
    """The mesh's knowledge of a job.

    Attributes:
        topic: whose messages.
        job_id: its name; "" where only the key is known.
        key: 32 hex digits; can be given instead of the name.
        state: "open", "committed", "aborted" or "cancelled". A job that is not hidden is committed from the start.
        until_ms: by which a hidden job must be committed (Unix ms); 0: it is not hidden.
        messages: that are left, those with a consumer included.
        cleared: everything has been revealed, or withdrawn.
    """

    topic: str
    job_id: str
    key: str
    state: str
    until_ms: int
    messages: int
    cleared: bool


# ---------------------------------------------------------------- what to ask


def job_name(job_id: str) -> str:
    """Check a job's name.

    Raises:
        InvalidRequest: it is no Unicode text of 1 to 1,024 bytes.
    """
    try:
        size = len(job_id.encode()) if isinstance(job_id, str) else 0
    except UnicodeEncodeError:
        size = 0
    if not 1 <= size <= limits.JOB_ID_BYTES_MAX:
        raise InvalidRequest(f"a job id is a str of 1 to {limits.JOB_ID_BYTES_MAX} bytes, not {job_id!r:.80}")
    return job_id


def key_of(job_id: str, attempt: int) -> bytes:
    """Return the key of one attempt at a job."""
    return blake2b(job_id.encode() + b"\0%d" % attempt, digest_size=16).digest()


def naming(job: Job | None, topic: str) -> tuple[bytes, int]:
    """Return the fields of requests that name the job of their messages.

    Raises:
        InvalidRequest: it is none, or one of another topic.
        JobEnded: it takes no more messages.
    """
    if job is None:
        return NO_JOB
    if not isinstance(job, Job) or job.topic != topic:
        raise InvalidRequest(
            f"a job of topic {topic!r} is what begin_job has returned for it, not {job!r:.80}"
        )
    if job.state != "open":
        raise JobEnded(f"job {job.job_id!r} of {topic!r} is {job.state}: it takes no more messages")
    return job.key, job.until_ms


def act(topic: str, action: JobAction, key: bytes, until_ms: int, at_home: bool) -> Call[list[Outcome]]:
    """Tell the partition that decides, or all others; one outcome for each."""

    def build(number: int, deadline_us: int) -> events.Event:
        return events.ActOnJob(number, deadline_us, topic, action, key, until_ms, at_home)

    return Call(build, PartsCall.outcomes)


def read(topic: str, key: bytes, job_id: str) -> Call[JobInfo | None]:
    """Read one job."""

    def finish(found: Inspection) -> JobInfo | None:
        infos = _merged(found, topic, deciding=key)
        return next((_named(info, job_id) for info in infos), None)

    return Call(lambda number, at: events.Inspect(number, at, f"job {key.hex()}", topic), finish, reads=True)


def read_all(topic: str) -> Call[list[JobInfo]]:
    """Read all jobs of a topic."""
    return Call(
        lambda number, at: events.Inspect(number, at, "jobs", topic), lambda found: _merged(found, topic)
    )


def _newest_attempt(topic: str, job_id: str, after: int) -> Call[int | None]:
    """Read which attempt at a job is the newest behind this one that any partition knows of."""
    attempts = {key_of(job_id, number).hex(): number for number in range(after + 1, limits.JOB_ATTEMPTS_MAX)}

    def finish(found: Inspection) -> int | None:
        return max((attempts[info.key] for info in _merged(found, topic, complete=True)), default=None)

    what = f"job {','.join(attempts)}"
    return Call(lambda number, at: events.Inspect(number, at, what, topic), finish, reads=True)


def _named(info: JobInfo, job_id: str) -> JobInfo:
    return replace(info, job_id=job_id)


def _merged(found: Inspection, topic: str, deciding: bytes = b"", complete: bool = False) -> list[JobInfo]:
    """Join the knowledge of all partitions' leaders.

    Raises:
        NotLeader: the partition that decides about the job `deciding`, or one of all that must be `complete`, has no
            leader just now.
    """
    info = found.metadata.topics[0]
    placement = [partition.uid for partition in info.partitions]
    homes = info.home_partitions or len(placement)
    newest: dict[int, dict[str, Any]] = {}
    for _, text in sorted(found.documents.items()):
        for view in json.loads(text)["partitions"]:
            known = newest.get(view["uid"])
            rank = (view["epoch"], view["sequence"])
            if known is None or rank > (known["epoch"], known["sequence"]):
                newest[view["uid"]] = view
    if deciding and placement[crc32(deciding) % homes] not in newest:
        raise NotLeader(
            f"the partition of {topic!r} that decides about job {deciding.hex()} has no leader just now"
        )
    if complete and (missing := sum(uid not in newest for uid in placement)):
        raise NotLeader(f"{missing} of {len(placement)} partitions of {topic!r} have no leader just now")
    jobs: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for uid in placement:
        for job in newest[uid]["jobs"] if uid in newest else ():
            jobs.setdefault(job["job"], []).append((uid, job))
    return [_joined(topic, key, parts, placement[:homes]) for key, parts in jobs.items()]


def _joined(topic: str, key: str, parts: list[tuple[int, dict[str, Any]]], homes: list[int]) -> JobInfo:
    """A decision of any partition counts; a withdrawal may have reached some partitions only."""
    home = homes[crc32(bytes.fromhex(key)) % len(homes)]
    states = {part["state"] for _, part in parts}
    decided = next((part["state"] for uid, part in parts if uid == home and part["state"] != "open"), "open")
    for state in ("cancelled", "committed", "aborted"):
        if state in states and (state == "cancelled" or decided == "open"):
            decided = state
    return JobInfo(
        topic, "", key, decided, max(part["until"] for _, part in parts),
        sum(part["messages"] for _, part in parts), all(part["cleared"] for _, part in parts),
    )  # fmt: skip


# ---------------------------------------------------------------- calls of several steps


def _current(topic: str, job_id: str) -> Steps[tuple[bytes, JobInfo | None, JobInfo | None]]:
    """Find the attempt that counts: the first that was not aborted.

    The mesh may have forgotten aborted attempts before the one that counts, whose messages still wait.

    Returns:
        Its key (none where all attempts were aborted), what is known of it, and of the aborted one before it.
    """
    arguments.topic_name(topic)
    if _KEY.fullmatch(job_name(job_id)):
        key = bytes.fromhex(job_id)
        info: JobInfo | None = yield read(topic, key, job_id)
        if info is not None:
            return key, info, None
    attempt, aborted = 0, None
    while attempt < limits.JOB_ATTEMPTS_MAX:
        key = key_of(job_id, attempt)
        info = yield read(topic, key, job_id)
        if info is None:
            newest: int | None = None
            if attempt + 1 < limits.JOB_ATTEMPTS_MAX:
                newest = yield _newest_attempt(topic, job_id, attempt)
            if newest is None:
                return key, None, aborted
            attempt = newest
        elif info.state != "aborted":
            return key, info, aborted
        else:
            attempt, aborted = attempt + 1, info
    return b"", None, aborted


def begin(topic: str, job_id: str, hidden_for: Seconds | None, clock: Callable[[], int]) -> Steps[Job]:
    """Begin a job or find it."""
    hidden_ms = 0
    if hidden_for is not None:
        hidden_ms = times.duration_ms(
            hidden_for, "hidden_for", limits.JOB_HIDDEN_MS_MIN, limits.JOB_HIDDEN_MS_MAX
        )
    while True:
        key, info, _ = yield from _current(topic, job_id)
        if not key:
            raise InvalidRequest(f"job {job_id!r} was aborted {limits.JOB_ATTEMPTS_MAX} times")
        now_ms = clock() // 1000
        if info is None:
            return Job(topic, job_id, key, now_ms + hidden_ms if hidden_ms else 0, "open")
        if hidden_ms and not info.until_ms and info.state != "cancelled":
            raise InvalidRequest(
                f"job {job_id!r} of {topic!r} was begun without being hidden: its messages are on their way"
            )
        if info.state == "open" and now_ms > info.until_ms:
            # Its time is over: nobody can commit it any more, and the mesh will abort it soon.
            yield act(topic, JobAction.ABORT, key, info.until_ms, at_home=True)
            continue
        if info.state == "cancelled":
            return Job(topic, job_id, key, info.until_ms, "cancelled")
        complete = info.state == "committed" and info.until_ms
        return Job(topic, job_id, key, info.until_ms, "committed" if complete else "open")


def end(job: Job, action: JobAction) -> Steps[None]:
    """Commit or abort: one partition decides; the others are told, or ask."""
    if not isinstance(job, Job):
        raise InvalidRequest(f"a job is what begin_job has returned, not {job!r:.80}")
    if not job.until_ms:
        if action == JobAction.COMMIT:
            return
        raise JobEnded(f"job {job.job_id!r} of {job.topic!r} is not hidden: it can only be cancelled")
    decided = yield act(job.topic, action, job.key, job.until_ms, at_home=True)
    if decided != [Outcome.DONE]:
        raise _ended(job, action, decided[0])
    try:
        told = yield act(job.topic, action, job.key, job.until_ms, at_home=False)
    except (Unavailable, OutcomeUnknown, PartialFailure):
        return
    if Outcome.ENDED in told:
        raise JobEnded(f"job {job.job_id!r} of {job.topic!r} was cancelled meanwhile")


def _ended(job: Job, action: JobAction, outcome: Outcome) -> DueqError:
    name = f"job {job.job_id!r} of {job.topic!r}"
    if outcome == Outcome.UNKNOWN:
        return OutcomeUnknown(f"what became of {name} is not known any more")
    if action == JobAction.COMMIT:
        return JobEnded(
            f"{name} was not committed by {job.until_ms} (Unix ms), or was aborted or cancelled: nothing of it "
            "is delivered"
        )
    return JobEnded(f"{name} was committed or cancelled already: a committed job can be cancelled")


def cancel(topic: str, job_id: str) -> Steps[None]:
    """Have all partitions withdraw a job."""
    key, info, _ = yield from _current(topic, job_id)
    if info is None:
        raise JobNotFound(f"topic {topic!r} knows of no job {job_id!r}")
    yield act(topic, JobAction.CANCEL, key, info.until_ms, at_home=True)
    yield act(topic, JobAction.CANCEL, key, info.until_ms, at_home=False)


def look(topic: str, job_id: str) -> Steps[JobInfo | None]:
    """The attempt that counts; where all were aborted, the last of them."""
    _, info, aborted = yield from _current(topic, job_id)
    return info or aborted
