"""Whether a partition has room for what a request would have it keep in memory: each bound has a name in `limits`."""

from __future__ import annotations

from dueq import limits
from dueq.core.partition.requests import Refusal
from dueq.core.state.timeline import Timeline
from dueq_codecs.messages import ChangeRequest, Code
from dueq_codecs.records import RecordKind

_RETRY_MS = 1000


def fullness(timeline: Timeline, request: ChangeRequest) -> Refusal | None:
    """Return why a partition has no room for a request, or None."""
    uid = timeline.uid
    if request.kind == RecordKind.TRIGGER:
        count = len(timeline.triggered)
        if count + request.rows > limits.TRIGGERED_MAX:
            return _busy(
                f"{count} triggered messages of partition {uid} wait for consumers, and {limits.TRIGGERED_MAX} may:"
                f" {request.rows} are too many"
            )
    if request.kind == RecordKind.NACK and request.document:
        kept, more = timeline.headings.size, request.rows * len(request.document.encode())
        if kept + more > limits.HEADINGS_BYTES_MAX:
            return _busy(
                f"partition {uid} keeps {kept} bytes of replaced headers, and may keep {limits.HEADINGS_BYTES_MAX}:"
                f" {more} are too many"
            )
    if request.kind == RecordKind.PASS:
        known = timeline.passes.by_name
        if len(known) >= limits.PASSES_MAX and request.name not in known:
            return _busy(f"partition {uid} knows {limits.PASSES_MAX} passes, no more")
    return None


def _busy(text: str) -> Refusal:
    return Refusal(Code.BUSY, text, _RETRY_MS)
