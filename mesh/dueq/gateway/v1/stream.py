"""/v1/topics/T/stream and socket: messages as they fall due, by server-sent events, NDJSON or a WebSocket."""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request, WebSocket
from fastapi.responses import Response
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from dueq import limits
from dueq.client import pulls
from dueq.client.aio.message import AsyncMessage
from dueq.errors import DueqError
from dueq.gateway import bodies, instants, problems
from dueq.gateway.access import TheService, refuse_second
from dueq.gateway.flows import Flow
from dueq.gateway.service import Service
from dueq.gateway.v1.leases import TOKEN, Leases, settle, shown
from dueq.gateway.v1.model import Asked, Duration, Topic

router = APIRouter(prefix="/v1/topics/{topic}", tags=["leases"])

EVENTS: Final = "text/event-stream"
NDJSON: Final = "application/x-ndjson"
_HEARTBEAT_S: Final = limits.GATEWAY_HEARTBEAT_MS / 1000
_LAST_S: Final = 5.0
"""How long a socket that is closed may take to say so, once the commands that have come are at work."""
_STOPPING: Final = problems.of_status(503, "this gateway is about to end; connect again", retry=True)
_SUPERSEDED_CODE: Final = 4409
_REFUSED_CODE: Final = 4400
_RESTART_CODE: Final = 1012


class Wished(Asked):
    """How a stream is to be."""

    model_config = ConfigDict(strict=False)

    consumer: str | None = Field(
        default=None,
        description="A name. It gets again first what it has received and does not list in `held`. Another gateway "
        "gives it new tokens, which end the older ones. A later stream of a name ends the earlier one.",
    )
    credit: int = Field(
        default=100, ge=1, le=limits.GATEWAY_CREDIT_MAX, description="Messages that are not settled, at most."
    )
    lease: str = Field(default="30s", description="How long a message is yours; 100 ms to 12 hours.")
    held: str = Field(
        default="",
        description="What this consumer still works on of an earlier stream, as `ID:TOKEN`, separated by commas. Its "
        "tokens stay good, and it takes credit.",
    )


class _Settling(Asked):
    """A command of a socket that settles messages."""

    do: Literal["ack", "nack", "release", "extend"]
    messages: Leases
    delay: Duration | None = None
    reason: str = ""
    dead: bool = False
    seconds: Duration | None = None
    ref: str | int | None = None


class _Giving(Asked):
    """A command of a socket that changes its credit."""

    do: Literal["credit"]
    credit: int = Field(ge=0, le=limits.GATEWAY_CREDIT_MAX)
    ref: str | int | None = None


_COMMAND: Final[TypeAdapter[_Settling | _Giving]] = TypeAdapter(
    Annotated[_Settling | _Giving, Field(discriminator="do")]
)


@router.get(
    "/stream", summary="Receive messages as they fall due", response_class=Response,
    responses={
        200: {
            "description": "Server-sent events: `message` (a message as `receive` has it), `superseded` and `end` (a "
            "problem; nothing follows). With `accept: application/x-ndjson` a line each: a message, `{}` now and then, "
            'or `{"end": …}`.',
            "content": {EVENTS: {"schema": {"type": "string"}}, NDJSON: {"schema": {"type": "string"}}},
        }
    },
)  # fmt: skip
async def stream(
    topic: Topic, asked: Annotated[Wished, Query()], service: TheService, request: Request
) -> Response:
    """Settle messages by ack, nack, release or extend; while `credit` messages are not settled, none follow.

    They are yours for the length of the lease, though the connection ends; `Last-Event-ID` has no effect. A comment
    comes every 15 seconds. A client that takes less than 480 KiB in 30 seconds while more waits for it is cut off.
    """
    flow = await _flow(service, topic, asked)
    lines = NDJSON in request.headers.get("accept", "")
    return _Streamed(flow, _Lines() if lines else _Events())


async def _flow(service: Service, topic: str, asked: Wished) -> Flow:
    lease = instants.duration(asked.lease, "query.lease", limits.LEASE_MS_MAX)
    if lease < timedelta(milliseconds=limits.LEASE_MS_MIN):
        least = limits.LEASE_MS_MIN / 1000
        raise problems.Unfit(
            f"query.lease is at least {least} s, not {asked.lease!r:.80}", asked.lease, least, "query.lease"
        )
    held = _held(asked.held)
    pulls.pull(topic, 1, 0, lease, asked.consumer, held)  # refuses what no pull of the stream could ask for
    await service.client.describe(topic)
    return await service.flows.open(topic, asked.consumer, lease, asked.credit, held)


