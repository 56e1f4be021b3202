"""Is this request well formed and within its limits? Everything that can be said without looking at any state.

A batch is refused whole, and the text names the first row that is wrong, its value and the limit. Nothing that
a client sends is trusted: the codec has only made sure that the columns have equal lengths.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise, starmap
from struct import iter_unpack
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from dueq import limits
from dueq.core.ports.entry import alike
from dueq.core.ports.membership import Topic
from dueq.core.state.order import order_of
from dueq.core.state.pass_table import fault_of_pass
from dueq.instant import Now
from dueq_codecs.documents import decode_document
from dueq_codecs.groups import GROUP_BYTES_MAX, GroupRefused, check_group, decode_group_changes
from dueq_codecs.messages import ChangeRequest, ChunkRequest, Code
from dueq_codecs.meta import (
    PREFIX_BYTES_MAX,
    Meta,
    MetaRefused,
    fault_of_meta,
    packed_headers,
    prefix_bytes,
)
from dueq_codecs.records import REASON_BYTES_MAX, U64, Fate, JobAction, OnDuplicate, RecordKind
from dueq_codecs.rules import (
    expired_text,
    first_beyond_horizon,
    first_expired,
    first_too_long,
    homes_of_keys,
    inline_bytes,
)
from dueq_codecs.topic_settings import TopicSettings

_CUT_TOGETHER_BYTES: Final = 4096
"""Payloads of one length, up to this one, are cut out of a body all at once."""
CHANGES = frozenset(
    {
        RecordKind.INSERT,
        RecordKind.MOVE,
        RecordKind.CANCEL,
        RecordKind.CHANGE,
        RecordKind.TRIGGER,
        RecordKind.ACK,
        RecordKind.NACK,
        RecordKind.EXTEND,
        RecordKind.RELEASE,
        RecordKind.JOB,
        RecordKind.SETTINGS,
        RecordKind.GROUP,
        RecordKind.PASS,
        RecordKind.RECURRENCE,
        RecordKind.DISCARD,
        RecordKind.REDRIVE,
        RecordKind.BODY,
    }
)
"""The kinds of record that a client may ask for."""


class Refusal(NamedTuple):
    """Why a request is not taken."""

    code: Code
    text: str
    retry_after_ms: int = 0


def invalid(text: str) -> Refusal:
    """The caller's fault."""
    return Refusal(Code.INVALID_REQUEST, text)


def check_change(
    request: ChangeRequest, bodies: list[bytes | memoryview], settings: TopicSettings, now: Now
) -> Refusal | None:
    """Return why a change is refused, or None."""
    if request.kind not in CHANGES:
        return invalid(f"{request.kind.name} is not an operation of clients")
    if not 1 <= request.rows <= limits.REQUEST_ROWS_MAX:
        return invalid(f"a request has 1 to {limits.REQUEST_ROWS_MAX} rows, not {request.rows}")
    if request.sequence < 1:
        return invalid(f"request sequences count from 1, not {request.sequence}")
    if request.kind == RecordKind.INSERT:
        return _check_job(request, now) or _check_insert(request, bodies, settings, now)
    if request.kind == RecordKind.BODY:
        return None  # see `body_requests`
    if bodies:
        return invalid(f"{request.kind.name} takes no payload")
    if request.kind == RecordKind.PASS:
        return _check_pass(request)
    return _check_job(request, now) or _check_targets(request, settings, now)


def check_topic(request: ChangeRequest, topic: Topic) -> Refusal | None:
    """Return why a change is not for topics such as this one, or None."""
    if len(request.rank) and not order_of(topic.kind).has_ranks:
        return invalid(f"topic {topic.name} is of kind {topic.kind}: its messages have no ranks")
    if request.kind == RecordKind.INSERT:
        refusal = _check_unique_keys(request, topic) or _check_once(request, topic)
        if refusal is not None:
            return refusal
    grown = len(topic.partitions) > topic.home_partitions
    if request.kind == RecordKind.JOB and grown and request.home_partitions != topic.home_partitions:
        # An older client looks for the job's home among added partitions, too.
        return invalid(
            f"topic {topic.name!r} has got more partitions: a job's home is one of the first {topic.home_partitions}, "
            f"not of {request.home_partitions or len(topic.partitions)}; use a client of this version"
        )
    ranks = request.kind == RecordKind.PASS and decode_document(request.document)["do"] == "change"
    if ranks and not order_of(topic.kind).has_ranks:
        return invalid(f"topic {topic.name} is of kind {topic.kind}: its messages have no ranks")
    sets = request.kind == RecordKind.GROUP
    return _check_groups(request, topic) if sets or len(request.group) else None


