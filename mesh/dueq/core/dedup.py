"""What became of the requests that were applied before: a request takes effect once (DESIGN: Deduplication).

Per client the answers to its last 256 requests, by sequence, in the order in which they were applied. An
answer leaves when 256 later sequences are there, when the partition has aged by 15 minutes since, or when
all answers together are too large (oldest first). A client's *floor* is the largest sequence whose answer has
left: below it nobody knows, so such a request is answered OUTCOME_UNKNOWN and never done again. A client that
has no answer left is forgotten 15 minutes after its last one.

A partition's *age* is what its records' stamps have grown by, of which no record counts for more than a minute: the
stamps of two leaders may differ by as much as their clocks, and a request must not be done again for that.

Only the log decides: no clock and no iteration order but that of the log, so replicas agree, restarted ones
too. The mark of a client's floor is stored under the floor's own sequence, where an answer was before.
"""

from __future__ import annotations

import heapq
import struct
from bisect import insort
from collections import OrderedDict
from typing import NamedTuple

import numpy as np

from dueq.core.persistence import DedupRow
from dueq.errors import UnknownVersion
from dueq.limits import (
    DEDUP_BYTES_MAX,
    DEDUP_MS,
    DEDUP_WINDOW,
    JOB_DEDUP_BYTES_MAX,
    JOB_DEDUP_WINDOW,
    JOB_MEMORY_MS,
)
from dueq_codecs.messages import Code
from dueq_codecs.records import NO_U8, U8, Record, RecordKind, RequestRef

_ANSWER = struct.Struct("<BBHHHQQQQ")
"""kind, first outcome, position, row, number of outcomes, digest, sequence, stamp, age; all outcomes if mixed."""
_FLOOR = struct.Struct("<BQ")
_KIND_ALIKE, _KIND_MIXED, _KIND_FLOOR = 1, 2, 3

ANSWER_BYTES = 128
"""What one answer weighs, beside its outcomes; a client weighs as much."""


class DedupLimits(NamedTuple):
    """How much is remembered."""

    window: int = DEDUP_WINDOW
    age_ms: int = DEDUP_MS
    bytes_max: int = DEDUP_BYTES_MAX


DEDUP_LIMITS = DedupLimits()
JOB_DEDUP_LIMITS = DedupLimits(JOB_DEDUP_WINDOW, JOB_MEMORY_MS, JOB_DEDUP_BYTES_MAX)
"""Of INSERTs that name a job: a whole job may be loaded once more, days later."""


class Answer:
    """What a request did: where it took effect, and one outcome per row (none for an INSERT)."""

    __slots__ = ("age_ms", "digest", "outcomes", "position", "row", "saved", "sequence", "stamp", "weight")

    def __init__(
        self, digest: int, sequence: int, position: int, row: int, stamp: int, age_ms: int, weight: int
    ) -> None:
        self.digest = digest
        self.sequence = sequence
        self.position = position  # which request of its record
        self.row = row
        self.stamp = stamp
        self.age_ms = age_ms  # of the partition when it was given
        self.weight = weight
        self.outcomes: U8 = NO_U8
        self.saved = False  # its row is on disk

    def pack(self) -> bytes:
        """Return the answer's bytes."""
        count = len(self.outcomes)
        one = int(self.outcomes[0]) if count else 0
        mixed = count > 1 and bool((self.outcomes != one).any())
        kind = _KIND_MIXED if mixed else _KIND_ALIKE
        head = _ANSWER.pack(
            kind, one, self.position, self.row, count, self.digest, self.sequence, self.stamp, self.age_ms
        )
        return head + self.outcomes.tobytes() if mixed else head

    @classmethod
    def unpack(cls, value: bytes) -> Answer:
        """Read what `pack` wrote."""
        kind, one, position, row, count, digest, sequence, stamp, age_ms = _ANSWER.unpack_from(value)
        answer = cls(digest, sequence, position, row, stamp, age_ms, ANSWER_BYTES + count)
        if kind == _KIND_MIXED:
            answer.outcomes = np.frombuffer(value, np.uint8, count, _ANSWER.size).copy()
        elif count:
            answer.outcomes = np.full(count, one, np.uint8)
        answer.saved = True
        return answer


class _Client:
    __slots__ = ("floor", "floor_age_ms", "floor_saved", "sequences")

    def __init__(self) -> None:
        self.sequences: list[int] = []  # that have an answer, ascending
        self.floor = -1  # the largest sequence whose answer left; -1: none did
        self.floor_age_ms = 0  # the latest of those of the answers that left
        self.floor_saved = False  # the disk has a row at `floor`


class Verdict(NamedTuple):
    """A request takes effect if `fresh`; otherwise it gets `code`, and the `answer` of the first attempt."""

    code: Code
    answer: Answer | None
    fresh: bool


