"""What the user decides about messages, gathered for 2 ms and repeated until it is confirmed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from dueq import limits
from dueq.client.core.calls import Calls
from dueq.client.core.context import Context, Timer
from dueq.client.core.delivery import Delivery
from dueq.client.core.events import Settle
from dueq.client.core.lanes import Lanes
from dueq.client.core.parts import Part
from dueq.errors import OutcomeUnknown
from dueq_codecs.records import NO_U64, Outcome, RecordKind

LINGER_US: Final = 2_000
_WITH_AMOUNT: Final = (RecordKind.NACK, RecordKind.EXTEND)


class Waiter:
    """A call that waits for the outcomes of some deliveries."""

    def __init__(self, call: int, count: int) -> None:
        self.call = call
        self.outcomes = [Outcome.UNKNOWN] * count
        self.missing = count


class Row(NamedTuple):
    """One decision about one delivery; `place` is its index in the waiter's call."""

    delivery: Delivery
    amount_ms: int
    decided_us: int
    waiter: Waiter | None
    place: int


class Settling:
    """The decisions of one consumer that are not confirmed yet.

    Attributes:
        finishing: deliveries that an unconfirmed ACK, NACK or RELEASE names, and who else waits for it.
        on_settled: called with each row's decision, kind and outcome, once confirmed.
        on_answer: called after each answer.
    """

    def __init__(
        self,
        context: Context,
        calls: Calls,
        lanes: Lanes,
        topic: str,
        consumer_id: bytes,
        on_settled: Callable[[Row, RecordKind, Outcome], None],
        on_answer: Callable[[], None],
    ) -> None:
        self._context, self._calls, self._lanes = context, calls, lanes
        self._topic, self._consumer_id = topic, consumer_id
        self.on_settled, self.on_answer = on_settled, on_answer
        self.finishing: dict[Delivery, list[tuple[Waiter, int]]] = {}
        self._gathering: dict[tuple[RecordKind, int], list[Row]] = {}
        self._parts: dict[Part, Timer] = {}
        self._timer: Timer | None = None

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
        final = event.kind is not RecordKind.EXTEND
        for place, delivery in enumerate(event.deliveries):
            if delivery.settling:
                if final or waiter is not None:
                    self._join(delivery, waiter, place)
                continue
            if final:
                delivery.settling = True
                self.finishing[delivery] = []
            self._gather(event.kind, Row(delivery, event.amount_ms, self._context.mono_us, waiter, place))
        if waiter is not None and not waiter.missing:
            self._calls.complete(waiter.call, waiter.outcomes)

    def flush(self) -> None:
        """Send what was gathered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        gathering, self._gathering = self._gathering, {}
        for (kind, uid), rows in gathering.items():
            for start in range(0, len(rows), limits.REQUEST_ROWS_MAX):
                self._send(kind, uid, rows[start : start + limits.REQUEST_ROWS_MAX])

    def close(self) -> None:
        """Give up what is not confirmed."""
        for timer in self._parts.values():
            timer.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def _join(self, delivery: Delivery, waiter: Waiter | None, place: int) -> None:
        """The delivery is being settled already: its outcome counts for this call too."""
        if waiter is None:
            return
        others = self.finishing.get(delivery)
        if others is None:
            outcome = delivery.outcome
            self._tell(waiter, place, Outcome.STALE if outcome is None else outcome, complete=False)
        else:
            others.append((waiter, place))

    def _gather(self, kind: RecordKind, row: Row) -> None:
        rows = self._gathering.setdefault((kind, row.delivery.uid), [])
        rows.append(row)
        if len(rows) >= limits.REQUEST_ROWS_MAX:
            del self._gathering[kind, row.delivery.uid]
            self._send(kind, row.delivery.uid, rows)
        elif self._timer is None:
            self._timer = self._context.after(LINGER_US, self.flush)

    def _send(self, kind: RecordKind, uid: int, rows: list[Row]) -> None:
        part = Part(
            kind, self._topic, uid, self._consumer_id, len(rows), lambda part: self._done(part, rows),
            first=np.array([row.delivery.first for row in rows], np.uint64),
            target_sequence=np.array([row.delivery.sequence for row in rows], np.uint64),
            target_row=np.array([row.delivery.row for row in rows], np.uint16),
            token=np.array([row.delivery.token for row in rows], np.uint64),
            amount_ms=np.array([row.amount_ms for row in rows], np.uint64) if kind in _WITH_AMOUNT else NO_U64,
        )  # fmt: skip
        # Beyond the brokers' memory of requests a repetition proves nothing.
        self._parts[part] = self._context.after(limits.DEDUP_MS * 1000, lambda: self._lanes.expire(part))
        self._lanes.submit(part)

    def _done(self, part: Part, rows: list[Row]) -> None:
        self._parts.pop(part).cancel()
        if part.reply is not None:
            outcomes = part.outcomes()
        else:
            unknown = isinstance(part.error, OutcomeUnknown)
            outcomes = [Outcome.UNKNOWN if unknown else Outcome.STALE] * len(rows)
            self._context.log(
                "error", "settling.failed", topic=self._topic, uid=part.uid, kind=part.kind.name,
                rows=len(rows), error=str(part.error),
            )  # fmt: skip
        for row, outcome in zip(rows, outcomes, strict=True):
            self._confirmed(part.kind, row, outcome)
        self.on_answer()

    def _confirmed(self, kind: RecordKind, row: Row, outcome: Outcome) -> None:
        delivery = row.delivery
        if kind is not RecordKind.EXTEND:
            delivery.outcome = outcome
            for waiter, place in self.finishing.pop(delivery, ()):
                self._tell(waiter, place, outcome)
        self.on_settled(row, kind, outcome)
        if row.waiter is not None:
            self._tell(row.waiter, row.place, outcome)

    def _tell(self, waiter: Waiter, place: int, outcome: Outcome, complete: bool = True) -> None:
        waiter.outcomes[place] = outcome
        waiter.missing -= 1
        if complete and not waiter.missing:
            self._calls.complete(waiter.call, waiter.outcomes)

    def _expired(self, event: Settle) -> None:
        text = (
            f"{event.kind.name} of {len(event.deliveries)} messages was not confirmed in time; it is being "
            "repeated, and retry() waits for it again"
        )
        self._calls.fail(event.call, OutcomeUnknown(text))
