"""Is there room in a partition for all that a request would have it keep in memory? Each bound is one of `limits`."""

from __future__ import annotations

from dueq import limits
from dueq.core.partition.requests import Refusal
from dueq.core.ports.names import NO_HASH, hashes_of
from dueq.core.state.timeline import Timeline
from dueq_codecs.messages import ChangeRequest, Code
from dueq_codecs.records import Record, RecordKind

_RETRY_MS = 1000


class UnderWay:
    """What requests that were taken and are not applied yet would have a partition keep of single messages.

    Their records are short for what comes of them: thousands of triggered messages, or headers for each row of a NACK.

    Attributes:
        triggered: messages.
        heading_bytes: of replaced headers.
    """

    def __init__(self) -> None:
        self.triggered = self.heading_bytes = 0

    def begin(self, request: ChangeRequest) -> None:
        """A request was taken."""
        self._count(request, 1)

    def end(self, record: Record) -> None:
        """The record of some of them was applied."""
        self._count(record, -1)

    def _count(self, what: ChangeRequest | Record, times: int) -> None:
        if what.kind == RecordKind.TRIGGER:
            self.triggered += times * what.rows
        elif what.kind == RecordKind.NACK and what.document:
            self.heading_bytes += times * what.rows * len(what.document.encode())


def fullness(timeline: Timeline, request: ChangeRequest, under_way: UnderWay) -> Refusal | None:
    """Return why a partition has no room for a request, or None; unique keys apart."""
    return _of_names(timeline, request) or _of_rows(timeline, request, under_way)


def fullness_of_names(timeline: Timeline, request: ChangeRequest) -> Refusal | None:
    """Return why a partition has no room for more unique keys, if a request has any; or None.

    The request may be taken all the same: those that are known need no room, and the disk may know them.
    """
    kept = timeline.names_count
    if kept < limits.NAMES_MAX or not (len(request.key_high) or len(request.once_high)):
        return None
    return _busy(f"partition {timeline.uid} keeps {kept} unique keys, and may keep {limits.NAMES_MAX}")


def names_of(request: ChangeRequest) -> list[bytes]:
    """Return the hash under which each row is looked for first: of its idempotency key, or of its unique key."""
    hashes = hashes_of(request.key_high, request.key_low)
    once = hashes_of(request.once_high, request.once_low)
    if not once or not hashes:
        return once or hashes
    return [first if first != NO_HASH else second for first, second in zip(once, hashes, strict=True)]


def _of_names(timeline: Timeline, request: ChangeRequest) -> Refusal | None:
    """Refuse a request that would have too much remembered under names: a body, groups, a job, a pass."""
    uid = timeline.uid
    bodies = timeline.bodies.by_name
    new_body = request.kind == RecordKind.BODY and request.shared not in bodies
    if new_body and len(bodies) >= limits.BODIES_MAX:
        return _busy(f"partition {uid} keeps {limits.BODIES_MAX} shared bodies, no more")
    names = (request.name,) if request.kind == RecordKind.GROUP else request.groups
    if names:
        groups = timeline.groups.by_name
        new = sum(name != "" and name not in groups for name in names)
        if new and len(groups) + new > limits.GROUPS_MAX:
            return _busy(f"partition {uid} has {len(groups)} groups, and may have {limits.GROUPS_MAX}")
    jobs = timeline.jobs.by_key
    if request.job and len(jobs) >= limits.JOBS_MAX and request.job not in jobs:
        return _busy(f"partition {uid} knows {len(jobs)} jobs, no more")
    if request.kind == RecordKind.PASS:
        passes = timeline.passes.by_name
        if len(passes) >= limits.PASSES_MAX and request.name not in passes:
            return _busy(f"partition {uid} knows {limits.PASSES_MAX} passes, no more")
    return None


def _of_rows(timeline: Timeline, request: ChangeRequest, under_way: UnderWay) -> Refusal | None:
    """Refuse a request that would have too much remembered of single messages: triggers, or new headers."""
    uid = timeline.uid
    if request.kind == RecordKind.TRIGGER:
        # A goodbye releases all that its consumer has: what is leased needs its room, too.
        count = len(timeline.triggered) + timeline.triggered_leased + under_way.triggered
        if count + request.rows > limits.TRIGGERED_MAX:
            return _busy(
                f"{count} triggered messages of partition {uid} wait for consumers or are leased, and "
                f"{limits.TRIGGERED_MAX} may:"
                f" {request.rows} are too many"
            )
    if request.kind == RecordKind.NACK and request.document:
        kept = timeline.headings.size + under_way.heading_bytes
        more = request.rows * len(request.document.encode())
        if kept + more > limits.HEADINGS_BYTES_MAX:
            return _busy(
                f"partition {uid} keeps {kept} bytes of replaced headers, and may keep {limits.HEADINGS_BYTES_MAX}:"
                f" {more} are too many"
            )
    return None


def _busy(text: str) -> Refusal:
    return Refusal(Code.BUSY, text, _RETRY_MS)
