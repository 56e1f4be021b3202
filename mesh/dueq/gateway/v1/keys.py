"""/v1/topics/T/keys/KEY: the message that a unique key names."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response, status

from dueq import MessageState
from dueq.gateway import instants
from dueq.gateway.access import TheService
from dueq.gateway.answer_room import TheAnswer
from dueq.gateway.bodies import JsonRoute
from dueq.gateway.service import Service
from dueq.gateway.v1.changes import Change, Move, said
from dueq.gateway.v1.messages import MessageAnswer, Scheduled, message_answer
from dueq.gateway.v1.model import Topic
from dueq.gateway.v1.preconditions import IfMatch, Seen, etag, version_of

router = APIRouter(prefix="/v1/topics/{topic}/keys", tags=["messages"], route_class=JsonRoute)

Key = Annotated[
    str, Path(description="The key of a message, in a topic with unique keys.", examples=["order-42"])
]
Group = Annotated[
    str | None,
    Query(description="Of the message; only a fair topic in several partitions needs it.", max_length=255),
]


@router.get("/{key:text}", summary="Show the message that a key names")
async def shown(
    topic: Topic,
    key: Key,
    service: TheService,
    answer: TheAnswer,
    response: Response,
    group: Group = None,
    payload: Annotated[bool, Query(description="Show the payload too.")] = True,
    linearizable: Annotated[
        bool, Query(description="See every change that was confirmed before, whoever made it.")
    ] = False,
) -> MessageAnswer:
    """The one that waits or that a consumer has. The ETag is its id and version."""

    async def read(payload: bool) -> MessageState:
        return await service.client.get(
            topic, key=key, group=group, payload=payload, linearizable=linearizable
        )

    found = await (answer.read(read, lambda found: found.size) if payload else read(False))
    response.headers["etag"] = etag(found.id, found.version)
    return message_answer(found)


@router.delete(
    "/{key:text}", status_code=status.HTTP_204_NO_CONTENT, summary="Cancel the message that a key names"
)
async def cancelled(topic: Topic, key: Key, service: TheService, seen: IfMatch, group: Group = None) -> None:
    """Once this is answered, the message is never delivered."""
    version = await _version(service, topic, key, group, seen)
    await service.client.producer(topic).cancel(key=key, group=group, if_version=version)


@router.post("/{key:text}/move", summary="Give the message that a key names another instant")
async def moved(
    topic: Topic, key: Key, asked: Move, service: TheService, seen: IfMatch, group: Group = None
) -> Scheduled:
    due_ms = await service.due_ms(*said(asked))
    found = await service.client.get(topic, key=key, group=group)
    version = version_of(seen, found.id)
    await service.client.producer(topic).move(found.id, due_ms, if_version=version)
    return Scheduled(id=found.id, due=instants.text(due_ms), key=key)


@router.post(
    "/{key:text}/change", status_code=status.HTTP_204_NO_CONTENT,
    summary="Give the message that a key names another rank",
)  # fmt: skip
async def changed(
    topic: Topic, key: Key, asked: Change, service: TheService, seen: IfMatch, group: Group = None
) -> None:
    version = await _version(service, topic, key, group, seen)
    await service.client.producer(topic).change(rank=asked.rank, key=key, group=group, if_version=version)


async def _version(
    service: Service, topic: str, key: str, group: str | None, seen: Seen | None
) -> int | None:
    """The version that the message must have; raises VersionDiffers if the key names another than the one seen."""
    if seen is None:
        return None
    return version_of(seen, (await service.client.get(topic, key=key, group=group)).id)
