"""The asyncio face of the SDK: the same names, awaited.

It stands on the same I/O thread as the synchronous one; answers come into the loop that awaits them by
`call_soon_threadsafe`, many at once. There is no loop of its own and no global one.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from dueq import limits
from dueq.client import arguments, orders
from dueq.client.arguments import Due, Payload, Seconds
from dueq.client.core import events
from dueq.client.core.delivery import Delivery
from dueq.client.core.effects import Completed
from dueq.client.inbox import Inbox
from dueq.client.job_calls import AsyncJobCalls
from dueq.client.jobs import Job, naming
from dueq.client.looking import AsyncLooking
from dueq.client.message import AsyncMessage
from dueq.client.orders import Order
from dueq.client.runtime import Answer, Runtime, mono_us
from dueq.client.sync import CLOSE_S
from dueq.client.topics import TopicInfo
from dueq.errors import ClientClosed
from dueq_codecs.records import Outcome, RecordKind

T = TypeVar("T")


class _Bridge:
    """From the I/O thread into one loop; what comes close together costs one awakening."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Callable[[], object]] = deque()
        self._scheduled = False

    def post(self, action: Callable[[], object]) -> None:
        """Run `action` in the loop soon; nothing if the loop is closed."""
        self._waiting.append(action)
        if not self._scheduled:
            self._scheduled = True
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:  # the loop is closed: nobody waits any more
                self._waiting.clear()

    def _drain(self) -> None:
        self._scheduled = False
        while self._waiting:
            self._waiting.popleft()()


