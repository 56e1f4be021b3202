"""doq's gRPC API: the verbs as 16 procedures of the service `queue.DOQ`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, Literal, NamedTuple

import grpc

from dueq.client.pulls import Lease
from dueq.errors import DueqError
from dueq.gateway.faces.doq import protobuf
from dueq.gateway.faces.doq.failures import DoqError, Kind, Statuses
from dueq.gateway.faces.doq.number import NUMBER_MAX
from dueq.gateway.faces.doq.queue import DEFAULT_GROUP, UNACKED_MAX, Queue
from dueq.gateway.faces.doq.verbs import Doq, Info, Message
from dueq.gateway.logs import log

_CALLS_MAX: Final = 1024
"""Most calls, streams included, at a time."""
_CREDIT_MAX: Final = 1 << 20
"""Most messages that one stream may ask for ahead."""
_LOOK_S: Final = 20.0
"""How long a stream waits for a message before it looks whether there is such a queue."""
_AGAIN_S: Final = 1.0
"""How long a stream waits for its queue to be made."""
_STOP_S: Final = 5.0
_CODES: Final = {
    Kind.MISSING: grpc.StatusCode.NOT_FOUND,
    Kind.MISSING_HERE: grpc.StatusCode.NOT_FOUND,
    Kind.UNFIT: grpc.StatusCode.INVALID_ARGUMENT,
    Kind.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
}
_TIMEOUTS_S: Final = (10, 12 * 3600)

Rows = AsyncIterator[Any]


class _Verb(NamedTuple):
    """One procedure: its function, and the text of older versions when it fails."""

    does: Callable[[Any], Awaitable[Any]]
    failure: str


class RpcServer:
    """Serves doq's gRPC API at an address, from `start` to `close`. For the tasks of one loop.

    Args:
        doq: the verbs.
        address: HOST:PORT.
        errors: whether codes are those of doq's older versions, or of later ones.
    """

    def __init__(self, doq: Doq, address: str, errors: Statuses) -> None:
        self._doq, self._address, self._errors = doq, address, errors
        self._classes = protobuf.classes()
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Begin to serve."""
        server = grpc.aio.server(maximum_concurrent_rpcs=_CALLS_MAX)
        handlers = {name: self._unary(name, verb) for name, verb in self._verbs().items()}
        handlers["EnqueueStream"] = self._handler("Enqueue", self._enqueue_stream)
        handlers["DequeueStream"] = self._handler("Dequeue", self._dequeue_stream)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(protobuf.SERVICE, handlers),))
        server.add_insecure_port(self._address)
        await server.start()
        self._server = server
        log.info("doq.grpc_started", address=self._address)

    async def close(self) -> None:
        """Let calls under way end within some seconds. Once more does nothing."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(_STOP_S)

    def _verbs(self) -> dict[str, _Verb]:
        return {
            "GenerateIDs": _Verb(self._ids, "number must be between 1 and 1000"),
            "CreateQueue": _Verb(self._create, "failed to create a queue"),
            "UpdateQueue": _Verb(self._update, "failed to update a queue"),
            "DeleteQueue": _Verb(self._delete, "failed to delete a queue"),
            "GetQueue": _Verb(self._queue, "failed to get a queue"),
            "GetQueues": _Verb(self._queues, "failed to get queues"),
            "Enqueue": _Verb(self._enqueue, "failed to enqueue a message"),
            "Dequeue": _Verb(self._dequeue, "failed to dequeue a message"),
            "Get": _Verb(self._get, "failed to get a message"),
            "Delete": _Verb(self._remove, "failed to delete a message"),
            "Ack": _Verb(self._ack, "failed to ack a message"),
            "Nack": _Verb(self._nack, "failed to nack a message"),
            "UpdatePriority": _Verb(self._prioritize, "failed to update priority of a message"),
            "Touch": _Verb(self._touch, "failed to touch a message"),
        }

    def _unary(self, name: str, verb: _Verb) -> Any:
        async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            async with self._said(context, verb.failure):
                return await verb.does(request)

        return grpc.unary_unary_rpc_method_handler(
            call,
            request_deserializer=self._classes[f"{name}Request"].FromString,
            response_serializer=self._classes[f"{name}Response"].SerializeToString,
        )

    def _handler(self, name: str, call: Callable[[Rows, Any], Rows]) -> Any:
        return grpc.stream_stream_rpc_method_handler(
            call,
            request_deserializer=self._classes[f"{name}Request"].FromString,
            response_serializer=self._classes[f"{name}Response"].SerializeToString,
        )

    @contextlib.asynccontextmanager
    async def _said(self, context: Any, failure: str) -> AsyncIterator[None]:
        """Have errors end the call as doq ends it."""
        try:
            yield
        except (DoqError, DueqError) as error:
            if self._errors == "legacy":
                await context.abort(grpc.StatusCode.UNKNOWN, failure)
            kind = error.kind if isinstance(error, DoqError) else Kind.UNAVAILABLE
            detail = error.detail if isinstance(error, DoqError) else failure
            await context.abort(_CODES.get(kind, grpc.StatusCode.INTERNAL), f"{detail}: {error}")

    # ---------------------------------------------------------------- queues

    async def _ids(self, request: Any) -> Any:
        if not 1 <= request.number <= 1000:
            raise _invalid(f"number must be between 1 and 1000, not {request.number}")
        return self._classes["GenerateIDsResponse"](success=True, ids=await self._doq.numbers(request.number))

    async def _create(self, request: Any) -> Any:
        if request.type not in ("delayed", "fair"):
            raise _invalid(f"the type of a queue is delayed or fair, not {request.type!r:.80}")
        strategy, timeout_s = self._settings(request.settings)
        if request.type == "fair":
            strategy = strategy or "round_robin"
        await self._doq.create(
            Queue(request.name, request.type, strategy, request.settings.max_unacked, timeout_s)
        )
        return self._classes["CreateQueueResponse"](success=True)

    async def _update(self, request: Any) -> Any:
        strategy, timeout_s = self._settings(request.settings)
        await self._doq.update(request.name, strategy, request.settings.max_unacked, timeout_s)
        return self._classes["UpdateQueueResponse"](success=True)

    async def _delete(self, request: Any) -> Any:
        await self._doq.delete(request.name)
        return self._classes["DeleteQueueResponse"](success=True)

    async def _queue(self, request: Any) -> Any:
        return self._shown(await self._doq.info(request.name))

    async def _queues(self, request: Any) -> Any:
        found = [each for each in await self._doq.infos() if request.type in ("", each.queue.type)]
        return self._classes["GetQueuesResponse"](queues=[self._shown(each) for each in found])

    def _settings(self, given: Any) -> tuple[Literal["round_robin", "weighted", ""], int]:
        """Return a strategy and a time-out in seconds; 0: as usual."""
        if not 0 <= given.strategy < len(protobuf.STRATEGIES):
            raise _invalid(f"a strategy is 0 to {len(protobuf.STRATEGIES) - 1}, not {given.strategy}")
        if given.max_unacked > UNACKED_MAX:
            raise _invalid(f"max_unacked is at most {UNACKED_MAX}, not {given.max_unacked}")
        low, high = _TIMEOUTS_S
        if given.ack_timeout and not low <= given.ack_timeout <= high:
            raise _invalid(f"ack_timeout is {low} to {high} seconds, not {given.ack_timeout}")
        return ("", "round_robin", "weighted")[given.strategy], given.ack_timeout

    def _shown(self, found: Info) -> Any:
        queue, rates = found.queue, found.rates
        strategy = protobuf.STRATEGIES.index(queue.strategy.upper() or protobuf.STRATEGIES[0])
        return self._classes["GetQueueResponse"](
            name=queue.name,
            type=queue.type,
            settings={
                "strategy": strategy, "max_unacked": queue.max_unacked, "ack_timeout": queue.lease_s,
            },
            stats={f"{done}RPS": rate for done, rate in rates.items()},
            ready=found.ready,
            unacked=found.unacked,
            total=found.ready + found.unacked,
        )  # fmt: skip

    # ---------------------------------------------------------------- messages

    async def _enqueue(self, request: Any) -> Any:
        _check(request.priority, request.id)
        made = await self._doq.enqueue(
            request.queueName, request.id or None, request.group or DEFAULT_GROUP, request.priority,
            request.content, dict(request.metadata),
        )  # fmt: skip
        said = Message(made, request.group, request.priority, request.content, request.metadata)
        return self._message("EnqueueResponse", said)

    async def _dequeue(self, request: Any) -> Any:
        return self._message("DequeueResponse", await self._doq.dequeue(request.queueName, request.ack))

    async def _get(self, request: Any) -> Any:
        return self._message("GetResponse", await self._doq.get(request.queueName, request.id))

    async def _remove(self, request: Any) -> Any:
        await self._doq.remove(request.queueName, request.id)
        return self._classes["DeleteResponse"](success=True)

    async def _ack(self, request: Any) -> Any:
        await self._doq.ack(request.queueName, request.id)
        return self._classes["AckResponse"](success=True)

    async def _nack(self, request: Any) -> Any:
        _check(request.priority)
        await self._doq.nack(request.queueName, request.id, request.priority, dict(request.metadata))
        return self._classes["NackResponse"](success=True)

    async def _prioritize(self, request: Any) -> Any:
        _check(request.priority)
        await self._doq.prioritize(request.queueName, request.id, request.priority)
        return self._classes["UpdatePriorityResponse"](success=True)

    async def _touch(self, request: Any) -> Any:
        await self._doq.touch(request.queueName, request.id)
        return self._classes["TouchResponse"](success=True)

    def _message(self, kind: str, found: Message) -> Any:
        return self._classes[kind](
            success=True, id=found.number, group=found.group, priority=found.priority,
            content=found.content, metadata=found.metadata,
        )  # fmt: skip

    # ---------------------------------------------------------------- streams

    async def _enqueue_stream(self, requests: Rows, context: Any) -> Rows:
        """One answer per request, in order; the first failure ends the call."""
        async for request in requests:
            async with self._said(context, "failed to enqueue a message"):
                answer = await self._enqueue(request)
            yield answer

    async def _dequeue_stream(self, requests: Rows, context: Any) -> Rows:
        """The first request names the queue; it and every later one ask for one message more."""
        first = await anext(aiter(requests), None)
        if first is None:
            await context.abort(grpc.StatusCode.UNKNOWN, "EOF")
            return
        credit = _Credit(requests)
        try:
            while await credit.take():
                message, lease = await self._next(first.queueName, first.ack)
                sent = False
                try:
                    yield self._message("DequeueResponse", message)
                    sent = True
                finally:
                    if not sent and not first.ack:
                        with contextlib.suppress(DueqError):  # then it comes back when its lease is over
                            await self._doq.give_back(first.queueName, lease)
        finally:
            credit.close()
        await context.abort(grpc.StatusCode.UNKNOWN, "EOF")

    async def _next(self, name: str, ack: bool) -> tuple[Message, Lease]:
        """Wait for a message, and for the queue, too."""
        while True:
            begun = asyncio.get_running_loop().time()
            try:
                return await self._doq.take(name, ack, _LOOK_S)
            except DoqError:
                # Without the queue the answer comes at once.
                await asyncio.sleep(max(_AGAIN_S - (asyncio.get_running_loop().time() - begun), 0))
            except DueqError as error:
                log.info("doq.stream_waits", queue=name, error=str(error))
                await asyncio.sleep(_AGAIN_S)


class _Credit:
    """How many messages a stream's client has asked for."""

    def __init__(self, requests: Rows) -> None:
        self._left, self._ended, self._changed = 1, False, asyncio.Event()
        self._reading = asyncio.create_task(self._read(requests))

    async def _read(self, requests: Rows) -> None:
        try:
            async for _ in requests:
                self._left = min(self._left + 1, _CREDIT_MAX)
                self._changed.set()
        finally:
            self._ended = True
            self._changed.set()

    async def take(self) -> bool:
        """Wait until a message is asked for; False: nothing more will be."""
        while not self._left and not self._ended:
            self._changed.clear()
            await self._changed.wait()
        self._left -= 1
        return self._left >= 0

    def close(self) -> None:
        """The stream has ended."""
        self._reading.cancel()


def _check(priority: int, number: int = 0) -> None:
    if priority < 0:
        raise _invalid(f"a priority is 0 or more, not {priority}")
    if number > NUMBER_MAX:
        raise _invalid(f"an id is at most {NUMBER_MAX}, not {number}")


def _invalid(text: str) -> DoqError:
    return DoqError(Kind.INVALID, "invalid request", text)
