"""Reads of the present state: entries, index ranges, logs, payloads. Safe beside a commit."""

from __future__ import annotations

from itertools import islice, repeat
from typing import Final
from zlib import crc32

import numpy as np

from dueq.core.ports.entry import NO_ENTRIES, Entries, is_full
from dueq.core.ports.names import Lasting, unpack_name
from dueq.core.ports.persistence import (
    ChunkRead,
    EntriesRead,
    ExpiredRead,
    HashesRead,
    IndexScanned,
    LogRead,
    NamesRead,
    PayloadsRead,
    ReadChunk,
    ReadEntries,
    ReadExpired,
    ReadHashes,
    ReadLog,
    ReadNames,
    ReadPayloads,
    ReadRemark,
    RemarkRead,
    ScanIndex,
    StoreRead,
    StoreReadDone,
)
from dueq.storage.ordered import layout
from dueq.storage.ordered.engine import Engine, EngineDamaged, Reader, Snapshot
from dueq.storage.ordered.index_scan import scanned
from dueq.storage.ordered.layout import LINK
from dueq.storage.ordered.short_rows import entries_of, row_of
from dueq_codecs.frames import FrameError, decode_record
from dueq_codecs.records import U64, WITH_BYTES, LogEntry
from dueq_codecs.rules import inline_bytes

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
        if isinstance(request, ReadNames):
            return self._names(request)
        if isinstance(request, ReadExpired):
            return self._expired(request)
        if isinstance(request, ReadHashes):
            return self._hashes(request)
        if isinstance(request, ReadLog):
            return self._log(request)
        if isinstance(request, ReadChunk):
            data = payload_row(self._payload, layout.chunk_key(request.uid, request.upload, request.chunk))
            return ChunkRead(request.token, request.uid, request.upload, request.chunk, data)
        if isinstance(request, ReadRemark):
            [name] = layout.message_keys(request.uid, b"t", np.array([request.key], np.uint64))
            return RemarkRead(request.token, request.uid, (self._timeline.get(name) or b"").decode())
        return None

    def _entries(self, request: ReadEntries) -> EntriesRead:
        """By the first instant that the id spells, or where an override says that the message waits now.

        Either way the whole id must be the message's: the place and the override know nothing of its first instant.
        """
        keys = (request.sequence << np.uint64(16)) | request.row
        snapshot = self._timeline.snapshot()
        try:
            entries = _find_all(snapshot, request.uid, request.first, keys)
        finally:
            snapshot.close()
        return EntriesRead(request.token, request.uid, entries)

    def _names(self, request: ReadNames) -> NamesRead:
        """In the order of the hashes, for the sake of the blocks that they share."""
        prefix = layout.head(request.uid, b"k")
        snapshot = self._timeline.snapshot()
        try:
            hashes = sorted(request.hashes)
            rows = snapshot.get_many([prefix + digest for digest in hashes])
            found = {
                digest: unpack_name(row) for digest, row in zip(hashes, rows, strict=True) if row is not None
            }
            owners = [name for name in found.values() if not isinstance(name, Lasting)]
            first, key = (np.array([owner[at] for owner in owners], np.uint64) for at in (0, 1))
            entries = _find_all(snapshot, request.uid, first, key) if owners else NO_ENTRIES
        finally:
            snapshot.close()
        return NamesRead(request.token, request.uid, found, entries)

    def _expired(self, request: ReadExpired) -> ExpiredRead:
        """A key goes only if its own row says so, too: a row of the index may be out of date."""
        prefix = layout.head(request.uid, b"e")
        snapshot = self._timeline.snapshot()
        try:
            found: list[tuple[int, bytes]] = []
            following = None
            for key in snapshot.keys(prefix, layout.after(prefix)):
                until = int.from_bytes(key[4:12], "big")
                if until >= request.before or len(found) == request.limit:
                    following = until
                    break
                found.append((until, key[12:]))
            found.sort(key=lambda row: row[1])
            names = layout.head(request.uid, b"k")
            rows = snapshot.get_many([names + digest for _, digest in found])
        finally:
            snapshot.close()
        expired: list[tuple[int, bytes]] = []
        stale: list[tuple[int, bytes]] = []
        for each, row in zip(found, rows, strict=True):
            (expired if _is_until(row, each[0]) else stale).append(each)
        return ExpiredRead(request.token, request.uid, sorted(expired), following, sorted(stale))

    def _hashes(self, request: ReadHashes) -> HashesRead:
        prefix = layout.head(request.uid, b"k")
        keys = self._timeline.keys(prefix + request.after + b"\0", layout.after(prefix))
        found = [key[4:] for key in islice(keys, request.limit)]
        return HashesRead(request.token, request.uid, b"".join(found), len(found) < request.limit)

    def _scan(self, request: ScanIndex) -> IndexScanned:
        if not request.more and not request.onward:
            return scanned(self._timeline, request)
        snapshot = self._timeline.snapshot()
        try:
            return scanned(snapshot, request)
        finally:
            snapshot.close()

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


