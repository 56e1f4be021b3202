"""The work of the worker processes with the SDK.

A payload begins with its number. So a receiver can say which payloads are missing and which came twice. Instants are
Unix ms of this machine's clock, as are the brokers'.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dueq import Client, Message, OutcomeUnknown, PartialFailure, Producer
from dueq.bench.child import Line

T = TypeVar("T")
PAYLOAD_BYTES = 256
_NUMBER_BYTES = 8
_HOUR_MS = 3_600_000
_SOME = 100
"""Of this many messages the id of one is kept."""
_LOOK_S = 0.02
"""How often a consumer that receives nothing looks whether it is over."""


def now_ms() -> int:
    """This machine's clock, Unix ms."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Produced:
    """The result of a producer: the messages 0 … rows - 1 were acknowledged.

    Attributes:
        rows: how many.
        begun_ns, ended_ns: first request and last acknowledgement, Unix ns.
        ids: of some of the messages, in no order.
    """

    rows: int
    begun_ns: int
    ended_ns: int
    ids: tuple[str, ...] = ()

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.rows / ((self.ended_ns - self.begun_ns) / 1e9)


@dataclass(frozen=True)
class Produce:
    """Schedule messages, `batch` to a request, until there are `rows`, or `seconds` are over, or it is told to stop.

    Attributes:
        endpoints, topic: where to.
        batch: messages per request.
        threads: requests in flight.
        rows: 0 for no limit.
        seconds: 0 for no limit.
        rate: messages per second; 0 for as fast as they are acknowledged.
        at_ms: the instant at which the messages fall due; 0: `ahead_ms` after they are scheduled.
        ahead_ms: see there.
        span_ms: each is due up to this much later, at random.
        rank: of each.
        ranks: so many ranks take turns, from `rank` on.
        groups: so many groups take turns; 0: none has a group.
        keys: what the key of each begins with, before its number; "": none has a key.
        payload_bytes: length of each payload.
    """

    endpoints: Sequence[str]
    topic: str
    batch: int
    threads: int = 1
    rows: int = 0
    seconds: float = 0.0
    rate: float = 0.0
    at_ms: int = 0
    ahead_ms: int = 0
    span_ms: int = 0
    rank: int = 0
    ranks: int = 1
    groups: int = 0
    keys: str = ""
    payload_bytes: int = PAYLOAD_BYTES

    def run(self, line: Line) -> Produced:
        """See Task."""
        numbers, done = itertools.count(), itertools.count(1)
        ids: list[str] = []
        with Client(self.endpoints) as client, client.producer(self.topic) as producer:
            client.describe(self.topic)
            line.ready()
            begun_ns = time.time_ns()

            def work() -> int:
                rows = 0
                for number in numbers:
                    count = self._rows_of(number)
                    if count <= 0 or line.stopped.is_set() or not self._in_time(number, begun_ns, line):
                        return rows
                    ids.extend(self._schedule(producer, number, count))
                    rows += count
                    line.count(next(done) * self.batch)
                return rows

            rows = sum(in_threads(self.threads, work))
            return Produced(rows, begun_ns, time.time_ns(), tuple(ids))

    def _rows_of(self, number: int) -> int:
        """How many messages request `number` has."""
        return min(self.batch, self.rows - number * self.batch) if self.rows else self.batch

    def _in_time(self, number: int, begun_ns: int, line: Line) -> bool:
        """Wait for the turn of a request; False when the time is over before it."""
        late_s = (time.time_ns() - begun_ns) / 1e9
        if self.seconds and late_s >= self.seconds:
            return False
        if not self.rate:
            return True
        turn_s = number * self.batch / self.rate
        if self.seconds and turn_s >= self.seconds:
            return False
        return turn_s <= late_s or not line.stopped.wait(turn_s - late_s)

    def _schedule(self, producer: Producer, number: int, count: int) -> list[str]:
        """Schedule one request; returns the ids of some of its messages."""
        filler = b"." * (self.payload_bytes - _NUMBER_BYTES)
        first = number * self.batch
        payloads = [i.to_bytes(_NUMBER_BYTES, "big") + filler for i in range(first, first + count)]
        at_ms = self.at_ms or now_ms() + self.ahead_ms
        if self.span_ms:
            chance = np.random.default_rng(number)
            dues = (at_ms + chance.integers(0, self.span_ms, count)).tolist()
        else:
            dues = [at_ms] * count
        ranks, groups = self._ranks(first, count), self._groups(first, count)
        try:
            ids = producer.schedule_many(
                payloads, dues, ranks=ranks, groups=groups, keys=self._keys(first, count)
            )
        except (OutcomeUnknown, PartialFailure) as failed:  # with unique keys a call is several requests
            ids = failed.retry()
        return list(ids[::_SOME])

    def _ranks(self, first: int, count: int) -> int | list[int] | None:
        if self.ranks == 1:
            return self.rank or None
        return [self.rank + number % self.ranks for number in range(first, first + count)]

    def _groups(self, first: int, count: int) -> list[str] | None:
        return [f"g{number % self.groups}" for number in range(first, first + count)] if self.groups else None

    def _keys(self, first: int, count: int) -> list[str] | None:
        return [f"{self.keys}{number}" for number in range(first, first + count)] if self.keys else None