def _check_unique_keys(request: ChangeRequest, topic: Topic) -> Refusal | None:
    high = request.key_high
    if topic.settings.keys != "unique":
        return (
            invalid(f"the keys of topic {topic.name} are free: {len(high)} rows have hashes of unique ones")
            if len(high)
            else None
        )
    if not len(high):
        # Headers alone may have no keys: only the payloads would tell.
        return (
            invalid(
                f"the keys of topic {topic.name} are unique, and {request.rows} rows have keys without hashes: use a"
                " client of this version"
            )
            if request.keyed == Meta.KEY
            else None
        )
    if request.on_duplicate == OnDuplicate.REPLACE and request.job_until:
        return invalid(
            "on_duplicate is replace, and the job is hidden until it is committed: until then nothing is replaced"
        )
    if topic.kind == "fair":  # there the group's first level decides
        return None
    return _check_homes(high, (high != 0) | (request.key_low != 0), request.uid, topic)


def _check_once(request: ChangeRequest, topic: Topic) -> Refusal | None:
    """An idempotency key is known in one partition: that of its message's group or unique key, or else its own.

    It lies among the unique keys, and no message may have one hash for both: the row of one would be that of the other.
    """
    high = request.once_high
    if not len(high):
        return None
    decide = (high != 0) | (request.once_low != 0)
    if len(request.key_high):
        same = decide & (high == request.key_high) & (request.once_low == request.key_low)
        if (row := _first_row(same)) is not None:
            return invalid(f"row {row}: its idempotency key has the hash of its unique key")
    if len(request.group):
        return None
    if len(request.key_high):
        decide &= (request.key_high == 0) & (request.key_low == 0)
    return _check_homes(high, decide, request.uid, topic)


def _check_homes(high: U64, decide: npt.NDArray[np.bool_], uid: int, topic: Topic) -> Refusal | None:
    homes = homes_of_keys(high, topic.home_partitions)
    index = next(at for at, each in enumerate(topic.partitions) if each.uid == uid)
    row = _first_row((homes != np.uint64(index)) & decide)
    if row is not None:
        return invalid(
            f"row {row}: its key is at home in partition {int(homes[row])} of {topic.home_partitions}, not in {index}"
        )
    return None


def _check_groups(request: ChangeRequest, topic: Topic) -> Refusal | None:
    if not order_of(topic.kind).has_groups:
        return invalid(f"topic {topic.name} is of kind {topic.kind}: its messages have no groups")
    if len(set(request.groups)) < len(request.groups):
        return invalid("a request names each of its groups once")
    try:
        for name in (*request.groups, request.name):
            check_group(name)
        if request.kind == RecordKind.GROUP:
            if not request.name:
                return invalid(
                    f"settings are for a group of 1 to {GROUP_BYTES_MAX} bytes of UTF-8, not for ''"
                )
            decode_group_changes(request.document)
    except GroupRefused as refused:
        return invalid(str(refused))
    return None


def _check_job(request: ChangeRequest, now: Now) -> Refusal | None:
    """No message may be hidden for longer than a job is remembered, and no job is remembered for good.

    The other requests of a job name the instant of its INSERTs, perhaps to a leader whose clock is behind.
    """
    if request.job_action == JobAction.CLEARED:
        return invalid(
            "CLEARED is not an action of clients: leaders say that nothing of a job is hidden any more"
        )
    spare_ms = limits.HANDOVER_MS if request.kind == RecordKind.INSERT else 2 * limits.HANDOVER_MS
    if request.job_until > now.wall_ms + limits.JOB_HIDDEN_MS_MAX + spare_ms:
        return invalid(
            f"a job is hidden for at most {limits.JOB_HIDDEN_MS_MAX} ms, not until {request.job_until}"
        )
    return None


