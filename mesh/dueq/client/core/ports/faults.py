"""What is wrong with a broker's answer or push, as far as the one who asked can tell.

Frames are decoded before, and decoding believes nothing about bytes. Here is what needs the question: an answer of
another number of rows, a number that no request could carry back. An answer
with a fault is none: it is counted and dropped, and its question counts as unanswered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from dueq import limits
from dueq_codecs.documents import decode_document
from dueq_codecs.messages import (
    BrowseReply,
    BrowseRequest,
    ChangeReply,
    ChangeRequest,
    LookReply,
    LookRequest,
    Push,
    PushChunk,
    TopicInfo,
)
from dueq_codecs.meta import PREFIX_BYTES_MAX
from dueq_codecs.records import ONE_ROW, RecordKind
from dueq_codecs.topic_settings import SettingsRefused, decode_settings

Body = bytes | memoryview

SIZE_MAX: Final = limits.PAYLOAD_BYTES_MAX + max(PREFIX_BYTES_MAX)
"""Longest payload, with its meta."""
ROWS_MAX: Final = 1 << 16
"""What no record has more rows than, whatever its build."""
_ANSWERED_MAX: Final = (limits.DUE_MS_MAX, limits.UID_MAX, limits.SEQUENCE_MAX, ROWS_MAX - 1)
"""Of the numbers that are a message's id."""
CLASS_MAX: Final = (1 << 48) - 1
"""The last class that a message may be of, in the order of a topic."""


def fault_of_change(request: ChangeRequest, reply: ChangeReply) -> str | None:
    """Say why this is no answer to a change that has taken effect, or None."""
    rows, outcomes = request.rows, len(reply.outcomes)
    if reply.uid != request.uid:
        return f"the answer of partition {reply.uid} is to a request to {request.uid}"
    if reply.sequence > limits.SEQUENCE_MAX or reply.row + rows > ROWS_MAX:
        return f"there are no {rows} rows from row {reply.row} of record {reply.sequence} on"
    if reply.stamp > limits.DUE_MS_MAX:
        return f"{reply.stamp} is no instant"
    if request.kind is not RecordKind.INSERT:
        if outcomes != rows and (outcomes or request.kind not in ONE_ROW):
            return f"a {request.kind.name} of {rows} rows has {outcomes} outcomes"
        return None
    if outcomes not in (0, rows):
        return f"an INSERT of {rows} rows has {outcomes} outcomes"
    if len(reply.window) not in (0, rows):
        return f"an INSERT of {rows} rows has {len(reply.window)} instants in windows"
    if len(reply.window) and (reply.window > (request.window if len(request.window) else 0)).any():
        return "a row is due behind the end of its window"
    return _fault_of_present(reply) if outcomes and reply.outcomes.any() else None


def _fault_of_present(reply: ChangeReply) -> str | None:
    """Say what is wrong with the messages that rows have met."""
    if not len(reply.present_first):
        return "rows have met messages, and none is named"
    for column, most in (
        (reply.present_first, limits.DUE_MS_MAX),
        (reply.present_sequence, limits.SEQUENCE_MAX),
        (reply.present_due, limits.DUE_MS_MAX),
    ):
        if int(column.max()) > most:
            return "a row has met what is no message"
    return None


def fault_of_push(push: Push, body: Body) -> str | None:
    """Say why these are no messages, or None."""
    expected = 0
    for first, sequence, due, _, uid, _, size, *_ in push.each_row():
        if uid > limits.UID_MAX or sequence > limits.SEQUENCE_MAX or size > SIZE_MAX:
            return f"there is no message {sequence} of {size} bytes in partition {uid}"
        if first > limits.DUE_MS_MAX or due > limits.DUE_MS_MAX:
            return f"a message is of {first}, and due {due}: these are no instants"
        if size <= limits.CHUNK_BYTES:
            expected += size
    if len(push.shared):
        ends = np.concatenate(([0], push.shared_size)).astype(np.int64)[push.shared]
        inline = push.size <= limits.CHUNK_BYTES
        if (ends[inline] > push.size[inline]).any():
            return "a payload is shorter than the shared body that it ends with"
        expected += int(push.shared_size.sum(dtype=np.int64)) - int(ends[inline].sum())
    if expected != len(body):
        return f"the rows of a Push have {expected} bytes, its body {len(body)}"
    return _fault_of_headings(push.headings)


