"""One changing request: the parts of calls that it carries, its state, and the window that numbers it.

A call's rows are cut into *parts*, each of which goes to one partition in one request. Small parts of many
calls may share a request; then each owns some rows of it. A call is done when all of its parts are.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from dueq import ids, limits
from dueq.client.core.ports.id_run import IdRun
from dueq.client.core.ports.joining import Body, bodies_of, columns_of, joined, reasons_of
from dueq.client.core.ports.returning import Returning
from dueq.client.core.ports.shared_body import NamedBody
from dueq.client.core.ports.timers import Timer
from dueq.errors import DueqError, KeyTaken, MessageLeased, OutcomeUnknown, RequestDiffers
from dueq.time_text import instant_text
from dueq_codecs.digest import request_digest
from dueq_codecs.groups import joined_groups
from dueq_codecs.messages import ChangeReply, ChangeRequest
from dueq_codecs.meta import Meta
from dueq_codecs.records import (
    NO_U8,
    NO_U16,
    NO_U32,
    NO_U64,
    ONE_ROW,
    U8,
    U16,
    U32,
    U64,
    JobAction,
    OnDuplicate,
    Outcome,
    RecordKind,
)
from dueq_codecs.rules import batch_key, first_instants

OUTCOMES: Final = tuple(Outcome)
GATHER_FROM: Final = 2
"""While fewer requests of a window are open a part goes out at once; beyond that, parts wait and share the next."""
GATHER_KEYED_FROM: Final = 1
"""The same where unique keys say to which partition rows go: each call has a few rows for each of them."""
_RETURN_ROWS: Final = 16
"""A call with fewer rows for a partition may have none for it the next time."""
NEVER_US: Final = 1 << 62
"""`send_by_us` of a part that waits for the answers to earlier requests however long they take."""
_ENDING_LEASES = (RecordKind.ACK, RecordKind.NACK, RecordKind.RELEASE)


class Part:
    """Some rows of one call (or some settled leases) for one partition.

    Attributes:
        topic, uid, client_id: where it goes and whose deduplication window it uses.
        anywhere: any partition may take it; `uid` is 0 until one was chosen.
        rows: how many.
        inline: the payloads of an INSERT that travel in the request; empty once it has succeeded.
        long: (row, payload) of those that are uploaded first; likewise.
        alone: never shares a request.
        keyed: what each payload begins with.
        patient: an ACK that nobody waits for.
        expected: the version that each message must have.
        window: of each row of an INSERT, how much later it may be due, ms.
        expires, attempts_max: of each row of an INSERT; empty: all are 0.
        shared, shared_size: the shared body that it brings or names.
        body: the same with its bytes, of an INSERT.
        fate, reasons: of each row of a NACK; empty: all are DELAY, and none has a reason.
        send_by_us: when it goes though earlier requests are unanswered (monotonic).
        job, job_until, job_action, name, document, home_partitions: as in the request.
        key_high, key_low, on_duplicate, retry: likewise; they go with the hashes of unique keys.
        once_high, once_low, once_digest, claim: likewise; they go with idempotency keys.
        change: the request that it is part of, once one was made and until it has succeeded.
        offset: its first row in that request.
        reply: the answer, once it has succeeded.
        error: why it failed.
        done: called once when `reply` or `error` is there.
    """

    __slots__ = (
        "alone",
        "amount_ms",
        "anywhere",
        "attempts_max",
        "body",
        "bytes",
        "change",
        "claim",
        "client_id",
        "crc",
        "document",
        "done",
        "due",
        "error",
        "expected",
        "expires",
        "fate",
        "first",
        "group",
        "groups",
        "home_partitions",
        "inline",
        "job",
        "job_action",
        "job_until",
        "key_high",
        "key_low",
        "keyed",
        "kind",
        "long",
        "name",
        "offset",
        "on_duplicate",
        "once_digest",
        "once_high",
        "once_low",
        "patient",
        "rank",
        "reasons",
        "reply",
        "retry",
        "rows",
        "send_by_us",
        "shared",
        "shared_size",
        "size",
        "target_row",
        "target_sequence",
        "token",
        "topic",
        "uid",
        "upload",
        "window",
    )

    def __init__(
        self,
        kind: RecordKind,
        topic: str,
        uid: int,
        client_id: bytes,
        rows: int,
        done: Callable[[Part], None],
        *,
        first: U64 = NO_U64,
        target_sequence: U64 = NO_U64,
        target_row: U16 = NO_U16,
        token: U64 = NO_U64,
        due: U64 = NO_U64,
        size: U32 = NO_U32,
        crc: U32 = NO_U32,
        amount_ms: U64 = NO_U64,
        rank: U16 = NO_U16,
        expected: U64 = NO_U64,
        group: U16 = NO_U16,
        groups: tuple[str, ...] = (),
        inline: Sequence[Body] = (),
        long: Sequence[tuple[int, Body]] = (),
        keyed: Meta = Meta.NONE,
        job: bytes = b"",
        job_until: int = 0,
        job_action: JobAction = JobAction.NONE,
        anywhere: bool = False,
        patient: bool = False,
        send_by_us: int = NEVER_US,
        name: str = "",
        document: str = "",
        home_partitions: int = 0,
        key_high: U64 = NO_U64,
        key_low: U64 = NO_U64,
        on_duplicate: OnDuplicate = OnDuplicate.NONE,
        retry: bool = False,
        window: U32 = NO_U32,
        fate: U8 = NO_U8,
        expires: U64 = NO_U64,
        attempts_max: U16 = NO_U16,
        reasons: Sequence[str] = (),
        shared: bytes = b"",
        shared_size: int = 0,
        body: NamedBody | None = None,
        once_high: U64 = NO_U64,
        once_low: U64 = NO_U64,
        once_digest: U64 = NO_U64,
        claim: bool = False,
    ) -> None:
        self.kind, self.topic, self.uid, self.client_id = kind, topic, uid, client_id
        self.rows, self.done = rows, done
        self.first, self.target_sequence, self.target_row, self.token = (
            first,
            target_sequence,
            target_row,
            token,
        )
        self.due, self.size, self.crc, self.amount_ms, self.rank = due, size, crc, amount_ms, rank
        self.expected = expected
        self.group, self.groups = group, groups
        self.inline, self.long, self.keyed = inline, long, keyed
        self.key_high, self.key_low, self.on_duplicate, self.retry = key_high, key_low, on_duplicate, retry
        self.job, self.job_until, self.job_action = job, job_until, job_action
        self.window, self.fate, self.reasons = window, fate, reasons
        self.shared, self.shared_size, self.body = shared, shared_size, body
        self.expires, self.attempts_max = expires, attempts_max
        self.once_high, self.once_low, self.once_digest, self.claim = once_high, once_low, once_digest, claim
        self.bytes = sum(map(len, inline))
        self.upload: U64 = NO_U64
        self.alone = bool(long) or kind in ONE_ROW
        self.name, self.document, self.home_partitions = name, document, home_partitions
        self.anywhere, self.patient, self.send_by_us = anywhere, patient, send_by_us
        self.change: Change | None = None
        self.offset = 0
        self.reply: ChangeReply | None = None
        self.error: DueqError | None = None

    @property
    def resolved(self) -> bool:
        """There is an answer."""
        return self.reply is not None or self.error is not None

    def succeed(self, reply: ChangeReply) -> None:
        """Take the answer, and drop references.

        Otherwise a part, its request and its call would form a cycle, which keeps the payloads until the
        next garbage collection.
        """
        done, self.done = self.done, _nobody
        self.reply, self.change = reply, None
        self.inline = self.long = ()
        done(self)

    def fail(self, error: DueqError) -> None:
        """Take the reason why there is no answer; the part may be sent again."""
        self.error = error
        self.done(self)

    @property
    def uncertain(self) -> bool:
        """Whether a request that holds it may have been appended, whatever the last answer was."""
        return self.change is not None and self.change.uncertain

    def ids(self) -> list[str]:
        """The texts of an INSERT's new ids (`messages.ChangeReply` says how they follow)."""
        return self.id_run().texts()

    @property
    def met(self) -> bool:
        """Whether a row of an INSERT has met another message of its unique key, so that it did not take effect."""
        if self.reply is None or not len(self.reply.outcomes):
            return False
        return bool(self.reply.outcomes[self.offset : self.offset + self.rows].any())

    def found(self) -> list[str | DueqError]:
        """One entry per row of an INSERT: the id of the message that its key names, or why the row was refused."""
        found: list[str | DueqError] = [*self.ids()]
        reply = self.reply
        if reply is None or not self.met:
            return found
        place = int(np.count_nonzero(reply.outcomes[: self.offset]))
        for row, outcome in enumerate(self.outcomes()):
            if outcome is not Outcome.DONE:
                present = ids.MessageId(
                    int(reply.present_first[place]), self.uid, int(reply.present_sequence[place]),
                    int(reply.present_row[place]),
                )  # fmt: skip
                found[row] = _what_was_met(outcome, present, int(reply.present_due[place]))
                place += 1
        return found

    def dues(self) -> list[int]:
        """When each row of an INSERT is due, or the message that its key names; Unix ms."""
        dues: list[int] = self._chosen().tolist()
        reply = self.reply
        if reply is not None and self.met:
            place = int(np.count_nonzero(reply.outcomes[: self.offset]))
            for row in np.flatnonzero(reply.outcomes[self.offset : self.offset + self.rows]).tolist():
                dues[row] = int(reply.present_due[place])
                place += 1
        return dues

    def _chosen(self) -> U64:
        """When each row is due: within its window, if it has one, as the leader says."""
        assert self.reply is not None
        chosen = self.reply.window[self.offset : self.offset + self.rows]
        return self.due + chosen if len(chosen) else self.due

    def id_run(self) -> IdRun:
        """An INSERT's new ids, as numbers."""
        reply = self.reply
        assert reply is not None
        first = first_instants(self._chosen(), reply.stamp, self.job_until)
        return IdRun(first, self.uid, reply.sequence, reply.row + self.offset)

    def outcomes(self) -> list[Outcome]:
        """The outcome of each row of any other kind."""
        assert self.reply is not None
        column = self.reply.outcomes[self.offset : self.offset + self.rows]
        if not column.any():
            return [Outcome.DONE] * len(column)
        return [OUTCOMES[value] if value < len(OUTCOMES) else Outcome.UNKNOWN for value in column.tolist()]


