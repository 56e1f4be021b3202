# Made of aio/producer.py by scripts/generate-faces: write there.
"""Scheduling, moving and cancelling."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from dueq.client import arguments, orders
from dueq.client.arguments import Due, Payload
from dueq.client.batches import Batch, batches
from dueq.client.core.ports.effects import Completed
from dueq.client.jobs import Job, naming
from dueq.client.orders import Order
from dueq.client.runtime import Answer
from dueq.client.sync.waiting import Pending
from dueq.errors import ClientClosed, DueqError, InvalidRequest, PartialFailure
from dueq_codecs.records import Outcome

if TYPE_CHECKING:
    from dueq.client.sync.client import Client

T = TypeVar("T")


STREAM_REQUESTS_MAX: Final = 64


@dataclass(slots=True)
class _Sent:
    """A request of a stream that is under way."""

    batch: Batch
    order: Order[list[str]]
    pending: Pending


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
            TopicNotFound: there is no such topic.
        """
        clock = self._client._clock(arguments.is_relative(due), timeout)
        return self._run(orders.schedule(self.topic, payload, due, clock, key), timeout)

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
        dues = arguments.held(dues)
        clock = self._client._clock(arguments.is_relative(dues), timeout)
        named = naming(job, self.topic)
        return self._run(
            orders.schedule_many(self.topic, payloads, dues, clock, keys=keys, job=named), timeout
        )

    def schedule_stream(
        self,
        payloads: Iterable[Payload],
        dues: Due | Iterable[Due],
        *,
        keys: Iterable[str | None] | None = None,
        job: Job | None = None,
        in_flight: int = 8,
        timeout: float | None = None,
    ) -> Iterator[str]:
        """Schedule as many messages as iterators give, in bounded memory, and yield their ids.

        Rows are taken, checked and sent as ids are asked for, in requests of up to 1,024 rows and 3 MiB (or of one
        longer payload), each all or nothing. Without a loop over it nothing is sent; who leaves the loop early leaves
        in doubt what was under way.

            for message_id in producer.schedule_stream(rows, timedelta(hours=1)):
                ...

        Args:
            payloads: bytes-like each.
            dues: one per payload, or a single one for all; a timedelta counts from when its request is made.
            keys: one per payload (None: it has none).
            job: of `Client.begin_job`: the messages belong to it.
            in_flight: requests under way at once, 1–64.
            timeout: seconds for each request.

        Yields:
            Message ids in order, each when its message is committed.

        Raises:
            PartialFailure: a request failed. No other was sent after that, and those under way were waited for. What
                was yielded is scheduled; `.outcomes` has an id or error for each row that follows, as far as rows were
                sent; `.retry()` repeats what failed and returns the ids of these rows. Later rows were not sent.
            InvalidRequest: a row is none, or one column ends before another. All rows of the requests before were
                yielded, nothing else was sent; the same holds for what the iterators raise.
        """
        number = arguments.count(in_flight, "in_flight", 1, STREAM_REQUESTS_MAX)
        named = naming(job, self.topic)
        cut = batches(payloads, dues, keys)
        under_way: deque[_Sent] = deque()
        more, fault = True, None
        try:
            while more or under_way:
                while more and len(under_way) < number:
                    try:
                        under_way.append(self._send(next(cut), named, timeout))
                    except StopIteration:
                        more = False
                    except Exception as error:
                        more, fault = False, error
                if under_way:
                    sent = under_way.popleft()
                    answer = sent.pending.answer()
                    if not isinstance(answer, Completed):
                        raise self._failure(sent, answer, under_way)
                    for message_id in sent.order.finish(answer.value):
                        yield message_id
            if fault is not None:
                raise fault
        finally:
            for sent in under_way:
                sent.pending.abandon()

    def cancel(self, message_id: str, *, timeout: float | None = None) -> None:
        """Cancel a message: once this returns it is never delivered.

        Raises:
            MessageLeased: too late, a consumer has it.
            MessageNotFound: done, cancelled or expired, or never was.
            InvalidRequest: no message id, or not one of this topic.
        """
        self._run(orders.alter_one(self.topic, message_id, None, lambda: 0), timeout)

    def move(self, message_id: str, due: Due, *, timeout: float | None = None) -> None:
        """Give a message another instant; its id stays. Raises as `cancel`."""
        clock = self._client._clock(arguments.is_relative(due), timeout)
        self._run(orders.alter_one(self.topic, message_id, due, clock), timeout)

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
        dues = arguments.held(dues)
        clock = self._client._clock(arguments.is_relative(dues), timeout)
        return self._run(orders.alter(self.topic, message_ids, dues, clock), timeout)

    def _send(self, batch: Batch, job: tuple[bytes, int], timeout: float | None) -> _Sent:
        self._check_open()
        clock = self._client._clock(arguments.is_relative(batch.dues), timeout)
        try:
            order = orders.schedule_many(
                self.topic, batch.payloads, batch.dues, clock, keys=batch.keys, job=job
            )
        except InvalidRequest as error:
            raise InvalidRequest(f"of the rows from {batch.first} on, {error}") from None
        return _Sent(batch, order, self._client._send(self._client._live(), order, timeout))

    def _failure(self, sent: _Sent, answer: Answer, under_way: deque[_Sent]) -> PartialFailure:
        """Wait for what else is under way; return what to raise."""
        outcomes: list[str | DueqError] = []
        rest: list[list[str] | Order[list[str]]] = []
        text = f"the stream ended at row {sent.batch.first}"
        while True:
            if isinstance(answer, Completed):
                found = sent.order.finish(answer.value)
                outcomes += found
                rest.append(found)
            else:
                error = orders.error_of(answer, sent.order, self._run)
                text = text if rest else f"{text}: {error}"
                alike = [error] * len(sent.batch.payloads)
                outcomes += error.outcomes if isinstance(error, PartialFailure) else alike
                rest.append(orders.repeated(answer, sent.order))
            if not under_way:
                return PartialFailure(text, outcomes, partial(self._again, rest))
            sent = under_way.popleft()
            answer = sent.pending.answer()

    def _again(self, rest: Sequence[list[str] | Order[list[str]]], timeout: float | None) -> list[str]:
        found: list[str] = []
        for part in rest:
            if isinstance(part, Order):
                part = self._run(part, timeout)
            found += part
        return found

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed(f"the producer of {self.topic!r} is closed")

    def _run(self, order: Order[T], timeout: float | None) -> T:
        self._check_open()
        return self._client._run(order, timeout)