def _held(text: str) -> list[pulls.Lease]:
    """Return the leases that are listed, separated by commas."""
    listed = text.split(",") if text else []
    if len(listed) > limits.GATEWAY_CREDIT_MAX:
        most = limits.GATEWAY_CREDIT_MAX
        raise problems.Unfit(
            f"query.held lists {len(listed)} messages: at most {most}", len(listed), most, "query.held"
        )
    found = []
    for each in listed:
        message_id, _, token = each.partition(":")
        if re.fullmatch(TOKEN, token) is None:
            raise problems.Unfit(
                f"query.held is ID:TOKEN, separated by commas, not {each!r:.80}", each, None, "query.held"
            )
        found.append((message_id, int(token)))
    return found


class _Events:
    """Server-sent events."""

    media_type = EVENTS
    beginning = b"retry: 1000\n\n"
    heartbeat = b":\n\n"

    def message(self, document: dict[str, Any]) -> bytes:
        """One message."""
        return _event("message", document, document["id"])

    def end(self, problem: problems.Document) -> bytes:
        """Nothing follows."""
        return _event("superseded" if problem["error"] == "Superseded" else "end", problem)


class _Lines:
    """NDJSON."""

    media_type = NDJSON
    beginning = b""
    heartbeat = b"{}\n"

    def message(self, document: dict[str, Any]) -> bytes:
        """One message."""
        return _json(document) + b"\n"

    def end(self, problem: problems.Document) -> bytes:
        """Nothing follows."""
        return _json({"end": problem}) + b"\n"


def _json(document: Any) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _event(name: str, document: dict[str, Any], number: str | None = None) -> bytes:
    head = f"event: {name}\n" + (f"id: {number}\n" if number is not None else "")
    return head.encode() + b"data: " + _json(document) + b"\n\n"


# ---------------------------------------------------------------- HTTP


