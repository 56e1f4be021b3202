"""Proposals of one leader: requests that become records, and those who wait for the results.

Requests that are alike become one record, at the end of the turn. Every answer that depends on state comes from
`Timeline.apply`, or is remembered there; never from what this process alone happens to know. A waiting request is kept
under its record's sequence in this leadership, with all of its attempts. When the leadership ends, they are answered
OUTCOME_UNKNOWN at once.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple, Protocol
from zlib import crc32

import numpy as np
import numpy.typing as npt

from dueq import limits
from dueq.core.delivery.dispatch import TopicDispatcher
from dueq.core.partition.awaited import Awaited, AwaitedRequests
from dueq.core.partition.back_off import decide, delays, reasons
from dueq.core.partition.fullness import UnderWay, names_of
from dueq.core.partition.lookups import ThenNames
from dueq.core.partition.recurrences import Recurrences
from dueq.core.partition.requests import Refusal, check_store, invalid
from dueq.core.partition.uploads import Uploads
from dueq.core.partition.windows import Waiting, Windows
from dueq.core.ports.entry import Entries
from dueq.core.ports.events import Route
from dueq.core.ports.membership import Topic
from dueq.core.ports.names import NO_HASH, Name
from dueq.core.replication.log import resident_bytes
from dueq.core.replication.replica import Replica
from dueq.core.state.applied import Applied, RequestResult
from dueq.core.turn.context import Context, EndOfTurn
from dueq.instant import Now
from dueq_codecs.groups import joined_groups
from dueq_codecs.messages import ChangeReply, ChangeRequest, Code
from dueq_codecs.records import LEVEL_OF_KINDS, ONE_ROW, Record, RecordKind, RequestRef
from dueq_codecs.rules import batch_key, level_of
from dueq_codecs.shape import REVOKING
from dueq_codecs.topic_settings import TopicSettings

_OPERATIONS = {
    RecordKind.INSERT: "schedule",
    RecordKind.MOVE: "move",
    RecordKind.CANCEL: "cancel",
    RecordKind.CHANGE: "change",
    RecordKind.TRIGGER: "trigger",
    RecordKind.ACK: "ack",
    RecordKind.NACK: "nack",
    RecordKind.EXTEND: "extend",
    RecordKind.RELEASE: "release",
    RecordKind.JOB: "job",
    RecordKind.PASS: "pass",
    RecordKind.GROUP: "group",
    RecordKind.RECURRENCE: "recurrence",
    RecordKind.FIRE: "trigger",
    RecordKind.DISCARD: "discard",
    RecordKind.REDRIVE: "redrive",
    RecordKind.BODY: "body",
}


class _Queued(NamedTuple):
    awaited: Awaited
    request: ChangeRequest
    body: bytes | memoryview


class ProposingPartition(EndOfTurn, Protocol):
    """The partition, as far as its proposals concern it."""

    recurrences: Recurrences

    @property
    def contents(self) -> Waiting:
        """The messages that wait."""
        ...

    @property
    def level(self) -> int:
        """The feature level: no record is of an older version."""
        ...

    @property
    def settings(self) -> TopicSettings:
        """The newest settings that are known here."""
        ...

    def named(self, record: Record) -> Entries:
        """Return the messages that a record names, as they are now; state ABSENT for those not in memory."""
        ...

    def fullness(self, request: ChangeRequest, under_way: UnderWay) -> Refusal | None:
        """Return why there is no room for what a request would have the partition keep, or None."""
        ...

    def fullness_of_names(self, request: ChangeRequest) -> Refusal | None:
        """Return why there is no room for more unique keys, if a request has any; or None."""
        ...

    def look_up_names(self, hashes: list[bytes], then: ThenNames, now: Now) -> None:
        """Call `then` with what unique keys or idempotency keys name, by their hashes."""
        ...

    def will_have_body(self, name: bytes) -> bool:
        """Return whether a shared body of this name is kept, and its grace lasts until the next record is applied."""
        ...

    def answered(self, request: ChangeRequest) -> RequestResult | None:
        """Return what a request was answered that has taken effect; None: it has not, or that is not remembered."""
        ...


class Proposals:
    """Requests that wait to become a record, and those that wait for its commit.

    Args:
        replica: where records are appended.
        uploads: long payloads that requests name.
        dispatcher: told of records that are about to be appended, where they concern leases.
        partition: touched when there is something to append.
    """

    def __init__(
        self,
        ctx: Context,
        topic: Topic,
        replica: Replica,
        uploads: Uploads,
        dispatcher: TopicDispatcher,
        partition: ProposingPartition,
    ) -> None:
        self._ctx, self._topic, self._uid = ctx, topic, replica.uid
        self._replica, self._uploads, self._dispatcher = replica, uploads, dispatcher
        self._partition = partition
        self._windows = Windows(partition.contents)
        self._queue: deque[_Queued] = deque()
        self._awaited = AwaitedRequests()
        self._waiting: dict[int, list[Awaited]] = {}
        # (sequence, bytes in memory) of the records that are not applied, and the sum.
        self._weights: deque[tuple[int, int]] = deque()
        self._unapplied_bytes = 0
        self._under_way = UnderWay()
        self._looking = 0  # requests whose names are looked up

    # -------------------------------------------------------------- requests

    def request(
        self, route: Route, request: ChangeRequest, body: bytes | memoryview, now: Now
    ) -> Refusal | None:
        """Take a well-formed new request, to be answered when it has been applied; else say why not just now."""
        refusal = self._cannot_take(request, now)
        full = self._partition.fullness_of_names(request) if refusal is None else None
        if full is None:
            return refusal or self._take(route, request, body, now)
        if self._looking == limits.NAMES_LOOKED_UP_MAX:
            return full
        self._looking += 1

        def known(names: list[Name | None] | None, then: Now) -> None:
            self._looking -= 1
            fault: Refusal | None = full
            if names is None:
                fault = Refusal(Code.NOT_LEADER, "the leader has changed")
            elif self.repeats(route, request):
                fault = None
            elif all(names):  # they need no room
                fault = self._cannot_take(request, then) or self._take(route, request, body, then)
            if fault is not None:
                self._reply_refusal(route, request.request_id, fault)

        looked_for = [digest for digest in names_of(request) if digest != NO_HASH]
        self._partition.look_up_names(looked_for, known, now)
        return None

    def repeats(self, route: Route, request: ChangeRequest) -> bool:
        """Whether a request came before; then it gets the answer to that attempt, now or when there is one.

        Nobody needs to confirm the leadership for that: what was applied here is committed, and so is its answer.
        """
        if not self._replica.serving:
            return False
        if self._awaited.joins(route, request):
            return True
        result = self._partition.answered(request)
        if result is not None:
            self._ctx.reply(route, self._answer(request.request_id, result))
        return result is not None

    def _take(
        self, route: Route, request: ChangeRequest, body: bytes | memoryview, now: Now
    ) -> Refusal | None:
        """Put a request that the mesh can take into the queue; else say why it cannot."""
        refusal = None
        if len(request.upload):
            refusal = self._uploads_missing(request)
        if refusal is None and request.kind == RecordKind.RECURRENCE:
            refusal = self._partition.recurrences.refusal(request)
        if refusal is None:
            for number in request.upload.tolist():
                self._uploads.taken(number)
            if request.kind == RecordKind.EXTEND:  # at once: an EXPIRE may be made before its record
                keys = (request.target_sequence << np.uint64(16)) | request.target_row
                self._dispatcher.extending(self._uid, keys, request.token, request.amount_ms, now)
            self._under_way.begin(request)
            self._gather(request, now)
            self._queue.append(_Queued(self._awaited.begin(route, request), request, body))
        return refusal

    def _gather(self, request: ChangeRequest, now: Now) -> None:
        """Let a patient ack wait for a record that is made anyway, unless the credit that it frees is wanted."""
        gathering = self._ctx.gathering
        alone = not self._queue or self._uid in gathering
        if request.patient and alone and not self._dispatcher.has_waiting(now):
            gathering.wait(self._uid, request.rows, now)
        else:
            gathering.end(self._uid)
            self._ctx.touch(self._partition)

    def _cannot_take(self, request: ChangeRequest, now: Now) -> Refusal | None:
        """Why the mesh cannot take it just now, however well formed it is."""
        if not self._replica.serving:
            return Refusal(Code.NOT_LEADER, f"partition {self._uid} is not served here (yet)", 50)
        if not self._replica.healthy(now):
            return Refusal(
                Code.NOT_ENOUGH_REPLICAS,
                f"fewer than {self._topic.min_isr} replicas of partition {self._uid} are within reach", 500,
            )  # fmt: skip
        insert = request.kind == RecordKind.INSERT
        brings = insert or (request.kind == RecordKind.BODY and len(request.size) > 0)
        if brings and (refusal := check_store(self._ctx.inserts_refused)) is not None:
            return refusal
        if (wanted := level_of(request)) > self._partition.level:
            return Refusal(
                Code.BUSY,
                f"partition {self._uid} is of feature level {self._partition.level}, this needs {wanted}: some replica"
                " runs an older version",
                1000,
            )
        if (full := self._partition.fullness(request, self._under_way)) is not None:
            return full
        bound = limits.UNAPPLIED_BYTES_MAX if insert else 2 * limits.UNAPPLIED_BYTES_MAX
        if self._unapplied_bytes > bound or len(self._queue) > limits.RECORD_ROWS_MAX:
            return Refusal(
                Code.BUSY, f"partition {self._uid} has {self._unapplied_bytes} bytes to commit and apply", 50
            )
        return None

    def _uploads_missing(self, request: ChangeRequest) -> Refusal | None:
        for row, (number, size) in enumerate(
            zip(request.upload.tolist(), request.size.tolist(), strict=True)
        ):
            if number and not self._uploads.complete(number, request.client_id, size):
                return Refusal(Code.UNKNOWN_UPLOAD, f"row {row}: upload {number} is not complete here")
            if number and (fault := self._uploads.fault_of_meta(number, request.keyed)) is not None:
                return invalid(f"row {row}: {fault}")
        return None

    # -------------------------------------------------------------- records

    def end_turn(self, now: Now) -> None:
        """Make records of what has come in."""
        self._append_queue(now)

    def propose(self, record: Record, now: Now, body: bytes = b"") -> int:
        """Append a record of the leader's own making; returns its sequence, 0 when too much is not applied yet."""
        if not self._replica.serving or self._unapplied_bytes > 2 * limits.UNAPPLIED_BYTES_MAX:
            return 0
        self._ctx.touch(self._partition)
        self._ctx.gathering.end(self._uid)
        self._append_queue(now)  # acks come before an EXPIRE of the very leases that they end
        if record.kind == RecordKind.EXPIRE and self._partition.level >= LEVEL_OF_KINDS:
            settings = self._partition.settings
            if settings.backoff is not None:
                record.amount_ms = delays(self._uid, settings, self._partition.named(record))
        return self._append(record, body, now)

    def _append_queue(self, now: Now) -> None:
        while self._queue and self._uid not in self._ctx.gathering:
            self._append_next(now)

    def _append_next(self, now: Now) -> None:
        """Gather the queue's next requests that are alike into one record."""
        kind, key = self._queue[0].request.kind, batch_key(self._queue[0].request)
        group: list[_Queued] = []
        rows = weight = 0
        while self._queue and batch_key(self._queue[0].request) == key:
            head = self._queue[0]
            rows += head.request.rows
            weight += len(head.body)
            if group and (
                kind in ONE_ROW or rows > limits.RECORD_ROWS_MAX or weight > limits.RECORD_BYTES_MAX
            ):
                break
            group.append(self._queue.popleft())
        record = Record(kind, self._uid, 0, 0, 0)
        record.requests = tuple(
            RequestRef(item.request.client_id, item.request.sequence, item.request.digest, item.request.rows)
            for item in group
        )
        body = self._fill(record, group, now)
        sequence = self._append(record, body, now)
        self._waiting[sequence] = [item.awaited for item in group]

    def _fill(self, record: Record, group: list[_Queued], now: Now) -> bytes | memoryview:
        """Put the requests' columns into the record; returns its body."""
        requests = [item.request for item in group]
        record.job, record.job_until = requests[0].job, requests[0].job_until
        record.job_action = requests[0].job_action
        if record.kind == RecordKind.RECURRENCE:
            return self._partition.recurrences.fill(record, requests[0], now)
        record.name, record.document = requests[0].name, requests[0].document
        record.shared, record.shared_size = requests[0].shared, requests[0].shared_size
        if record.kind == RecordKind.BODY:
            record.amount_ms = requests[0].amount_ms
            if self._partition.will_have_body(record.shared):
                return b""
            record.size, record.crc = requests[0].size, requests[0].crc
            return group[0].body
        if record.kind in ONE_ROW:
            return b""
        if record.kind == RecordKind.INSERT:
            record.due = _joined([r.due for r in requests])
            record.size = _joined([r.size for r in requests])
            record.crc = _joined([r.crc for r in requests])
            record.keyed = requests[0].keyed
            if any(len(r.upload) for r in requests):
                record.upload = _joined(
                    [r.upload if len(r.upload) else np.zeros(r.rows, np.uint64) for r in requests]
                )
            if any(len(r.rank) for r in requests):
                record.rank = _joined(
                    [r.rank if len(r.rank) else np.zeros(r.rows, np.uint16) for r in requests]
                )
            record.groups, record.group = joined_groups(requests)
            if any(len(r.expires) for r in requests):
                record.expires = _joined(
                    [r.expires if len(r.expires) else np.zeros(r.rows, np.uint64) for r in requests]
                )
            if any(len(r.attempts_max) for r in requests):
                record.attempts_max = _joined(
                    [r.attempts_max if len(r.attempts_max) else np.zeros(r.rows, np.uint16) for r in requests]
                )
            if any(len(r.key_high) for r in requests):
                record.key_high = _joined([r.key_high for r in requests])
                record.key_low = _joined([r.key_low for r in requests])
                record.on_duplicate, record.retry = requests[0].on_duplicate, requests[0].retry
            if len(requests[0].once_high):
                record.once_high = _joined([r.once_high for r in requests])
                record.once_low = _joined([r.once_low for r in requests])
                record.once_digest = _joined([r.once_digest for r in requests])
                record.claim = requests[0].claim
            if any(len(r.window) for r in requests):
                self._choose(record, requests, now)
            return group[0].body if len(group) == 1 else b"".join(item.body for item in group)
        record.first = _joined([r.first for r in requests])
        record.target_sequence = _joined([r.target_sequence for r in requests])
        record.target_row = _joined([r.target_row for r in requests])
        if record.kind in REVOKING:
            keys = (record.target_sequence << np.uint64(16)) | record.target_row
            record.token = self._dispatcher.withhold(self._uid, keys)
        elif record.kind not in (RecordKind.DISCARD, RecordKind.REDRIVE):
            record.token = _joined([r.token for r in requests])
        if any(len(r.expected) for r in requests):
            record.expected = _joined(
                [r.expected if len(r.expected) else np.zeros(r.rows, np.uint64) for r in requests]
            )
        if record.kind in (RecordKind.MOVE, RecordKind.REDRIVE):
            record.due = _joined([r.due for r in requests])
        if record.kind == RecordKind.CHANGE:
            record.rank = _joined([r.rank for r in requests])
        if record.kind in (RecordKind.NACK, RecordKind.EXTEND):
            record.amount_ms = _joined([r.amount_ms for r in requests])
        if record.kind == RecordKind.ACK:
            record.reasons, record.reason = reasons(requests)
        if record.kind == RecordKind.NACK:
            decide(record, requests, self._partition.settings, self._partition.named(record))
        if record.kind == RecordKind.RELEASE and any(len(r.amount_ms) for r in requests):
            record.amount_ms = _joined(
                [r.amount_ms if len(r.amount_ms) else np.zeros(r.rows, np.uint64) for r in requests]
            )
        return b""

    def _choose(self, record: Record, requests: list[ChangeRequest], now: Now) -> None:
        """Decide when rows with windows are due."""
        widths = [r.window if len(r.window) else np.zeros(r.rows, np.uint32) for r in requests]
        seed = crc32(b"".join(r.client_id + r.sequence.to_bytes(8, "big") for r in requests))
        now_ms = self._ctx.clock.mesh_now_us(now) // 1000
        record.window = self._windows.choose(record.due, _joined(widths), now_ms, seed)
        record.due = record.due + record.window

    def _append(self, record: Record, body: bytes | memoryview, now: Now) -> int:
        record.version = max(record.version, self._partition.level)
        weight = resident_bytes(self._replica.append(record, body, now))
        self._weights.append((record.sequence, weight))
        self._unapplied_bytes += weight
        return record.sequence

    # -------------------------------------------------------------- answers

    def applied(self, record: Record, applied: Applied) -> None:
        """Answer those whose requests a record holds."""
        while self._weights and self._weights[0][0] <= record.sequence:
            self._unapplied_bytes -= self._weights.popleft()[1]
        waiting = self._waiting.pop(record.sequence, None)
        if waiting is None:
            return
        self._under_way.end(record)
        for awaited, result in zip(waiting, applied.results, strict=True):
            for route, request_id in self._awaited.end(awaited):
                self._ctx.reply(route, self._answer(request_id, result))
        self._ctx.metrics.messages[_OPERATIONS[record.kind], self._topic.name] += record.rows
        if record.kind == RecordKind.INSERT:
            self._count_senders(record, applied)

    def leadership_lost(self, now: Now) -> None:
        """Answer everybody who waits: another leader may still commit the records in the log."""
        for waiting in self._waiting.values():
            for awaited in waiting:
                self._reply_code(awaited, Code.OUTCOME_UNKNOWN, "the leader has changed")
        self._waiting.clear()
        while self._queue:
            item = self._queue.popleft()
            self._uploads.orphaned(item.request.upload.tolist(), now)
            self._reply_code(item.awaited, Code.NOT_LEADER, "the leader has changed")
        self._ctx.gathering.leave(self._uid)
        self._weights.clear()
        self._unapplied_bytes = 0
        self._under_way = UnderWay()
        self._windows.clear()

    def _reply_code(self, awaited: Awaited, code: Code, text: str) -> None:
        for route, request_id in self._awaited.end(awaited):
            self._reply_refusal(route, request_id, Refusal(code, text))

    def _reply_refusal(self, route: Route, request_id: int, refusal: Refusal) -> None:
        code, text, retry_after_ms = refusal
        self._ctx.metrics.errors[code.name.lower()] += 1
        reply = ChangeReply(request_id, code, text, uid=self._uid, retry_after_ms=retry_after_ms)
        self._ctx.reply(route, reply)

    def _count_senders(self, record: Record, applied: Applied) -> None:
        statistics = self._ctx.metrics.statistics
        for request, result in zip(record.requests, applied.results, strict=True):
            if result.code == Code.OK and not result.repeated and not record.claim:
                rows = request.rows - len(result.present)
                statistics.scheduled(self._topic.name, request.client_id, rows, record.stamp)

    def _answer(self, request_id: int, result: RequestResult) -> ChangeReply:
        reply = ChangeReply(
            request_id, result.code, uid=self._uid, epoch=self._replica.epoch, sequence=result.sequence, row=result.row,
            stamp=result.stamp, outcomes=result.outcomes, window=result.window,
        )  # fmt: skip
        if len(met := result.present):
            reply.present_first, reply.present_sequence, reply.present_row, reply.present_due = (
                np.ascontiguousarray(met[name]) for name in ("first", "sequence", "row", "due")
            )
        if result.code == Code.SEQUENCE_REUSED:
            reply.text = f"request {result.client_sequence} of this client had another content before"
        elif result.code == Code.OUTCOME_UNKNOWN:
            reply.text = f"request {result.client_sequence} is older than what is remembered of this client"
        elif result.code == Code.UNKNOWN_BODY:
            reply.text = f"partition {self._uid} does not keep the shared body any more: put it again"
        elif result.code == Code.JOB_ENDED:
            reply.text = (
                "the job takes no more messages: it has ended, or was begun with another time to commit"
            )
        return reply


def _joined(columns: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return columns[0] if len(columns) == 1 else np.concatenate(columns)
