"""Long payloads: chunks that go ahead of the record that names them.

The leader gives out an upload number (`epoch << 32 | counter`: an epoch belongs to one process, so a number is
never used twice), and answers a chunk once it is synced on every member of the maximal ISR. A follower takes no
record whose chunks it lacks: it asks for them. Uploads that no record has named for a while are dropped. One that a
record of the log names is never dropped, and the store refuses to drop one that a live message names.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from zlib import crc32

from dueq import limits
from dueq.core.partition.requests import Refusal
from dueq.core.ports.events import Route
from dueq.core.ports.persistence import ChunkRead, DropUpload, PutChunk, ReadChunk
from dueq.core.turn.context import Context
from dueq.core.turn.peers import Peer
from dueq.instant import Now
from dueq_codecs.messages import (
    ChunkReply,
    ChunkRequest,
    Code,
    UploadAck,
    UploadChunk,
    UploadWanted,
)
from dueq_codecs.meta import PREFIX_BYTES_MAX, Meta, fault_of_meta
from dueq_codecs.records import LogEntry

if TYPE_CHECKING:
    from dueq.core.replication.replica import Replica


_STANDS_STILL_US: Final = 30_000_000
"""Time without a new chunk after which an upload reserves no room for the chunks that it lacks."""
_ASK_AGAIN_US: Final = 2_000_000
"""Time after which a follower asks again for a chunk."""
_WAITING_MAX: Final = 16
"""Requests for one chunk that wait for its answer; the oldest have been given up, as their client has asked again."""
_ASKED_MAX: Final = 1024
"""Uploads for which a follower notes when it asked; they may never come, nor be named."""


def chunk_count(size: int) -> int:
    """Return how many chunks a payload of `size` bytes has."""
    return -(-size // limits.CHUNK_BYTES)


class _Chunk:
    """A chunk that is not yet synced everywhere: the callers that wait for it, the replicas that have it."""

    __slots__ = ("acked", "body", "sent_at_us", "synced", "waiting")

    def __init__(self, body: bytes | memoryview) -> None:
        self.body = body
        self.synced = False
        self.acked: set[str] = set()
        self.waiting: deque[tuple[Route, int]] = deque(maxlen=_WAITING_MAX)
        self.sent_at_us = 0


class _Upload:
    __slots__ = ("client_id", "done", "head", "open", "size", "touched_us")

    def __init__(self, client_id: bytes, size: int, head: bytes, now: Now) -> None:
        self.client_id = client_id
        self.head = head
        self.size = size
        self.done: set[int] = set()
        self.open: dict[int, _Chunk] = {}
        self.touched_us = now.mono_us

    @property
    def bytes_held(self) -> int:
        """The bytes that have come, to the chunk."""
        return min(self.size, (len(self.done) + len(self.open)) * limits.CHUNK_BYTES)


class _Held:
    """The chunks on this disk of an upload that no record names, and the instant of its last use."""

    __slots__ = ("chunks", "touched_us")

    def __init__(self, chunks: set[int], touched_us: int) -> None:
        self.chunks = chunks
        self.touched_us = touched_us


class Uploads:
    """The uploads of one partition: those that no record has named yet, and those that the log names."""

    def __init__(self, ctx: Context, replica: Replica, orphans: list[int], now: Now) -> None:
        self._ctx, self._replica = ctx, replica
        self._counter = 0
        self._led: dict[int, _Upload] = {}
        self._held: dict[int, _Held] = {}
        # upload -> sequence of the log's record that names it, in the order of the log
        self._named: dict[int, int] = {}
        # As follower: when the leader was last asked for an upload (mono µs).
        self._asked: dict[int, int] = {}
        # As leader: (follower, upload) of those that are just being read and sent.
        self._streams: set[tuple[str, int]] = set()
        self.recovered(orphans, now)

    # -------------------------------------------------------------- leading

    def chunk_received(
        self, route: Route, request: ChunkRequest, body: bytes | memoryview, now: Now
    ) -> Refusal | None:
        """Take a chunk from a client; it is answered when it is synced everywhere."""
        number = request.upload
        if number == 0:
            if request.chunk != 0:
                return Refusal(Code.UNKNOWN_UPLOAD, "an upload begins with chunk 0")
            if self._reserved(now) + request.size > limits.UPLOADS_BYTES_MAX:
                return Refusal(Code.BUSY, "too many long payloads are being uploaded", 500)
            self._counter += 1
            number = self._replica.epoch << 32 | self._counter
            head = bytes(body[: max(PREFIX_BYTES_MAX)])
            self._led[number] = _Upload(request.client_id, request.size, head, now)
        upload = self._led.get(number)
        if upload is None or upload.client_id != request.client_id or upload.size != request.size:
            return Refusal(Code.UNKNOWN_UPLOAD, f"upload {number} is not known here: begin anew")
        upload.touched_us = now.mono_us
        if request.chunk in upload.done:
            self._ctx.reply(
                route, ChunkReply(request.request_id, Code.OK, upload=number, chunk=request.chunk)
            )
            return None
        chunk = upload.open.get(request.chunk)
        if chunk is None:
            chunk = upload.open[request.chunk] = _Chunk(body)
            self._store(number, upload, request.chunk, chunk, now)
        chunk.waiting.append((route, request.request_id))
        self._check(number, request.chunk)
        return None

    def _reserved(self, now: Now) -> int:
        """Return the bytes that uploads take, or will: one that stands still has no claim to more than it has."""
        still_us = now.mono_us - _STANDS_STILL_US
        return sum(
            upload.size if upload.touched_us > still_us else upload.bytes_held
            for upload in self._led.values()
        )

    def _store(self, number: int, upload: _Upload, index: int, chunk: _Chunk, now: Now) -> None:
        self._ctx.persist(PutChunk(self._replica.uid, number, index, chunk.body))

        def synced(then: Now) -> None:
            chunk.synced = True
            self._check(number, index)

        self._ctx.when_persisted(synced)
        self._send(number, upload, index, chunk, now)

    def _send(self, number: int, upload: _Upload, index: int, chunk: _Chunk, now: Now) -> None:
        chunk.sent_at_us = now.mono_us
        settings = self._ctx.settings
        for broker_id in self._replica.replicas:
            peer = self._ctx.peers.get(broker_id)
            if peer is None or broker_id in chunk.acked or not peer.incarnation:
                continue
            message = UploadChunk(
                settings.broker_id, settings.incarnation, self._replica.uid, self._replica.epoch, number, index,
                chunk_count(upload.size), crc32(chunk.body),
            )  # fmt: skip
            self._ctx.send(broker_id, message, [chunk.body])

    def acked(self, peer: Peer, ack: UploadAck) -> None:
        """A follower has a chunk on its disk."""
        upload = self._led.get(ack.upload)
        if upload is not None and ack.chunk in upload.open:
            upload.open[ack.chunk].acked.add(peer.broker_id)
            self._check(ack.upload, ack.chunk)

    def _check(self, number: int, index: int) -> None:
        """Answer those who wait for the chunk once every member of the maximal ISR has it."""
        upload = self._led.get(number)
        if upload is None or not self._replica.is_leader or index not in upload.open:
            return
        chunk = upload.open[index]
        needed = {member.broker_id for member in self._replica.waited_on() if member != self._ctx.me}
        if not chunk.synced or not needed <= chunk.acked:
            return
        del upload.open[index]
        upload.done.add(index)
        for route, request_id in chunk.waiting:
            self._ctx.reply(route, ChunkReply(request_id, Code.OK, upload=number, chunk=index))

    def complete(self, number: int, client_id: bytes, size: int) -> bool:
        """Whether a record of this client may name the upload."""
        upload = self._led.get(number)
        return (
            upload is not None
            and upload.client_id == client_id
            and upload.size == size
            and len(upload.done) == chunk_count(size)
        )

    def fault_of_meta(self, number: int, mode: Meta) -> str | None:
        """Say why an upload that is complete does not begin with the meta that a record says it has, or None."""
        return fault_of_meta(mode, self._led[number].head)

    def taken(self, number: int) -> None:
        """A request names the upload: no further chunk of it is taken."""
        self._led.pop(number, None)

    def named(self, number: int, sequence: int) -> None:
        """A record of the log names the upload now."""
        if number:
            self._named[number] = sequence
            self._held.pop(number, None)
            self._asked.pop(number, None)

    def orphaned(self, numbers: list[int], now: Now) -> None:
        """The record that named (or would have named) these uploads is gone; they may be named again."""
        for number in numbers:
            if number:
                self._named.pop(number, None)
                self._hold(number, now)

    def trimmed(self, below: int) -> None:
        """The log holds no records before this one; a checkpoint says what the live messages among them name."""
        while self._named and (first := next(iter(self._named.items())))[1] < below:
            del self._named[first[0]]

    def wiped(self) -> None:
        """An installation begins: this disk holds only what comes from now on."""
        self._held.clear()
        self._named.clear()
        self._asked.clear()

    def recovered(self, orphans: list[int], now: Now) -> None:
        """These uploads are on the disk, and nothing there names them."""
        for number in orphans:
            self._hold(number, now)

    def _hold(self, number: int, now: Now) -> _Held:
        """Something of the upload has come: it will be dropped if nothing names it."""
        self._ctx.attend(self._replica.uid)
        held = self._held.setdefault(number, _Held(set(), now.mono_us))
        held.touched_us = now.mono_us
        return held

    def leadership_lost(self) -> None:
        """Waiting clients are sent to the next leader; the chunks are orphans here until that one names them."""
        for number, upload in self._led.items():
            for chunk in upload.open.values():
                for route, request_id in chunk.waiting:
                    self._ctx.reply(route, ChunkReply(request_id, Code.NOT_LEADER, "the leader has changed"))
            self._held[number] = _Held(upload.done, upload.touched_us)
            self._ctx.attend(self._replica.uid)
        self._led.clear()

    def wanted(self, peer: Peer, number: int, missed: Callable[[Peer, int, int], None]) -> None:
        """A follower lacks an upload that a record names: read it for it, chunk by chunk, once at a time.

        Args:
            peer: the follower.
            number: of the upload.
            missed: told (follower, upload, chunk) where the disk gives no such chunk; there may never have been one.
        """
        replica, stream = self._replica, (peer.broker_id, number)
        if stream in self._streams:
            return
        self._streams.add(stream)

        def next_chunk(index: int) -> None:
            self._ctx.read(lambda token: ReadChunk(token, replica.uid, number, index), chunk_read)

        def chunk_read(answer: object, now: Now) -> None:
            assert isinstance(answer, ChunkRead)
            gone = not replica.is_leader or self._ctx.is_silent(peer, now)
            if answer.data is not None and not gone:
                self._send_read(peer, number, answer.chunk, answer.data)
                if len(answer.data) == limits.CHUNK_BYTES:
                    next_chunk(answer.chunk + 1)
                    return
            self._streams.discard(stream)
            if answer.data is None and not gone:
                missed(peer, number, answer.chunk)

        next_chunk(0)

    def _send_read(self, peer: Peer, number: int, chunk: int, data: bytes) -> None:
        settings, replica = self._ctx.settings, self._replica
        message = UploadChunk(
            settings.broker_id, settings.incarnation, replica.uid, replica.epoch, number, chunk, 0, crc32(data)
        )  # fmt: skip
        self._ctx.send(peer.broker_id, message, [data])

    # -------------------------------------------------------------- following

    def chunk_from_leader(self, peer: Peer, message: UploadChunk, body: bytes | memoryview, now: Now) -> None:
        """Store a chunk and say so. One that comes after its record is a repeat: that was not taken without it."""
        number = message.upload
        if (
            message.epoch < self._replica.epoch
            or crc32(body) != message.crc
            or len(body) > limits.CHUNK_BYTES
            or number in self._named
        ):
            return
        held = self._hold(number, now)
        self._ctx.persist(PutChunk(self._replica.uid, number, message.chunk, body))

        def synced(then: Now) -> None:
            # Otherwise it was dropped, wiped or named since. Then no client waits for the ack.
            if self._held.get(number) is held:
                held.chunks.add(message.chunk)
                held.touched_us = then.mono_us
                peer.upload_acks.append(UploadAck(self._replica.uid, number, message.chunk))

        self._ctx.when_persisted(synced)

    def missing(self, entry: LogEntry, leader: str, now: Now) -> bool:
        """Whether the record names chunks that are not on this disk; asks the leader for them."""
        record = entry.record
        lacking = False
        for number, size in zip(record.upload.tolist(), record.size.tolist(), strict=False):
            held = self._held.get(number)
            if number and (held is None or len(held.chunks) < chunk_count(size)):
                lacking = True
                self._ask(number, held, leader, now)
        return lacking

    def _ask(self, number: int, held: _Held | None, leader: str, now: Now) -> None:
        """Ask the leader for an upload, unless it has been asked, or has sent of it, just now."""
        last_us = self._asked.get(number)
        if held is not None and held.chunks:
            last_us = max(held.touched_us, last_us or 0)
        if last_us is not None and now.mono_us - last_us <= _ASK_AGAIN_US:
            return
        self._asked.pop(number, None)
        self._asked[number] = now.mono_us
        if len(self._asked) > _ASKED_MAX:
            del self._asked[next(iter(self._asked))]
        settings = self._ctx.settings
        message = UploadWanted(settings.broker_id, settings.incarnation, self._replica.uid, number)
        self._ctx.send(leader, message, [])

    # -------------------------------------------------------------- periodic care

    @property
    def untouched_since_us(self) -> int | None:
        """When the least recently touched upload without a name was touched (mono); None: there is none."""
        touched = [upload.touched_us for upload in self._led.values()]
        touched += [held.touched_us for held in self._held.values()]
        return min(touched, default=None)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to care for."""
        return not self._led and not self._held

    def tick(self, now: Now) -> None:
        """Answer and resend chunks that some replica lacks, and drop uploads that were not named in time."""
        last = now.mono_us - limits.UPLOAD_IDLE_MS * 1000
        for number, upload in list(self._led.items()):
            if upload.touched_us < last:
                self.taken(number)
                self._ctx.persist(DropUpload(self._replica.uid, number))
                continue
            for index, chunk in list(upload.open.items()):
                self._check(number, index)  # the ISR may have shrunk to those that have it
                if index in upload.open and now.mono_us - chunk.sent_at_us > limits.RESEND_MS * 1000:
                    self._send(number, upload, index, chunk, now)
        if self._replica.installing:
            return  # what names it may be among the rows that are still to come
        for number, held in list(self._held.items()):
            if held.touched_us < last:
                del self._held[number]
                self._ctx.persist(DropUpload(self._replica.uid, number))
