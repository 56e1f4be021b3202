"""Waiting messages page by page, for browsing: snapshots of both databases, opened at a checkpoint.

Both are taken under the commit lock, so one holds every payload that the index of the other names. The core decides
when they are opened and closed, how many there may be and for how long.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Final

import numpy as np

from dueq.core.ports.entry import FLAG_UPLOAD, Entries, State, keys_of, meta_of
from dueq.core.ports.persistence import ChunkRead, ClosePages, PageRead, ReadChunk, ReadPage, StoreRead
from dueq.limits import CHUNK_BYTES
from dueq.storage.ordered import layout
from dueq.storage.ordered.engine import Engine, Snapshot
from dueq.storage.ordered.index_scan import index_after, next_class
from dueq.storage.ordered.reading import inline_payloads, payload_row
from dueq.storage.ordered.short_rows import entries_of, row_of
from dueq_codecs.meta import PREFIX_BYTES_MAX, Meta, prefix_bytes
from dueq_codecs.records import U32

_LOOK_AT: Final = 4
"""Times the limit of a page: so many entries are looked at where some are hidden."""
_CLASSES: Final = 256
"""Most classes that are looked at for one page: each costs a search."""


class _Pages:
    """The state after one record."""

    def __init__(self, uid: int, timeline: Snapshot, payload: Snapshot) -> None:
        self.uid, self.timeline, self.payload = uid, timeline, payload
        checkpoint = timeline.get(layout.head(uid, b"C")) or layout.CHECKPOINT.pack(0, 0, 0)
        self.applied, _, self.low_water = layout.CHECKPOINT.unpack_from(checkpoint)
        self.summary = checkpoint[layout.CHECKPOINT.size :]

    def close(self) -> None:
        self.timeline.close()
        self.payload.close()


class Browsing:
    """All that is being browsed, by the core's numbers."""

    def __init__(self, timeline: Engine, payload: Engine, lock: AbstractContextManager[Any]) -> None:
        self._timeline, self._payload, self._lock = timeline, payload, lock
        self._open: dict[int, _Pages] = {}

    @staticmethod
    def serves(request: StoreRead) -> bool:
        """Whether a read is one of pages."""
        return isinstance(request, ReadPage | ClosePages) or (
            isinstance(request, ReadChunk) and request.pages > 0
        )

    def read(self, request: StoreRead) -> PageRead | ChunkRead | None:
        """Read a page or a chunk of a long payload, or close; a closed snapshot has no more pages."""
        assert isinstance(request, ReadPage | ClosePages | ReadChunk)
        if isinstance(request, ClosePages):
            self._close(request.pages)
            return None
        if isinstance(request, ReadChunk):
            found = self._open.get(request.pages)
            key = layout.chunk_key(request.uid, request.upload, request.chunk)
            data = payload_row(found.payload, key) if found is not None else None
            return ChunkRead(request.token, request.uid, request.upload, request.chunk, data)
        if request.begin:
            with self._lock:
                self._open[request.pages] = _Pages(
                    request.uid, self._timeline.snapshot(), self._payload.snapshot()
                )
        found = self._open.get(request.pages)
        return _page(found, request) if found is not None else None

    def _close(self, number: int) -> None:
        found = self._open.pop(number, None)
        if found is not None:
            found.close()

    def close(self) -> None:
        """Close all."""
        for number in list(self._open):
            self._close(number)


def _page(found: _Pages, request: ReadPage) -> PageRead:
    looked_at = request.limit * _LOOK_AT if request.hidden else request.limit
    rows, of, last = _rows(found, request, looked_at)
    entries = entries_of(rows)
    after = _place(entries) or request.after
    shown = entries
    if request.hidden and len(entries):
        shown = entries[~np.isin(entries["job"], list(request.hidden))]
    weights = _weights(shown, request.payloads)
    within = int(np.searchsorted(np.cumsum(weights), request.bytes_max, side="right"))
    count = min(max(within, 1), request.limit)
    if count < len(shown):
        shown, last, of = shown[:count], False, b""
        after = _place(shown) or after
    bodies = _bodies(found, shown, request.payloads)
    sizes: U32 = np.array([len(body) if body is not None else 0 for body in bodies], np.uint32)
    return PageRead(
        request.token, request.uid, request.pages, found.applied, found.summary, shown,
        b"".join(body for body in bodies if body), sizes, after, last, bodies.count(None), of,
        _reasons(found, shown) if request.dead else [],
    )  # fmt: skip