class Change:
    """A request and its attempts; it keeps its sequence, digest and rows for ever.

    Attributes:
        window: (client id, partition) that numbers it.
        parts: whose rows it holds, in order; `waiting` those that still want the answer.
        anywhere: whether any partition could have taken the first.
        request: what is sent, each time with the same request id.
        bodies: the inline payloads of an INSERT.
        link: number of the link by which it was last sent; 0 while it waits to be sent.
        to: broker id of the leader that it was meant for.
        epoch: the partition's, as known then.
        attempts: how often it was sent.
        first_us: when it was first sent (monotonic), None before.
        uncertain: an attempt may have been appended: only an answer from a committed record settles it.
        refusal: the last definite refusal.
    """

    __slots__ = (
        "anywhere",
        "attempts",
        "bodies",
        "bytes",
        "epoch",
        "first_us",
        "link",
        "parts",
        "refusal",
        "request",
        "timer",
        "to",
        "uncertain",
        "waiting",
        "window",
    )

    def __init__(self, window: RequestWindow, parts: Sequence[Part], request_id: int, sequence: int) -> None:
        head = parts[0]
        self.window = window
        self.parts = parts
        self.waiting = dict.fromkeys(parts)
        self.anywhere = head.anywhere
        groups, group = joined_groups(parts)
        reasons, reason = reasons_of(parts)
        self.request = ChangeRequest(
            request_id, head.kind, head.topic, head.uid, head.client_id, sequence, 0, **columns_of(parts),
            keyed=head.keyed, job=head.job, job_until=head.job_until, job_action=head.job_action,
            patient=all(part.patient for part in parts), group=group, groups=groups, reason=reason, reasons=reasons,
            name=head.name, document=head.document, home_partitions=head.home_partitions,
            on_duplicate=head.on_duplicate, retry=head.retry, shared=head.shared, shared_size=head.shared_size,
            claim=head.claim,
        )  # fmt: skip
        self.request.digest = request_digest(self.request)
        self.bodies = bodies_of(parts)
        self.bytes = sum(map(len, self.bodies))
        self.link = 0
        self.to = ""
        self.epoch = 0
        self.attempts = 0
        self.first_us: int | None = None
        self.uncertain = False
        self.refusal: DueqError | None = None
        self.timer: Timer | None = None
        offset = 0
        for part in parts:
            part.change, part.offset = self, offset
            offset += part.rows

    @property
    def sequence(self) -> int:
        """Its number in its window."""
        return self.request.sequence

    def set_uploads(self) -> None:
        """Take over the parts' upload numbers (they are not part of the digest)."""
        self.request.upload = joined([part.upload for part in self.parts])

    def set_timer(self, timer: Timer | None) -> None:
        """Have at most one timer."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = timer


class RequestWindow:
    """The requests of one client id to one partition, by their numbers.

    Attributes:
        uid: the partition.
        next_sequence: of the next new request.
        open: unanswered requests by sequence; a retried old one may be below all others.
        waiting: parts that no request holds yet, in order, with their sum of rows and bytes.
        timer: runs at the earliest `send_by_us` of theirs.
    """

    def __init__(self, uid: int) -> None:
        self.uid = uid
        self.next_sequence = 1
        self.open: dict[int, Change] = {}
        self.waiting: OrderedDict[Part, None] = OrderedDict()
        self.rows = 0
        self.bytes = 0
        self.timer: Timer | None = None
        self._heard = 0, 0  # the number of the request that was answered last, and when (monotonic)
        self._returning = Returning()
        # When parts are to go, the earliest first; those of parts that have ceased to wait are dropped later.
        self._send_by: list[tuple[int, int, Part]] = []
        self._pushed = 0

    def heard(self, sequence: int, now_us: int) -> None:
        """A request was answered OK: the leader is at work."""
        self._heard = sequence, now_us

    def heard_before_us(self, sequence: int) -> int:
        """When the last OK came (monotonic), if it was to a request before this one; else 0."""
        last, at_us = self._heard
        return at_us if last < sequence else 0

    def answered(self, change: Change, now_us: int) -> None:
        """A request was answered, or is given up."""
        self.open.pop(change.sequence, None)
        if change.first_us is not None:
            self._returning.answered(sum(map(_returns, change.parts)), change.first_us, now_us)

    @property
    def head(self) -> Part:
        """The part that goes next."""
        return next(iter(self.waiting))

    @property
    def send_by_us(self) -> int:
        """The earliest `send_by_us` of the waiting parts (monotonic)."""
        while self._send_by and self._send_by[0][-1] not in self.waiting:
            heapq.heappop(self._send_by)
        return self._send_by[0][0] if self._send_by else NEVER_US

    @property
    def look_us(self) -> int:
        """When to look again whether the next request may go (monotonic)."""
        if self.waiting and not self.open and (until_us := self._returning.until_us):
            return min(self.send_by_us, until_us)
        return self.send_by_us

    def push(self, part: Part, now_us: int) -> None:
        """Let a part wait."""
        if _returns(part):
            self._returning.called(now_us)
        self.waiting[part] = None
        self.rows += part.rows
        self.bytes += part.bytes
        if part.send_by_us < NEVER_US:
            if len(self._send_by) > 2 * len(self.waiting):
                self._send_by = [entry for entry in self._send_by if entry[-1] in self.waiting]
                heapq.heapify(self._send_by)
            self._pushed += 1
            heapq.heappush(self._send_by, (part.send_by_us, self._pushed, part))

    def take(self) -> list[Part]:
        """Take the parts of the next request: the first one, and later ones of the same batch key.

        Parts of different keys keep their order, except decisions about leases: otherwise a consumer that
        alternates acks and extensions would get few rows into each request. An EXTEND may overtake parts
        that end leases, since no lease is extended after its end. Parts that end leases may overtake each
        other, but no EXTEND.
        """
        head = self._pop()
        parts, rows, size = [head], head.rows, head.bytes
        rows_most = rows_max(head.document if head.kind is RecordKind.NACK else "")
        passed: list[Part] = []
        named = Counter(_extended(head))
        key = batch_key(head)
        while self.waiting and not head.alone:
            part = self.head
            if part.alone or batch_key(part) != key:
                if not _may_overtake(head, part):
                    break
                passed.append(self.waiting.popitem(last=False)[0])
                continue
            rows, size = rows + part.rows, size + part.bytes
            if rows > rows_most or size > limits.REQUEST_BYTES_MAX:
                break
            more = _extended(part)
            named.update(more)
            if any(named[message] > limits.REQUEST_NAMES_MAX for message in more):
                break
            parts.append(self._pop())
        for part in reversed(passed):
            self.waiting[part] = None
            self.waiting.move_to_end(part, last=False)
        return parts

    def remove(self, part: Part) -> bool:
        """Take one part out; False if it does not wait here."""
        if part not in self.waiting:
            return False
        del self.waiting[part]
        self.rows -= part.rows
        self.bytes -= part.bytes
        return True

    def _pop(self) -> Part:
        part, _ = self.waiting.popitem(last=False)
        self.rows -= part.rows
        self.bytes -= part.bytes
        return part

    def may_send(self, now_us: int) -> bool:
        """Whether the next request may go: the window has room, and there is no time or no reason to gather more."""
        if not self.waiting:
            return False
        open_count = len(self.open)
        if open_count and self.next_sequence - min(self.open) >= limits.REQUESTS_IN_FLIGHT_MAX:
            return False
        head = self.head
        if head.alone:
            return True  # nothing would share its request: to wait for answers would bring it no company
        full = self.rows >= limits.REQUEST_ROWS_MAX // 2 or self.bytes >= limits.REQUEST_BYTES_MAX // 2
        gather_from = GATHER_FROM
        if len(head.key_high):
            gather_from = GATHER_KEYED_FROM
            if not full and not open_count and now_us < self._returning.until_us:
                return False
        if full or open_count < gather_from or self._is_overdue(now_us):
            return True
        if all(part.patient for part in self.waiting):
            return False
        # Patient requests are answered late: parts that cannot wait do not wait for those.
        return sum(not change.request.patient for change in self.open.values()) < gather_from

    def _is_overdue(self, now_us: int) -> bool:
        """Whether a part has waited long enough for the answers to others, all of which are on their way."""
        return now_us >= self.send_by_us and all(change.link for change in self.open.values())


def _what_was_met(outcome: Outcome, present: ids.MessageId, due: int) -> str | DueqError:
    if outcome is Outcome.UNKNOWN:
        return OutcomeUnknown("its key may name a message already: the broker's answer is of a newer build")
    if outcome is Outcome.DIFFERS:
        return RequestDiffers("its idempotency key came with another request before")
    text = ids.to_text(present)
    if outcome is Outcome.KEPT:
        return text
    if outcome is Outcome.HIDDEN or not present.sequence:
        return KeyTaken("its key names a message of a job that is not committed yet")
    if outcome is Outcome.LEASED:
        return MessageLeased(f"its key names message {text}, which is with a consumer: it is not replaced")
    return KeyTaken(f"its key names message {text} already, due at {instant_text(due)}", text, due)


def _returns(part: Part) -> bool:
    """Whether its caller is likely to have rows with keys for the same partition again."""
    return part.rows >= _RETURN_ROWS and len(part.key_high) > 0


def _nobody(part: Part) -> None:
    """Nobody waits for the answer any more."""


def _extended(part: Part) -> list[tuple[int, int]]:
    """Return the messages whose leases a part lengthens: it alone may name one that others name, too."""
    if part.kind is not RecordKind.EXTEND:
        return []
    return list(zip(part.target_sequence.tolist(), part.target_row.tolist(), strict=True))


def rows_max(headers: str) -> int:
    """Return how many rows a request may have: the partition keeps new headers (JSON) of a NACK for each of them."""
    if not headers:
        return limits.REQUEST_ROWS_MAX
    return min(max(limits.REQUEST_HEADINGS_BYTES // len(headers), 1), limits.REQUEST_ROWS_MAX)


def _may_overtake(later: Part, earlier: Part) -> bool:
    return earlier.kind in _ENDING_LEASES and (
        later.kind in _ENDING_LEASES or later.kind is RecordKind.EXTEND
    )
