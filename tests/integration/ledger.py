"""A ledger of what the mesh has promised and what it did, and the verdict on it.

Everything goes through the ledger's methods: they run the call, repeat it as its error says until its outcome is
known, and write down what was sent and answered when. `check` then holds all deliveries against all promises:

    lost           acknowledged, not cancelled, and never delivered
    early          released before an instant that was in force all the while
    twice          delivered again while a lease ran, or after its ack was confirmed
    after cancel   delivered although the cancel was confirmed
    damaged        another payload than was scheduled
    strange        an id that nobody was given
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

from dueq import Consumer, Message, Outcome, Producer
from dueq.errors import OutcomeUnknown, PartialFailure, StaleLease

T = TypeVar("T")
PATIENCE_S = 180.0
_CLOCKS_MS = 20
"""Releases are in mesh time, the rest by this machine's clock: they differ by less than this."""


def now_ms() -> int:
    """Unix ms."""
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class Promise:
    """A due instant, and when it may (sent) and must (answered) have been in force, Unix ms."""

    due: int
    sent_ms: float
    answered_ms: float


@dataclass(slots=True)
class Delivery:
    """One time that a message came.

    Attributes:
        released_ms: as the message says.
        until_ms: the lease holds until then at least; infinite once its ack is confirmed.
        attempt: as the message says.
        token: as the message says.
        payload: as it came.
    """

    released_ms: int
    until_ms: float
    attempt: int
    token: int
    payload: bytes = field(repr=False)


@dataclass(slots=True)
class Entry:
    """One message.

    Attributes:
        payload: as scheduled; None while nobody was told this id.
        promises: its due instants, in the order they were asked for.
        deliveries: in the order they came.
        cancelled_ms: when a cancel was confirmed.
        doubtful: a cancel is under way, or its outcome is not known.
    """

    payload: bytes | None = None
    promises: list[Promise] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    cancelled_ms: float | None = None
    doubtful: bool = False


