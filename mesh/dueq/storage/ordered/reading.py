"""Reads of the present state: entries, index ranges, logs, payloads. Safe beside a commit."""

from __future__ import annotations

from typing import Final
from zlib import crc32

import numpy as np

from dueq.core.ports.entry import ENTRY, Entries, State, keys_of, unpacked
from dueq.core.ports.persistence import (
    ChunkRead,
    EntriesRead,
    IndexScanned,
    LogRead,
    PayloadsRead,
    ReadChunk,
    ReadEntries,
    ReadLog,
    ReadPayloads,
    ScanIndex,
    StoreRead,
    StoreReadDone,
)
from dueq.limits import HOT_SCAN_ROWS
from dueq.storage.ordered import layout
from dueq.storage.ordered.engine import Engine, EngineDamaged, Reader
from dueq.storage.ordered.layout import LINK
from dueq_codecs.frames import FrameError, decode_record
from dueq_codecs.records import WITH_PAYLOADS, LogEntry

assert ENTRY.fields is not None
_JOB_AT: Final = ENTRY.fields["job"][1]
_JOB_BYTES: Final = 4
"""Of an entry's row: the number of its job, little-endian."""

_DEAD_PLACE: Final = 7
"""Length of the place of a dead entry: its tag and an instant."""


class Reading:
    """Answers everything but snapshots and whole partitions."""

    def __init__(self, timeline: Engine, payload: Engine) -> None:
        self._timeline, self._payload = timeline, payload

    def read(self, request: StoreRead) -> StoreReadDone | None:
        """Answer one read."""
        if isinstance(request, ReadPayloads):
            return self._payloads(request)
        if isinstance(request, ScanIndex):
            return self._scan(request)
        if isinstance(request, ReadEntries):
            return self._entries(request)
        if isinstance(request, ReadLog):
            return self._log(request)
        if isinstance(request, ReadChunk):
            data = payload_row(self._payload, layout.chunk_key(request.uid, request.upload, request.chunk))
            return ChunkRead(request.token, request.uid, request.upload, request.chunk, data)
        return None

    def _entries(self, request: ReadEntries) -> EntriesRead:
        """By the first instant that the id spells, or where an override says that the message waits now.

        Either way the whole id must be the message's: the place and the override know nothing of its first instant.
        """
        uid = request.uid
        keys = (request.sequence << np.uint64(16)) | request.row
        snapshot = self._timeline.snapshot()
        try:
            found = [
                (row, first)
                for index, override, first in zip(
                    layout.index_keys(uid, request.first, keys),
                    layout.message_keys(uid, b"o", keys),
                    request.first.tolist(),
                    strict=True,
                )
                if (row := _find(snapshot, index, override)) is not None
            ]
        finally:
            snapshot.close()
        entries = unpacked([row for row, _ in found])
        asked = np.array([first for _, first in found], np.uint64)
        return EntriesRead(request.token, uid, entries[entries["first"] == asked])

    def _scan(self, request: ScanIndex) -> IndexScanned:
        """Many rows are looked at for few that are wanted, so that jobs are passed by in a few reads."""
        tag = b"x" if request.dead else b"i"
        prefix = layout.head(request.uid, tag) + request.of
        stop = layout.after(prefix)
        start = index_after(request.uid, request.after_wait_at, request.after_key, request.of, tag)
        looks = max(request.limit, HOT_SCAN_ROWS) if request.hidden else request.limit
        hidden = {number.to_bytes(_JOB_BYTES, "little"): number for number in request.hidden}
        rows: list[bytes] = []
        left_out: set[int] = set()
        last, exhausted = b"", True
        for at, (_, value) in enumerate(self._timeline.scan(start, stop, limit=looks + 1)):
            if at == looks or len(rows) == request.limit:
                exhausted = False
                break
            last = value
            number = hidden.get(value[_JOB_AT : _JOB_AT + _JOB_BYTES])
            if number is None:
                rows.append(value)
            else:
                left_out.add(number)
        return IndexScanned(
            request.token, request.uid, unpacked(rows), exhausted,
            place_of(unpacked([last])) if last else None, frozenset(left_out),
            next_class(self._timeline, request.uid, request.of),
        )  # fmt: skip

    def _log(self, request: ReadLog) -> LogRead:
        entries: list[LogEntry] = []
        weight = 0
        start = layout.log_key(request.uid, request.from_sequence)
        for at, (key, row) in enumerate(
            self._timeline.scan(start, layout.after(layout.head(request.uid, b"L")))
        ):
            if int.from_bytes(key[4:], "big") != request.from_sequence + at:
                break
            try:
                entry = read_entry(self._payload, request.uid, row)
            except (FrameError, EngineDamaged):
                break
            if entry is None:
                break
            weight += len(row) + len(entry.body)
            if entries and weight > request.bytes_max:
                break
            entries.append(entry)
        return LogRead(request.token, request.uid, request.from_sequence, entries)

    def _payloads(self, request: ReadPayloads) -> PayloadsRead:
        payloads = inline_payloads(self._payload, request.uid, request.entries)
        return PayloadsRead(request.token, request.uid, request.entries, payloads)


