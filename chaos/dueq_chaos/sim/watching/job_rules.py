"""The rules of jobs.

No message of a hidden job leaves before home has committed it. Once everything is quiet, all partitions know what home
knows, and no message of an ended job is left. Every acknowledged message of a job that was committed and not cancelled
is owed, like any other (`history`).
"""

from __future__ import annotations

from typing import Final

from dueq import limits
from dueq.core.state.timeline import AGE_STEP_MS
from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.judging.ledger import Ledger
from dueq_codecs.records import JobState
from dueq_codecs.rules import home_of

_SLACK_MS: Final = 10_000
"""Until the record of a calm partition is seen that lets a minute pass."""
_NEVER_OPEN: Final = JobState.COMMITTED, JobState.CANCELLED


def pushed_too_soon(mesh: SimMesh, ledger: Ledger, uid: int, sequence: int) -> str:
    """Say what is wrong with a push of a message that this record inserted; "" when nothing is."""
    record = ledger.record(uid, sequence)
    if record is None or not record.job_until:
        return ""
    home = _home_of(mesh, uid, record.job)
    state = ledger.decided(home, record.job) if home else None
    if not home or state in _NEVER_OPEN:
        return ""
    told = state.name if state is not None else "unknown"
    return f"of job {record.job.hex()}, which partition {home} does not know as committed: {told}"


def settled(mesh: SimMesh, ledger: Ledger) -> bool:
    """Whether every job is decided and worked off."""
    return not _unfinished(mesh, ledger)


def verdicts(mesh: SimMesh, ledger: Ledger) -> list[str]:
    """Return what is wrong with jobs, once everything is quiet."""
    wrong = [f"job {job} of partition {uid} is {what}" for uid, job, what in _unfinished(mesh, ledger)]
    for uid in mesh.coordinator.nodes:
        wrong += filter(None, [_does_not_age(mesh, ledger, uid)])
        for key, job in ledger.reference(uid).jobs.by_key.items():
            # Not what home still knows: it may have forgotten sooner, if of its messages none is left.
            decided = ledger.decided(_home_of(mesh, uid, key) or uid, key)
            if job.until and JobState.CANCELLED not in (decided, job.state) and job.state != decided:
                wrong.append(f"job {key.hex()} of partition {uid} is {job.state.name}, and at home {decided}")
    return wrong


def _does_not_age(mesh: SimMesh, ledger: Ledger, uid: int) -> str:
    """Say so of a partition that knows many jobs and lets no time pass: it would never forget any of them."""
    known = ledger.reference(uid)
    behind_ms = mesh.world.wall_us // 1000 - known.stamp
    if 8 * len(known.jobs.by_key) < limits.JOBS_MAX or behind_ms < AGE_STEP_MS + _SLACK_MS:
        return ""
    return f"partition {uid} knows {len(known.jobs.by_key)} jobs, and its last record is {behind_ms} ms old"


def _unfinished(mesh: SimMesh, ledger: Ledger) -> list[tuple[int, str, str]]:
    return [
        (uid, key.hex(), f"{job.state.name}, with {job.waiting} messages that wait")
        for uid in mesh.coordinator.nodes
        for key, job in ledger.reference(uid).jobs.by_key.items()
        if job.state == JobState.OPEN or not job.cleared
    ]


def _home_of(mesh: SimMesh, uid: int, job: bytes) -> int:
    for topic in mesh.coordinator.topics.values():
        uids = [part.uid for part in topic.partitions]
        if uid in uids:
            return uids[home_of(job, topic.home_partitions)]
    return 0
