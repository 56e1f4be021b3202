"""Messages to and from ZeroMQ frames.

One message is a header frame (`envelope` + FlatBuffer) and the frames of its payload bytes:

    ChangeRequest INSERT, ChunkRequest, Push, PushChunk, BrowseReply, LookReply, UploadChunk, SnapshotChunk    one body
    PeerFrame     two frames per log entry, in order: the record's bytes, its payloads (perhaps empty)
    Relay         the frames of the message that it carries
    all others    nothing

Decoding believes nothing. Anything that is not exactly such a message is a FrameError, before anything is read
outside of a frame, or allocated for a length that a frame claims. The broker still has to make the checks that need
its knowledge: limits, whether rows and topics exist, who may do what.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, Final

import numpy as np

from dueq_codecs.envelope import seal, unseal
from dueq_codecs.fields import ID_BYTES
from dueq_codecs.frame_error import FrameError
from dueq_codecs.layouts import KINDS, LAYOUTS, Kind
from dueq_codecs.log import bytes_beside_record, decode_record, encode_record, place_of_record
from dueq_codecs.messages import (
    BrowseReply,
    ChangeReply,
    ChangeRequest,
    Code,
    ConsumerAction,
    ConsumerFrame,
    Message,
    PeerFrame,
    Push,
    Relay,
)
from dueq_codecs.metadata import build_metadata_reply
from dueq_codecs.peer import build_peer_frame, entry_count
from dueq_codecs.records import FEATURE_LEVEL, U16, WITH_BYTES, LogEntry, RecordKind
from dueq_codecs.shape import fault_of_payloads, fault_of_request

__all__ = [
    "FrameError", "bytes_beside_record", "decode", "decode_record", "encode", "encode_record", "place_of_record",
]  # fmt: skip

Body = bytes | memoryview

_WITH_BODY: Final = frozenset(
    (
        Kind.CHUNK_REQUEST,
        Kind.PUSH,
        Kind.PUSH_CHUNK,
        Kind.BROWSE_REPLY,
        Kind.LOOK_REPLY,
        Kind.UPLOAD_CHUNK,
        Kind.SNAPSHOT_CHUNK,
    )
)
_KINDS: Final = {int(kind): kind for kind in LAYOUTS}

_held = attrgetter("held_uid", "held_sequence", "held_row", "held_token")
_present = attrgetter("present_first", "present_sequence", "present_row", "present_due")
_browsed = attrgetter(
    "wait_at", "first", "due", "sequence", "row", "size", "crc", "attempt", "keyed", "upload", "body_size"
)
_push_columns = attrgetter("rank", "version", "group", "expires", "shared", "heading")
_page_columns = attrgetter("rank", "version", "expires", "died_at", "reason", "of", "group", "heading")


def encode(message: Message, bodies: Sequence[Body] = ()) -> list[Body]:
    """Return the frames of a message.

    Args:
        message: what to send.
        bodies: its payload bytes, not copied. A message that has a body and is given none gets an empty one.
            Unused for PeerFrame and Relay, which bring their own.

    Raises:
        ValueError: a value does not fit its field, columns do not fit each other or the body, or there are
            bodies where none belong.
    """
    kind = KINDS[type(message)]
    frames: list[Body] = [seal(kind, LAYOUTS[kind].write(message))]
    if isinstance(message, PeerFrame):
        for append in message.appends:
            for entry in append.entries:
                frames += (encode_record(entry.record), entry.body)
        return frames
    if isinstance(message, Relay):
        return frames + encode(message.inner, message.bodies)
    expected = _bodies_expected(kind, message)
    frames += bodies
    if expected and not bodies:
        frames.append(b"")
    fault = _fault(message, frames[1:], expected)
    if fault is not None:
        raise ValueError(fault)
    return frames


def decode(frames: Sequence[Body]) -> tuple[Message, list[Body]]:
    """Return the message and its bodies; columns are read-only views of the first frame.

    Args:
        frames: one message's frames, without the ROUTER's identity.

    Returns:
        The message; its payload frames as they came (empty for PeerFrame and Relay, which hold theirs).

    Raises:
        FrameError: anything is wrong. Nothing else is raised.
    """
    if not frames:
        raise FrameError("a message without frames")
    number, body = unseal(frames[0])
    kind = _KINDS.get(number)
    if kind is None:
        raise FrameError(f"kind {number} is not known")
    values: dict[str, Any] = {}
    try:
        LAYOUTS[kind].read(body, values)
        return _build(kind, values, list(frames[1:]))
    except FrameError as error:
        error.request_id = error.request_id or values.get("request_id", 0)
        raise


def _build(kind: Kind, values: dict[str, Any], bodies: list[Body]) -> tuple[Message, list[Body]]:
    """Make the message of a table and the frames behind it."""
    if kind == Kind.PEER_FRAME:
        return build_peer_frame(values, _entries(values, bodies)), []
    if kind == Kind.RELAY:
        return _build_relay(values, bodies), []
    if kind == Kind.METADATA_REPLY:
        message: Message = build_metadata_reply(values)
    else:
        message = LAYOUTS[kind].message(**values)
    fault = _fault(message, bodies, _bodies_expected(kind, message))
    if fault is not None:
        raise FrameError(fault)
    return message, bodies


def _entries(values: dict[str, Any], bodies: list[Body]) -> Iterator[tuple[list[LogEntry], str]]:
    """Read the log entries behind a PeerFrame.

    Returns:
        Of each append its entries, up to the first one that only a newer build can read, and why that is so. It
        concerns one partition: what the frame brings for the others is none the worse for it.
    """
    expected = entry_count(values)
    if len(bodies) != 2 * expected:
        raise FrameError(f"a PeerFrame of {expected} entries is followed by {len(bodies)} frames")
    rows = zip(bodies[::2], bodies[1::2], strict=True)
    return (_entries_of_one(list(islice(rows, count))) for count in values["append_entries"])


def _entries_of_one(rows: list[tuple[Body, Body]]) -> tuple[list[LogEntry], str]:
    entries: list[LogEntry] = []
    for data, body in rows:
        try:
            entries.append(_entry(data, body))
        except FrameError as error:
            if error.code != Code.WRONG_VERSION:
                raise
            return entries, error.reason
    return entries, ""


def _entry(data: Body, body: Body) -> LogEntry:
    record = decode_record(data)
    if record.kind in WITH_BYTES:
        fault = fault_of_payloads(record, body)
    else:
        fault = f"a {record.kind.name} record has payloads" if len(body) else None
    if fault is not None:
        newer = record.version > FEATURE_LEVEL
        raise FrameError(fault, Code.WRONG_VERSION if newer else Code.BAD_FRAME)
    return LogEntry(record, body)


def _build_relay(values: dict[str, Any], frames: list[Body]) -> Relay:
    """Make a Relay of the frames of the message that it carries."""
    # Looked at before it is decoded: a Relay in a Relay in a Relay would recurse as deep as the sender likes.
    if frames and unseal(frames[0])[0] >= Kind.PEER_FRAME:
        raise FrameError("a Relay carries something that is not between a client and a broker")
    inner, bodies = decode(frames)
    assert not isinstance(inner, PeerFrame | Relay)
    return Relay(**values, inner=inner, bodies=bodies)  # type: ignore[arg-type]


def _bodies_expected(kind: Kind, message: Message) -> int:
    if isinstance(message, ChangeRequest):
        brings = message.kind == RecordKind.BODY and len(message.size) > 0
        return int(message.kind == RecordKind.INSERT or brings)
    return int(kind in _WITH_BODY)


def _fault(message: Message, bodies: list[Body], expected: int) -> str | None:
    """Say what is wrong between the parts of a message, or None."""
    if len(bodies) != expected:
        return f"a {type(message).__name__} has {len(bodies)} bodies, not {expected}"
    if isinstance(message, ChangeRequest):
        fault = fault_of_request(message)
        return fault_of_payloads(message, bodies[0]) if fault is None and expected else fault
    if isinstance(message, BrowseReply):
        if len(set(map(len, _browsed(message)))) != 1:
            return "the columns of a BrowseReply are not of one length"
        total = int(message.body_size.sum(dtype=np.uint64))
        if total != len(bodies[0]) and len(message.wait_at):
            return f"the rows of a BrowseReply have {total} bytes, its body {len(bodies[0])}"
        return _fault_of_optional(message, _page_columns(message), len(message.wait_at)) or _fault_of_place(
            message, message.reason, len(message.reasons)
        )
    if isinstance(message, Push):
        columns = _push_columns(message)
        if not any(map(len, columns)):
            return None
        return _fault_of_optional(message, columns, len(message.rows)) or _fault_of_place(
            message, message.shared, len(message.shared_size) + 1
        )
    if isinstance(message, ChangeReply) and len(message.present_first):
        lengths = {int(np.count_nonzero(message.outcomes)), *map(len, _present(message))}
        if len(lengths) != 1:
            return "the columns of messages that are there already do not fit the outcomes of a ChangeReply"
    if isinstance(message, ConsumerFrame) and len(set(map(len, _held(message)))) != 1:
        return "the held columns of a ConsumerFrame are not of one length"
    if isinstance(message, ConsumerFrame):
        pulls = message.action == ConsumerAction.PULL
        if len(message.holder) != (ID_BYTES if pulls else 0):
            return f"a {message.action.name} has a holder of {len(message.holder)} bytes"
        if message.wait_ms and not pulls:
            return f"a {message.action.name} waits for {message.wait_ms} ms"
        listed = {
            len(message.pull_attach) * ID_BYTES,
            len(message.pull_wait_ms) * ID_BYTES,
            len(message.pulls),
        }
        if len(listed) != 1 or (message.pulls and message.action != ConsumerAction.WAITING):
            return f"the pulls of a {message.action.name} are not in columns of one length"
    return None


def _fault_of_optional(message: BrowseReply | Push, columns: tuple[Any, ...], rows: int) -> str | None:
    """Say which of the columns that may be empty have not one item per row, or name a text that is not there."""
    lengths = set(map(len, columns))
    if not lengths <= {0, rows}:
        return f"the columns of a {type(message).__name__} of {rows} rows have {sorted(lengths)} items"
    return _fault_of_place(message, message.group, len(message.groups)) or _fault_of_place(
        message, message.heading, len(message.headings)
    )


def _fault_of_place(message: BrowseReply | Push, places: U16, count: int) -> str | None:
    if len(places) and int(places.max()) >= count:
        return f"one of {len(places)} rows of a {type(message).__name__} names {int(places.max())} of {count}"
    return None