class Deduplication:
    """The windows of all clients of one partition."""

    def __init__(self, limits: DedupLimits = DEDUP_LIMITS, rows: list[DedupRow] | None = None) -> None:
        self.limits = limits
        self.bytes = 0
        self._answers: OrderedDict[tuple[bytes, int], Answer] = OrderedDict()  # oldest first
        self._clients: dict[bytes, _Client] = {}
        self._empty: list[tuple[int, bytes]] = []  # heap of (floor_age_ms, client) without answers
        self._changed: dict[tuple[bytes, int], None] = {}
        self._load(rows or [])

    def _load(self, rows: list[DedupRow]) -> None:
        answers = []
        for row in rows:
            if row.value is None:
                continue
            kind = row.value[0]
            if kind == _KIND_FLOOR:
                client = self._client(row.client_id)
                client.floor, client.floor_saved = row.sequence, True
                client.floor_age_ms = _FLOOR.unpack(row.value)[1]
            elif kind in (_KIND_ALIKE, _KIND_MIXED):
                answers.append((row.client_id, row.sequence, Answer.unpack(row.value)))
            else:
                raise UnknownVersion(f"a remembered answer of kind {kind}; this build knows 1 to 3")
        answers.sort(key=lambda found: (found[2].sequence, found[2].position))
        for client_id, sequence, answer in answers:
            self._answers[client_id, sequence] = answer
            insort(self._client(client_id).sequences, sequence)
            self.bytes += answer.weight
        for client_id, client in self._clients.items():
            if not client.sequences:
                heapq.heappush(self._empty, (client.floor_age_ms, client_id))

    def judge(self, request: RequestRef, record: Record, position: int, row: int, age_ms: int) -> Verdict:
        """Decide on the next request of the log; a fresh one is remembered, its outcomes to be filled in.

        Args:
            request: the `position`-th of `record`.
            record: where it stands.
            position: counted from 0.
            row: its first row in the record.
            age_ms: the partition's, with this record.
        """
        verdict = self.recall(request)
        if verdict is not None:
            return verdict
        key = (request.client_id, request.sequence)
        client = self._client(request.client_id)
        outcomes = 0 if record.kind == RecordKind.INSERT else request.rows
        weight = ANSWER_BYTES + outcomes
        answer = Answer(request.digest, record.sequence, position, row, record.stamp, age_ms, weight)
        self._answers[key] = answer
        self._changed[key] = None
        self.bytes += answer.weight
        insort(client.sequences, request.sequence)
        if len(client.sequences) > self.limits.window:
            self._drop(request.client_id, client.sequences[0])
        while self.bytes > self.limits.bytes_max and self._drop_oldest():
            pass
        return Verdict(Code.OK, answer, True)

    def recall(self, request: RequestRef) -> Verdict | None:
        """Return what became of a request before, or that nobody knows any more; None for a fresh one."""
        known = self._answers.get((request.client_id, request.sequence))
        if known is not None:
            code = Code.OK if known.digest == request.digest else Code.SEQUENCE_REUSED
            return Verdict(code, known if code == Code.OK else None, False)
        client = self._clients.get(request.client_id)
        if client is not None and request.sequence <= client.floor:
            return Verdict(Code.OUTCOME_UNKNOWN, None, False)
        return None

    def expire(self, age_ms: int) -> None:
        """Forget what is too old at this age of the partition."""
        before = age_ms - self.limits.age_ms
        while self._answers:
            key = next(iter(self._answers))
            if self._answers[key].age_ms >= before:
                break
            self._drop(*key)
        while self._empty and self._empty[0][0] < before:
            self._forget(*heapq.heappop(self._empty))

    def _client(self, client_id: bytes) -> _Client:
        client = self._clients.get(client_id)
        if client is None:
            client = self._clients[client_id] = _Client()
            self.bytes += ANSWER_BYTES
        return client

    def _drop_oldest(self) -> bool:
        if self._answers:
            self._drop(*next(iter(self._answers)))
            return True
        if self._empty:
            self._forget(*heapq.heappop(self._empty))
            return True
        return False

    def _drop(self, client_id: bytes, sequence: int) -> None:
        """Let one answer go; the floor rises to it."""
        answer = self._answers.pop((client_id, sequence))
        self.bytes -= answer.weight
        client = self._clients[client_id]
        client.sequences.remove(sequence)
        client.floor_age_ms = max(client.floor_age_ms, answer.age_ms)
        if sequence > client.floor:
            self._unwrite(client_id, client.floor, client.floor_saved)
            client.floor, client.floor_saved = sequence, answer.saved
        else:
            self._unwrite(client_id, sequence, answer.saved)
        self._changed[client_id, client.floor] = None
        if not client.sequences:
            heapq.heappush(self._empty, (client.floor_age_ms, client_id))

    def _forget(self, floor_age_ms: int, client_id: bytes) -> None:
        """Forget a client, unless it has come back since it was noted as empty."""
        client = self._clients.get(client_id)
        if client is None or client.sequences or client.floor_age_ms != floor_age_ms:
            return
        self._unwrite(client_id, client.floor, client.floor_saved)
        del self._clients[client_id]
        self.bytes -= ANSWER_BYTES

    def _unwrite(self, client_id: bytes, sequence: int, saved: bool) -> None:
        if saved:
            self._changed[client_id, sequence] = None
        else:
            self._changed.pop((client_id, sequence), None)

    @property
    def changed(self) -> bool:
        """Whether `changed_rows` has anything to say."""
        return bool(self._changed)

    def changed_rows(self) -> list[DedupRow]:
        """Return the rows that changed since the last call; from now on they count as being on disk."""
        rows = []
        for client_id, sequence in self._changed:
            value: bytes | None = None
            answer = self._answers.get((client_id, sequence))
            client = self._clients.get(client_id)
            if answer is not None:
                value, answer.saved = answer.pack(), True
            elif client is not None and sequence == client.floor:
                value, client.floor_saved = _FLOOR.pack(_KIND_FLOOR, client.floor_age_ms), True
            rows.append(DedupRow(client_id, sequence, value))
        self._changed.clear()
        return rows

    def export(self) -> list[tuple[str, int, str]]:
        """Return everything remembered: (client id, sequence, packed answer or floor) in hex, sorted."""
        found = [(client, number, answer.pack()) for (client, number), answer in self._answers.items()]
        for client_id, client in self._clients.items():
            if client.floor >= 0:
                found.append((client_id, client.floor, _FLOOR.pack(_KIND_FLOOR, client.floor_age_ms)))
        return sorted((client.hex(), number, value.hex()) for client, number, value in found)
