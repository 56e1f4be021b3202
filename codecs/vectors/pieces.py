"""What samples are made of: ids, columns, and the parts that many of them have."""

from __future__ import annotations

from typing import Any

import numpy as np

from dueq_codecs import messages as m
from dueq_codecs.records import OnDuplicate, Record, RecordKind, RequestRef
from dueq_codecs.topic_settings import TopicSettings

CLIENT = bytes(range(16))
CONSUMER = bytes(range(16, 32))
OTHER_CONSUMER = bytes(range(32, 48))
JOB = bytes(range(48, 64))
BODY = bytes(range(64, 96))
AT = 1_767_225_600_000
"""2026-01-01T00:00:00Z"""
PURGE = '{"do":"purge","filter":{"state":"waiting"}}'


def u8(*values: int) -> Any:
    """A column of ubyte."""
    return np.array(values, "u1")


def u16(*values: int) -> Any:
    """A column of ushort."""
    return np.array(values, "<u2")


def u32(*values: int) -> Any:
    """A column of uint."""
    return np.array(values, "<u4")


def u64(*values: int) -> Any:
    """A column of ulong."""
    return np.array(values, "<u8")


def targets(token: int = 70) -> dict[str, Any]:
    """Columns that name two messages, with the tokens of their leases; 0: none."""
    return {
        "first": u64(AT, AT + 1),
        "target_sequence": u64(40, (1 << 40) - 1),
        "target_row": u16(0, 2047),
        "token": u64(token, token + 1 if token else 0),
    }


def places() -> dict[str, Any]:
    """The same without tokens."""
    named = targets()
    del named["token"]
    return named


def change(kind: RecordKind, **columns: Any) -> m.ChangeRequest:
    """A request to change messages."""
    return m.ChangeRequest(7, kind, "flights", 12, CLIENT, 3, 0xFEDCBA9876543210, **columns)


def insert() -> dict[str, Any]:
    """Columns of three new messages."""
    return {
        "due": u64(AT + 1000, AT + 2000, AT + 500),
        "size": u32(5, 0, 3),
        "crc": u32(0x3610A686, 0, 0xFFFFFFFF),
    }


def insert_shared() -> dict[str, Any]:
    """The same with a shared body behind what each has of its own."""
    return insert() | {"size": u32(20_485, 20_480, 20_483)}


def keys() -> dict[str, Any]:
    """Columns of three unique keys."""
    return {
        "key_high": u64(0x2C26B46B68FFC68F, 0, (1 << 64) - 1),
        "key_low": u64(0xF99B453C1D304134, 0, 1),
        "on_duplicate": OnDuplicate.KEEP,
    }


def once() -> dict[str, Any]:
    """Idempotency keys of three rows."""
    return {
        "once_high": u64(0x0123456789ABCDEF, 0, 5),
        "once_low": u64(0xFEDCBA9876543210, 0, 6),
        "once_digest": u64((1 << 64) - 1, 0, 7),
    }


def claim() -> dict[str, Any]:
    """A row that is no message, and only takes its key."""
    keys = {name: column[:1] for name, column in once().items()}
    return {"due": u64(AT), "size": u32(0), "crc": u32(0), "claim": True, **keys}


def record(kind: RecordKind, rows: int = 0, **columns: Any) -> Record:
    """A record; with rows: of one request."""
    requests = (RequestRef(CLIENT, 3, 0xFEDCBA9876543210, rows),) if rows else ()
    return Record(kind, 12, 41, 5, AT, requests=requests, **columns)


def settings() -> str:
    """Settings of a topic that is paused."""
    return TopicSettings(3, CLIENT.hex(), True, AT + 60_000).encode()
