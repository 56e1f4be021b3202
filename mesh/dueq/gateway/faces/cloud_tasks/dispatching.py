"""Sends the tasks of all queues of the mesh.

    queues (looked for every second) ─► one worker per queue ─► consumer: push at the due instant
                                          │ lease as long as the task's deadline
                                          ▼
                                        Sender ─► the task's URL
                                          │ answer
                                          ▼
                          2xx: acked │ else: given back with the queue's delay, or dead

Leases are detached: a receiver works on, however long the gateway is silent, and while it ends.
The topic's leader limits how many tasks are under way at once, and how many a second. So any number of gateways share a
queue, and need not agree.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal

from multidict import CIMultiDict

from dueq import AsyncClient, limits
from dueq.client.aio import AsyncMessage
from dueq.errors import DueqError
from dueq.gateway.catalogue import Catalogue
from dueq.gateway.faces.cloud_tasks.issuer import Issuer
from dueq.gateway.faces.cloud_tasks.names import QueueName
from dueq.gateway.faces.cloud_tasks.queue import Configuration
from dueq.gateway.faces.cloud_tasks.queues import among
from dueq.gateway.faces.cloud_tasks.status import RpcError
from dueq.gateway.faces.cloud_tasks.task import Attempts, Task
from dueq.gateway.logs import log
from dueq.gateway.service import Service
from dueq.gateway.webhooks.answers import Answer, reason_of
from dueq.gateway.webhooks.room import Room
from dueq.gateway.webhooks.sending import Sender
from dueq_codecs.endpoint import plain

_POLL_S: Final = limits.WEBHOOK_POLL_MS / 1000
_SPARE_S: Final = limits.WEBHOOK_SPARE_MS / 1000
_LEASE_S: Final = 60.0
_CREDIT: Final = 256
"""Most tasks of a queue that one gateway has under way."""
_PUT_BACK_S: Final = 1.0
"""How long a task waits that was given back for want of a connection, or of an answer of the mesh."""
_ELSEWHERE_S: Final = 5.0
"""How long a task waits that needs a token, and that a gateway got that issues none: another one may have it then."""
_DRAIN_S: Final = limits.GATEWAY_STOP_MS / 2000
"""How long requests under way get when the gateway stops."""
_OWN: Final = (
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
    "te",
    "trailer",
    "expect",
    "user-agent",
)
"""Headers that a task cannot have, however they are spelled: they are left out of its request, as are those that begin
with `x-cloudtasks-`."""


class Dispatcher:
    """Sends due tasks, from `start` to `close`. For the tasks of one loop.

    Args:
        service: the mesh.
        issuer: of tokens for tasks that have an identity.
    """

    def __init__(self, service: Service, issuer: Issuer | None = None) -> None:
        self._service, self._issuer = service, issuer
        self._catalogue = Catalogue()
        self._workers: dict[QueueName, _Worker] = {}
        self._stopping: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None

    def start(self, sender: Sender, room: Room) -> None:
        """Begin.

        Args:
            sender: of all requests of the gateway; it stays open until this is closed.
            room: of all of them.
        """
        self._watching = asyncio.create_task(self._watch(sender, room), name="cloud tasks")

    async def close(self) -> None:
        """Begin no more requests, let those under way end, and give everything else back. Once more does nothing."""
        watching, self._watching = self._watching, None
        if watching is None:
            return
        watching.cancel()
        await asyncio.wait([watching])
        for name in list(self._workers):
            self._leave(name)
        await asyncio.gather(*self._stopping)

    def _leave(self, name: QueueName) -> None:
        """Serve a queue no more; other queues do not wait for its last requests."""
        task = asyncio.create_task(self._workers.pop(name).stop())
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    async def _watch(self, sender: Sender, room: Room) -> None:
        failed = False
        while True:
            try:
                await self._look(sender, room)
                failed = False
            except DueqError as error:
                # Workers go on with the queues that they serve: the mesh's answers decide.
                if not failed:
                    log.warning("cloud_tasks.queues_unknown", error=str(error))
                failed = True
            except Exception as error:
                # Without this, no new queue would ever be served here.
                log.error("cloud_tasks.look_broken", error=repr(error))
            await asyncio.sleep(_POLL_S)

    async def _look(self, sender: Sender, room: Room) -> None:
        """Serve the queues that there are, as they are set now."""
        clock = await self._service.client.connection.clock(True, None)
        found: dict[QueueName, Configuration] = {}
        for name, info in among(await self._catalogue.topics(self._service.client)):
            with contextlib.suppress(RpcError):
                found[name] = Configuration.of(info)
        for name in [name for name, worker in self._workers.items() if name not in found or worker.done]:
            self._leave(name)
        for name, wanted in found.items():
            worker = self._workers.get(name)
            if worker is None:
                self._workers[name] = _Worker(
                    self._service.client, sender, name, wanted, clock, room, self._issuer
                )
            else:
                worker.configuration = wanted


class _Worker:
    """Sends the tasks of one queue.

    Attributes:
        configuration: what the queue is set to.
    """

    def __init__(
        self,
        client: AsyncClient,
        sender: Sender,
        name: QueueName,
        configuration: Configuration,
        now_us: Callable[[], int],
        room: Room,
        issuer: Issuer | None,
    ) -> None:
        self.configuration, self._issuer = configuration, issuer
        self._slot = asyncio.Event()
        self._share = room.share(self._slot.set)
        self._client, self._sender, self._name, self._now_us = client, sender, name, now_us
        self._under_way: set[asyncio.Task[None]] = set()
        # Neither sent nor given back yet.
        self._taken: AsyncMessage | None = None
        self._left = self._gone = False
        self._running = asyncio.create_task(self._run(), name=f"tasks of {name}")

    @property
    def done(self) -> bool:
        """It takes no more by itself: its topic is gone. Its last requests may be under way still."""
        return self._gone or self._running.done()

    async def stop(self) -> None:
        """Begin no more requests, let those under way end within the limit, then give everything back."""
        self._running.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=_DRAIN_S)
        for each in self._under_way:
            each.cancel()
        await asyncio.wait([self._running])

    async def _run(self) -> None:
        consumer = self._client.consumer(self._name.topic, _LEASE_S, _CREDIT, detached=True)
        try:
            # No more than the credit is ever here, so these tasks are bounded.
            async for message in consumer:
                self._taken = message
                if await self._has_slot():
                    self._share.begin()
                    task = asyncio.create_task(self._send(message))
                    self._under_way.add(task)
                    task.add_done_callback(self._ended)
                else:
                    await message.release(delay=_PUT_BACK_S)
                self._taken = None
        except DueqError as error:
            self._gone = True
            log.info("cloud_tasks.queue_left", queue=str(self._name), error=str(error))
        finally:
            await asyncio.shield(self._closed(consumer.close))

    async def _has_slot(self) -> bool:
        """Wait for a connection for a while: a message that gets none goes back, uncounted."""
        found = False
        try:
            async with asyncio.timeout(_LEASE_S / 2):
                while not self._share.free:
                    self._slot.clear()
                    await self._slot.wait()
            found = True
        except TimeoutError:
            pass
        finally:
            if not found:
                self._share.give_up()
        return found

    async def _closed(self, close: Callable[[], Awaitable[None]]) -> None:
        """Close the consumer, so that it takes no more; unsent tasks go back. Then wait until nothing is under way."""
        with contextlib.suppress(DueqError):
            if self._taken is not None:
                await self._taken.release(wait=False)
            self._left = True
            await close()
        if self._under_way:
            await asyncio.wait(self._under_way)
        self._share.leave()

    async def _end(self, message: AsyncMessage, how: Literal["ack", "nack", "release"], **more: Any) -> None:
        """Settle a task; once the consumer is closed, by the token of its lease."""
        if not self._left:
            await getattr(message, how)(**more)
            return
        try:
            await self._client.settle(self._name.topic, [(message.id, message.token)], how, **more)
        except DueqError as error:
            log.warning("cloud_tasks.not_settled", queue=str(self._name), error=str(error))

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._share.end()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("cloud_tasks.task_failed", queue=str(self._name), error=repr(error))

    async def _send(self, message: AsyncMessage) -> None:
        try:
            task = Task.of_payload(message.payload)
        except ValueError as error:
            await self._end(message, "nack", dead=True, reason=str(error))
            return
        if task.identity is not None and self._issuer is None:
            log.warning("cloud_tasks.no_issuer", queue=str(self._name), task=message.key or message.id)
            await self._end(message, "release", delay=_ELSEWHERE_S)
            return
        deadline_s = task.deadline_ms / 1000
        try:
            before = await self._attempts(message)
            # Last, and soon done: what takes time before the request takes it from the lease.
            if message.lease < deadline_s + _SPARE_S:
                await message.extend(deadline_s + _SPARE_S, wait=True, timeout=_SPARE_S / 2)
        except DueqError as error:
            log.info("cloud_tasks.put_back", queue=str(self._name), error=str(error))
            await self._end(message, "release", delay=_PUT_BACK_S)
            return
        sent_ms = self._now_ms()
        answer = await self._sender.send(
            task.method.name,
            task.url,
            self._headers(message, task, before),
            task.body,
            deadline_s,
            str(self._name),
        )
        if 200 <= answer.status < 300:
            await self._end(message, "ack")
        else:
            await self._failed(message, before, sent_ms, answer)

    async def _attempts(self, message: AsyncMessage) -> Attempts:
        """Return the earlier attempts of a task: a delivery does not carry them."""
        if message.attempt == 1:
            return Attempts()
        return Attempts.of((await self._client.get(self._name.topic, message.id)).reason)

    async def _failed(self, message: AsyncMessage, before: Attempts, sent_ms: int, answer: Answer) -> None:
        now_ms = self._now_ms()
        retry, first_ms = self.configuration.retry, before.first_ms or sent_ms
        attempts = Attempts(
            first_ms,
            sent_ms,
            now_ms if answer.status else 0,
            answer.status,
            before.answers + bool(answer.status),
        )
        reason = attempts.reason(reason_of(answer))
        if retry.exhausted(message.attempt, now_ms - first_ms):
            await self._end(message, "nack", dead=True, reason=reason)
        else:
            delay_s = retry.delay_ms(message.attempt) / 1000
            await self._end(message, "nack", delay=delay_s, reason=reason)

    def _headers(self, message: AsyncMessage, task: Task, before: Attempts) -> CIMultiDict[str]:
        found: CIMultiDict[str] = CIMultiDict()
        if task.body:
            found["content-type"] = "application/octet-stream"
        for name, value in task.headers.items():
            if plain(name) not in _OWN and not plain(name).startswith("x-cloudtasks-"):
                found[name] = value
        if task.identity is not None and self._issuer is not None:
            found["authorization"] = f"Bearer {self._issuer.token(task.identity, task.url)}"
        found["user-agent"] = "Google-Cloud-Tasks"
        found["x-cloudtasks-queuename"] = self._name.queue
        found["x-cloudtasks-taskname"] = message.key or message.id
        found["x-cloudtasks-taskretrycount"] = str(message.attempt - 1)
        found["x-cloudtasks-taskexecutioncount"] = str(before.answers)
        found["x-cloudtasks-tasketa"] = f"{message.due / 1000:.3f}"
        if before.http:
            found["x-cloudtasks-taskpreviousresponse"] = str(before.http)
        return found

    def _now_ms(self) -> int:
        return self._now_us() // 1000
