"""Can this request bring its shared body, or name it?"""

from __future__ import annotations

from zlib import crc32

from dueq import limits
from dueq.core.partition.requests import Refusal, invalid
from dueq.core.state.body_table import BodyTable
from dueq_codecs.messages import ChangeRequest, Code
from dueq_codecs.records import RecordKind
from dueq_codecs.rules import crc_joined, inline_bytes, shared_name
from dueq_codecs.topic_settings import TopicSettings


def check_body(
    request: ChangeRequest, bodies: list[bytes | memoryview], settings: TopicSettings, kept: BodyTable
) -> Refusal | None:
    """Return why a request cannot bring or name its shared body, or None.

    Args:
        request: is well formed, as `check_change` says.
        bodies: of the request.
        settings: of the topic.
        kept: what the partition keeps.
    """
    if request.kind == RecordKind.BODY:
        return _check_bringing(request, bodies, settings)
    return _check_naming(request, bodies, kept) if request.shared else None


def _check_bringing(
    request: ChangeRequest, bodies: list[bytes | memoryview], settings: TopicSettings
) -> Refusal | None:
    size, most = request.shared_size, min(limits.BODY_BYTES_MAX, settings.payload_bytes_max)
    if size > most:
        return Refusal(Code.PAYLOAD_TOO_LARGE, f"a shared body of {size} bytes is over {most}")
    if len(request.amount_ms) and request.amount_ms[0] > limits.BODY_GRACE_MS:
        return invalid(f"a grace has 0 to {limits.BODY_GRACE_MS} ms, not {int(request.amount_ms[0])}")
    if not len(request.size):
        return invalid("a BODY without sizes brings bytes") if bodies else None
    found = b"".join(bodies)
    if crc32(found) != request.crc[0]:
        return invalid(
            f"the shared body does not have the CRC {int(request.crc[0]):#010x} that was sent with it"
        )
    if shared_name(found) != request.shared:
        return invalid(
            f"the name of the shared body, {request.shared.hex()}, is not the SHA-256 of its {size} bytes"
        )
    return None


def _check_naming(
    request: ChangeRequest, bodies: list[bytes | memoryview], kept: BodyTable
) -> Refusal | None:
    body = kept.by_name.get(request.shared)
    if body is None or body.size != request.shared_size:
        return Refusal(
            Code.UNKNOWN_BODY,
            f"partition {request.uid} keeps no shared body {request.shared.hex()} of {request.shared_size} bytes:"
            " put it again",
        )
    view = memoryview(bodies[0] if bodies else b"")
    start = 0
    for row, (length, crc) in enumerate(
        zip(inline_bytes(request).tolist(), request.crc.tolist(), strict=True)
    ):
        own = crc32(view[start : start + length]) if length else 0
        if crc_joined(own, body.crc, body.size) != crc:
            return invalid(f"row {row}: it does not have the CRC {crc:#010x} that was sent with it")
        start += length
    return None
