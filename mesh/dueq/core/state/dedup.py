"""Outcomes of the requests that were applied before: a request takes effect once (DESIGN: Deduplication).

Per client the answers to its last 256 requests, by sequence, in the order in which they were applied. An
answer leaves when 256 later sequences are there, when the partition has aged by 15 minutes since, or when
all answers together are too large (oldest first). A client's *floor* is the largest sequence whose answer has
left. Nobody knows the outcomes up to there, so such a request is answered OUTCOME_UNKNOWN and never done again. A
client that has no answer left is forgotten 15 minutes after its last one.

A partition's *age* is the growth of its records' stamps, and no record counts for more than a minute of it: the
stamps of two leaders may differ by as much as their clocks, and a request must not be done again for that.

Only the log decides: no clock and no iteration order but that of the log. So replicas agree, restarted ones too. The
mark of a client's floor is stored under the floor's own sequence, where an answer was before.
"""

from __future__ import annotations

import heapq
import struct
from array import array
from bisect import bisect_left
from typing import Final, NamedTuple

from dueq.core.ports.tables import TableRow
from dueq.core.state.answers import KIND_ALIKE, KIND_MET, KIND_MIXED, KIND_WINDOW, NO_SLOT, Answer, Answers
from dueq.core.state.applied import Met
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
from dueq_codecs.records import U8, Record, RecordKind, RequestRef

_FLOOR = struct.Struct("<BQ")
_KIND_FLOOR = 3

CLIENT_ID_BYTES: Final = 16
ANSWER_BYTES = 128
"""Weight of one answer, beside its outcomes, bytes."""
CLIENT_BYTES = 384
"""Weight of one client, bytes."""
_NOTHING: Final = array("Q")
"""Of clients without answers; never changed."""


def row_key(client_id: bytes, sequence: int) -> bytes:
    """Return the key of a request's row."""
    return client_id + sequence.to_bytes(8, "big")


class DedupLimits(NamedTuple):
    """How much is remembered."""

    window: int = DEDUP_WINDOW
    age_ms: int = DEDUP_MS
    bytes_max: int = DEDUP_BYTES_MAX


DEDUP_LIMITS = DedupLimits()
JOB_DEDUP_LIMITS = DedupLimits(JOB_DEDUP_WINDOW, JOB_MEMORY_MS, JOB_DEDUP_BYTES_MAX)
"""Of INSERTs that name a job: a whole job may be loaded once more, days later."""


class _Client:
    __slots__ = ("floor", "floor_age_ms", "floor_saved", "key", "number", "sequences", "slots")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.number = -1  # in the list of those that have answers
        self.sequences = _NOTHING  # that have an answer, ascending
        self.slots = _NOTHING  # of those answers
        self.floor = -1  # the largest sequence whose answer left; -1: none did
        self.floor_age_ms = 0  # the latest of those of the answers that left
        self.floor_saved = False  # the disk has a row at `floor`

    def slot_of(self, sequence: int) -> int:
        """Return where an answer is; NO_SLOT: there is none."""
        sequences = self.sequences
        if not sequences or sequence > sequences[-1]:
            return NO_SLOT
        at = bisect_left(sequences, sequence)
        return self.slots[at] if sequences[at] == sequence else NO_SLOT


class Verdict(NamedTuple):
    """A request takes effect if `fresh`; otherwise it gets `code`, and the `answer` of the first attempt."""

    code: Code
    answer: Answer | None
    fresh: bool


