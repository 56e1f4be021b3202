"""/API/v1/queues"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from dueq.gateway.faces.doq import failures
from dueq.gateway.faces.doq.access import TheDoq
from dueq.gateway.faces.doq.failures import DoqRoute
from dueq.gateway.faces.doq.model import NewQueue, Update
from dueq.gateway.faces.doq.queue import Queue
from dueq.gateway.faces.doq.verbs import Info

router = APIRouter(prefix="/API/v1/queues", route_class=DoqRoute, include_in_schema=False)

Document = dict[str, Any]


@router.post("")
async def create(doq: TheDoq, request: Request) -> Document:
    asked = NewQueue.model_validate(await failures.body_of(request))
    said = asked.settings
    strategy = said.strategy or ("round_robin" if asked.type == "fair" else "")
    await doq.create(
        Queue(asked.name, asked.type, strategy, said.max_unacked or 0, said.ack_timeout or 0)  # type: ignore[arg-type]
    )
    return {"status": "CREATED", "name": asked.name, "type": asked.type, "settings": said.echo()}


@router.put("/{name}")
async def updated(name: str, doq: TheDoq, request: Request) -> Document:
    asked = Update.model_validate(await failures.body_of(request))
    said = asked.settings
    await doq.update(name, said.strategy, said.max_unacked or 0, said.ack_timeout or 0)  # type: ignore[arg-type]
    return {"status": "UPDATED", "name": name, "settings": said.echo()}


@router.delete("/{name}")
async def deleted(name: str, doq: TheDoq) -> Document:
    await doq.delete(name)
    return {"status": "DELETED"}


@router.get("")
async def listed(doq: TheDoq) -> Document:
    return {"queues": [_shown(each) for each in await doq.infos()]}


@router.get("/{name}")
async def shown(name: str, doq: TheDoq) -> Document:
    return _shown(await doq.info(name))


def _shown(found: Info) -> Document:
    return {
        "name": found.queue.name,
        "type": found.queue.type,
        "settings": found.queue.settings(),
        **{f"{done}_rps": rate for done, rate in found.rates.items()},
        "ready": found.ready,
        "unacked": found.unacked,
        "total": found.ready + found.unacked,
    }