class Ledger:
    """What was promised and what came. Thread-safe.

    Attributes:
        entries: by message id.
        promised: messages that were acknowledged.
        delivered: messages that have come at least once.
    """

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.promised = 0
        self.delivered = 0
        self._changed = threading.Condition()

    # ------------------------------------------------------------ calls

    def schedule(self, producer: Producer, payloads: Sequence[bytes], due: int | Sequence[int]) -> list[str]:
        """Schedule messages and remember them; each payload should be the only one of its kind."""
        dues = [due] * len(payloads) if isinstance(due, int) else list(due)
        sent = now_ms()
        ids = insist(lambda: producer.schedule_many(payloads, dues))
        with self._changed:
            for key, payload, instant in zip(ids, payloads, dues, strict=True):
                entry = self.entries.setdefault(key, Entry())
                assert entry.payload is None, f"{key} was given out twice"
                entry.payload = payload
                entry.promises.append(Promise(instant, sent, now_ms()))
            self.promised += len(ids)
            self._changed.notify_all()
        return ids

    def move(self, producer: Producer, ids: Sequence[str], due: int) -> list[Outcome]:
        """Move messages."""
        promise = Promise(due, now_ms(), math.inf)
        with self._changed:
            for key in ids:
                self.entries[key].promises.append(promise)
        outcomes = insist(lambda: producer.move_many(ids, due))
        answered = Promise(due, promise.sent_ms, now_ms())
        with self._changed:
            for key, outcome in zip(ids, outcomes, strict=True):
                promises = self.entries[key].promises
                at = next(i for i, found in enumerate(promises) if found is promise)
                if outcome is Outcome.DONE:
                    promises[at] = answered
                elif outcome is not Outcome.UNKNOWN:
                    del promises[at]
        return outcomes

    def cancel(self, producer: Producer, ids: Sequence[str]) -> list[Outcome]:
        """Cancel messages."""
        with self._changed:
            for key in ids:
                self.entries[key].doubtful = True
        outcomes = insist(lambda: producer.cancel_many(ids))
        with self._changed:
            for key, outcome in zip(ids, outcomes, strict=True):
                entry = self.entries[key]
                entry.doubtful = outcome is Outcome.UNKNOWN
                if outcome is Outcome.DONE:
                    entry.cancelled_ms = now_ms()
            self._changed.notify_all()
        return outcomes

    def receive(self, consumer: Consumer, max_messages: int = 100, timeout: float = 1.0) -> list[Message]:
        """Receive messages and remember that they came."""
        messages = consumer.receive(max_messages, timeout=timeout)
        with self._changed:
            for message in messages:
                entry = self.entries.setdefault(message.id, Entry())
                self.delivered += not entry.deliveries
                until = now_ms() + message.lease * 1000
                entry.deliveries.append(
                    Delivery(message.released_at, until, message.attempt, message.token, message.payload)
                )
            self._changed.notify_all()
        return messages

    def ack(self, consumer: Consumer, messages: Sequence[Message]) -> None:
        """Acknowledge, and remember what is confirmed; a lease that was over before is not."""
        if not messages:
            return
        with contextlib.suppress(StaleLease):
            insist(lambda: consumer.ack(messages))
        with self._changed:
            for message in messages:
                self._delivery(message).until_ms = -math.inf if message.lost else math.inf

    def gives_back(self, messages: Sequence[Message]) -> None:
        """Remember that leases end from now on: call it before `nack`, `release` or the end of the `with`."""
        with self._changed:
            for message in messages:
                self._delivery(message).until_ms = now_ms()

    def _delivery(self, message: Message) -> Delivery:
        found = self.entries[message.id].deliveries
        return next(delivery for delivery in reversed(found) if delivery.token == message.token)

    # ------------------------------------------------------------ waiting

    def wait(self, condition: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
        """Wait until something holds of the ledger."""
        with self._changed:
            assert self._changed.wait_for(condition, seconds), self.summary()

    def wait_for_more(self, scheduled: int, delivered: int) -> None:
        """Wait until so many more messages have been scheduled and delivered than by now."""
        with self._changed:
            promised, came = self.promised + scheduled, self.delivered + delivered
        self.wait(lambda: self.promised >= promised and self.delivered >= came)

    def wake(self) -> None:
        """Let `wait` look again."""
        with self._changed:
            self._changed.notify_all()

    @property
    def outstanding(self) -> list[str]:
        """Messages that have to come yet."""
        return [
            key
            for key, entry in self.entries.items()
            if entry.payload is not None
            and not entry.deliveries
            and entry.cancelled_ms is None
            and not entry.doubtful
        ]

    def summary(self) -> str:
        """The present state, in one line."""
        outstanding = self.outstanding
        return (
            f"{self.promised} scheduled, {self.delivered} delivered, {len(outstanding)} outstanding "
            f"(such as {outstanding[:3]})"
        )

    def collect(self, consumer: Consumer, seconds: float = PATIENCE_S) -> None:
        """Receive and acknowledge until nothing is outstanding."""
        deadline = time.monotonic() + seconds
        while self.outstanding:
            assert time.monotonic() < deadline, self.summary()
            self.ack(consumer, self.receive(consumer, 500))

    # ------------------------------------------------------------ the verdict

    def check(self, redelivered: int | None = 0) -> None:
        """Judge; everything that was scheduled must be due.

        Args:
            redelivered: how many messages came more than once; None: however many.
        """
        with self._changed:
            faults: Counter[str] = Counter()
            examples: dict[str, str] = {}
            for key, entry in self.entries.items():
                for fault in faults_of(entry):
                    faults[fault] += 1
                    examples.setdefault(fault, f"{key}: {entry}")
            again = sum(len(entry.deliveries) > 1 for entry in self.entries.values())
        assert not faults, f"{dict(faults)} of {len(self.entries)}: {examples}"
        assert redelivered is None or again == redelivered, f"{again} messages came more than once"


def faults_of(entry: Entry) -> list[str]:
    """Name what went wrong with one message."""
    found = []
    deliveries = sorted(entry.deliveries, key=lambda delivery: (delivery.released_ms, delivery.token))
    if entry.payload is None:
        found.append("strange")
    elif not deliveries and entry.cancelled_ms is None and not entry.doubtful:
        found.append("lost")
    elif any(delivery.payload != entry.payload for delivery in deliveries):
        found.append("damaged")
    if any(delivery.released_ms < _earliest(entry, delivery.released_ms) for delivery in deliveries):
        found.append("early")
    if any(
        later.token == former.token or later.released_ms < former.until_ms - _CLOCKS_MS
        for former, later in pairwise(deliveries)
    ):
        found.append("twice")
    cancelled = entry.cancelled_ms
    if cancelled is not None and any(
        delivery.released_ms >= cancelled or delivery.until_ms - _CLOCKS_MS > cancelled
        for delivery in deliveries
    ):
        found.append("after cancel")
    return found


def _earliest(entry: Entry, at_ms: int) -> float:
    """The earliest of the instants that may have been in force."""
    answered = [i for i, promise in enumerate(entry.promises) if promise.answered_ms <= at_ms]
    last = answered[-1] if answered else 0
    return min(
        (
            promise.due
            for i, promise in enumerate(entry.promises)
            if i == last or promise.sent_ms - _CLOCKS_MS <= at_ms < promise.answered_ms
        ),
        default=-math.inf,
    )


def insist(call: Callable[[], T]) -> T:
    """Run a call; when its outcome is not known, or only in part, repeat it as the error says."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except (OutcomeUnknown, PartialFailure) as error:
            if time.monotonic() > deadline:
                raise
            call = error.retry
