"""/v1/topics/T/receive, ack, nack, release and extend: messages under leases that belong to no connection."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field
from starlette.types import Receive, Scope, Send

from dueq import limits
from dueq.client.aio.message import AsyncMessage
from dueq.errors import Busy
from dueq.gateway import answer_room, instants
from dueq.gateway.access import TheService
from dueq.gateway.answer_room import TheAnswer
from dueq.gateway.bodies import JsonRoute
from dueq.gateway.gone import unless_gone
from dueq.gateway.service import Service
from dueq.gateway.v1 import contents
from dueq.gateway.v1.contents import Shown
from dueq.gateway.v1.model import Answer, Asked, Duration, Said, Topic

router = APIRouter(prefix="/v1/topics/{topic}", tags=["leases"], route_class=JsonRoute)

TOKEN: Final = "^[1-9][0-9]{0,18}$"
"""A lease's token as a text: its length is bounded, since Python reads no number of thousands of digits."""
Token = Annotated[str, Field(pattern=TOKEN, description="The lease: a number, as a string.", examples=["17"])]


class Lease(Asked):
    """A message that somebody has."""

    id: str
    token: Token


Leases = Annotated[list[Lease], Field(min_length=1, max_length=limits.GATEWAY_ITEMS_MAX)]


class Wanted(Asked):
    """How many messages, and for how long."""

    max: int = Field(default=10, ge=1, le=limits.PULL_ROWS_MAX, description="Messages at most.")
    wait: Duration = Field(
        default=0,
        description=f"How long to wait for one; at most {limits.GATEWAY_WAIT_MS_MAX // 1000} seconds.",
    )
    lease: Duration = Field(default=30, description="How long a message is yours; 100 ms to 12 hours.")
    consumer: str | None = Field(
        default=None,
        description="A name. It gets again first what it has received and does not list in `held`. Another gateway "
        "gives it new tokens, which end the older ones. A later request of a name ends one that waits.",
    )
    held: list[Lease] = Field(
        default=[], max_length=limits.GATEWAY_ITEMS_MAX, description="What this consumer has."
    )


class Received(Shown):
    """A message that is yours until its lease is over."""

    id: str
    token: str = Field(
        description="The lease; of two holders the one with the higher number is the right one."
    )
    key: str | None
    due: Said
    released_at: Said = Field(description="When it left its leader; never before `due`.")
    attempt: int = Field(description="1 for the first delivery.")
    rank: int
    group: str | None
    headers: dict[str, str]
    version: str
    expires: Said | None = Field(description="From when on it is not delivered any more.")


class ReceivedList(Answer):
    """Messages; none, if none was ready in time."""

    messages: list[Received]


class Acked(Asked):
    """Messages that are done."""

    messages: Leases


class Nacked(Asked):
    """Messages that have failed."""

    messages: Leases
    delay: Duration | None = Field(default=None, description="As the topic's back-off says, if left out.")
    reason: str = Field(default="", description="Why; kept with the message.")
    dead: bool = Field(default=False, description="Never deliver them again.")
    headers: dict[str, str] | None = Field(
        default=None,
        description="What the next delivery shows in place of their present ones, which stay if left out.",
    )


class Released(Asked):
    """Messages that are given back unhandled."""

    messages: Leases
    delay: Duration | None = Field(default=None, description="At once, if left out.")


class Extended(Asked):
    """Messages that take longer."""

    messages: Leases
    seconds: Duration = Field(description="How long the lease lasts from now on; 0 ends it, counted.")


class Settled(Answer):
    """The outcome for one lease."""

    id: str
    outcome: Literal["done", "stale", "unknown"] = Field(
        description="stale: the lease was over, or another had followed; nothing was changed."
    )


class SettledList(Answer):
    """The outcomes for the leases, in the order in which they were sent."""

    messages: list[Settled]