@dataclass(frozen=True)
class Pour:
    """Schedule the rows of an iterator in one call, with as many requests in flight as the client chooses.

    Attributes:
        endpoints, topic, rows, at_ms, span_ms, keys, payload_bytes: as of Produce.
    """

    endpoints: Sequence[str]
    topic: str
    rows: int
    at_ms: int
    span_ms: int = 0
    keys: str = ""
    payload_bytes: int = PAYLOAD_BYTES

    def run(self, line: Line) -> Produced:
        """See Task."""
        filler = b"." * (self.payload_bytes - _NUMBER_BYTES)
        dues = (self.at_ms + np.random.default_rng(0).integers(0, self.span_ms + 1, self.rows)).tolist()
        payloads = (number.to_bytes(_NUMBER_BYTES, "big") + filler for number in range(self.rows))
        keys = (f"{self.keys}{number}" for number in range(self.rows)) if self.keys else None
        with Client(self.endpoints) as client, client.producer(self.topic) as producer:
            client.describe(self.topic)
            line.ready()
            begun_ns = time.time_ns()
            ids = producer.schedule_many(payloads, dues, keys=keys)
            return Produced(len(ids), begun_ns, time.time_ns())


@dataclass(frozen=True)
class Consumed:
    """The result of a consumer: columns with one value per message, in the order of receipt.

    Attributes:
        numbers: of the messages.
        attempts: of each delivery.
        released_ms, received_ms: lateness behind the due instant, by the leader's mesh time at release and by this
            machine's clock at receipt; empty when not asked for.
        received_at_ms: of each receipt, Unix ms; empty when not asked for.
        acked_at_ns: when the last acknowledgement was known to be confirmed.
    """

    numbers: npt.NDArray[np.uint64]
    attempts: npt.NDArray[np.uint32]
    released_ms: npt.NDArray[np.float64]
    received_ms: npt.NDArray[np.float64]
    received_at_ms: npt.NDArray[np.float64]
    acked_at_ns: int

    @classmethod
    def together(cls, parts: Sequence[Consumed]) -> Consumed:
        """Return the messages of several consumers as those of one."""
        return cls(
            np.concatenate([part.numbers for part in parts]),
            np.concatenate([part.attempts for part in parts]),
            np.concatenate([part.released_ms for part in parts]),
            np.concatenate([part.received_ms for part in parts]),
            np.concatenate([part.received_at_ms for part in parts]),
            max(part.acked_at_ns for part in parts),
        )

    def lost(self, rows: int) -> int:
        """How many of the messages 0 … rows - 1 never came."""
        return rows - len(np.unique(self.numbers[self.numbers < rows]))

    @property
    def twice(self) -> int:
        """How many deliveries were of a message that had come before."""
        return len(self.numbers) - len(np.unique(self.numbers))


