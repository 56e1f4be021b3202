"""The digest of a change: how a retry is known to be the same request."""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import Any, Final

import numpy.typing as npt

from dueq_codecs.messages import ChangeRequest
from dueq_codecs.records import RecordKind

_HEAD: Final = struct.Struct("<BIII")
_LENGTH: Final = struct.Struct("<I")
_JOB: Final = struct.Struct("<16sQBB")
_TOKEN_MATTERS: Final = frozenset((RecordKind.ACK, RecordKind.NACK, RecordKind.EXTEND, RecordKind.RELEASE))


def request_digest(request: ChangeRequest) -> int:
    """Return 64 bits over everything in a request that matters to its effect.

    Left out: request id, client id and sequence (they name the request), `digest` itself, upload numbers (a
    repeated upload has another one), the tokens of MOVE and CANCEL (the leader's business), `patient` and `retry`.
    Payloads count by their size and CRC-32, so they are not hashed twice.

    Returns:
        An unsigned 64-bit integer; the same on every machine.
    """
    topic = request.topic.encode()
    parts = [_HEAD.pack(request.kind, request.uid, request.rows, len(topic)), topic]
    columns: list[npt.NDArray[Any]] = [request.first, request.target_sequence, request.target_row]
    if request.kind in _TOKEN_MATTERS:
        columns.append(request.token)
    columns += [request.due, request.size, request.crc, request.amount_ms]
    if request.job or request.keyed:
        parts.append(_JOB.pack(request.job, request.job_until, request.job_action, request.keyed))
    if len(request.rank):
        parts.append(b"rank" + request.rank.tobytes())
    if len(request.group):
        names = "\0".join(request.groups).encode()
        parts.append(b"group" + request.group.tobytes() + struct.pack("<I", len(names)) + names)
    if len(request.key_high):
        hashes = request.key_high.tobytes() + request.key_low.tobytes()
        parts.append(b"keys" + bytes((request.on_duplicate,)) + hashes)
    if len(request.once_high):
        names = request.once_high.tobytes() + request.once_low.tobytes() + request.once_digest.tobytes()
        parts.append(b"once" + bytes((request.claim,)) + names)
    if len(request.window):
        parts.append(b"window" + request.window.tobytes())
    if request.shared:
        parts.append(b"shared" + request.shared + _LENGTH.pack(request.shared_size))
        parts.append(
            bytes((len(request.size), len(request.amount_ms))) if request.kind == RecordKind.BODY else b""
        )
    parts += _ends(request)
    for text in (request.name, request.document):
        if text:
            data = text.encode()
            parts += [_LENGTH.pack(len(data)), data]
    # Kind and rows say which columns these are and how long, so their bytes need no marks between them.
    parts += [column.tobytes() for column in columns if len(column)]
    return int.from_bytes(blake2b(b"".join(parts), digest_size=8).digest(), "little")


def _ends(request: ChangeRequest) -> list[bytes]:
    """Return what a request says of how its messages end, each part behind its name."""
    parts: list[bytes] = []
    for name in ("expires", "attempts_max", "fate", "expected"):
        column: npt.NDArray[Any] = getattr(request, name)
        if len(column):
            parts.append(name.encode() + column.tobytes())
    if len(request.reason):
        texts = "\0".join(request.reasons).encode()
        parts.append(b"reason" + request.reason.tobytes() + _LENGTH.pack(len(texts)) + texts)
    return parts
