"""Browsing waiting messages page by page: the leader's side.

    first page ──► checkpoint of all that is applied ──► snapshot of the store ──► page ──► next page …

The disk then holds everything, and a page is a bounded read of it in the reading thread; the loop never scans. Nothing
is leased, moved or counted. A snapshot ends with the leadership that made it, or when no page of it has been asked for
for a while. There are few of them, since each keeps the store from freeing the space of deleted rows.

Jobs that are open when the checkpoint is made are hidden from all pages, even if they are committed later. So no
other checkpoint may come between that one and the snapshot (`Checkpoints.after`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dueq import limits
from dueq.core.delivery.prepared import more_of
from dueq.core.partition.requests import Refusal, invalid
from dueq.core.ports.effects import Read
from dueq.core.ports.entry import FLAG_UPLOAD, Entries, is_full, meta_of
from dueq.core.ports.events import Route
from dueq.core.ports.persistence import CHUNK_INDEX_MAX, ChunkRead, ClosePages, PageRead, ReadChunk, ReadPage
from dueq.core.state.summary import Summary
from dueq.core.turn.context import Context
from dueq.instant import Now
from dueq_codecs.messages import BrowseReply, BrowseRequest, Code
from dueq_codecs.records import NO_U64

if TYPE_CHECKING:
    from dueq.core.partition.partition import Partition

_KEY_MAX = (1 << 56) - 1
_CLASS_MAX = 1 << 48
_RETRY_MS = 250
_NUMBER_BITS = 24


@dataclass(slots=True)
class _Pages:
    """One snapshot.

    Attributes:
        partition, epoch: whose, and in which leadership it was made.
        hidden: numbers of the jobs that its pages leave out.
        used_at_us: (mono) when it was last asked for.
        reading: reads under way.
        waiting: the request that waits for the checkpoint, before there is anything to read.
        ended: no page of it may be asked for any more; it is closed when nothing is being read.
    """

    partition: Partition
    epoch: int
    used_at_us: int
    hidden: frozenset[int] = frozenset()
    reading: int = 0
    waiting: tuple[Route, BrowseRequest] | None = None
    ended: bool = False

    @property
    def led(self) -> bool:
        """Whether the leadership that made it goes on."""
        replica = self.partition.replica
        return replica.serving and replica.epoch == self.epoch


class Browsing:
    """All snapshots that clients of this broker's leaderships read."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._open: dict[int, _Pages] = {}
        self._asked: dict[tuple[Route, int], None] = {}  # requests that will be answered
        # No other life of this broker, which may lead the partition later, has given out the same numbers.
        self._number = (ctx.settings.incarnation << _NUMBER_BITS) & ((1 << 63) - 1)

    def requested(
        self, route: Route, request: BrowseRequest, partition: Partition, now: Now
    ) -> Refusal | None:
        """Answer with a page (or a chunk), sooner or later; or refuse."""
        refusal = _malformed(request)
        if refusal is None and not partition.replica.serving:
            refusal = Refusal(Code.NOT_LEADER, f"partition {request.uid} is not served here (yet)", 50)
        if refusal is not None or (route, request.request_id) in self._asked:
            return refusal
        if not request.snapshot:
            return self._begin(route, request, partition, now)
        found = self._open.get(request.snapshot)
        if found is None or found.ended or found.partition is not partition or not found.led:
            return Refusal(Code.UNKNOWN_SESSION, f"snapshot {request.snapshot:x} is not kept here (any more)")
        found.used_at_us = now.mono_us
        if request.close:
            self._end(request.snapshot)
            self._ctx.reply(route, BrowseReply(request.request_id, Code.OK, last=True))
        elif found.reading >= limits.BROWSE_READS_MAX:
            text = f"{found.reading} pages of snapshot {request.snapshot:x} are being read"
            return Refusal(Code.BUSY, text, _RETRY_MS)
        elif request.upload:
            self._read_chunk(route, request, found)
        else:
            known = _class_of(request, found.partition.contents.class_bytes)
            self._read_page(route, request, request.snapshot, found, _place(request), known=known)
        return None

    def tick(self, now: Now) -> None:
        """Close snapshots that are not read any more, and those of an earlier leadership."""
        idle_us = now.mono_us - limits.SNAPSHOT_IDLE_MS * 1000
        for number, found in list(self._open.items()):
            if found.used_at_us < idle_us or not found.led:
                self._end(number)

    # -------------------------------------------------------------- snapshots

    def _begin(self, route: Route, request: BrowseRequest, partition: Partition, now: Now) -> Refusal | None:
        if request.upload or request.close:
            return invalid("a chunk is one of a snapshot, and so is its end")
        if len(self._open) >= limits.BROWSE_SNAPSHOTS_MAX:
            text = f"{len(self._open)} snapshots are being browsed at this broker"
            return Refusal(Code.BUSY, text, _RETRY_MS)
        self._number += 1
        number = self._number
        found = self._open[number] = _Pages(partition, partition.epoch, now.mono_us, waiting=(route, request))
        self._asked[route, request.request_id] = None

        def durable(hidden: frozenset[int], then: Now) -> None:
            if found.ended or not found.led:
                return
            found.waiting, found.hidden = None, hidden
            known = _class_of(request, partition.contents.class_bytes)
            self._read_page(route, request, number, found, _place(request), begin=True, known=known)

        partition.once_saved(durable, now)
        return None

    def _end(self, number: int) -> None:
        """Close a snapshot, once nothing is being read."""
        found = self._open[number]
        found.ended = True
        if found.waiting is not None:
            self._no_leader(*found.waiting)
        if not found.reading:
            del self._open[number]
            self._ctx.emit(Read(ClosePages(self._ctx.new_token(), found.partition.uid, number)))

    def _done(self, number: int, found: _Pages, now: Now) -> None:
        """A read was answered."""
        found.reading -= 1
        found.used_at_us = now.mono_us
        if found.ended or not found.led:
            self._end(number)

    # -------------------------------------------------------------- reading

    def _read_page(
        self,
        route: Route,
        request: BrowseRequest,
        number: int,
        found: _Pages,
        after: tuple[int, int],
        of: bytes = b"",
        begin: bool = False,
        known: bytes = b"",
    ) -> None:
        self._asked[route, request.request_id] = None
        found.reading += 1
        if begin:
            found.partition.hold_checkpoints()
        limit = min(request.limit or limits.BROWSE_ROWS_MAX, limits.BROWSE_ROWS_MAX)

        def make(token: int) -> ReadPage:
            return ReadPage(
                token, found.partition.uid, number, begin, request.from_ms, request.until_ms, after, limit,
                limits.BROWSE_BYTES_MAX, request.payloads, found.hidden,
                found.partition.contents.class_bytes, of, request.dead, known,
            )  # fmt: skip

        def read(answer: object, now: Now) -> None:
            assert isinstance(answer, PageRead)
            if begin:
                found.partition.let_checkpoints_go()
            self._done(number, found, now)
            if found.led and not found.ended and not len(answer.entries) and not answer.last:
                # All that was looked at is hidden, or not in the range.
                self._read_page(route, request, number, found, answer.after, answer.of)
                return
            if not found.led:
                self._no_leader(route, request)
                return
            del self._asked[route, request.request_id]
            if answer.unreadable:
                self._ctx.metrics.errors["payload_unreadable"] += answer.unreadable
            self._ctx.reply(route, self._page(request, number, found, answer), [answer.body])

        self._ctx.read(make, read)

    def _read_chunk(self, route: Route, request: BrowseRequest, found: _Pages) -> None:
        self._asked[route, request.request_id] = None
        found.reading += 1
        number, uid = request.snapshot, request.uid

        def read(answer: object, now: Now) -> None:
            assert isinstance(answer, ChunkRead)
            self._done(number, found, now)
            del self._asked[route, request.request_id]
            reply = BrowseReply(request.request_id, Code.OK, snapshot=number, epoch=found.epoch)
            reply.leader = self._ctx.settings.broker_id
            if answer.data is None:
                self._ctx.metrics.errors["payload_unreadable"] += 1
                reply.code = Code.BROKEN
                reply.text = (
                    f"chunk {request.chunk} of upload {request.upload} of partition {uid} cannot be read"
                )
            self._ctx.reply(route, reply, [answer.data or b""])

        self._ctx.read(lambda token: ReadChunk(token, uid, request.upload, request.chunk, number), read)

    def _no_leader(self, route: Route, request: BrowseRequest) -> None:
        del self._asked[route, request.request_id]
        self._ctx.metrics.errors["not_leader"] += 1
        text = f"partition {request.uid} is not led here any more"
        self._ctx.reply(route, BrowseReply(request.request_id, Code.NOT_LEADER, text, retry_after_ms=50))

    def _page(self, request: BrowseRequest, number: int, found: _Pages, read: PageRead) -> BrowseReply:
        entries = read.entries
        flags = entries["flags"]
        upload = np.where((flags & FLAG_UPLOAD) != 0, entries["place"], np.uint64(0))
        more = more_of(entries)
        classes = None if request.dead else found.partition.contents.classes(entries)
        return BrowseReply(
            request.request_id, Code.OK, leader=self._ctx.settings.broker_id, snapshot=number, epoch=found.epoch,
            applied=read.applied, stamp=Summary.unpack(read.summary).stamp, last=read.last,
            wait_at=np.ascontiguousarray(entries["wait_at"]), first=np.ascontiguousarray(entries["first"]),
            due=np.ascontiguousarray(entries["due"]), sequence=np.ascontiguousarray(entries["sequence"]),
            row=np.ascontiguousarray(entries["row"]), size=np.ascontiguousarray(entries["size"]),
            crc=np.ascontiguousarray(entries["crc"]), attempt=np.ascontiguousarray(entries["attempt"]),
            keyed=meta_of(flags), upload=upload.astype(np.uint64),
            body_size=read.body_size, rank=more.rank, version=more.version,
            of=NO_U64 if classes is None else classes, **_ends(entries, read.reasons),
            **found.partition.contents.shown(entries),
        )  # fmt: skip