def payload_row(payload: Reader, key: bytes) -> bytes | None:
    """Return a block or chunk; a damaged one costs its own messages, not the broker: it is None like a missing one."""
    try:
        return payload.get(key)
    except EngineDamaged:
        return None


def inline_payloads(payload: Reader, uid: int, entries: Entries) -> list[bytes | None]:
    """Return the payloads of entries that have no upload, None for what is missing or damaged.

    Each block is read once, however many of its rows are asked for.
    """
    blocks: dict[tuple[int, int], bytes | None] = {}
    payloads: list[bytes | None] = []
    columns = zip(
        entries["sequence"].tolist(), entries["place"].tolist(), entries["size"].tolist(),
        entries["crc"].tolist(), strict=True,
    )  # fmt: skip
    for sequence, place, size, crc in columns:
        if not size:
            payloads.append(b"")  # there may be no block at all, and others of this one must not think so
            continue
        name = (sequence, place >> 32)
        if name not in blocks:
            blocks[name] = payload_row(payload, layout.block_key(uid, *name))
        block, offset = blocks[name], place & 0xFFFFFFFF
        found = block[offset : offset + size] if block is not None else None
        whole = found is not None and len(found) == size and crc32(found) == crc
        payloads.append(found if whole else None)
    return payloads


def read_entry(payload: Reader, uid: int, row: bytes) -> LogEntry | None:
    """Return a log row's record with its body; None when payload bytes are missing."""
    record = decode_record(row[LINK.size :])
    if record.kind not in WITH_PAYLOADS:
        return LogEntry(record)
    inline = (
        record.size if not len(record.upload) else np.where(record.upload == 0, record.size, np.uint32(0))
    )
    total = int(inline.sum(dtype=np.uint64))
    if not total:
        return LogEntry(record)
    first = layout.block_key(uid, record.sequence, 0)
    last = layout.block_key(uid, record.sequence + 1, 0)
    body = b"".join(value for _, value in payload.scan(first, last))
    return LogEntry(record, body) if len(body) == total else None


def _find(reader: Reader, index_key: bytes, override_key: bytes) -> bytes | None:
    row = reader.get(index_key)
    if row is None:
        place = reader.get(override_key)
        if place is not None:
            row = reader.get(
                index_key[:3] + place + index_key[10:]
                if len(place) == _DEAD_PLACE
                else index_key[:4] + place + index_key[10:]
            )
    return row


def place_of(entry: Entries) -> tuple[int, int]:
    """(wait_at, key) of one entry, (died_at, key) of a dead one."""
    at = "died_at" if entry["state"][0] == State.DEAD else "wait_at"
    return int(entry[at][0]), int(keys_of(entry)[0])


def index_after(uid: int, wait_at: int, key: int, of: bytes, tag: bytes = b"i") -> bytes:
    """Return the first index key behind a position in a class; key -1: behind all of it that waits before `wait_at`."""
    prefix = layout.head(uid, tag) + of
    if key < 0:
        return prefix + wait_at.to_bytes(6, "big")
    at = wait_at << 56 | key
    return prefix + (at + 1).to_bytes(14, "big")[1:]


def next_class(timeline: Reader, uid: int, of: bytes) -> bytes | None:
    """Return the next class behind one that has entries; None: there is none, or the index has no classes."""
    if not of:
        return None
    index = layout.head(uid, b"i")
    found = timeline.scan(layout.after(index + of), layout.after(index), limit=1)
    return next((key[4 : 4 + len(of)] for key, _ in found), None)