def _rows(found: _Pages, request: ReadPage, count: int) -> tuple[list[bytes], bytes, bool]:
    """Return up to `count` rows, the class to go on with (see `PageRead.of`), and whether that is all."""
    if request.dead:
        scan = found.timeline.scan(*_range_of_dead(found, request), limit=count + 1)
        dead = [row_of(key, value) for key, value in scan]
        return dead[:count], b"", len(dead) <= count
    after = (0, 0) if request.of else request.after
    of: bytes | None = request.of or _class_of(found, request)
    rows: list[bytes] = []
    for _ in range(_CLASSES):
        assert of is not None
        wanted = count + 1 - len(rows)
        scan = found.timeline.scan(*_range(found, request, of, after), limit=wanted)
        rows += [row_of(key, value) for key, value in scan]
        if len(rows) > count:
            return rows[:count], b"", False
        of, after = next_class(found.timeline, found.uid, of), (0, 0)
        if of is None:
            return rows, b"", True
    return rows, of or b"", False


def _class_of(found: _Pages, request: ReadPage) -> bytes:
    """The class of the entry behind which to go on: where there are classes, the disk says of each where it waits."""
    width = request.class_bytes
    if request.after_of:
        return request.after_of
    row = None
    if width and request.after != (0, 0):
        [name] = layout.message_keys(found.uid, b"o", np.array(request.after[1:], np.uint64))
        row = found.timeline.get(name)
    return row[:width] if row is not None else bytes(width)


def _range(found: _Pages, request: ReadPage, of: bytes, after: tuple[int, int]) -> tuple[bytes, bytes]:
    """The range of the index to be read: never below the low-water mark, where deleted rows lie."""
    prefix = layout.head(found.uid, b"i") + of
    start = prefix + max(request.from_ms, found.low_water).to_bytes(6, "big")
    if after != (0, 0):
        start = max(start, index_after(found.uid, *after, of))
    stop = prefix + request.until_ms.to_bytes(6, "big") if request.until_ms else layout.after(prefix)
    return start, stop


def _range_of_dead(found: _Pages, request: ReadPage) -> tuple[bytes, bytes]:
    """The range of the dead to be read."""
    prefix = layout.head(found.uid, b"x")
    start = prefix + request.from_ms.to_bytes(6, "big")
    if request.after != (0, 0):
        start = max(start, index_after(found.uid, *request.after, b"", b"x"))
    return start, prefix + request.until_ms.to_bytes(6, "big") if request.until_ms else layout.after(prefix)


def _reasons(found: _Pages, entries: Entries) -> list[str]:
    """Why each was given back last."""
    rows = [found.timeline.get(name) for name in layout.message_keys(found.uid, b"t", keys_of(entries))]
    return [row.decode() if row is not None else "" for row in rows]


def _place(entries: Entries) -> tuple[int, int] | None:
    """(wait_at, key) of the last entry; (died_at, key) of one that is dead."""
    if not len(entries):
        return None
    last = entries[-1]
    return int(last["died_at" if last["state"] == State.DEAD else "wait_at"]), int(keys_of(entries[-1:])[0])


def _weights(entries: Entries, payloads: bool) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """The cost of reading each entry's body: for the key of a long payload a whole chunk is read."""
    if payloads:
        return entries["size"].astype(np.int64)
    modes = meta_of(entries["flags"])
    long = (modes != 0) & (entries["flags"] & FLAG_UPLOAD != 0)
    held = np.where(modes == Meta.HEADERS, np.minimum(entries["size"], PREFIX_BYTES_MAX[Meta.HEADERS]), 0)
    return np.where(long, CHUNK_BYTES // _LOOK_AT, held).astype(np.int64)


def _bodies(found: _Pages, entries: Entries, payloads: bool) -> list[bytes | None]:
    """The payload of each entry, or what it begins with; None for what cannot be read."""
    flags = entries["flags"]
    modes = meta_of(flags)
    bodies: list[bytes | None] = [b""] * len(entries)
    wanted = (flags & FLAG_UPLOAD) == 0
    if not payloads:
        wanted &= modes != 0
    at = np.flatnonzero(wanted)
    read = inline_payloads(found.payload, found.uid, entries[at], shared=payloads)
    for row, body in zip(at.tolist(), read, strict=True):
        bodies[row] = body if payloads or body is None else body[: prefix_bytes(modes[row], body)]
    if not payloads:
        for row in np.flatnonzero(~wanted & (modes != 0)).tolist():
            chunk = payload_row(found.payload, layout.chunk_key(found.uid, int(entries["place"][row]), 0))
            bodies[row] = None if chunk is None else chunk[: prefix_bytes(modes[row], chunk)]
    return bodies
