"""/API/v1/queues/NAME/messages and /API/v1/ids"""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter, Request, Response, status
from starlette.requests import ClientDisconnect

from dueq.gateway.answer_room import TheAnswer
from dueq.gateway.faces.doq import failures, number
from dueq.gateway.faces.doq.access import TheDoq
from dueq.gateway.faces.doq.failures import DoqError, DoqRoute, Kind
from dueq.gateway.faces.doq.model import Nack, NewMessage, NewPriority, Numbers
from dueq.gateway.faces.doq.queue import DEFAULT_GROUP
from dueq.gateway.faces.doq.verbs import Message
from dueq.gateway.gone import unless_gone

router = APIRouter(prefix="/API/v1", route_class=DoqRoute, include_in_schema=False)

Document = dict[str, Any]
_BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("", "0", "f", "F", "FALSE", "false", "False"), False),
}


@router.post("/ids")
async def ids(doq: TheDoq, request: Request) -> Document:
    asked = Numbers.model_validate(await failures.body_of(request))
    return {"ids": [str(each) for each in await doq.numbers(asked.number)]}


@router.post("/queues/{name}/messages")
async def enqueued(name: str, doq: TheDoq, request: Request) -> Document:
    asked = NewMessage.model_validate(await failures.body_of(request))
    group = asked.group or DEFAULT_GROUP
    own = number.chosen(asked.id or "")
    made = await doq.enqueue(name, own, group, asked.priority, asked.content, asked.metadata)
    return _document("ENQUEUED", Message(made, group, asked.priority, asked.content, asked.metadata or {}))


@router.get("/queues/{name}/messages")
async def dequeued(name: str, doq: TheDoq, answer: TheAnswer, request: Request) -> Document:
    given = request.query_params.get("ack", "")
    if given not in _BOOLEANS:
        raise DoqError(Kind.INVALID, "validation failed", "invalid boolean", "query.ack", given)
    ack = _BOOLEANS[given]
    message, lease = await unless_gone(request, doq.take(name, ack, 0.0, answer.take))
    if await request.is_disconnected():
        if not ack:
            await doq.give_back(name, lease)
        raise ClientDisconnect
    return _document("DEQUEUED", message)


@router.get("/queues/{name}/messages/{text}")
async def shown(name: str, text: str, doq: TheDoq, answer: TheAnswer) -> Document:
    found = await doq.get(name, number.of_path(text))
    answer.take(len(found.content.encode()))
    return _document("GOT", found)


@router.delete("/queues/{name}/messages/{text}", status_code=status.HTTP_204_NO_CONTENT)
async def deleted(name: str, text: str, doq: TheDoq) -> Response:
    await doq.remove(name, number.of_path(text))
    return Response(status_code=204)


@router.post("/queues/{name}/messages/{text}/ack")
async def acked(name: str, text: str, doq: TheDoq) -> Document:
    await doq.ack(name, number.of_path(text))
    return {"status": "ACKNOWLEDGED", "id": text}


@router.post("/queues/{name}/messages/{text}/nack")
async def nacked(name: str, text: str, doq: TheDoq, request: Request) -> Document:
    asked = Nack.model_validate(await failures.body_of(request))
    await doq.nack(name, number.of_path(text), asked.priority, asked.metadata)
    return {"status": "UNACKNOWLEDGED", "id": text, "priority": 0, "metadata": asked.metadata}


@router.post("/queues/{name}/messages/{text}/touch")
async def touched(name: str, text: str, doq: TheDoq) -> Document:
    await doq.touch(name, number.of_path(text))
    return {"status": "TOUCHED", "id": text}


@router.put("/queues/{name}/messages/{text}/priority")
async def prioritized(name: str, text: str, doq: TheDoq, request: Request) -> Document:
    asked = NewPriority.model_validate(await failures.body_of(request))
    await doq.prioritize(name, number.of_path(text), asked.priority)
    return {"status": "UPDATED", "id": text, "priority": asked.priority}


def _document(status: str, message: Message) -> Document:
    shown: Document = {
        "status": status, "id": str(message.number), "group": message.group, "priority": message.priority,
        "content": message.content,
    }  # fmt: skip
    return shown | ({"metadata": dict(message.metadata)} if message.metadata else {})