def fault_of_chunk(chunk: PushChunk, body: Body) -> str | None:
    """Say why this is no piece of a long payload, or None."""
    if chunk.uid > limits.UID_MAX or chunk.sequence > limits.SEQUENCE_MAX:
        return f"there is no message {chunk.sequence} in partition {chunk.uid}"
    if not chunk.chunk < chunk.chunks <= -(-SIZE_MAX // limits.CHUNK_BYTES):
        return f"there is no chunk {chunk.chunk} of {chunk.chunks}"
    if not 0 < len(body) <= limits.CHUNK_BYTES:
        return f"a chunk has {len(body)} bytes"
    return None


def fault_of_page(request: BrowseRequest, reply: BrowseReply, body: Body) -> str | None:
    """Say why this is not the page, or the chunk, that was asked for, or None."""
    if request.snapshot and reply.snapshot != request.snapshot:
        return f"a page of snapshot {reply.snapshot:x} answers a request for one of {request.snapshot:x}"
    rows = len(reply.sequence)
    if request.upload:
        return (
            f"a chunk has {rows} rows and {len(body)} bytes"
            if rows or len(body) > limits.CHUNK_BYTES
            else None
        )
    if request.limit and rows > request.limit:
        return f"a page has {rows} rows"
    if not rows:
        return None if reply.last else "a page without rows is not the last one"
    if int(reply.sequence.max()) > limits.SEQUENCE_MAX or int(reply.size.max()) > SIZE_MAX:
        return "a row is no message"
    instants = (reply.first, reply.due, reply.wait_at, reply.expires, reply.died_at)
    if any(int(column.max(initial=0)) > limits.DUE_MS_MAX for column in instants):
        return "a row has what is no instant"
    if int(reply.of.max(initial=0)) > CLASS_MAX:
        return "a row is of no class"
    return _fault_of_headings(reply.headings)


def fault_of_look(request: LookRequest, reply: LookReply, body: Body) -> str | None:
    """Say why this does not say what was asked about messages, or None."""
    if request.upload:
        return f"a chunk has {len(body)} bytes" if len(body) > limits.CHUNK_BYTES else None
    if not reply.document and request.what == "message":
        return None  # there is none
    try:
        found = decode_document(reply.document)
    except ValueError as error:
        return f"a {request.what} cannot be read: {error}"
    if request.what != "message":
        return _fault_of_survey(request, found)
    if request.document and "answered" in found:
        return _fault_of_first_answer(found)
    for name, most in (("upload", (1 << 64) - 1), ("size", SIZE_MAX)):
        value = found.get(name)
        if type(value) is not int or not 0 <= value <= most:
            return f"the {name} of a message is {value!r:.80}"
    return None


def _fault_of_survey(request: LookRequest, found: dict[str, Any]) -> str | None:
    """Say why an answer that others follow does not say what was asked, or None.

    One that leads no further would be asked for again without end.
    """
    asked = decode_document(request.document)["after"]
    try:
        further = _is_list(asked, found) if request.what == "leased" else _is_count(asked, found)
    except (KeyError, TypeError, ValueError):
        further = False
    return None if further else f"a {request.what} behind {asked!r:.80} is not {found!r:.200}"


def _is_list(key: int, found: dict[str, Any]) -> bool:
    """Whether these are messages behind this one, ascending; and some, if there are more."""
    for first, sequence, row in found["leased"]:
        if not (_is_number(first, limits.DUE_MS_MAX) and _is_number(row, ROWS_MAX - 1)):
            return False
        if not _is_number(sequence, limits.SEQUENCE_MAX) or sequence << 16 | row <= key:
            return False
        key = sequence << 16 | row
    return type(found["more"]) is bool and (len(found["leased"]) > 0 or not found["more"])


def _is_count(asked: tuple[int, int, str] | None, found: dict[str, Any]) -> bool:
    """Whether these are numbers, and the end or a place in the index behind this one."""
    counts = found["counts"] if "counts" in found else [(0, found["matched"])]
    if not all(_is_number(second, limits.DUE_MS_MAX) and _is_number(count) for second, count in counts):
        return False
    after = None if found["after"] is None else _in_index(*found["after"])
    return after is None or asked is None or after > _in_index(*asked)


def _in_index(wait_at: int, key: int, of: str) -> tuple[bytes, int, int]:
    return bytes.fromhex(of), wait_at, key


def _is_number(value: object, most: int = (1 << 64) - 1) -> bool:
    return type(value) is int and 0 <= value <= most


def _fault_of_first_answer(found: dict[str, Any]) -> str | None:
    """Say why what is known of an idempotency key names no message, or none at an instant."""
    numbers = found["answered"]
    if not isinstance(numbers, list) or len(numbers) != len(_ANSWERED_MAX):
        return f"an idempotency key names {numbers!r:.80}"
    told = (*numbers, found.get("due"), found.get("digest"))
    for value, most in zip(told, (*_ANSWERED_MAX, limits.DUE_MS_MAX, (1 << 64) - 1), strict=True):
        if not _is_number(value, most):
            return f"a number of the answer to an idempotency key is {value!r:.80}"
    return None


def fault_of_topic(info: TopicInfo) -> str | None:
    """Say why nobody can use a topic as it is described, or None."""
    uids = {partition.uid for partition in info.partitions}
    if not uids or len(uids) != len(info.partitions) or max(uids) > limits.UID_MAX:
        return f"the partitions of topic {info.name!r:.80} are {sorted(uids)!r:.80}"
    if info.home_partitions > len(uids):
        return f"{info.home_partitions} of the {len(uids)} partitions of topic {info.name!r:.80} are homes"
    if info.horizon_ms > limits.DUE_MS_MAX:
        return f"topic {info.name!r:.80} has a horizon of {info.horizon_ms} ms"
    try:
        if info.settings:
            decode_settings(info.settings)
    except SettingsRefused as refused:
        return str(refused)
    return None


def _fault_of_headings(texts: Sequence[str]) -> str | None:
    """Say what is wrong with headers that NACKs have given to messages."""
    for text in texts:
        try:
            found = decode_document(text) if text else {}
        except ValueError as error:
            return f"headers cannot be read: {error}"
        if not all(isinstance(value, str) for value in found.values()):
            return "the value of a header is no text"
    return None
