"""The synchronous face of the SDK."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from dueq import limits
from dueq.client import arguments, orders
from dueq.client.arguments import Due, Payload, Seconds
from dueq.client.core import events
from dueq.client.core.delivery import Delivery
from dueq.client.core.effects import Completed
from dueq.client.inbox import Inbox
from dueq.client.job_calls import JobCalls
from dueq.client.jobs import Job, naming
from dueq.client.looking import Looking
from dueq.client.message import Message
from dueq.client.orders import Order
from dueq.client.runtime import Answer, Runtime, mono_us
from dueq.client.topics import TopicInfo
from dueq.errors import ClientClosed, OutcomeUnknown
from dueq_codecs.records import Outcome, RecordKind

T = TypeVar("T")
CLOSE_S: Final = 5.0
_PATIENCE_S: Final = 5.0
"""The session machine answers every call by its deadline; should its thread be stuck, a caller still returns."""


class Client(Looking, JobCalls):
    """A connection to a mesh of brokers. Thread-safe; use it as a context manager, or `close` it.

    One thread of its own does all input and output; nothing is connected before the first use. A client that
    comes into a child process by `fork` begins anew there, with an identity of its own; consumers do not.

    Args:
        endpoints: one endpoint (`tcp://HOST:PORT`), several with commas between, or a list; more brokers are
            learned from the first that answers. Default: the environment's DUEQ_ENDPOINTS.
        timeout: seconds that a call may take, unless it says otherwise.

    Raises:
        InvalidRequest: there is no endpoint, or one is malformed.
    """

    def __init__(self, endpoints: str | Sequence[str] | None = None, *, timeout: float | None = None) -> None:
        self._endpoints = arguments.endpoint_list(endpoints)
        self._timeout = arguments.timeout_s(timeout, limits.DEFAULT_TIMEOUT_S)
        self._runtime: Runtime | None = None
        self._lock = threading.Lock()
        self._closed = False
        self._consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close consumers (their leases go back), then the connections; twice is once."""
        self._closed = True
        runtime = self._runtime
        if runtime is not None:
            if runtime.pid == os.getpid():
                for consumer in list(self._consumers):
                    consumer.close()
            runtime.stop()

    # -------------------------------------------------------------- topics

    def create_topic(
        self,
        name: str,
        kind: str = "timeline",
        partitions: int = 1,
        replicas: int | None = None,
        *,
        min_isr: int | None = None,
        payload_bytes_max: int | None = None,
        horizon: Seconds | None = None,
        exist_ok: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Make a topic; returns when every partition is serving.

        Args:
            name: 1–255 of `A-Z a-z 0-9 . _ -`.
            kind: "timeline": by due; there is no other yet.
            partitions: 1–1,024: what can work side by side.
            replicas: copies of each; None: three, or as many as there are brokers.
            min_isr: replicas that must hold a record before it counts; None: more than half.
            payload_bytes_max: the longest payload; None: 64 MiB.
            horizon: how far ahead a message may be due, seconds or timedelta; None: no cap.
            exist_ok: a topic of this name may exist already.
            timeout: seconds.

        Raises:
            InvalidRequest: a value is outside its limits, or there are fewer brokers than replicas.
            TopicExists: and `exist_ok` is False.
            OutcomeUnknown: not serving in time; `retry()` goes on.
            Disconnected: no broker was reached; nothing was done.
        """
        self._run(
            orders.create_topic(
                name, kind, partitions, replicas, min_isr, payload_bytes_max, horizon, exist_ok
            ),
            timeout,
        )

    def delete_topic(self, name: str, *, timeout: float | None = None) -> None:
        """Delete a topic and all its messages.

        Raises:
            TopicNotFound, OutcomeUnknown, Disconnected
        """
        self._run(orders.delete_topic(name), timeout)

    def topics(self, *, timeout: float | None = None) -> list[TopicInfo]:
        """Return all topics by name, without counts."""
        return self._run(orders.topics(), timeout)

    def describe(self, topic: str, *, timeout: float | None = None) -> TopicInfo:
        """Return a topic with the counts of its messages, as its leaders see it (may be a little old).

        Raises:
            TopicNotFound, Disconnected
        """
        return self._run(orders.describe(topic), timeout)

    def forecast(
        self, topic: str, seconds: int = 60, *, timeout: float | None = None
    ) -> list[tuple[int, int]]:
        """Return (Unix ms of a second, messages due in it) for the seconds ahead; empty seconds left out.

        Exact for what waits nearest; what is further away is known by the hour, and spread evenly over it.

        Args:
            topic: its name.
            seconds: how far to look ahead, 1–3,600.
            timeout: seconds.

        Raises:
            InvalidRequest: `seconds` is not one of these.
            TopicNotFound, Disconnected
        """
        return self._run(orders.forecast(topic, seconds), timeout)

    def status(self, *, timeout: float | None = None) -> dict[str, Any]:
        """Return `brokers` by id, `topics` by name with their partitions, and `consumers`.

        Who did not answer has `alive` False. What each entry holds is what the brokers tell (see
        `dueq.client.merging`).
        """
        return self._run(orders.status(), timeout)

    # -------------------------------------------------------------- messages

    def producer(self, topic: str) -> Producer:
        """Return a producer of a topic; it costs nothing and may be shared by threads."""
        return Producer(self, arguments.topic_name(topic))

    def consumer(
        self,
        topic: str,
        lease: Seconds = 30.0,
        credit: int = 256,
        *,
        credit_bytes: int = limits.CONSUMER_CREDIT_BYTES,
        on_lease_lost: Callable[[Message], object] | None = None,
    ) -> Consumer:
        """Return a consumer of a topic; messages come once it is entered (`with`) or first asked.

        Args:
            topic: its name.
            lease: seconds (0.1 s to 12 h) or timedelta that a message is yours.
            credit: messages that may be with you unfinished, 1–16,384.
            credit_bytes: bytes of payloads that a leader may have out to you.
            on_lease_lost: called, in your thread at the next `receive` or step of the `for`, with each message
                whose lease is over before it was settled or whose settling was refused.
        """
        return Consumer(self, topic, lease, credit, credit_bytes, on_lease_lost)

    # -------------------------------------------------------------- inside

    def _live(self) -> Runtime:
        """The runtime of this process."""
        if self._closed:
            raise ClientClosed("the client is closed")
        runtime = self._runtime
        if runtime is not None and runtime.pid == os.getpid():
            return runtime
        if runtime is not None:
            self._lock = threading.Lock()  # after a fork somebody who is not here may hold it
            self._consumers = weakref.WeakSet()
            self._runtime = None
        with self._lock:
            if self._runtime is None:
                self._runtime = Runtime(self._endpoints)
                weakref.finalize(self, self._runtime.stop, 0.0)
            return self._runtime

    def _run(self, order: Order[T], timeout: float | None) -> T:
        """Send an order and wait for its answer."""
        return self._run_on(self._live(), order, timeout)

    def _run_on(self, runtime: Runtime, order: Order[T], timeout: float | None) -> T:
        seconds = arguments.timeout_s(timeout, self._timeout)
        done = threading.Lock()
        done.acquire()
        answers: list[Answer] = []

        def answered(answer: Answer) -> None:
            answers.append(answer)
            done.release()

        call = runtime.call(order.build, seconds, answered)
        try:
            in_time = done.acquire(timeout=seconds + _PATIENCE_S)
        except BaseException:
            runtime.submit(events.Abandon(call))
            raise
        if not in_time:
            raise OutcomeUnknown("the client's own thread did not answer in time")
        answer = answers[0]
        if isinstance(answer, Completed):
            return order.finish(answer.value)
        raise orders.error_of(answer, order, self._run)

    def _clock(self, timeout: float | None) -> Callable[[], int]:
        """Mesh time, Unix µs; measured first if it never was."""

        def mesh_us() -> int:
            runtime = self._live()
            if not runtime.clock_known:
                self._run(orders.connect(), timeout)
            return runtime.mesh_us()

        return mesh_us


class Producer:
    """Schedules, moves and cancels messages of one topic. Thread-safe.

    Every call returns when its effect is committed: synced on all in-sync replicas. Calls of many threads
    share requests. All raise, besides what they name:

    - `Refused` subclasses: nothing was changed and a repetition changes nothing either;
    - `Unavailable` subclasses (`Busy`, `DiskFull`, `NotEnoughReplicas`, `NotLeader`, `Disconnected`): nothing was
      changed within the time-out, a repetition may work;
    - `OutcomeUnknown`: it may or may not have happened; its `retry()` repeats the same request safely;
    - `ClientClosed`.
    """

    def __init__(self, client: Client, topic: str) -> None:
        self._client = client
        self._closed = False
        self.topic = topic

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Refuse further calls; there is nothing to flush."""
        self._closed = True

    def schedule(
        self, payload: Payload, due: Due, *, key: str | None = None, timeout: float | None = None
    ) -> str:
        """Have `payload` delivered at `due`, never before.

        Args:
            payload: bytes-like.
            due: Unix ms, an aware datetime (rounded up to ms), or a timedelta from now by the mesh's clock. In the
                past: at once.
            key: the message's name for its owner, at most 255 bytes of UTF-8: `message.key`, and while browsing.
            timeout: seconds.

        Returns:
            The message id.

        Raises:
            InvalidRequest: due, payload or key is not of these, or beyond the topic's horizon.
            PayloadTooLarge: longer than the topic allows.
            TopicNotFound
        """
        order = orders.schedule(self.topic, payload, due, self._client._clock(timeout), key)
        return self._run(order, timeout)

    def schedule_many(
        self,
        payloads: Iterable[Payload],
        dues: Due | Iterable[Due],
        *,
        keys: Iterable[str | None] | None = None,
        job: Job | None = None,
        timeout: float | None = None,
    ) -> list[str]:
        """Schedule many messages; all rows are checked before anything is sent.

        Up to 1,024 rows (of together at most 3 MiB, longer payloads not counted) are one request: all or
        nothing. More are cut into such runs over the partitions.

        Args:
            payloads: bytes-like each.
            dues: one per payload, or a single one for all.
            keys: one per payload (None: it has none), at most 255 bytes of UTF-8 each.
            job: of `Client.begin_job`: the messages belong to it.
            timeout: seconds.

        Returns:
            One message id per payload, in order.

        Raises:
            InvalidRequest, PayloadTooLarge, TopicNotFound: as `schedule`.
            JobEnded: the job takes no more messages.
            PartialFailure: some of several runs failed; `.outcomes` has an id or error per row, `.retry()`
                repeats the failed runs and returns all ids.
        """
        clock = self._client._clock(timeout)
        named = naming(job, self.topic)
        return self._run(
            orders.schedule_many(self.topic, payloads, dues, clock, keys=keys, job=named), timeout
        )

    def cancel(self, message_id: str, *, timeout: float | None = None) -> None:
        """Cancel a message: once this returns it is never delivered.

        Raises:
            MessageLeased: too late, a consumer has it.
            MessageNotFound: done, cancelled or expired, or never was.
            InvalidRequest: no message id, or not one of this topic.
        """
        self._run(orders.alter_one(self.topic, message_id, None, self._client._clock(timeout)), timeout)

    def move(self, message_id: str, due: Due, *, timeout: float | None = None) -> None:
        """Give a message another instant; its id stays. Raises as `cancel`."""
        self._run(orders.alter_one(self.topic, message_id, due, self._client._clock(timeout)), timeout)

    def cancel_many(self, message_ids: Iterable[str], *, timeout: float | None = None) -> list[Outcome]:
        """Cancel many messages.

        Returns:
            One `Outcome` per id: DONE, LEASED (too late), NOT_FOUND or UNKNOWN.

        Raises:
            PartialFailure: some of several requests (one per partition) failed.
        """
        return self._run(orders.alter(self.topic, message_ids), timeout)

    def move_many(
        self, message_ids: Iterable[str], dues: Due | Iterable[Due], *, timeout: float | None = None
    ) -> list[Outcome]:
        """Move many messages, to one instant each or all to a single one; returns and raises as `cancel_many`."""
        return self._run(orders.alter(self.topic, message_ids, dues, self._client._clock(timeout)), timeout)

    def _run(self, order: Order[T], timeout: float | None) -> T:
        if self._closed:
            raise ClientClosed(f"the producer of {self.topic!r} is closed")
        return self._client._run(order, timeout)


class Consumer:
    """Receives a topic's messages, each under a lease. For one thread (only `close` may come from another).

    Leases are kept alive towards the brokers by the client's own thread; the handler must settle each message
    before its lease ends, or extend it.

    Attributes:
        topic: its name.
        consumer_id: 16 bytes, drawn anew for each consumer.
        on_lease_lost: called with a message whose lease was lost.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        lease: Seconds,
        credit: int,
        credit_bytes: int,
        on_lease_lost: Callable[[Message], object] | None,
    ) -> None:
        self.topic = arguments.topic_name(topic)
        self.consumer_id = os.urandom(16)
        self.on_lease_lost = on_lease_lost
        self._lease_ms = arguments.duration_ms(lease, "lease", limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
        self._credit = arguments.count(credit, "credit", 1, limits.CONSUMER_LEASES_MAX)
        self._credit_bytes = arguments.count(credit_bytes, "credit_bytes", 1, 1 << 40)
        self._client = client
        self._arrived = threading.Event()
        self._inbox = Inbox(self._arrived.set)
        self._runtime: Runtime | None = None
        self._closed = False

    def __enter__(self) -> Self:
        self._live()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Message]:
        """Hand out messages one by one, waiting for them, until the consumer is closed."""
        while not self._inbox.closed:
            yield from self._receive(1, None)

    def receive(self, max_messages: int = 100, timeout: float | None = None) -> list[Message]:
        """Return what is there, waiting for at least one message.

        Args:
            max_messages: at most so many.
            timeout: seconds to wait; None for the client's default.

        Returns:
            Messages in the order they came; empty when none came in time, or the consumer was closed meanwhile.

        Raises:
            TopicNotFound: the topic was deleted.
            ClientClosed: the consumer was closed before.
        """
        number = arguments.count(max_messages, "max_messages", 1, 1 << 31)
        if self._closed:
            raise ClientClosed(f"the consumer of {self.topic!r} is closed")
        return self._receive(number, arguments.timeout_s(timeout, self._client._timeout))

    def ack(self, batch: Iterable[Message], *, timeout: float | None = None) -> list[Outcome]:
        """Settle many messages as done; returns when committed.

        Raises:
            StaleLease: some leases were over; everything else is settled all the same.
            OutcomeUnknown: no answer in time; it goes on being repeated.
        """
        return self._settle(RecordKind.ACK, _deliveries(batch), 0, True, timeout)

    def nack(
        self, batch: Iterable[Message], *, delay: Seconds = 0.0, timeout: float | None = None
    ) -> list[Outcome]:
        """Have many messages delivered again after `delay` seconds; waits and raises as `ack`."""
        return self._nack(_deliveries(batch), delay, True, timeout)

    def release(self, batch: Iterable[Message], *, timeout: float | None = None) -> list[Outcome]:
        """Give many messages back uncounted; waits and raises as `ack`."""
        return self._settle(RecordKind.RELEASE, _deliveries(batch), 0, True, timeout)

    def extend(
        self, batch: Iterable[Message], seconds: Seconds, *, timeout: float | None = None
    ) -> list[Outcome]:
        """Let many leases end `seconds` from now; waits and raises as `ack`."""
        return self._extend(_deliveries(batch), seconds, True, timeout)

    def close(self, timeout: float = CLOSE_S) -> None:
        """Confirm what was settled, give back everything else at once; twice is once.

        Args:
            timeout: seconds that this may take.
        """
        if self._closed:
            return
        self._closed = True
        unhandled = self._inbox.close()
        runtime = self._runtime
        if runtime is None or runtime.pid != os.getpid():
            return
        try:
            self._client._run_on(runtime, orders.close_consumer(self.consumer_id, unhandled), timeout)
        except ClientClosed:
            pass
        finally:
            runtime.remove_inbox(self.consumer_id)
            self._tell_of_lost()

    # -------------------------------------------------------------- inside

    def _live(self) -> Runtime:
        """Attach on first use."""
        runtime = self._runtime
        if runtime is not None:
            if runtime.pid != os.getpid():
                raise ClientClosed(
                    "a consumer does not follow its client into a forked process: make a new one"
                )
            return runtime
        if self._closed:
            raise ClientClosed(f"the consumer of {self.topic!r} is closed")
        runtime = self._client._live()
        runtime.add_inbox(self.consumer_id, self._inbox)
        order = orders.open_consumer(
            self.consumer_id, self.topic, self._credit, self._credit_bytes, self._lease_ms
        )
        try:
            self._client._run(order, None)
        except BaseException:
            runtime.remove_inbox(self.consumer_id)
            raise
        self._client._consumers.add(self)
        self._runtime = runtime
        return runtime

    def _receive(self, number: int, timeout: float | None) -> list[Message]:
        self._live()
        until_us = None if timeout is None else mono_us() + int(timeout * 1e6)
        while True:
            self._arrived.clear()
            self._tell_of_lost()
            taken = self._inbox.take(number, mono_us())
            if taken:
                return [Message(self, delivery) for delivery in taken]
            if self._inbox.closed:
                return []
            if self._inbox.failure is not None:
                raise self._inbox.failure
            rest = None if until_us is None else (until_us - mono_us()) / 1e6
            if rest is not None and rest <= 0:
                return []
            self._arrived.wait(rest)

    def _tell_of_lost(self) -> None:
        for delivery in self._inbox.take_lost():
            if self.on_lease_lost is not None:
                self.on_lease_lost(Message(self, delivery))

    def _nack(
        self, deliveries: Sequence[Delivery], delay: Seconds, wait: bool, timeout: float | None
    ) -> list[Outcome]:
        delay_ms = arguments.duration_ms(delay, "delay", 0, limits.DELAY_MS_MAX)
        return self._settle(RecordKind.NACK, deliveries, delay_ms, wait, timeout)

    def _extend(
        self, deliveries: Sequence[Delivery], seconds: Seconds, wait: bool, timeout: float | None
    ) -> list[Outcome]:
        lease_ms = arguments.duration_ms(seconds, "the new lease", limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
        return self._settle(RecordKind.EXTEND, deliveries, lease_ms, wait, timeout)

    def _settle(
        self,
        kind: RecordKind,
        deliveries: Sequence[Delivery],
        amount_ms: int,
        wait: bool,
        timeout: float | None,
    ) -> list[Outcome]:
        if self._closed:
            raise ClientClosed(f"the consumer of {self.topic!r} is closed: its leases were given back")
        if wait:
            return self._client._run(orders.settle(self.consumer_id, kind, deliveries, amount_ms), timeout)
        self._live().submit_lazily(events.Settle(self.consumer_id, kind, deliveries, amount_ms))
        return []


def _deliveries(batch: Iterable[Message]) -> list[Delivery]:
    return [message._delivery for message in batch]
