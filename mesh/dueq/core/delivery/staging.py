"""Payloads on their way to a push: from memory, from the store, or chunk by chunk ahead of it.

Reading begins when the lease is proposed, so that the push at the due instant needs no disk. Short payloads
are gathered in the lease table, within a bound; long ones never are: their chunks are read a few at a time
and sent on at once as PushChunk frames, all uploads in turn, so that a huge message delays nobody.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from dueq import limits
from dueq.core.delivery.consumers import Consumers, ConsumerSession
from dueq.core.delivery.lane import Lane
from dueq.core.delivery.leases import Phase, has_uploads, inline_sizes, total
from dueq.core.ports.entry import FLAG_UPLOAD, Entries
from dueq.core.ports.persistence import ChunkRead, PayloadsRead, ReadChunk, ReadPayloads
from dueq.core.state.entry_rows import Slots
from dueq.core.turn.metrics import CoreMetrics
from dueq.instant import Now
from dueq_codecs.messages import PushChunk
from dueq_codecs.records import U64

_OVER: Final = (Phase.PUSHED, Phase.ENDING, Phase.RETURNED)
"""Leases whose payloads nobody wants."""
CHUNKS_IN_FLIGHT: Final = 8
"""Chunks of one topic that are being read for consumers: 2 MiB."""

SendChunk = Callable[[ConsumerSession, PushChunk, bytes], None]


@dataclass(slots=True)
class _Upload:
    """One long payload on its way to one consumer."""

    lane: Lane
    slot: int
    token: int
    owner: int
    attach: int
    upload: int
    chunks: int
    next: int = 0
    sent: int = 0


class Stager:
    """Brings the payloads of one topic's leases to where a push finds them.

    Attributes:
        reads: read orders to be taken by the broker.
    """

    def __init__(
        self,
        topic: str,
        metrics: CoreMetrics,
        new_token: Callable[[], int],
        consumers: Consumers,
        send: SendChunk,
    ) -> None:
        self.reads: list[ReadPayloads | ReadChunk] = []
        self._topic = topic
        self._metrics = metrics
        self._new_token = new_token
        self._consumers = consumers
        self._send = send
        self._reading: dict[int, tuple[Lane, Slots, U64]] = {}
        self._chunks: dict[int, tuple[_Upload, int]] = {}
        # By lane and slot, in the order of turns: what is sent anew takes the place of what was on its way before.
        self._uploads: OrderedDict[tuple[Lane, int], _Upload] = OrderedDict()

    # -------------------------------------------------------------- short payloads

    def stage(self, lane: Lane, slots: Slots, entries: Entries) -> None:
        """Begin to bring the inline payloads of leases to memory (uploads wait for `send_ahead`)."""
        leases = lane.leases
        if has_uploads(entries):
            uploads = entries["flags"] & FLAG_UPLOAD
            leases.put_bodies(slots[uploads != 0].tolist(), [b""] * int((uploads != 0).sum()))
            slots, entries = slots[uploads == 0], entries[uploads == 0]
            if not len(slots):
                return
        leases.stage(slots, entries["size"].astype(np.int64))
        bodies = lane.partition.cached_payloads(entries)
        leases.put_bodies(slots.tolist(), bodies)
        missing = [at for at, body in enumerate(bodies) if body is None]
        if not missing:
            leases.ready[slots] = 1
            return
        if len(missing) < len(bodies):
            leases.ready[slots] = [body is not None for body in bodies]
            slots, entries = slots[missing], entries[missing]
        token = self._new_token()
        self._reading[token] = (lane, slots, leases.token[slots])
        self.reads.append(ReadPayloads(token, lane.uid, entries))

    def payloads_read(self, done: PayloadsRead) -> bool:
        """Payloads came from the store, in the order in which they were asked for; False if one could not be read."""
        asked = self._reading.pop(done.token, None)
        if asked is None:
            return True
        lane, slots, tokens = asked
        leases = lane.leases
        good = leases.same(slots, tokens) & ~np.isin(leases.phase[slots], _OVER)
        bodies = done.payloads
        lost = 0
        if None in bodies:
            # Its lease runs down unpushed and is released: tried again, at the pace of leases.
            found = np.array([body is not None for body in bodies])
            lost = int((good & ~found).sum())
            good &= found
            self._metrics.errors["payload_unreadable"] += lost
        if not good.all():
            bodies = [body for body, wanted in zip(bodies, good.tolist(), strict=True) if wanted]
            slots = slots[good]
        leases.put_bodies(slots.tolist(), bodies)
        leases.ready[slots] = 1
        return not lost

    # -------------------------------------------------------------- long payloads

    def send_ahead(self, lane: Lane, slots: Slots, entries: Entries) -> None:
        """Begin to send the chunks of uploads: anew, unless they are on their way to a session that waits for them."""
        if not has_uploads(entries):
            return
        uploads = np.flatnonzero(entries["flags"] & FLAG_UPLOAD)
        leases = lane.leases
        for at in uploads.tolist():
            slot = int(slots[at])
            owner = int(leases.owner[slot])
            session = self._consumers.by_number.get(owner)
            if session is None or not session.reachable:
                continue
            running = self._uploads.get((lane, slot))
            if running is not None and self._session_of(running) is session:
                continue
            leases.ready[slot] = 0
            self._uploads[lane, slot] = _Upload(
                lane, slot, int(leases.token[slot]), owner, session.attach, int(entries["place"][at]),
                -(-int(entries["size"][at]) // limits.CHUNK_BYTES),
            )  # fmt: skip
        self._read_chunks()

    def _session_of(self, upload: _Upload) -> ConsumerSession | None:
        """Return the session that still waits for an upload; None: none does.

        What was on its way to an earlier attach of a consumer is sent anew. A pull that is repeated goes on: if it
        began anew each time, a payload that takes longer than its client's patience would never be whole.
        """
        leases = upload.lane.leases
        if int(leases.token[upload.slot]) != upload.token:
            return None
        if int(leases.phase[upload.slot]) not in (Phase.GRANTED, Phase.AGAIN):
            return None
        session = self._consumers.by_number.get(upload.owner)
        if session is None or not session.reachable:
            return None
        return session if session.pull or session.attach == upload.attach else None

    def _read_chunks(self) -> None:
        """Read on, one chunk of each upload in turn."""
        while self._uploads and len(self._chunks) < CHUNKS_IN_FLIGHT:
            place, upload = self._uploads.popitem(last=False)
            if self._session_of(upload) is None:
                continue
            token = self._new_token()
            self._chunks[token] = (upload, upload.next)
            self.reads.append(ReadChunk(token, upload.lane.uid, upload.upload, upload.next))
            upload.next += 1
            if upload.next < upload.chunks:
                self._uploads[place] = upload

    def chunk_read(self, done: ChunkRead, now: Now) -> bool:
        """A chunk came from the store: send it on; False if it could not be read."""
        upload, chunk = self._chunks.pop(done.token, (None, 0))
        if upload is None:
            return True
        session = self._session_of(upload)
        lost = session is not None and done.data is None
        if lost:
            self._metrics.errors["payload_unreadable"] += 1
            upload.token = -1  # given up: the lease runs down unpushed
        elif session is not None and done.data is not None:
            session.chunk_us = now.mono_us
            self._forward(session, upload, chunk, done.data)
        self._read_chunks()
        return not lost

    def _forward(self, session: ConsumerSession, upload: _Upload, chunk: int, data: bytes) -> None:
        leases = upload.lane.leases
        entry = leases.entry[upload.slot]
        message = PushChunk(
            self._topic, session.address, session.attach, upload.lane.uid, int(entry["sequence"]),
            int(entry["row"]), upload.token, chunk, upload.chunks,
        )  # fmt: skip
        self._send(session, message, data)
        upload.sent += 1
        if upload.sent == upload.chunks:
            leases.put_bodies([upload.slot], [b""])
            leases.ready[upload.slot] = 1

    def forget(self, lane: Lane) -> None:
        """The partition is no longer led: its reads come to nothing."""
        self._reading = {token: asked for token, asked in self._reading.items() if asked[0] is not lane}
        self._uploads = OrderedDict(
            (place, upload) for place, upload in self._uploads.items() if upload.lane is not lane
        )
        self._chunks = {token: asked for token, asked in self._chunks.items() if asked[0].lane is not lane}
        self._read_chunks()  # all that were being read may have been of this lane


def fit_bytes(entries: Entries, room: int, empty: bool) -> int:
    """Return how many of the first entries may be staged within `room` bytes (one at least, if `empty`)."""
    sizes = inline_sizes(entries)
    if total(sizes) <= room:
        return len(entries)
    count = int(np.searchsorted(np.cumsum(sizes), room, side="right"))
    return max(count, 1) if empty else count