def _ends(entries: Entries, reasons: list[str]) -> dict[str, Any]:
    """Return the columns of a reply that say how messages end, or have ended."""
    if not is_full(entries):
        return {}
    found: dict[str, Any] = {}
    for name in ("expires", "died_at"):
        if entries[name].any():
            found[name] = np.ascontiguousarray(entries[name])
    if any(reasons):
        places: dict[str, int] = {}
        found["reason"] = np.array([places.setdefault(text, len(places)) for text in reasons], np.uint16)
        found["reasons"] = tuple(places)
    return found


def _place(request: BrowseRequest) -> tuple[int, int]:
    return request.after_wait_at, request.after_key


def _class_of(request: BrowseRequest, width: int) -> bytes:
    """The class of the row behind which to go on, as keys of the index have it; empty: it is not known.

    One that the topic cannot have lies behind all that it has.
    """
    if not request.after_of or not width:
        return b""
    return min(request.after_of - 1, (1 << 8 * width) - 1).to_bytes(width, "big")


def _malformed(request: BrowseRequest) -> Refusal | None:
    for name in ("from_ms", "until_ms", "after_wait_at"):
        if getattr(request, name) > limits.DUE_MS_MAX:
            return invalid(f"{name} {getattr(request, name)} is beyond {limits.DUE_MS_MAX}")
    if request.after_key > _KEY_MAX:
        return invalid(f"after_key {request.after_key} is no key")
    if request.after_of > _CLASS_MAX:
        return invalid(f"after_of {request.after_of} is no class")
    if request.chunk > CHUNK_INDEX_MAX:
        return invalid(f"chunk {request.chunk} is beyond {CHUNK_INDEX_MAX}")
    return None