def _check_pass(request: ChangeRequest) -> Refusal | None:
    if len(request.name) > limits.PASS_NAME_MAX:
        return invalid(f"a pass's name has 1 to {limits.PASS_NAME_MAX} characters, not {len(request.name)}")
    fault = fault_of_pass(request.document)
    return invalid(fault) if fault is not None else None


def _first_row(wrong: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> int | None:
    return int(wrong.argmax()) if wrong.any() else None


def _check_due(request: ChangeRequest, settings: TopicSettings, now: Now) -> Refusal | None:
    row = _first_row(request.due > np.uint64(limits.DUE_MS_MAX))
    if row is not None:
        return invalid(f"row {row}: due {int(request.due[row])} is beyond {limits.DUE_MS_MAX} ms")
    row = first_beyond_horizon(request.due, settings.horizon_ms, now.wall_ms)
    if row is not None:
        return invalid(
            f"row {row}: due {int(request.due[row])} is beyond the topic's horizon of {settings.horizon_ms} ms"
        )
    return None


def _check_window(request: ChangeRequest, settings: TopicSettings, now: Now) -> Refusal | None:
    row = _first_row(request.window > np.uint32(limits.WINDOW_MS_MAX))
    if row is not None:
        return invalid(
            f"row {row}: a window has at most {limits.WINDOW_MS_MAX} ms, not {int(request.window[row])}"
        )
    return _check_due(replace(request, due=request.due + request.window), settings, now)


def _check_insert(
    request: ChangeRequest, bodies: list[bytes | memoryview], settings: TopicSettings, now: Now
) -> Refusal | None:
    refusal = _check_due(request, settings, now)
    if refusal is not None:
        return refusal
    if len(request.window) and (refusal := _check_window(request, settings, now)) is not None:
        return refusal
    row = _first_row(request.expires > np.uint64(limits.DUE_MS_MAX))
    if row is not None:
        return invalid(f"row {row}: expires {int(request.expires[row])} is beyond {limits.DUE_MS_MAX} ms")
    row = first_expired(request.expires, request.due, request.window)
    if row is not None:
        return invalid(expired_text(row, request.expires, request.due, request.window))
    size, rows = request.size, request.rows
    row = first_too_long(size, request.keyed, settings.payload_bytes_max)
    if row is not None:
        return Refusal(
            Code.PAYLOAD_TOO_LARGE,
            f"row {row}: a payload of {int(size[row])} bytes is over the topic's {settings.payload_bytes_max}",
        )
    uploaded = request.upload if len(request.upload) else np.zeros(rows, np.uint64)
    row = _first_row((size > np.uint32(limits.CHUNK_BYTES)) != (uploaded != 0))
    if row is not None:
        return invalid(
            f"row {row}: payloads over {limits.CHUNK_BYTES} bytes, and only those, are uploaded first"
        )
    if len(request.upload) and (refusal := _check_uploads(uploaded.tolist())) is not None:
        return refusal
    inline = inline_bytes(request)
    total = int(inline.sum(dtype=np.uint64))
    if len(bodies) > 1 or total != (len(bodies[0]) if bodies else 0):
        return invalid(f"the sizes add up to {total} bytes, the body has {sum(map(len, bodies))}")
    if total > limits.REQUEST_BYTES_MAX:
        return invalid(f"{total} bytes of payloads in one request are over {limits.REQUEST_BYTES_MAX}")
    body = bodies[0] if bodies else b""
    refusal = None if request.shared else _check_crcs(request, inline, uploaded, body)
    if refusal is not None or not request.keyed:
        return refusal
    if request.keyed == Meta.KEY:
        return _check_keys(inline, uploaded, body)
    unhashed = settings.keys == "unique" and not len(request.key_high)
    return _check_headers(inline, uploaded, body, settings, request.shared_size, unhashed)


def _check_uploads(uploads: list[int]) -> Refusal | None:
    """The end of a message deletes its upload: no other message may need it."""
    rows: dict[int, int] = {}
    for row, number in enumerate(uploads):
        if number and (first := rows.setdefault(number, row)) != row:
            return invalid(f"row {row}: upload {number} is named by row {first}, too")
    return None


def _check_crcs(
    request: ChangeRequest,
    inline: np.ndarray[tuple[int, ...], np.dtype[np.uint32]],
    uploaded: np.ndarray[tuple[int, ...], np.dtype[np.uint64]],
    body: bytes | memoryview,
) -> Refusal | None:
    """Every payload that is here has the CRC that was sent, an empty one too: later nobody could read it."""
    lengths, crcs = inline.tolist(), request.crc.tolist()
    size = alike(inline)
    if size is not None and 0 < size <= _CUT_TOGETHER_BYTES:
        found = list(starmap(crc32, iter_unpack(f"{size}s", body)))
    else:
        view, ends = memoryview(body), [0, *accumulate(lengths)]
        found = [crc32(view[start:end]) for start, end in pairwise(ends)]
    if found == crcs:
        return None
    for row, (upload, crc, is_crc) in enumerate(zip(uploaded.tolist(), crcs, found, strict=True)):
        if not upload and is_crc != crc:
            return invalid(f"row {row}: the payload does not have the CRC {crc:#010x} that was sent with it")
    return None


def _check_keys(
    inline: np.ndarray[tuple[int, ...], np.dtype[np.uint32]],
    uploaded: np.ndarray[tuple[int, ...], np.dtype[np.uint64]],
    body: bytes | memoryview,
) -> Refusal | None:
    """Every payload that is here begins with its key; an upload is always long enough for one."""
    sizes = inline[uploaded == 0].astype(np.int64)
    short = sizes == 0
    if not short.any():
        starts = np.cumsum(sizes) - sizes
        short = np.frombuffer(body, np.uint8)[starts] >= sizes if len(sizes) else short
    row = _first_row(short)
    if row is not None:
        row = int(np.flatnonzero(uploaded == 0)[row])
        return invalid(
            f"row {row}: its {int(inline[row])} bytes are too few for the key that they begin with"
        )
    return None


def _check_headers(
    inline: np.ndarray[tuple[int, ...], np.dtype[np.uint32]],
    uploaded: np.ndarray[tuple[int, ...], np.dtype[np.uint64]],
    body: bytes | memoryview,
    settings: TopicSettings,
    shared_size: int,
    unhashed: bool,
) -> Refusal | None:
    """Every payload that is here begins with its key and headers; `unhashed`: there is no key among them."""
    view = memoryview(body)
    start = 0
    for row in np.flatnonzero(uploaded == 0).tolist():
        stored = view[start : start + int(inline[row])]
        start += len(stored)
        fault = fault_of_meta(Meta.HEADERS, stored)
        if fault is not None:
            return invalid(f"row {row}: {fault}")
        if unhashed and stored[0]:
            return invalid(f"row {row}: the topic's keys are unique, and its key has no hash")
        size = len(stored) - prefix_bytes(Meta.HEADERS, stored) + shared_size
        if size > settings.payload_bytes_max:
            return Refusal(
                Code.PAYLOAD_TOO_LARGE,
                f"row {row}: a payload of {size} bytes is over the topic's {settings.payload_bytes_max}",
            )
    return None


def _check_targets(request: ChangeRequest, settings: TopicSettings, now: Now) -> Refusal | None:
    row = _first_row(request.target_sequence > np.uint64(limits.SEQUENCE_MAX))
    if row is not None:
        return invalid(
            f"row {row}: sequence {int(request.target_sequence[row])} is beyond {limits.SEQUENCE_MAX}"
        )
    if (refusal := _check_names(request)) is not None:
        return refusal
    if request.kind in (RecordKind.MOVE, RecordKind.REDRIVE):
        return _check_due(request, settings, now)
    if request.kind == RecordKind.ACK:
        return _check_reasons(request)
    if request.kind == RecordKind.NACK:
        refusal = _check_amount(request, 0, limits.DELAY_MS_MAX, "delay") or _check_reasons(request)
        return refusal or _check_document(request.document, request.rows)
    if request.kind == RecordKind.RELEASE:
        return _check_amount(request, 0, limits.RELEASE_DELAY_MS_MAX, "delay of a release")
    if request.kind == RecordKind.EXTEND:
        return _check_amount(request, limits.LEASE_MS_MIN, limits.LEASE_MS_MAX, "lease")
    return None


def _check_names(request: ChangeRequest) -> Refusal | None:
    most = limits.REQUEST_NAMES_MAX
    if len(request.target_sequence) <= most:
        return None
    keys = (request.target_sequence << np.uint64(16)) | request.target_row
    ordered = np.sort(keys)
    at = _first_row(ordered[most:] == ordered[:-most])
    if at is None:
        return None
    row = int(np.flatnonzero(keys == ordered[at])[most])
    return invalid(
        f"row {row}: a request names a message at most {most} times, and earlier rows name message"
        f" {int(request.target_sequence[row])}/{int(request.target_row[row])} so often"
    )


def _check_reasons(request: ChangeRequest) -> Refusal | None:
    row = _first_row(request.fate > max(Fate))
    if row is not None:
        return invalid(f"row {row}: a fate is 0 to {max(Fate):d}, not {int(request.fate[row])}")
    longest = max((len(reason.encode()) for reason in request.reasons), default=0)
    if longest > REASON_BYTES_MAX:
        return invalid(f"a reason has at most {REASON_BYTES_MAX} bytes, not {longest}")
    return None


def _check_document(document: str, rows: int) -> Refusal | None:
    """The headers of a NACK, if it has any: each row keeps them as they are written."""
    if not document:
        return None
    size = len(document.encode())
    if size > limits.HEADING_BYTES_MAX:
        return invalid(
            f"what replaces headers has at most {limits.HEADING_BYTES_MAX} bytes of JSON, not {size}"
        )
    if rows * size > limits.HEADINGS_BYTES_MAX:
        return invalid(
            f"the headers of {rows} rows have {rows * size} bytes, and a partition keeps {limits.HEADINGS_BYTES_MAX}"
        )
    try:
        packed_headers(decode_document(document))
    except MetaRefused as refused:
        return invalid(str(refused))
    except ValueError as error:
        return invalid(f"the headers of a NACK are a JSON object, not {document!r:.80}: {error}")
    return None


def _check_amount(request: ChangeRequest, lowest: int, highest: int, what: str) -> Refusal | None:
    amount = request.amount_ms
    row = _first_row((amount < np.uint64(lowest)) | (amount > np.uint64(highest)))
    if row is not None:
        return invalid(f"row {row}: a {what} has {lowest} to {highest} ms, not {int(amount[row])}")
    return None


def check_chunk(
    request: ChunkRequest, bodies: list[bytes | memoryview], settings: TopicSettings
) -> Refusal | None:
    """Return why a chunk of a long payload is refused, or None."""
    if request.size > settings.payload_bytes_max + max(PREFIX_BYTES_MAX):
        return Refusal(
            Code.PAYLOAD_TOO_LARGE,
            f"a payload of {request.size} bytes is over the topic's {settings.payload_bytes_max}",
        )
    chunks = -(-request.size // limits.CHUNK_BYTES)
    if request.size <= limits.CHUNK_BYTES or request.chunks != chunks or not 0 <= request.chunk < chunks:
        return invalid(
            f"chunk {request.chunk} of {request.chunks} does not fit a payload of {request.size} bytes"
        )
    last = request.chunk == chunks - 1
    length = request.size - (chunks - 1) * limits.CHUNK_BYTES if last else limits.CHUNK_BYTES
    if len(bodies) != 1 or len(bodies[0]) != length:
        return invalid(f"chunk {request.chunk} has {length} bytes, not {sum(map(len, bodies))}")
    if crc32(bodies[0]) != request.crc:
        return invalid(
            f"chunk {request.chunk} does not have the CRC {request.crc:#010x} that was sent with it"
        )
    return None


def check_store(inserts_refused: str) -> Refusal | None:
    """Return why the store takes no new payloads just now; None: it does."""
    full = {"disk_full": "disk", "memory_full": "memory store"}.get(inserts_refused)
    if full:
        return Refusal(Code.DISK_FULL, f"the broker's {full} is nearly full: acks and cancels only", 2000)
    if inserts_refused:
        return Refusal(Code.BUSY, "the store is behind with its compactions", 200)
    return None