class Consume:
    """Receive and acknowledge until told to stop; counts what is acknowledged.

    Args:
        endpoints, topic: where from.
        credit: messages that may be with it unfinished.
        batch: messages per `receive`; acknowledged one by one, without waiting before the end.
        times: keep how late each message was.
    """

    def __init__(self, endpoints: Sequence[str], topic: str, credit: int, batch: int, times: bool) -> None:
        self._endpoints, self._topic = endpoints, topic
        self._credit, self._batch, self._times = credit, batch, times
        self._heads: list[bytes] = []
        self._attempts: list[int] = []
        self._released: list[float] = []
        self._received: list[float] = []
        self._received_at: list[float] = []

    def run(self, line: Line) -> Consumed:
        """See Task."""
        with Client(self._endpoints) as client:
            self._consume(client, line)
            # Closing the consumer confirms its acknowledgements.
            return self._consumed(time.time_ns())

    def _consume(self, client: Client, line: Line) -> None:
        with client.consumer(self._topic, lease=60.0, credit=self._credit) as consumer:
            consumer.receive(1, timeout=0)
            line.ready()
            while not line.stopped.is_set():
                batch = consumer.receive(self._batch, timeout=_LOOK_S)
                if not batch:
                    line.count(len(self._heads))
                    continue
                received_ms = time.time_ns() / 1e6
                for message in batch:
                    message.ack()
                self._keep(batch, received_ms)
                line.count(len(self._heads))

    def _keep(self, batch: list[Message], received_ms: float) -> None:
        self._heads += [message.payload[:_NUMBER_BYTES] for message in batch]
        self._attempts += [message.attempt for message in batch]
        if self._times:
            self._released += [message.lateness * 1e3 for message in batch]
            self._received += [received_ms - message.due for message in batch]
            self._received_at += [received_ms] * len(batch)

    def _consumed(self, acked_at_ns: int) -> Consumed:
        return Consumed(
            np.frombuffer(b"".join(self._heads), ">u8").astype(np.uint64),
            np.array(self._attempts, np.uint32),
            np.array(self._released, np.float64),
            np.array(self._received, np.float64),
            np.array(self._received_at, np.float64),
            acked_at_ns,
        )


@dataclass(frozen=True)
class Call:
    """Call `schedule` with one message after the other, in each of `threads` threads, for `seconds`.

    The result: the durations of all calls in ms, and the calls per second.
    """

    endpoints: Sequence[str]
    topic: str
    threads: int
    seconds: float

    def run(self, line: Line) -> tuple[npt.NDArray[np.float64], float]:
        """See Task."""
        payload = b"." * PAYLOAD_BYTES
        with Client(self.endpoints) as client, client.producer(self.topic) as producer:
            client.describe(self.topic)
            producer.schedule(payload, now_ms() + _HOUR_MS)
            line.ready()
            begun_s = time.perf_counter()

            def work() -> list[float]:
                durations = []
                while (before_s := time.perf_counter()) - begun_s < self.seconds:
                    producer.schedule(payload, now_ms() + _HOUR_MS)
                    durations.append((time.perf_counter() - before_s) * 1e3)
                return durations

            durations = list(itertools.chain.from_iterable(in_threads(self.threads, work)))
            return np.array(durations, np.float64), len(durations) / (time.perf_counter() - begun_s)


@dataclass(frozen=True)
class Alter:
    """Schedule `messages` of `payload_bytes`, move each `moves` times, cancel each.

    The result: the durations of the moves and of the cancels in ms.
    """

    endpoints: Sequence[str]
    topic: str
    payload_bytes: int
    messages: int
    moves: int

    def run(self, line: Line) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """See Task."""
        payload = random.Random(0).randbytes(self.payload_bytes)
        with Client(self.endpoints) as client, client.producer(self.topic) as producer:
            ids = [producer.schedule(payload, now_ms() + _HOUR_MS) for _ in range(self.messages)]
            line.ready()
            moves, cancels = [], []
            for number in range(self.moves):
                for message_id in ids:
                    before_s = time.perf_counter()
                    producer.move(message_id, now_ms() + _HOUR_MS + number)
                    moves.append((time.perf_counter() - before_s) * 1e3)
            for message_id in ids:
                before_s = time.perf_counter()
                producer.cancel(message_id)
                cancels.append((time.perf_counter() - before_s) * 1e3)
            return np.array(moves, np.float64), np.array(cancels, np.float64)


def in_threads(count: int, work: Callable[[], T]) -> list[T]:
    """Do the same in several threads and return all results; the first exception is raised once all have ended."""
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results
