"""Waiting messages as callers see them, and the walk over one partition's pages that both faces make."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from zlib import crc32

import numpy as np

from dueq import ids, limits
from dueq.client import arguments, per_row, times
from dueq.client.calls import Call
from dueq.client.core.asking.browsing import PageAnswer
from dueq.client.core.ports import events
from dueq.errors import InvalidRequest, SnapshotLost
from dueq_codecs.meta import split_meta
from dueq_codecs.records import U16, U32, U64


@dataclass(frozen=True, slots=True)
class ScheduledMessage:
    """A waiting message, as of the snapshot that it was read from.

    Attributes:
        id: 26 characters.
        topic: name.
        partition: its place in the topic, from 0.
        key: the name that its producer gave it, "" when there is none (or the disk cannot read it).
        due: what the producer asked for, Unix ms.
        waits_until: when it becomes ready, Unix ms: `due`, or later (scheduled late, or to be delivered again).
        size: bytes of its payload.
        attempt: deliveries so far.
        payload: the bytes; None when they were not asked for, or the leader's disk cannot read them.
        rank: of a priority topic: the message with the smallest goes first. 0 elsewhere.
        version: grows whenever the message is moved or changed.
        headers: what its producer said of it.
        expires: from this instant on it is not delivered any more, Unix ms; 0: never.
        died_at: when it died, Unix ms; 0: it waits.
        reason: why it was given back last, of a dead message.
        group: of a fair topic, "" when it has none.
        place: (`waits_until`, or `died_at` of a dead message, `id`, a number that says where in the topic's order it
            waits): behind it `browse_pages(after=)` goes on, also when the message has gone.
    """

    id: str
    topic: str
    partition: int
    key: str
    due: int
    waits_until: int
    size: int
    attempt: int
    payload: bytes | None
    rank: int = 0
    version: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    expires: int = 0
    died_at: int = 0
    reason: str = ""
    group: str = ""
    place: tuple[int, str, int] = (0, "", 0)


@dataclass(frozen=True, slots=True, eq=False)
class BrowsePage:
    """Messages of one partition, in order of (rank, waits_until, insertion): columns of one length.

    All pages of one walk are of one snapshot; the columns are as the attributes of `ScheduledMessage`.

    Attributes:
        topic: name.
        partition: its place in the topic, from 0.
        epoch: of the leadership that keeps the snapshot.
        applied: the snapshot is the state after this record of the partition …
        stamp_ms: … which was appended at this instant of the mesh's time, Unix ms.
        ids, keys: texts.
        due, waits_until: Unix ms.
        size: bytes of the payload, its key and headers not counted.
        attempt: deliveries so far.
        payloads: None when they were not asked for.
        rank: all 0 in a topic without ranks.
        version: grows whenever a message is moved or changed.
        headers: of each, empty where it has none.
        expires, died_at: Unix ms, 0 where there is none.
        reasons: of dead messages.
        groups: of each message, "" where it has none.
        of: numbers that say where in the topic's order messages wait.
        last: no message follows. Other pages may be short, too: they have a bounded number of bytes.
    """

    topic: str
    partition: int
    epoch: int
    applied: int
    stamp_ms: int
    ids: list[str]
    keys: list[str]
    due: U64
    waits_until: U64
    size: U32
    attempt: U16
    payloads: list[bytes | None] | None
    rank: U16
    version: U64
    headers: list[dict[str, str]]
    expires: U64
    died_at: U64
    reasons: list[str]
    groups: list[str]
    of: U64
    last: bool

    def __len__(self) -> int:
        return len(self.ids)

    def messages(self) -> Iterator[ScheduledMessage]:
        """Yield the rows one by one."""
        payloads: Sequence[bytes | None] = self.payloads if self.payloads is not None else [None] * len(self)
        rows = zip(
            self.ids, self.keys, self.due.tolist(), self.waits_until.tolist(), self.size.tolist(),
            self.attempt.tolist(), payloads, self.rank.tolist(), self.version.tolist(), self.headers,
            self.expires.tolist(), self.died_at.tolist(), self.reasons, self.groups, self.of.tolist(),
            strict=True,
        )  # fmt: skip
        for message_id, key, due, waits_until, *others, expires, died_at, reason, group, of in rows:
            size, attempt, payload, rank, version, headers = others
            yield ScheduledMessage(
                message_id, self.topic, self.partition, key, due, waits_until, size, attempt, payload, rank, version,
                headers, expires, died_at, reason, group, (died_at or waits_until, message_id, of),
            )  # fmt: skip


class Walk:
    """One partition, page by page: says what to ask next, and makes a page of the answers. No I/O of its own.

    Args:
        topic: name.
        partition: its place in the topic.
        start, end: messages that wait until an instant with start ≤ instant < end; Unix ms or aware
            datetimes, None: no bound.
        payloads: whether to read the payloads too.
        after: `place` of the message behind which to begin, or its (`waits_until`, `id`); None: at the beginning.
        limit: messages of a page at most; None: the broker's choice.
        state: "waiting", or "dead": in order of their deaths, which are then the instants of the bounds.

    Raises:
        InvalidRequest: an argument is not of these.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        start: int | datetime | None = None,
        end: int | datetime | None = None,
        payloads: bool = False,
        after: tuple[int, str] | tuple[int, str, int] | None = None,
        limit: int | None = None,
        state: str = "waiting",
    ) -> None:
        if not isinstance(state, str) or state not in ("waiting", "dead"):
            raise InvalidRequest(f"state is waiting or dead, not {state!r:.80}")
        self._dead = state == "dead"
        self._topic = arguments.topic_name(topic)
        self._partition = arguments.count(partition, "partition", 0, limits.PARTITIONS_MAX - 1)
        self._from_ms = 0 if start is None else times.instant_ms(start, "start")
        self._until_ms = 0 if end is None else times.instant_ms(end, "end")
        self._payloads = payloads
        self._begin_after = (0, 0, 0) if after is None else _place(after)
        self._limit = 0 if limit is None else arguments.count(limit, "limit", 1, limits.BROWSE_ROWS_MAX)
        self._yielded = False
        self.done = end is not None and self._until_ms <= self._from_ms
        self._begin()

    def _begin(self) -> None:
        self._answer: PageAnswer | None = None
        self._snapshot, self._keeper, self._uid = 0, "", 0
        self._after = self._begin_after
        self._missing: list[tuple[int, int, int]] = []  # (row, upload, chunk) still to be read, last first
        self._long: dict[int, list[bytes]] = {}

    def call(self) -> Call[PageAnswer | None] | None:
        """The next request; None when the present page is complete. A chunk that cannot be read is None."""
        if self._answer is not None and not self._missing:
            return None
        upload = chunk = 0
        if self._answer is not None:
            _, upload, chunk = self._missing[-1]

        def build(number: int, deadline_us: int) -> events.Event:
            return events.Browse(
                number, deadline_us, self._topic, self._partition, self._snapshot, self._keeper, self._from_ms,
                self._until_ms, self._after[:2], self._limit, payloads=self._payloads, upload=upload, chunk=chunk,
                dead=self._dead, after_of=self._after[2],
            )  # fmt: skip

        return Call(build, _same)

    @property
    def in_chunks(self) -> bool:
        """Whether `call` asks for a chunk of a long payload."""
        return self._answer is not None

    def take(self, answer: PageAnswer | None) -> None:
        """Take the answer to `call`; None: that chunk cannot be read."""
        if self._answer is None:
            assert answer is not None
            self._answer = answer
            reply = answer.reply
            self._snapshot, self._keeper, self._uid = reply.snapshot, reply.leader, answer.uid
            if self._payloads:
                self._missing = _chunks(reply.upload, reply.size)
            return
        row, _, _ = self._missing.pop()
        if answer is None:
            self._long.pop(row, None)
            self._missing = [piece for piece in self._missing if piece[0] != row]
        else:
            self._long.setdefault(row, []).append(bytes(answer.body))

    def lost(self, error: SnapshotLost) -> None:
        """Begin again if nothing was handed out yet.

        Otherwise two snapshots would be mixed, and a message
        that was moved in between would show twice or never.

        Raises:
            SnapshotLost: some pages were handed out.
        """
        if self._yielded:
            raise error
        self._begin()

    def page(self) -> BrowsePage:
        """Return the complete page, and go to the next one."""
        assert self._answer is not None
        reply, body, uid = self._answer.reply, memoryview(self._answer.body), self._uid
        bodies = self._bodies(reply.body_size.tolist(), body)
        keys, headers, payloads, size = self._apart(bodies)
        for row, place in enumerate(reply.heading.tolist()):
            if reply.headings[place]:
                headers[row] = json.loads(reply.headings[place])
        rows = len(reply.sequence)
        if rows:
            key = int(reply.sequence[-1]) << 16 | int(reply.row[-1])
            at = int((reply.died_at if len(reply.died_at) else reply.wait_at)[-1])
            self._after = at, key, int(reply.of[-1]) + 1 if len(reply.of) else 0
        none = np.zeros(rows, np.uint64)
        reasons = [reply.reasons[place] for place in reply.reason.tolist()] or [""] * rows
        groups = [reply.groups[place] for place in reply.group.tolist()] or [""] * rows
        page = BrowsePage(
            self._topic, self._partition, reply.epoch, reply.applied, reply.stamp,
            ids.texts(reply.first, uid, reply.sequence, reply.row) if rows else [],
            keys, reply.due, reply.wait_at, size, reply.attempt, payloads if self._payloads else None,
            reply.rank if len(reply.rank) else np.zeros(rows, np.uint16),
            np.maximum(reply.version, reply.sequence) if len(reply.version) else reply.sequence, headers,
            reply.expires if len(reply.expires) else none, reply.died_at if len(reply.died_at) else none,
            reasons, groups, reply.of + np.uint64(1) if len(reply.of) else none, reply.last,
        )  # fmt: skip
        self.done, self._answer, self._yielded = reply.last, None, True
        self._long.clear()
        return page

    def ending(self) -> events.EndBrowse | None:
        """The request that closes the snapshot; None if there is none."""
        if not self._snapshot:
            return None
        return events.EndBrowse(self._topic, self._uid, self._snapshot, self._keeper)

    def _bodies(self, lengths: list[int], body: memoryview) -> list[bytes | None]:
        """The body of each row: payload or key; of a long payload the chunks put together."""
        assert self._answer is not None
        reply = self._answer.reply
        columns = zip(lengths, reply.size.tolist(), reply.upload.tolist(), reply.crc.tolist(), strict=True)
        bodies: list[bytes | None] = []
        start = 0
        for row, (length, size, upload, crc) in enumerate(columns):
            found: bytes | None = bytes(body[start : start + length])
            start += length
            if self._payloads:
                found = b"".join(self._long.get(row, ())) if upload else found
                if found is not None and (len(found) != size or crc32(found) != crc):
                    found = None
            bodies.append(found)
        return bodies

    def _apart(
        self, bodies: list[bytes | None]
    ) -> tuple[list[str], list[dict[str, str]], list[bytes | None], U32]:
        """Keys, headers, payloads, and the payloads' sizes."""
        assert self._answer is not None
        reply = self._answer.reply
        keys: list[str] = [""] * len(bodies)
        headers: list[dict[str, str]] = [{} for _ in bodies]
        if not reply.keyed.any():
            return keys, headers, bodies, reply.size
        payloads = list(bodies)
        size = reply.size.copy()
        for row in np.flatnonzero(reply.keyed).tolist():
            stored = bodies[row]
            if stored:
                keys[row], headers[row], payloads[row] = split_meta(int(reply.keyed[row]), stored)
                size[row] -= len(stored) - len(payloads[row] or b"")
        return keys, headers, payloads, size


def _place(after: tuple[int, str] | tuple[int, str, int]) -> tuple[int, int, int]:
    """The place in the index of a message that waits until an instant, and its class if that is known."""
    if not isinstance(after, tuple | list) or not 2 <= len(after) <= 3:
        raise InvalidRequest(f"after is the place of a message, not {after!r:.80}")
    waits_until, message_id, *rest = after
    [of] = rest or [0]
    if not isinstance(of, int) or not 0 <= of <= 1 << 48:
        raise InvalidRequest(f"the third part of a place is 0 to {1 << 48}, not {of!r:.80}")
    columns = per_row.id_columns([message_id])
    key = int(columns.sequence[0]) << 16 | int(columns.row[0])
    return times.instant_ms(waits_until, "after"), key, of


def _same(value: Any) -> Any:
    return value


def _chunks(upload: U64, size: U32) -> list[tuple[int, int, int]]:
    """(row, upload, chunk) of all long payloads, last first."""
    found = []
    for row in np.flatnonzero(upload).tolist():
        count = -(-int(size[row]) // limits.CHUNK_BYTES)
        found += [(row, int(upload[row]), chunk) for chunk in range(count)]
    return found[::-1]
