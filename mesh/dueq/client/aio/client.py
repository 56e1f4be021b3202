"""A connection to a mesh."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

from dueq import limits
from dueq.client import arguments, calls, surveys, topic_changes
from dueq.client.aio.connection import AsyncConnection
from dueq.client.aio.consumer import AsyncConsumer
from dueq.client.aio.endpoint_calls import AsyncEndpointCalls
from dueq.client.aio.group_calls import AsyncGroupCalls
from dueq.client.aio.job_calls import AsyncJobCalls
from dueq.client.aio.message import AsyncMessage
from dueq.client.aio.producer import AsyncProducer
from dueq.client.aio.pull_calls import AsyncPullCalls
from dueq.client.aio.read_calls import AsyncReadCalls
from dueq.client.aio.recurrence_calls import AsyncRecurrenceCalls
from dueq.client.aio.topic_changes import AsyncTopicChanges
from dueq.client.aio.trigger_calls import AsyncTriggerCalls
from dueq.client.aio.where_calls import AsyncWhereCalls
from dueq.client.backoff import Backoff
from dueq.client.times import Seconds
from dueq.client.topics import TopicInfo

T = TypeVar("T")


class AsyncClient(
    AsyncReadCalls,
    AsyncJobCalls,
    AsyncTopicChanges,
    AsyncWhereCalls,
    AsyncRecurrenceCalls,
    AsyncGroupCalls,
    AsyncPullCalls,
    AsyncTriggerCalls,
    AsyncEndpointCalls,
):
    """A connection to a mesh of brokers. Any loop may use it, and several; use it with `async with`, or `close` it.

    One thread of its own does all input and output; nothing is connected before the first use. After a
    `fork`, a client in the child process starts again, with an identity of its own; consumers do not.

    Args:
        endpoints: one endpoint (`tcp://HOST:PORT`), several with commas between, or a list; more brokers are
            learned from the first that answers. Default: the environment's DUEQ_ENDPOINTS.
        timeout: seconds that a call may take, unless it says otherwise.

    Raises:
        InvalidRequest: there is no endpoint, or one is malformed.

    Attributes:
        connection: for the SDK's own parts.
    """

    def __init__(self, endpoints: str | Sequence[str] | None = None, *, timeout: float | None = None) -> None:
        self.connection = AsyncConnection(endpoints, timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close consumers (their leases go back), then the connections. Once more does nothing."""
        await self.connection.close()

    # -------------------------------------------------------------- topics

    async def create_topic(
        self,
        name: str,
        kind: str = "timeline",
        partitions: int = 1,
        replicas: int | None = None,
        *,
        min_isr: int | None = None,
        payload_bytes_max: int | None = None,
        horizon: Seconds | None = None,
        keys: str | None = None,
        remember: Seconds | None = None,
        rate: float | None = None,
        burst: int | None = None,
        max_attempts: int | None = None,
        backoff: Backoff | None = None,
        expired: str | None = None,
        dead_retention: Seconds | None = None,
        labels: Mapping[str, str] | None = None,
        exist_ok: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Create a topic; returns when every partition is serving.

        Args:
            name: 1–255 of `A-Z a-z 0-9 . _ -`.
            kind: "timeline": by due; "priority": what is due goes by rank, the smallest first; "fair": groups take
                turns.
            partitions: 1–1,024; they work in parallel.
            replicas: copies of each; None: three, or as many as there are brokers.
            min_isr: replicas that must hold a record before it is committed; None: more than half.
            payload_bytes_max: the longest payload; None: 64 MiB.
            horizon: how far ahead a message may be due, seconds or timedelta; None, 0: no cap.
            keys: "free", or "unique": a key names at most one message of the topic that is not finished. It is fixed.
            remember: as in `update_topic`.
            rate: as there.
            burst: as there.
            max_attempts: as there.
            backoff: as there.
            expired: as there.
            dead_retention: as there.
            labels: as there.
            exist_ok: a topic of this name may exist already.
            timeout: seconds.

        Raises:
            InvalidRequest: a value is outside its limits, or there are fewer brokers than replicas.
            TopicExists: the topic exists, and `exist_ok` is False.
            TopicNotFound: it was created, and somebody has deleted it before this returned.
            OutcomeUnknown: not serving in time; `retry()` goes on.
            Disconnected: no broker was reached; nothing was done.
        """
        settings = topic_changes.settings(None, None, rate, burst, labels)
        settings |= topic_changes.of_keys(keys, remember)
        settings |= topic_changes.endings(max_attempts, backoff, expired, dead_retention)
        await self.connection.run(
            calls.create_topic(
                name, kind, partitions, replicas, min_isr, payload_bytes_max, horizon, exist_ok, settings
            ),
            timeout,
        )

    async def delete_topic(self, name: str, *, timeout: float | None = None) -> None:
        """Delete a topic and all its messages.

        Raises:
            TopicNotFound: there is no such topic.
            OutcomeUnknown: no answer in time; `retry()` goes on.
            Disconnected: no broker was reached in time; nothing was done.
        """
        await self.connection.run(calls.delete_topic(name), timeout)

    async def topics(self, *, timeout: float | None = None) -> list[TopicInfo]:
        """Return all topics by name, without counts."""
        return await self.connection.run(calls.topics(), timeout)

    async def describe(self, topic: str, *, timeout: float | None = None) -> TopicInfo:
        """Return a topic with the counts of its messages, as its leaders see it (may be a little old).

        Raises:
            TopicNotFound: there is no such topic.
            Disconnected: no broker was reached in time; nothing was done.
        """
        return await self.connection.run(calls.describe(topic), timeout)

    async def forecast(
        self,
        topic: str,
        seconds: int = 60,
        *,
        start: int | datetime | None = None,
        timeout: float | None = None,
    ) -> list[tuple[int, int]]:
        """Return (Unix ms of a second, messages due in it) for the seconds ahead; empty seconds left out.

        Counts of the soonest messages are exact; later ones are known by the hour, and spread evenly over it. With
        `start`, messages are counted one by one instead, which takes longer where there are many.

        Args:
            topic: its name.
            seconds: how far to look ahead, 1–3,600.
            start: from when on, Unix ms or an aware datetime; None: from now.
            timeout: seconds; for each request (of 65,536 messages), where there is a `start`.

        Raises:
            InvalidRequest: an argument is not one of these.
            TopicNotFound: there is no such topic.
            Disconnected: no broker was reached in time; nothing was done.
            Unavailable: with `start`: a partition has no leader that answered in time.
        """
        if start is not None:
            counted = await self.connection.follow(surveys.seconds(topic, start, seconds, None), timeout)
            return counted.counts
        return await self.connection.run(calls.forecast(topic, seconds), timeout)

    async def status(self, *, timeout: float | None = None) -> dict[str, Any]:
        """Return `brokers` by id, `topics` by name with their partitions, and `consumers`.

        A broker that did not answer has `alive` False. The entries are as the brokers tell them (see
        `dueq.client.merging`).
        """
        return await self.connection.run(calls.status(), timeout)

    # -------------------------------------------------------------- messages

    def producer(self, topic: str) -> AsyncProducer:
        """Return a producer of a topic; it costs nothing and may be shared by tasks."""
        return AsyncProducer(self.connection, arguments.topic_name(topic))

    def consumer(
        self,
        topic: str,
        lease: Seconds = 30.0,
        credit: int = 256,
        *,
        credit_bytes: int = limits.CONSUMER_CREDIT_BYTES,
        on_lease_lost: Callable[[AsyncMessage], object] | None = None,
        ack: str = "manual",
        name: str | None = None,
        detached: bool = False,
    ) -> AsyncConsumer:
        """Return a consumer of a topic; messages come once it is entered (`with`) or first asked.

        Args:
            topic: its name.
            lease: how long a message is yours, seconds (0.1 s to 12 h) or timedelta.
            credit: the most unfinished messages that you may have, 1–16,384.
            credit_bytes: the most bytes of payloads that one leader may have out to you.
            on_lease_lost: called with each message whose lease is over before it was settled, or whose settling was
                refused: in the loop, at once. A coroutine function is run as a task, so that it may cancel a handler.
            ack: "manual": each message is delivered until it is settled. "on_receipt": a message is acked, and that is
                committed, before you get it: at most once, so one is lost when you fail. If `receive` raises
                OutcomeUnknown, it may have acked messages that you never get.
            name: of one process among those that consume, 1 to 255 bytes, such as "worker-3". If that process ends
                without closing the consumer, the next one of this name gets its unfinished messages at once, as another
                attempt. Of two at the same time the later one wins, and the other fails with Superseded.
            detached: leases last for their length, though this process is silent, ends or closes the consumer. For work
                that goes on elsewhere, such as at a receiver that was sent a request. Not together with a name.
        """
        return AsyncConsumer(
            self.connection, topic, lease, credit, credit_bytes, on_lease_lost, ack, name, detached
        )