class AsyncClient(AsyncLooking, AsyncJobCalls):
    """A connection to a mesh of brokers, for asyncio; use it with `async with`, or await `close`.

    Names, arguments, results and errors are those of `Client`; every call is awaited. It may be used from any
    loop, and from several.
    """

    def __init__(self, endpoints: str | Sequence[str] | None = None, *, timeout: float | None = None) -> None:
        self._endpoints = arguments.endpoint_list(endpoints)
        self._timeout = arguments.timeout_s(timeout, limits.DEFAULT_TIMEOUT_S)
        self._runtime: Runtime | None = None
        self._closed = False
        self._bridges: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Bridge] = (
            weakref.WeakKeyDictionary()
        )
        self._consumers: weakref.WeakSet[AsyncConsumer] = weakref.WeakSet()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close consumers (their leases go back), then the connections; twice is once."""
        self._closed = True
        runtime = self._runtime
        if runtime is not None and runtime.pid == os.getpid():
            for consumer in list(self._consumers):
                await consumer.close()
            await asyncio.get_running_loop().run_in_executor(None, runtime.stop)

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
        exist_ok: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Make a topic; returns when every partition is serving (see `Client.create_topic`)."""
        await self._run(
            orders.create_topic(
                name, kind, partitions, replicas, min_isr, payload_bytes_max, horizon, exist_ok
            ),
            timeout,
        )

    async def delete_topic(self, name: str, *, timeout: float | None = None) -> None:
        """Delete a topic and all its messages (see `Client.delete_topic`)."""
        await self._run(orders.delete_topic(name), timeout)

    async def topics(self, *, timeout: float | None = None) -> list[TopicInfo]:
        """Return all topics by name, without counts."""
        return await self._run(orders.topics(), timeout)

    async def describe(self, topic: str, *, timeout: float | None = None) -> TopicInfo:
        """Return a topic with the counts of its messages (see `Client.describe`)."""
        return await self._run(orders.describe(topic), timeout)

    async def forecast(
        self, topic: str, seconds: int = 60, *, timeout: float | None = None
    ) -> list[tuple[int, int]]:
        """Return (Unix ms of a second, messages due in it) (see `Client.forecast`)."""
        return await self._run(orders.forecast(topic, seconds), timeout)

    async def status(self, *, timeout: float | None = None) -> dict[str, Any]:
        """Return what the brokers tell of themselves (see `Client.status`)."""
        return await self._run(orders.status(), timeout)

    # -------------------------------------------------------------- messages

    def producer(self, topic: str) -> AsyncProducer:
        """Return a producer of a topic; tasks may share it."""
        return AsyncProducer(self, arguments.topic_name(topic))

    def consumer(
        self,
        topic: str,
        lease: Seconds = 30.0,
        credit: int = 256,
        *,
        credit_bytes: int = limits.CONSUMER_CREDIT_BYTES,
        on_lease_lost: Callable[[AsyncMessage], object] | None = None,
    ) -> AsyncConsumer:
        """Return a consumer of a topic (see `Client.consumer`).

        `on_lease_lost` is called in the loop, as soon as the lease is lost; a coroutine function is run as a
        task, so that it may cancel a handler.
        """
        return AsyncConsumer(self, topic, lease, credit, credit_bytes, on_lease_lost)

    # -------------------------------------------------------------- inside

    def _live(self) -> Runtime:
        if self._closed:
            raise ClientClosed("the client is closed")
        if self._runtime is None or self._runtime.pid != os.getpid():
            self._consumers = weakref.WeakSet()
            self._runtime = Runtime(self._endpoints)
            weakref.finalize(self, self._runtime.stop, 0.0)
        return self._runtime

    def _bridge(self) -> _Bridge:
        loop = asyncio.get_running_loop()
        bridge = self._bridges.get(loop)
        if bridge is None:
            bridge = self._bridges[loop] = _Bridge(loop)
        return bridge

    async def _run(self, order: Order[T], timeout: float | None) -> T:
        return await self._run_on(self._live(), order, timeout)

    async def _run_on(self, runtime: Runtime, order: Order[T], timeout: float | None) -> T:
        seconds = arguments.timeout_s(timeout, self._timeout)
        bridge = self._bridge()
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def settle(answer: Answer) -> None:
            if not future.done():
                future.set_result(answer)

        call = runtime.call(order.build, seconds, lambda answer: bridge.post(lambda: settle(answer)))
        try:
            answer = await future
        except asyncio.CancelledError:
            runtime.submit(events.Abandon(call))
            raise
        if isinstance(answer, Completed):
            return order.finish(answer.value)
        raise orders.error_of(answer, order, self._run)

    async def _clock(self, dues: object, timeout: float | None) -> Callable[[], int]:
        """Mesh time, Unix µs; measured first if it never was and a timedelta may need it."""
        runtime = self._live()
        if not runtime.clock_known and not isinstance(dues, int):
            await self._run(orders.connect(), timeout)
        return runtime.mesh_us