class Deduplication:
    """The windows of all clients of one partition."""

    def __init__(self, limits: DedupLimits = DEDUP_LIMITS) -> None:
        self.limits = limits
        self.bytes = 0
        self._answers = Answers()
        self._clients: dict[bytes, _Client] = {}
        self._active: list[_Client | None] = []  # by number, those that have answers
        self._numbers: list[int] = []  # that are free
        self._empty: list[tuple[int, bytes]] = []  # heap of (floor_age_ms, client) without answers
        self._changed: dict[tuple[bytes, int], None] = {}
        self._quiet_until_ms = -1  # nothing is too old before this age: what comes later is younger

    def recover(self, rows: list[TableRow]) -> None:
        """Begin with what the last checkpoint left.

        Raises:
            UnknownVersion: a newer build wrote a row.
        """
        answers = []
        for key, value in rows:
            assert value is not None
            client_id, sequence = key[:CLIENT_ID_BYTES], int.from_bytes(key[CLIENT_ID_BYTES:], "big")
            kind = value[0]
            if kind == _KIND_FLOOR:
                client = self._client(client_id)
                client.floor, client.floor_saved = sequence, True
                client.floor_age_ms = _FLOOR.unpack(value)[1]
            elif kind in (KIND_ALIKE, KIND_MIXED, KIND_WINDOW, KIND_MET):
                answers.append((client_id, sequence, Answer.unpack(value)))
            else:
                raise UnknownVersion(f"a remembered answer of kind {kind}; this build knows 1 to 5")
        answers.sort(key=lambda found: (found[2].sequence, found[2].position))
        for client_id, sequence, answer in answers:
            self._add(self._client(client_id), sequence, answer, saved=True)
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
        client = self._client(request.client_id)
        rows = 0 if record.kind == RecordKind.INSERT else request.rows
        answer = Answer(request.digest, record.sequence, position, row, record.stamp, age_ms, rows)
        if len(record.window):
            answer.window = record.window[row : row + request.rows]
        key = (request.client_id, request.sequence)
        # A row of an earlier life of the client may be there, its deletion not on disk yet.
        self._add(client, request.sequence, answer, saved=key in self._changed)
        self._changed[key] = None
        if len(client.sequences) > self.limits.window:
            self._drop(client, client.sequences[0])
        self._make_room()
        return Verdict(Code.OK, answer, True)

    def _add(self, client: _Client, sequence: int, answer: Answer, *, saved: bool) -> None:
        if not client.sequences:
            client.sequences, client.slots = array("Q"), array("I")
            if self._numbers:
                client.number = self._numbers.pop()
                self._active[client.number] = client
            else:
                client.number = len(self._active)
                self._active.append(client)
        slot = self._answers.add(client.number, sequence, answer, saved=saved)
        if not client.sequences or sequence > client.sequences[-1]:
            client.sequences.append(sequence)
            client.slots.append(slot)
        else:
            at = bisect_left(client.sequences, sequence)
            client.sequences.insert(at, sequence)
            client.slots.insert(at, slot)
        self.bytes += ANSWER_BYTES + self._answers.extra_bytes(slot)

    def fill_in(self, request: RequestRef, answer: Answer, outcomes: U8) -> None:
        """Note the outcomes of the rows of a fresh request."""
        answer.outcomes = outcomes
        client = self._clients.get(request.client_id)
        slot = client.slot_of(request.sequence) if client is not None else NO_SLOT
        if slot != NO_SLOT:  # it may have left again, for those behind it in the record
            self._answers.set_outcomes(slot, outcomes)

    def fill_in_met(self, request: RequestRef, answer: Answer, met: Met) -> None:
        """Note what the rows of a fresh INSERT met, if any did not take effect."""
        if not len(met.present):
            return
        answer.outcomes, answer.present = met
        client = self._clients.get(request.client_id)
        slot = client.slot_of(request.sequence) if client is not None else NO_SLOT
        if slot != NO_SLOT:
            self.bytes += self._answers.set_met(slot, answer)
            self._make_room()

    def recall(self, request: RequestRef) -> Verdict | None:
        """Return the earlier outcome of a request, or that nobody knows it any more; None for a fresh one."""
        client = self._clients.get(request.client_id)
        slot = client.slot_of(request.sequence) if client is not None else NO_SLOT
        known = self._answers.get(slot) if slot != NO_SLOT else None
        if known is not None:
            code = Code.OK if known.digest == request.digest else Code.SEQUENCE_REUSED
            return Verdict(code, known if code == Code.OK else None, False)
        if client is not None and request.sequence <= client.floor:
            return Verdict(Code.OUTCOME_UNKNOWN, None, False)
        return None

    @property
    def oldest_age_ms(self) -> int | None:
        """Age of the partition when the oldest answer was given; None: there is none."""
        answers = self._answers
        return answers.age_ms(answers.oldest) if answers else None

    def expire(self, age_ms: int, stamp: int = 0) -> None:
        """Forget answers and clients that are too old at this age of the partition."""
        if age_ms <= self._quiet_until_ms:
            return
        kept_ms, answers, oldest_ms = self.limits.age_ms, self._answers, age_ms
        while len(answers) and (oldest_ms := answers.age_ms(answers.oldest)) + kept_ms < age_ms:
            self._drop_answer(answers.oldest)
        while self._empty and self._empty[0][0] + kept_ms < age_ms:
            self._forget(*heapq.heappop(self._empty))
        if self._empty:
            oldest_ms = min(oldest_ms, self._empty[0][0])
        self._quiet_until_ms = oldest_ms + kept_ms

    def _client(self, client_id: bytes) -> _Client:
        client = self._clients.get(client_id)
        if client is None:
            client = self._clients[client_id] = _Client(client_id)
            self.bytes += CLIENT_BYTES
        return client

    def _make_room(self) -> None:
        while self.bytes > self.limits.bytes_max and self._drop_oldest():
            pass

    def _drop_oldest(self) -> bool:
        if self._answers:
            self._drop_answer(self._answers.oldest)
            return True
        if self._empty:
            self._forget(*heapq.heappop(self._empty))
            return True
        return False

    def _drop_answer(self, slot: int) -> None:
        client = self._active[self._answers.client(slot)]
        assert client is not None
        self._drop(client, self._answers.number(slot))

    def _drop(self, client: _Client, sequence: int) -> None:
        """Let one answer go; the floor rises to it."""
        at = bisect_left(client.sequences, sequence)
        slot = client.slots[at]
        answers, extra = self._answers, self._answers.extra_bytes(slot)
        age_ms, saved = answers.age_ms(slot), answers.is_saved(slot)
        answers.remove(slot)
        del client.sequences[at], client.slots[at]
        self.bytes -= ANSWER_BYTES + extra
        client.floor_age_ms = max(client.floor_age_ms, age_ms)
        if sequence > client.floor:
            self._unwrite(client.key, client.floor, client.floor_saved)
            client.floor, client.floor_saved = sequence, saved
        else:
            self._unwrite(client.key, sequence, saved)
        self._changed[client.key, client.floor] = None
        if not client.sequences:
            client.sequences = client.slots = _NOTHING
            self._active[client.number] = None
            self._numbers.append(client.number)
            heapq.heappush(self._empty, (client.floor_age_ms, client.key))
            if len(self._empty) > 2 * len(self._clients) + 64:  # the same clients, time and again
                self._empty = [(c.floor_age_ms, c.key) for c in self._clients.values() if not c.sequences]
                heapq.heapify(self._empty)

    def _forget(self, floor_age_ms: int, client_id: bytes) -> None:
        """Forget a client, unless it has come back since it was noted as empty."""
        client = self._clients.get(client_id)
        if client is None or client.sequences or client.floor_age_ms != floor_age_ms:
            return
        self._unwrite(client_id, client.floor, client.floor_saved)
        del self._clients[client_id]
        self.bytes -= CLIENT_BYTES

    def _unwrite(self, client_id: bytes, sequence: int, saved: bool) -> None:
        if saved:
            self._changed[client_id, sequence] = None
        else:
            self._changed.pop((client_id, sequence), None)

    @property
    def changed(self) -> bool:
        """Whether `changed_rows` has anything to say."""
        return bool(self._changed)

    def changed_rows(self) -> list[TableRow]:
        """Return the rows that changed since the last call; from now on they count as being on disk."""
        rows = []
        for client_id, sequence in self._changed:
            value: bytes | None = None
            client = self._clients.get(client_id)
            slot = client.slot_of(sequence) if client is not None else NO_SLOT
            if slot != NO_SLOT:
                value = self._answers.row(slot)
                self._answers.set_saved(slot)
            elif client is not None and sequence == client.floor:
                value, client.floor_saved = _FLOOR.pack(_KIND_FLOOR, client.floor_age_ms), True
            rows.append(TableRow(row_key(client_id, sequence), value))
        self._changed.clear()
        return rows

    def export(self) -> list[tuple[str, int, str]]:
        """Return everything remembered: (client id, sequence, packed answer or floor) in hex, sorted."""
        found = []
        for client_id, client in self._clients.items():
            for number, slot in zip(client.sequences, client.slots, strict=True):
                found.append((client_id, number, self._answers.row(slot)))
            if client.floor >= 0:
                found.append((client_id, client.floor, _FLOOR.pack(_KIND_FLOOR, client.floor_age_ms)))
        return sorted((client.hex(), number, value.hex()) for client, number, value in found)
