"""/v1/topics/T/messages: move, change, trigger and cancel, one or many by id; redrive and discard dead ones."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, status
from pydantic import Field

from dueq import Outcome, limits
from dueq.gateway import instants
from dueq.gateway.access import TheService
from dueq.gateway.bodies import JsonRoute
from dueq.gateway.problems import Unfit
from dueq.gateway.v1.messages import Scheduled
from dueq.gateway.v1.model import Answer, Asked, Duration, Instant, Topic
from dueq.gateway.v1.preconditions import IfMatch, version_of

router = APIRouter(prefix="/v1/topics/{topic}/messages", tags=["messages"], route_class=JsonRoute)

Version = Annotated[
    str, Field(pattern="^[0-9]{1,18}$", description="The version that it must have.", examples=["17"])
]


class Move(Asked):
    """When instead."""

    due: Instant | None = None
    delay: Duration | None = None


class Change(Asked):
    """The new values."""

    rank: int = Field(ge=0, le=limits.RANK_MAX)


class Target(Asked):
    """A message, and the version that it must have, if that matters."""

    id: str
    version: Version | None = None


Targets = Annotated[list[Target], Field(min_length=1, max_length=limits.GATEWAY_ITEMS_MAX)]


class Chosen(Asked):
    """Messages."""

    messages: Targets


class MoveMany(Move):
    """Messages, and when instead."""

    messages: Targets


class ChangeMany(Change):
    """Messages, and what instead."""

    messages: Targets


class DiscardMany(Asked):
    """Dead messages, by their ids or with the versions that they must have."""

    ids: list[str] | None = Field(default=None, min_length=1, max_length=limits.GATEWAY_ITEMS_MAX)
    messages: Targets | None = None


class RedriveMany(DiscardMany):
    """Dead messages, likewise, and when they are due; at once, if that is left out."""

    due: Instant | None = None
    delay: Duration | None = None


class Changed(Answer):
    """The outcome for one message."""

    id: str
    outcome: Literal["done", "leased", "changed", "dead", "not_found", "taken", "unknown"] = Field(
        description="done; or why it is as it was: leased (a consumer has it), changed (it has another version), "
        "dead, not_found, taken (another message has its unique key). unknown: ask for it."
    )


class ChangedList(Answer):
    """The outcomes for the messages, in the order in which they were named."""

    messages: list[Changed]


# ---------------------------------------------------------------- many


@router.post("/cancel", summary="Cancel messages")
async def many_cancelled(topic: Topic, asked: Chosen, service: TheService) -> ChangedList:
    ids, versions = _apart(asked.messages)
    outcomes = await service.client.producer(topic).cancel_many(ids, if_versions=versions)
    return _outcomes(ids, outcomes)


@router.post("/move", summary="Give messages another instant")
async def many_moved(topic: Topic, asked: MoveMany, service: TheService) -> ChangedList:
    due_ms = await service.due_ms(*said(asked))
    ids, versions = _apart(asked.messages)
    outcomes = await service.client.producer(topic).move_many(ids, due_ms, if_versions=versions)
    return _outcomes(ids, outcomes)


@router.post("/change", summary="Give messages another rank")
async def many_changed(topic: Topic, asked: ChangeMany, service: TheService) -> ChangedList:
    ids, versions = _apart(asked.messages)
    outcomes = await service.client.producer(topic).change_many(ids, ranks=asked.rank, if_versions=versions)
    return _outcomes(ids, outcomes)


@router.post("/trigger", summary="Have messages delivered now, past a pause or rate")
async def many_triggered(topic: Topic, asked: Chosen, service: TheService) -> ChangedList:
    ids, versions = _apart(asked.messages)
    outcomes = await service.client.trigger_many(topic, ids, if_versions=versions)
    return _outcomes(ids, outcomes)


@router.post("/redrive", summary="Let dead messages wait again, as if they had never been tried")
async def many_redriven(topic: Topic, asked: RedriveMany, service: TheService) -> ChangedList:
    now = asked.due is None and asked.delay is None
    due_ms = None if now else await service.due_ms(asked.due, asked.delay)
    ids, versions = _named(asked)
    outcomes = await service.client.producer(topic).redrive_many(ids, due_ms, if_versions=versions)
    return _outcomes(ids, outcomes)


@router.post("/discard", summary="Discard dead messages")
async def many_discarded(topic: Topic, asked: DiscardMany, service: TheService) -> ChangedList:
    ids, versions = _named(asked)
    return _outcomes(ids, await service.client.producer(topic).discard_many(ids, if_versions=versions))


# ---------------------------------------------------------------- one


@router.delete("/{message_id}", status_code=status.HTTP_204_NO_CONTENT, summary="Cancel a message")
async def cancelled(topic: Topic, message_id: str, service: TheService, seen: IfMatch) -> None:
    """Once this is answered, the message is never delivered."""
    await service.client.producer(topic).cancel(message_id, if_version=version_of(seen, message_id))


@router.post("/{message_id}/move", summary="Give a message another instant")
async def moved(topic: Topic, message_id: str, asked: Move, service: TheService, seen: IfMatch) -> Scheduled:
    due_ms = await service.due_ms(*said(asked))
    await service.client.producer(topic).move(message_id, due_ms, if_version=version_of(seen, message_id))
    return Scheduled(id=message_id, due=instants.text(due_ms), key=None)


@router.post(
    "/{message_id}/change", status_code=status.HTTP_204_NO_CONTENT, summary="Give a message another rank"
)
async def changed(topic: Topic, message_id: str, asked: Change, service: TheService, seen: IfMatch) -> None:
    await service.client.producer(topic).change(
        message_id, rank=asked.rank, if_version=version_of(seen, message_id)
    )


@router.post(
    "/{message_id}/trigger",
    status_code=status.HTTP_204_NO_CONTENT,
    summary="Have a message delivered now, past a pause or rate",
)
async def triggered(topic: Topic, message_id: str, service: TheService, seen: IfMatch) -> None:
    """Only a consumer with credit is needed. Given back, it waits like any other message."""
    await service.client.trigger(topic, message_id, if_version=version_of(seen, message_id))


def said(asked: Move) -> tuple[Instant | None, Duration | None]:
    """Return when a message is to be moved to.

    Raises:
        Unfit: it is not said.
    """
    if asked.due is None and asked.delay is None:
        raise Unfit("say when: due or delay", None, None, "body.due")
    return asked.due, asked.delay


def _named(asked: DiscardMany) -> tuple[list[str], list[int | None] | None]:
    """Ids and the versions that are expected.

    Raises:
        Unfit: messages are named in both ways, or in none.
    """
    if (asked.ids is None) == (asked.messages is None):
        raise Unfit("say which: ids, or messages with their versions", None, None, "body.ids")
    return (asked.ids, None) if asked.ids is not None else _apart(asked.messages or [])


def _apart(targets: list[Target]) -> tuple[list[str], list[int | None] | None]:
    """Ids and the versions that are expected; None, if any will do."""
    versions = [None if each.version is None else int(each.version) for each in targets]
    return [each.id for each in targets], versions if any(each is not None for each in versions) else None


_WORDS: Final = {
    Outcome.DONE: "done",
    Outcome.LEASED: "leased",
    Outcome.CHANGED: "changed",
    Outcome.DEAD: "dead",
    Outcome.NOT_FOUND: "not_found",
    Outcome.TAKEN: "taken",
}


def _outcomes(message_ids: list[str], outcomes: list[Outcome]) -> ChangedList:
    said: Any = [
        {"id": message_id, "outcome": _WORDS.get(outcome, "unknown")}
        for message_id, outcome in zip(message_ids, outcomes, strict=True)
    ]
    return ChangedList(messages=said)