class AsyncProducer:
    """Schedules, moves and cancels messages of one topic (see `Producer`); every call is awaited."""

    def __init__(self, client: AsyncClient, topic: str) -> None:
        self._client = client
        self._closed = False
        self.topic = topic

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Refuse further calls; there is nothing to flush."""
        self._closed = True

    async def schedule(
        self, payload: Payload, due: Due, *, key: str | None = None, timeout: float | None = None
    ) -> str:
        """Have `payload` delivered at `due`; returns the message id (see `Producer.schedule`)."""
        clock = await self._client._clock(due, timeout)
        return await self._run(orders.schedule(self.topic, payload, due, clock, key), timeout)

    async def schedule_many(
        self,
        payloads: Iterable[Payload],
        dues: Due | Iterable[Due],
        *,
        keys: Iterable[str | None] | None = None,
        job: Job | None = None,
        timeout: float | None = None,
    ) -> list[str]:
        """Schedule many messages; returns their ids (see `Producer.schedule_many`)."""
        clock = await self._client._clock(dues, timeout)
        named = naming(job, self.topic)
        return await self._run(
            orders.schedule_many(self.topic, payloads, dues, clock, keys=keys, job=named), timeout
        )

    async def cancel(self, message_id: str, *, timeout: float | None = None) -> None:
        """Cancel a message (see `Producer.cancel`)."""
        await self._run(orders.alter_one(self.topic, message_id, None, lambda: 0), timeout)

    async def move(self, message_id: str, due: Due, *, timeout: float | None = None) -> None:
        """Give a message another instant (see `Producer.move`)."""
        clock = await self._client._clock(due, timeout)
        await self._run(orders.alter_one(self.topic, message_id, due, clock), timeout)

    async def cancel_many(self, message_ids: Iterable[str], *, timeout: float | None = None) -> list[Outcome]:
        """Cancel many messages; one outcome per id (see `Producer.cancel_many`)."""
        return await self._run(orders.alter(self.topic, message_ids), timeout)

    async def move_many(
        self, message_ids: Iterable[str], dues: Due | Iterable[Due], *, timeout: float | None = None
    ) -> list[Outcome]:
        """Move many messages; one outcome per id (see `Producer.move_many`)."""
        clock = await self._client._clock(dues, timeout)
        return await self._run(orders.alter(self.topic, message_ids, dues, clock), timeout)

    async def _run(self, order: Order[T], timeout: float | None) -> T:
        if self._closed:
            raise ClientClosed(f"the producer of {self.topic!r} is closed")
        return await self._client._run(order, timeout)


class AsyncConsumer:
    """Receives a topic's messages, each under a lease (see `Consumer`). For the tasks of one loop."""

    def __init__(
        self,
        client: AsyncClient,
        topic: str,
        lease: Seconds,
        credit: int,
        credit_bytes: int,
        on_lease_lost: Callable[[AsyncMessage], object] | None,
    ) -> None:
        self.topic = arguments.topic_name(topic)
        self.consumer_id = os.urandom(16)
        self.on_lease_lost = on_lease_lost
        self._lease_ms = arguments.duration_ms(lease, "lease", limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
        self._credit = arguments.count(credit, "credit", 1, limits.CONSUMER_LEASES_MAX)
        self._credit_bytes = arguments.count(credit_bytes, "credit_bytes", 1, 1 << 40)
        self._client = client
        self._arrived = asyncio.Event()
        self._bridge: _Bridge | None = None
        self._inbox = Inbox(self._wake)
        self._opening = asyncio.Lock()
        self._runtime: Runtime | None = None
        self._closed = False
        self._tasks: set[asyncio.Future[Any]] = set()

    async def __aenter__(self) -> Self:
        await self._live()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[AsyncMessage]:
        """Hand out messages one by one, waiting for them, until the consumer is closed."""
        while not self._inbox.closed:
            for message in await self._receive(1, None):
                yield message

    async def receive(self, max_messages: int = 100, timeout: float | None = None) -> list[AsyncMessage]:
        """Return what is there, waiting for at least one message; [] on time-out (see `Consumer.receive`)."""
        number = arguments.count(max_messages, "max_messages", 1, 1 << 31)
        if self._closed:
            raise ClientClosed(f"the consumer of {self.topic!r} is closed")
        return await self._receive(number, arguments.timeout_s(timeout, self._client._timeout))

    async def ack(self, batch: Iterable[AsyncMessage], *, timeout: float | None = None) -> list[Outcome]:
        """Settle many messages as done; returns when committed (see `Consumer.ack`)."""
        return await self._settle(RecordKind.ACK, _deliveries(batch), 0, True, timeout)

    async def nack(
        self, batch: Iterable[AsyncMessage], *, delay: Seconds = 0.0, timeout: float | None = None
    ) -> list[Outcome]:
        """Have many messages delivered again after `delay` seconds (see `Consumer.nack`)."""
        return await self._nack(_deliveries(batch), delay, True, timeout)

    async def release(self, batch: Iterable[AsyncMessage], *, timeout: float | None = None) -> list[Outcome]:
        """Give many messages back uncounted (see `Consumer.release`)."""
        return await self._settle(RecordKind.RELEASE, _deliveries(batch), 0, True, timeout)

    async def extend(
        self, batch: Iterable[AsyncMessage], seconds: Seconds, *, timeout: float | None = None
    ) -> list[Outcome]:
        """Let many leases end `seconds` from now (see `Consumer.extend`)."""
        return await self._extend(_deliveries(batch), seconds, True, timeout)

    async def close(self, timeout: float = CLOSE_S) -> None:
        """Confirm what was settled, give back everything else at once; twice is once."""
        if self._closed:
            return
        self._closed = True
        unhandled = self._inbox.close()
        self._arrived.set()
        runtime = self._runtime
        if runtime is None or runtime.pid != os.getpid():
            return
        try:
            order = orders.close_consumer(self.consumer_id, unhandled)
            await self._client._run_on(runtime, order, timeout)
        except ClientClosed:
            pass
        finally:
            runtime.remove_inbox(self.consumer_id)
            self._on_arrival()

    # -------------------------------------------------------------- inside

    async def _live(self) -> Runtime:
        """Attach on first use."""
        async with self._opening:
            if self._runtime is None:
                if self._closed:
                    raise ClientClosed(f"the consumer of {self.topic!r} is closed")
                runtime = self._client._live()
                self._bridge = self._client._bridge()
                runtime.add_inbox(self.consumer_id, self._inbox)
                order = orders.open_consumer(
                    self.consumer_id, self.topic, self._credit, self._credit_bytes, self._lease_ms
                )
                try:
                    await self._client._run(order, None)
                except BaseException:
                    runtime.remove_inbox(self.consumer_id)
                    raise
                self._client._consumers.add(self)
                self._runtime = runtime
            return self._runtime

    def _wake(self) -> None:
        """In the I/O thread: something has come."""
        if self._bridge is not None:
            self._bridge.post(self._on_arrival)

    def _on_arrival(self) -> None:
        for delivery in self._inbox.take_lost():
            if self.on_lease_lost is not None:
                result = self.on_lease_lost(AsyncMessage(self, delivery))
                if isinstance(result, Awaitable):
                    task = asyncio.ensure_future(result)
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
        self._arrived.set()

    async def _receive(self, number: int, timeout: float | None) -> list[AsyncMessage]:
        if self._runtime is None:
            await self._live()
        until_us = None if timeout is None else mono_us() + int(timeout * 1e6)
        while True:
            self._arrived.clear()
            taken = self._inbox.take(number, mono_us())
            if taken:
                return [AsyncMessage(self, delivery) for delivery in taken]
            if self._inbox.closed:
                return []
            if self._inbox.failure is not None:
                raise self._inbox.failure
            rest = None if until_us is None else (until_us - mono_us()) / 1e6
            if rest is not None and rest <= 0:
                return []
            try:
                await asyncio.wait_for(self._arrived.wait(), rest)
            except TimeoutError:
                return []

    async def _nack(
        self, deliveries: Sequence[Delivery], delay: Seconds, wait: bool, timeout: float | None
    ) -> list[Outcome]:
        delay_ms = arguments.duration_ms(delay, "delay", 0, limits.DELAY_MS_MAX)
        return await self._settle(RecordKind.NACK, deliveries, delay_ms, wait, timeout)

    async def _extend(
        self, deliveries: Sequence[Delivery], seconds: Seconds, wait: bool, timeout: float | None
    ) -> list[Outcome]:
        lease_ms = arguments.duration_ms(seconds, "the new lease", limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
        return await self._settle(RecordKind.EXTEND, deliveries, lease_ms, wait, timeout)

    async def _settle(
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
            return await self._client._run(
                orders.settle(self.consumer_id, kind, deliveries, amount_ms), timeout
            )
        runtime = self._runtime or await self._live()
        runtime.submit_lazily(events.Settle(self.consumer_id, kind, deliveries, amount_ms))
        return []


def _deliveries(batch: Iterable[AsyncMessage]) -> list[Delivery]:
    return [message._delivery for message in batch]
