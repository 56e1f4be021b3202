"""Long payloads go ahead of the request that names them, in chunks, a few at a time.

The leader's answer to the first chunk names the upload; it belongs to that leadership, so after a change of
leader it begins anew. A row is uploaded once the last chunk is answered: then it is synced on every ISR member.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from zlib import crc32

import numpy as np

from dueq import limits
from dueq.client.core.asking.directory import Directory, Topic
from dueq.client.core.links.context import Context
from dueq.client.core.links.links import Links
from dueq.client.core.links.refusals import FINAL, error_of
from dueq.client.core.ports.change import Part
from dueq.client.core.ports.timers import Timer
from dueq.errors import Disconnected, DueqError
from dueq_codecs.messages import BrokerMessage, ChunkReply, ChunkRequest, Code, Reply

WINDOW: Final = 4
"""Chunks in flight per part."""
SILENCE_US: Final = 2_000_000
BACK_OFF_US: Final = 100_000


class _Upload:
    """The long rows of one part, one after the other.

    Attributes:
        place: index into `part.long` of the present row.
        number: the leader's name for it, 0 before its first answer.
        next: the first chunk not sent yet.
        out: unanswered chunks by request id.
        again: chunks to send once more.
    """

    def __init__(
        self, part: Part, then: Callable[[Part], None], failed: Callable[[Part, DueqError], None]
    ) -> None:
        self.part = part
        self.then, self.failed = then, failed
        self.numbers: list[int] = []
        self.refusal: DueqError | None = None
        self.timer: Timer | None = None
        self.link = 0
        self.begin()

    def begin(self) -> None:
        """Begin the present row."""
        self.number = self.next = self.answered = 0
        self.out: dict[int, int] = {}
        self.again: list[int] = []

    def is_answer(self, reply: ChunkReply | Reply) -> bool:
        """Whether this says of a chunk under way that it is safe, in the one upload that the row has."""
        return (
            isinstance(reply, ChunkReply)
            and reply.chunk == self.out[reply.request_id]
            and reply.upload > 0
            and self.number in (0, reply.upload)
        )

    @property
    def payload(self) -> memoryview:
        """The present row's bytes."""
        return memoryview(self.part.long[len(self.numbers)][1])

    @property
    def chunks(self) -> int:
        """The number of chunks of the present row."""
        return -(-len(self.payload) // limits.CHUNK_BYTES)


class Uploads:
    """All uploads in progress, by part."""

    def __init__(self, context: Context, links: Links, directory: Directory) -> None:
        self._context, self._links, self._directory = context, links, directory
        self._uploads: dict[Part, _Upload] = {}
        self._asked: dict[int, _Upload] = {}

    def start(
        self, part: Part, then: Callable[[Part], None], failed: Callable[[Part, DueqError], None]
    ) -> None:
        """Upload a part's long rows (again); `then` is called when the last is safe, `failed` if they are refused."""
        if part not in self._uploads:
            upload = self._uploads[part] = _Upload(part, then, failed)
            self._pump(upload)

    def stop(self, part: Part) -> DueqError | None:
        """Stop; return what to tell the caller, or None if the part was not being uploaded."""
        upload = self._uploads.pop(part, None)
        if upload is None:
            return None
        self._forget(upload)
        text = f"the long payloads for partition {part.uid} of {part.topic!r} could not be uploaded in time"
        return upload.refusal or Disconnected(f"{text}; nothing was inserted")

    def answered(self, message: BrokerMessage) -> bool:
        """Take an answer; False if it is to nothing here."""
        if not isinstance(message, ChunkReply | Reply):
            return False
        upload = self._asked.get(message.request_id)
        if upload is None:
            return False
        if message.code is Code.OK and not upload.is_answer(message):
            self._context.refuse(message, f"it is not about chunk {upload.out[message.request_id]}")
            return True
        del self._asked[message.request_id]
        chunk = upload.out.pop(message.request_id)
        if message.code is Code.OK and isinstance(message, ChunkReply):
            self._chunk_safe(upload, message)
        elif message.code in FINAL:
            self._fail(upload, error_of(message.code, message.text))
        else:
            self._postponed(upload, chunk, message)
        return True

    def link_up(self) -> None:
        """Continue the uploads that waited for a link."""
        for upload in list(self._uploads.values()):
            if not upload.link:
                self._pump(upload)

    def link_down(self, number: int) -> None:
        """Send that link's chunks elsewhere."""
        for upload in [upload for upload in self._uploads.values() if upload.link == number]:
            self._directory.refresh(upload.part.topic)
            self._resume(upload, BACK_OFF_US)

    # -------------------------------------------------------------- sending

    def _pump(self, upload: _Upload) -> None:
        """Send chunks while the window has room; the first one alone, since its answer names the upload."""
        part = upload.part
        leader = self._directory.leader(part.topic, part.uid)
        link = self._links.route(leader) if leader else None
        if link is None:
            upload.link = 0
            self._directory.refresh(part.topic)
            self._wait(upload, BACK_OFF_US * 5, lambda: self._pump(upload))
            return
        upload.link = link.number
        window = WINDOW if upload.number else 1
        while len(upload.out) < window and (upload.again or upload.next < upload.chunks):
            if upload.again:
                chunk = upload.again.pop()
            else:
                chunk, upload.next = upload.next, upload.next + 1
            start = chunk * limits.CHUNK_BYTES
            body = upload.payload[start : start + limits.CHUNK_BYTES]
            request = ChunkRequest(
                self._context.next_request(), part.topic, part.uid, part.client_id, upload.number, chunk,
                upload.chunks, len(upload.payload), crc32(body),
            )  # fmt: skip
            upload.out[request.request_id] = chunk
            self._asked[request.request_id] = upload
            self._links.send(link, request, [body])
        self._wait(upload, SILENCE_US, lambda: self._silent(upload))

    def _wait(self, upload: _Upload, delay_us: int, action: Callable[[], None]) -> None:
        if upload.timer is not None:
            upload.timer.cancel()
        upload.timer = self._context.after(delay_us, action)

    def _silent(self, upload: _Upload) -> None:
        self._directory.refresh(upload.part.topic)
        self._resume(upload, 0)

    def _resume(self, upload: _Upload, delay_us: int) -> None:
        """Send every unanswered chunk again."""
        upload.again += upload.out.values()
        for request in upload.out:
            self._asked.pop(request, None)
        upload.out.clear()
        self._wait(upload, delay_us, lambda: self._pump(upload))

    def _forget(self, upload: _Upload) -> None:
        if upload.timer is not None:
            upload.timer.cancel()
        for request in upload.out:
            self._asked.pop(request, None)
        upload.out.clear()

    # -------------------------------------------------------------- answers

    def _chunk_safe(self, upload: _Upload, reply: ChunkReply) -> None:
        upload.number = upload.number or reply.upload
        upload.answered += 1
        if upload.answered < upload.chunks:
            self._pump(upload)
            return
        upload.numbers.append(upload.number)
        if len(upload.numbers) < len(upload.part.long):
            upload.begin()
            self._pump(upload)
            return
        part = upload.part
        del self._uploads[part]
        self._forget(upload)
        part.upload = np.zeros(part.rows, np.uint64)
        for (row, _), number in zip(part.long, upload.numbers, strict=True):
            part.upload[row] = number
        upload.then(part)

    def _postponed(self, upload: _Upload, chunk: int, reply: ChunkReply | Reply) -> None:
        code, part = reply.code, upload.part
        if code is Code.UNKNOWN_UPLOAD or (code is Code.NOT_LEADER and (upload.number or upload.numbers)):
            # Another leader knows none of these uploads: from the first row again.
            self._forget(upload)
            upload.numbers.clear()
            upload.begin()
        else:
            upload.again.append(chunk)
        if code is Code.NOT_LEADER:
            self._directory.hint(part.topic, part.uid, reply.leader if isinstance(reply, ChunkReply) else "")
            self._directory.refresh(part.topic)
        elif code is Code.TOPIC_NOT_FOUND:
            self._directory.refresh(part.topic, lambda topic: self._verified(upload, topic))
        elif code is not Code.UNKNOWN_UPLOAD:
            upload.refusal = error_of(code, reply.text, reply.retry_after_ms)
        delay_us = max(BACK_OFF_US, reply.retry_after_ms * 1000)
        self._wait(upload, self._context.jittered(delay_us), lambda: self._pump(upload))

    def _verified(self, upload: _Upload, topic: Topic | DueqError) -> None:
        if isinstance(topic, DueqError) and upload.part in self._uploads:
            self._fail(upload, topic)

    def _fail(self, upload: _Upload, error: DueqError) -> None:
        self._uploads.pop(upload.part, None)
        self._forget(upload)
        upload.failed(upload.part, error)