@router.post(
    "/receive", summary="Receive messages", response_model=None,
    responses={200: {"model": ReceivedList, "description": "They are yours for the length of the lease."}},
)  # fmt: skip
async def received(
    topic: Topic, asked: Wanted, service: TheService, answer: TheAnswer, request: Request
) -> Response:
    """Settle them by ack, nack, release or extend, at any gateway.

    If you are gone before the answer is on its way, they are released, and the attempt does not count. After that the
    lease runs out, and it does.
    """
    taking = service.receiving.take(
        topic,
        asked.max,
        instants.seconds(asked.wait, "body.wait", limits.GATEWAY_WAIT_MS_MAX),
        instants.duration(asked.lease, "body.lease", limits.LEASE_MS_MAX),
        asked.consumer,
        _pairs(asked.held),
    )
    messages = await unless_gone(request, taking)
    try:
        answer.take(sum(answer_room.shown(len(each.payload)) for each in messages))
    except Busy:
        service.receiving.release(topic, messages)
        raise
    return _Handed(request, service, topic, messages)


@router.post("/ack", summary="Say that messages are done")
async def acked(topic: Topic, asked: Acked, service: TheService) -> SettledList:
    return await settle(service, topic, asked.messages, "ack")


@router.post("/nack", summary="Say that messages have failed: they are delivered again, or dead")
async def nacked(topic: Topic, asked: Nacked, service: TheService) -> SettledList:
    delay = None if asked.delay is None else instants.duration(asked.delay, "body.delay")
    return await settle(
        service, topic, asked.messages, "nack", delay=delay, reason=asked.reason, dead=asked.dead,
        headers=asked.headers,
    )  # fmt: skip


@router.post("/release", summary="Give messages back; the attempt does not count")
async def released(topic: Topic, asked: Released, service: TheService) -> SettledList:
    delay = None if asked.delay is None else instants.duration(asked.delay, "body.delay")
    return await settle(service, topic, asked.messages, "release", delay=delay)


@router.post("/extend", summary="Keep messages for longer")
async def extended(topic: Topic, asked: Extended, service: TheService) -> SettledList:
    seconds = instants.duration(asked.seconds, "body.seconds", limits.LEASE_MS_MAX)
    return await settle(service, topic, asked.messages, "extend", seconds=seconds)


class _Handed(JSONResponse):
    """Received messages on their way to the client; they are released if it is gone."""

    def __init__(self, request: Request, service: Service, topic: str, messages: list[AsyncMessage]) -> None:
        super().__init__({"messages": [shown(each).model_dump(mode="json") for each in messages]})
        self._request, self._service, self._topic = request, service, topic
        self._leases = [(each.id, each.token) for each in messages]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        if self._leases and await self._request.is_disconnected():
            await self._service.client.settle(self._topic, self._leases, "release")
            await Response(status_code=400)(scope, receive, send)  # nobody reads it
            return
        await super().__call__(scope, receive, send)


_OUTCOMES: Final = {"DONE": "done", "UNKNOWN": "unknown"}


async def settle(service: Service, topic: str, leases: list[Lease], how: str, **more: Any) -> SettledList:
    """Settle leases; raises as the SDK's `settle`."""
    outcomes = await service.settle(topic, _pairs(leases), how, **more)
    return SettledList(
        messages=[
            Settled(id=each.id, outcome=_OUTCOMES.get(outcome.name, "stale"))  # type: ignore[arg-type]
            for each, outcome in zip(leases, outcomes, strict=True)
        ]
    )


def _pairs(leases: list[Lease]) -> list[tuple[str, int]]:
    return [(each.id, int(each.token)) for each in leases]


def shown(found: AsyncMessage) -> Received:
    """Return a message as answers have it."""
    return Received(
        id=found.id, token=str(found.token), key=found.key or None, due=instants.text(found.due),
        released_at=instants.text(found.released_at), attempt=found.attempt, rank=found.rank,
        group=found.group or None, headers=found.headers, version=str(found.version),
        expires=instants.text_or_none(found.expires), **contents.shown(found.payload),
    )  # fmt: skip
