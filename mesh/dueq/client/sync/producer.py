# Made of aio/producer.py by scripts/generate-faces: write there.
"""Scheduling, moving and cancelling."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from dueq.client import arguments, orders
from dueq.client.arguments import Due, Payload
from dueq.client.jobs import Job, naming
from dueq.client.orders import Order
from dueq.errors import ClientClosed
from dueq_codecs.records import Outcome

if TYPE_CHECKING:
    from dueq.client.sync.client import Client

T = TypeVar("T")


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

    def _run(self, order: Order[T], timeout: float | None) -> T:
        if self._closed:
            raise ClientClosed(f"the producer of {self.topic!r} is closed")
        return self._client._run(order, timeout)
