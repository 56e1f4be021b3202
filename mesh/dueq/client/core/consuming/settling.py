"""The user's decisions about messages, gathered for a moment and repeated until it is confirmed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np

from dueq import limits
from dueq.client.core.changing.request_windows import RequestWindows
from dueq.client.core.links.calls import Calls
from dueq.client.core.links.context import Context
from dueq.client.core.ports.change import Part, rows_max
from dueq.client.core.ports.delivery import Delivery
from dueq.client.core.ports.events import Event, Settle
from dueq.client.core.ports.timers import Timer
from dueq.errors import OutcomeUnknown
from dueq_codecs.records import Fate, Outcome, RecordKind

LINGER_US: Final = 2_000
"""Delay where somebody waits for the outcome, for the message, or for the credit."""
PATIENT_US: Final = limits.ACK_LINGER_MS * 1000
"""A decision that has waited this long may wait at the leader, too; with shorter leases it waits less."""
_WITH_REASON: Final = (RecordKind.ACK, RecordKind.NACK)
_WITH_AMOUNT: Final = (RecordKind.NACK, RecordKind.RELEASE, RecordKind.EXTEND)


class Waiter:
    """A call that waits for the outcomes of some deliveries."""

    def __init__(self, call: int, count: int) -> None:
        self.call = call
        self.outcomes = [Outcome.UNKNOWN] * count
        self.missing = count


class Batch:
    """Decisions of one kind about messages of one partition: one request.

    Attributes:
        deliveries: in the order of the decisions.
        amounts_ms: of a NACK, RELEASE or EXTEND, one each; empty for other kinds.
        fates: of a NACK, one each; empty for other kinds.
        reasons: of an ACK or a NACK, one each; empty for other kinds.
        headers: of a NACK, for all of them; empty: they have their own.
        until_us: of an EXTEND, the end that each lease may have from now on, one each; empty for other kinds.
        waiters: whom to tell about the row of this index: a waiter and its place there.
    """

    __slots__ = (
        "_named",
        "_named_most",
        "amounts_ms",
        "deliveries",
        "fates",
        "headers",
        "kind",
        "reasons",
        "uid",
        "until_us",
        "waiters",
    )

    def __init__(self, kind: RecordKind, uid: int, headers: str = "") -> None:
        self.kind = kind
        self.uid = uid
        self.headers = headers
        self.deliveries: list[Delivery] = []
        self.amounts_ms: list[int] = []
        self.fates: list[Fate] = []
        self.reasons: list[str] = []
        self.until_us: list[int] = []
        self.waiters: dict[int, tuple[Waiter, int]] = {}
        self._named: Counter[Delivery] = Counter()
        self._named_most = 0

    @property
    def is_full(self) -> bool:
        """A request has no room for more: for any message, or for the one that came last."""
        return len(self.deliveries) >= rows_max(self.headers) or self._named_most >= limits.REQUEST_NAMES_MAX

    def add(self, delivery: Delivery) -> None:
        """Add a decision; only an EXTEND names a message more than once."""
        self.deliveries.append(delivery)
        if self.kind is RecordKind.EXTEND:
            self._named[delivery] += 1
            self._named_most = max(self._named_most, self._named[delivery])

    def note(self, event: Settle, until_us: int) -> None:
        """Note what was decided about the deliveries that came last: all of them by this event."""
        count = len(self.deliveries)
        if self.kind in _WITH_AMOUNT:
            self.amounts_ms += [event.amount_ms] * (count - len(self.amounts_ms))
        if self.kind is RecordKind.NACK:
            self.fates += [event.fate] * (count - len(self.fates))
        if self.kind in _WITH_REASON:
            self.reasons += [event.reason] * (count - len(self.reasons))
        if self.kind is RecordKind.EXTEND:
            self.until_us += [until_us] * (count - len(self.until_us))


def joined_acks(happened: Iterable[Event]) -> Iterator[Event]:
    """Return what has happened, in order: acks that nobody waits for, one after another, are one event."""
    acks: list[Delivery] = []
    consumer_id = b""
    for event in happened:
        if type(event) is Settle and event.kind is RecordKind.ACK and not event.call and not event.reason:
            if acks and event.consumer_id != consumer_id:
                yield Settle(consumer_id, RecordKind.ACK, acks)
                acks = []
            consumer_id = event.consumer_id
            acks += event.deliveries
            continue
        if acks:
            yield Settle(consumer_id, RecordKind.ACK, acks)
            acks = []
        yield event
    if acks:
        yield Settle(consumer_id, RecordKind.ACK, acks)


class Settling:
    """The decisions of one consumer that are not confirmed yet.

    Args:
        topic: its name.
        linger_us: how long an ACK that nobody waits for waits for others, and how long any decision waits for the
            answers to earlier ones.
        rows_patient: so many decisions do not wait longer than others: the credit that they hold is wanted.
        on_settled: called with what is confirmed.

    Attributes:
        finishing: deliveries that an unconfirmed ACK, NACK or RELEASE names, and who else waits for it.
    """

    def __init__(
        self,
        context: Context,
        calls: Calls,
        windows: RequestWindows,
        topic: str,
        linger_us: int,
        rows_patient: int,
        on_settled: Callable[[Batch, list[Outcome]], None],
    ) -> None:
        self._context, self._calls, self._windows = context, calls, windows
        self._topic = topic
        self._linger_us, self._rows_patient = linger_us, rows_patient
        self._on_settled = on_settled
        self.finishing: dict[Delivery, list[tuple[Waiter, int]] | None] = {}
        self._gathering: dict[tuple[RecordKind, int, str], Batch] = {}
        self._parts: dict[Part, Timer] = {}
        self._rows = 0
        self._timer: Timer | None = None
        self._flush_us = 0

    @property
    def idle(self) -> bool:
        """Everything is confirmed."""
        return not self._parts and not self._gathering

    def settle(self, event: Settle) -> None:
        """Take decisions in."""
        waiter = None
        if event.call:
            waiter = Waiter(event.call, len(event.deliveries))
            self._calls.begin(event.call, event.deadline_us, lambda: self._expired(event))
        kind = event.kind
        final = kind is not RecordKind.EXTEND
        until_us = 0 if final else self._context.mono_us + event.amount_ms * 1000
        batches: dict[int, Batch] = {}
        for place, delivery in enumerate(event.deliveries):
            if delivery.settling or (delivery.lost and not final):
                if waiter is not None:
                    self._join(delivery, waiter, place, kind)
                continue
            if final:
                delivery.settling, delivery.decided = True, kind
                self.finishing[delivery] = None
            else:
                delivery.ask(until_us)
            uid = delivery.uid
            batch = batches.get(uid)
            if batch is None:
                batch = batches[uid] = self._batch(kind, uid, event.headers)
            if waiter is not None:
                batch.waiters[len(batch.deliveries)] = (waiter, place)
            batch.add(delivery)
            self._rows += 1
            if batch.is_full:
                batch.note(event, until_us)
                self._send(self._gathering.pop((kind, uid, event.headers)))
                del batches[uid]
        for batch in batches.values():
            batch.note(event, until_us)
        if waiter is not None and not waiter.missing:
            self._calls.complete(waiter.call, waiter.outcomes)
        if self._gathering:
            patient = kind is RecordKind.ACK and waiter is None and self._rows < self._rows_patient
            self._flush_within(self._linger_us if patient else LINGER_US)

    def _batch(self, kind: RecordKind, uid: int, headers: str) -> Batch:
        """Return the decisions of this kind that are being gathered for a partition."""
        alike = kind, uid, headers
        batch = self._gathering.get(alike)
        if batch is None:
            batch = self._gathering[alike] = Batch(kind, uid, headers)
        return batch

    def flush(self, patient: bool = False) -> None:
        """Send what was gathered; `patient`: the leaders may gather it, too."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        gathering, self._gathering, self._rows = self._gathering, {}, 0
        for batch in gathering.values():
            self._send(batch, patient)

    def close(self) -> None:
        """Give up what is not confirmed."""
        if self._timer is not None:
            self._timer.cancel()
        parts, self._parts = self._parts, {}
        for part, timer in parts.items():
            timer.cancel()
            self._windows.abandon(part)

    def _flush_within(self, delay_us: int) -> None:
        at_us = self._context.mono_us + delay_us
        if self._timer is not None:
            if at_us >= self._flush_us:
                return
            self._timer.cancel()
        self._flush_us = at_us
        self._timer = self._context.after(delay_us, lambda: self.flush(delay_us >= PATIENT_US))

    def _join(self, delivery: Delivery, waiter: Waiter, place: int, kind: RecordKind) -> None:
        """It has been settled, or given up: the outcome counts for this call too, if that has decided the same."""
        if kind is not delivery.decided:
            waiter.outcomes[place] = Outcome.STALE
            waiter.missing -= 1
            return
        if delivery in self.finishing:
            others = self.finishing[delivery]
            if others is None:
                others = self.finishing[delivery] = []
            others.append((waiter, place))
            return
        waiter.outcomes[place] = Outcome.STALE if delivery.outcome is None else delivery.outcome
        waiter.missing -= 1

    def _send(self, batch: Batch, patient: bool = False) -> None:
        deliveries = batch.deliveries
        # Where much of the credit is unconfirmed, the leader's next messages may need it.
        patient = patient and not batch.waiters and len(self.finishing) < self._rows_patient
        fixed = batch.kind is not RecordKind.RELEASE  # which has a column of delays only if there are any
        part = Part(
            batch.kind,
            self._topic,
            batch.uid,
            self._context.settling_id,
            len(deliveries),
            lambda part: self._done(part, batch),
            first=np.array([delivery.first for delivery in deliveries], np.uint64),
            target_sequence=np.array([delivery.sequence for delivery in deliveries], np.uint64),
            target_row=np.array([delivery.row for delivery in deliveries], np.uint16),
            token=np.array([delivery.token for delivery in deliveries], np.uint64),
            amount_ms=np.array(batch.amounts_ms if any(batch.amounts_ms) or fixed else [], np.uint64),
            fate=np.array(batch.fates if any(batch.fates) else [], np.uint8),
            reasons=batch.reasons if any(batch.reasons) else (),
            document=batch.headers,
            patient=patient and batch.kind is RecordKind.ACK,
            send_by_us=self._context.mono_us + self._linger_us,
        )
        # Beyond the brokers' memory of requests a repetition proves nothing.
        self._parts[part] = self._context.after(limits.DEDUP_MS * 1000, lambda: self._windows.expire(part))
        self._windows.submit(part)

    def _done(self, part: Part, batch: Batch) -> None:
        timer = self._parts.pop(part, None)
        if timer is None:  # closed
            return
        timer.cancel()
        if part.reply is not None:
            outcomes = part.outcomes()
        else:
            unknown = isinstance(part.error, OutcomeUnknown)
            outcomes = [Outcome.UNKNOWN if unknown else Outcome.STALE] * part.rows
            self._context.log(
                "error", "settling.failed", topic=self._topic, uid=part.uid, kind=part.kind.name,
                rows=part.rows, error=str(part.error),
            )  # fmt: skip
        if batch.kind is RecordKind.EXTEND:
            outcomes = self._extended(part, batch, outcomes)
        else:
            for delivery, outcome in zip(batch.deliveries, outcomes, strict=True):
                delivery.outcome = outcome
                for waiter, place in self.finishing.pop(delivery, None) or ():
                    self._tell(waiter, place, outcome)
        for row, (waiter, place) in batch.waiters.items():
            self._tell(waiter, place, outcomes[row])
        self._on_settled(batch, outcomes)

    def _extended(self, part: Part, batch: Batch, outcomes: list[Outcome]) -> list[Outcome]:
        """Note the ends of leases that are known now; of what was refused the callers are told why."""
        reply, error = part.reply, part.error
        if reply is None and (isinstance(error, OutcomeUnknown) or part.uncertain):
            return [Outcome.UNKNOWN] * part.rows
        for row, (delivery, until_us) in enumerate(zip(batch.deliveries, batch.until_us, strict=True)):
            if reply is None:
                delivery.answered(until_us, None)
            elif outcomes[row] is Outcome.DONE:
                delivery.answered(until_us, (reply.sequence, reply.row + part.offset + row))
        if error is not None:
            for waiter, _ in batch.waiters.values():
                self._calls.fail(waiter.call, error)
            return [Outcome.UNKNOWN] * part.rows
        return outcomes

    def _tell(self, waiter: Waiter, place: int, outcome: Outcome) -> None:
        waiter.outcomes[place] = outcome
        waiter.missing -= 1
        if not waiter.missing:
            self._calls.complete(waiter.call, waiter.outcomes)

    def _expired(self, event: Settle) -> None:
        text = (
            f"{event.kind.name} of {len(event.deliveries)} messages was not confirmed in time; it is being "
            "repeated, and retry() waits for it again"
        )
        self._calls.fail(event.call, OutcomeUnknown(text))