class _Streamed(Response):
    """An answer that goes on while messages come."""

    def __init__(self, flow: Flow, form: _Events | _Lines) -> None:
        super().__init__(None, 200, {"x-accel-buffering": "no"}, form.media_type)
        del self.headers["content-length"]
        self._flow, self._form = flow, form

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""

        async def part(body: bytes, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": body, "more_body": more})

        gone = asyncio.create_task(_disconnected(receive))
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            await part(self._form.beginning)
            problem = await _follow(
                self._flow,
                gone,
                lambda document: part(self._form.message(document)),
                lambda: part(self._form.heartbeat),
            )
            if problem is not None:
                await part(self._form.end(problem), more=False)
        finally:
            gone.cancel()
            self._flow.close()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _follow(
    flow: Flow,
    gone: asyncio.Task[None],
    tell: Callable[[dict[str, Any]], Awaitable[None]],
    beat: Callable[[], Awaitable[None]] | None,
) -> problems.Document | None:
    """Send what comes until there is no more; return why, or None if the client is gone."""
    while True:
        coming, messages = asyncio.create_task(flow.more()), None
        try:
            while not coming.done() and not gone.done():
                await asyncio.wait((coming, gone), timeout=_HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
                if not coming.done() and not gone.done() and beat is not None:
                    await beat()
            if gone.done() and not coming.done():
                return None
            messages = coming.result()
        except DueqError as error:
            return problems.of_error(error)
        finally:
            # What has come, and is not handed over since this ends meanwhile, goes back.
            if messages is None and not coming.cancel() and not coming.cancelled() and not coming.exception():
                flow.unsent(coming.result())
        if not messages:
            return _STOPPING
        await _hand_over(flow, messages, gone, tell)


async def _hand_over(
    flow: Flow,
    messages: Sequence[AsyncMessage],
    gone: asyncio.Task[None],
    tell: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    """Send messages one by one, no faster than the client takes them; those that do not leave go back.

    So do those for which there is no credit any more.
    """
    flow.sent(messages)
    left = deque(messages)
    try:
        await asyncio.sleep(0)  # the server may know already that the client is gone: then `gone` is done now
        while left and not gone.done():
            if flow.excess:
                flow.unsent([left.pop() for _ in range(min(flow.excess, len(left)))])
                continue
            if left[0].lease <= 0:
                flow.unsent([left.popleft()])
                continue
            await tell(shown(left[0]).model_dump(mode="json"))
            # A server waits for its client before it writes, and writes nothing to one that has gone meanwhile.
            if not gone.done():
                left.popleft()
    finally:
        flow.unsent(left)


# ---------------------------------------------------------------- WebSocket


@router.websocket("/socket")
async def socket(websocket: WebSocket, topic: str, service: TheService) -> None:
    """Messages out, acks in. Texts of JSON both ways."""
    try:
        for name in websocket.query_params:
            refuse_second(websocket.query_params, name)
        asked = Wished.model_validate(dict(websocket.query_params))
        flow = await _flow(service, topic, asked)
    except ValidationError as error:
        await websocket.send_denial_response(problems.response(problems.of_validation(error.errors())))
        return
    except DueqError as error:
        await websocket.send_denial_response(problems.response(problems.of_error(error)))
        return
    try:
        await websocket.accept()
        await _Socket(websocket, service, flow).run()
    finally:
        flow.close()


def _ref(given: object) -> str | int | None:
    """Return what the client calls a command, also one that does not fit."""
    found = given.get("ref") if isinstance(given, dict) else None
    return found if isinstance(found, str) or type(found) is int else None


class _Socket:
    """One WebSocket."""

    def __init__(self, websocket: WebSocket, service: Service, flow: Flow) -> None:
        self._websocket, self._service, self._flow = websocket, service, flow
        self._room = asyncio.Semaphore(limits.GATEWAY_COMMANDS_MAX)
        self._at_work: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until either side has enough."""
        reading = asyncio.create_task(self._read())
        try:
            problem = await _follow(
                self._flow, reading, lambda document: self._send({"type": "message", **document}), None
            )
            if problem is not None:
                superseded = problem["error"] == "Superseded"
                await self._send({"type": "superseded" if superseded else "end", "problem": problem})
                code = _RESTART_CODE if problem is _STOPPING else _REFUSED_CODE
                await self._websocket.close(_SUPERSEDED_CODE if superseded else code)
        except (WebSocketDisconnect, RuntimeError):
            # It was closed in the meantime: a server tells that behind what the client has said before.
            await self._until_read(reading)
        finally:
            reading.cancel()
        # What the client has said before it went is done, though nobody hears the outcome.
        await asyncio.gather(*self._at_work, return_exceptions=True)

    async def _until_read(self, reading: asyncio.Task[None]) -> None:
        """Let the commands be read that have come; a server that never tells the end is not waited for."""
        while not reading.done():
            await asyncio.wait([reading], timeout=_LAST_S)
            if not self._room.locked():  # else it waits for those at work, and some may be left behind them
                return

    async def _send(self, document: dict[str, Any]) -> None:
        await self._websocket.send_text(_json(document).decode())

    async def _read(self) -> None:
        """Take commands, and no more of them than are worked off."""
        while True:
            message: Message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            await self._room.acquire()
            task = asyncio.create_task(self._answer(message.get("text")))
            self._at_work.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._at_work.discard(task)
        self._room.release()
        if not task.cancelled():
            task.exception()

    async def _answer(self, text: str | None) -> None:
        ref: str | int | None = None
        try:
            if text is None:
                raise problems.Refusal(400, "commands are texts of JSON, not bytes")
            given = bodies.parsed(text.encode())
            ref = _ref(given)
            command = _COMMAND.validate_python(given)
            if isinstance(command, _Giving):
                self._flow.give(command.credit)
                document: dict[str, Any] = {"type": "credit", "credit": command.credit}
            else:
                document = {"type": "settled", "messages": await self._settled(command)}
        except ValidationError as error:
            document = {"type": "problem", "problem": problems.of_validation(error.errors())}
        except HTTPException as error:
            document = {"type": "problem", "problem": problems.of_status(error.status_code, error.detail)}
        except DueqError as error:
            document = {"type": "problem", "problem": problems.of_error(error)}
        if ref is not None:
            document["ref"] = ref
        with suppress(WebSocketDisconnect, RuntimeError):
            await self._send(document)

    async def _settled(self, command: _Settling) -> list[dict[str, str]]:
        most = limits.LEASE_MS_MAX if command.do == "extend" else limits.DUE_MS_MAX
        seconds = None if command.seconds is None else instants.duration(command.seconds, "seconds", most)
        delay = None if command.delay is None else instants.duration(command.delay, "delay")
        found = await settle(
            self._service, self._flow.topic, command.messages, command.do, delay=delay, seconds=seconds,
            reason=command.reason, dead=command.dead,
        )  # fmt: skip
        return [each.model_dump() for each in found.messages]