def _is_until(row: bytes | None, until: int) -> bool:
    """Whether a key's row is remembered up to this age of the partition."""
    name = unpack_name(row) if row is not None else None
    return isinstance(name, Lasting) and name.until == until


def _find_all(snapshot: Snapshot, uid: int, first: U64, key: U64) -> Entries:
    """Return the waiting or dead entries of these ids."""
    found = [
        (row, instant)
        for index, override, instant in zip(
            layout.index_keys(uid, first, key),
            layout.message_keys(uid, b"o", key),
            first.tolist(),
            strict=True,
        )
        if (row := _find(snapshot, index, override)) is not None
    ]
    entries = entries_of([row for row, _ in found])
    asked = np.array([instant for _, instant in found], np.uint64)
    chosen: Entries = entries[entries["first"] == asked]
    return chosen


def payload_row(payload: Reader, key: bytes) -> bytes | None:
    """Return a block or chunk; a damaged one costs its own messages, not the broker: it is None like a missing one."""
    try:
        return payload.get(key)
    except EngineDamaged:
        return None


def inline_payloads(
    payload: Reader, uid: int, entries: Entries, *, shared: bool = True
) -> list[bytes | None]:
    """Return the payloads of entries that have no upload, None for what is missing or damaged.

    Each block is read once, however many of its rows are asked for, and so is each shared body.

    Args:
        payload: the database.
        uid: of the partition.
        entries: none with an upload.
        shared: put shared bodies behind payloads that go on with them; otherwise these are not checked.
    """
    blocks: dict[tuple[int, ...], bytes | None] = {}
    payloads: list[bytes | None] = []
    columns = zip(
        entries["sequence"].tolist(), entries["place"].tolist(), entries["size"].tolist(),
        entries["crc"].tolist(), entries["body"].tolist() if is_full(entries) else repeat(0), strict=False,
    )  # fmt: skip

    def block_of(*name: int) -> bytes | None:
        if name not in blocks:
            blocks[name] = payload_row(payload, layout.block_key(uid, *name))
        return blocks[name]

    for sequence, place, size, crc, body in columns:
        behind = block_of(body, 0) if body else b""
        own = size - len(behind) if behind is not None else -1
        if own < 0:
            payloads.append(None)
            continue
        # Without bytes of its own there may be no block at all, and others of this one must not think so.
        block, offset = block_of(sequence, place >> 32) if own else b"", place & 0xFFFFFFFF
        found = block[offset : offset + own] if block is not None else None
        if behind and not shared:
            payloads.append(found)
            continue
        if found is not None and behind:
            found += behind
        whole = found is not None and len(found) == size and crc32(found) == crc
        payloads.append(found if whole else None)
    return payloads


def read_entry(payload: Reader, uid: int, row: bytes) -> LogEntry | None:
    """Return a log row's record with its body; None when payload bytes are missing."""
    record = decode_record(row[LINK.size :])
    if record.kind not in WITH_BYTES:
        return LogEntry(record)
    total = int(inline_bytes(record).sum(dtype=np.uint64))
    if not total:
        return LogEntry(record)
    first = layout.block_key(uid, record.sequence, 0)
    last = layout.block_key(uid, record.sequence + 1, 0)
    body = b"".join(value for _, value in payload.scan(first, last))
    return LogEntry(record, body) if len(body) == total else None


def _find(reader: Reader, index_key: bytes, override_key: bytes) -> bytes | None:
    """Return a waiting or dead entry as a row of `short_rows`."""
    value = reader.get(index_key)
    if value is None:
        place = reader.get(override_key)
        if place is None:
            return None
        head = index_key[:3] if len(place) == _DEAD_PLACE else index_key[:4]
        index_key = head + place + index_key[10:]
        value = reader.get(index_key)
    return row_of(index_key, value) if value is not None else None
