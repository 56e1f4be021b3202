"""/v1/topics/T/recurrences: rules that make a message at each of their instants."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Response, status
from pydantic import Field

from dueq import RecurrenceInfo, limits
from dueq.errors import RecurrenceExists, RecurrenceNotFound
from dueq.gateway import instants
from dueq.gateway.access import TheService
from dueq.gateway.bodies import JsonRoute
from dueq.gateway.service import Service
from dueq.gateway.v1 import contents
from dueq.gateway.v1.contents import SharingContent, Shown
from dueq.gateway.v1.model import Answer, Count, Cursor, Duration, Instant, Said, Topic

router = APIRouter(prefix="/v1/topics/{topic}/recurrences", tags=["recurrences"], route_class=JsonRoute)

Name = Annotated[str, Path(description="Its name.", examples=["daily-report"])]
Missed = Literal["none", "last", "all"] | int


class Terms(SharingContent):
    """When it fires, and what each message holds. One of `cron`, `every` and `at`."""

    cron: str | None = Field(default=None, description="Five fields, or six with the seconds first.")
    every: Duration | None = Field(default=None, description="A period, from `start` on.")
    at: list[Instant] | None = Field(default=None, max_length=limits.RECURRENCE_INSTANTS_MAX)
    zone: str | None = Field(default=None, description="Time zone of the cron line, by its IANA name; UTC.")
    start: Instant | None = Field(default=None, description="No tick before it.")
    end: Instant | None = Field(default=None, description="No tick at it or after it.")
    jitter: Duration | None = Field(
        default=None, description="A message is due up to this long after its tick."
    )
    missed: Missed | None = Field(
        default=None, description="How many missed ticks are made up for; the last."
    )
    overlap: Literal["allow", "skip"] | None = Field(
        default=None, description="Skip a tick while a message of the recurrence is unfinished, or not."
    )
    headers: dict[str, str] | None = Field(default=None, description="Of each message.")
    rank: int | None = Field(default=None, ge=0, le=limits.RANK_MAX, description="Of each message.")
    group: str | None = Field(default=None, description="Of each message.")


class Recurrence(Shown):
    """A recurrence. Its payload is left out of lists."""

    name: str
    cron: str | None
    every_seconds: float | None
    at: list[Said]
    zone: str | None
    start: Said | None
    end: Said | None
    jitter_seconds: float
    missed: int
    overlap: str
    rank: int
    group: str
    payload_bytes: int
    body_sha256: str | None = Field(description="Of the shared body that is its payload.")
    paused: bool
    next: Said | None
    last: Said | None
    unfinished: int
    messages: int
    skipped: int
    headers: dict[str, str]


class RecurrenceList(Answer):
    """A page of recurrences, by name."""

    recurrences: list[Recurrence]
    cursor: str | None


class Triggered(Answer):
    """The message that was made."""

    id: str


@router.get("", summary="List the recurrences, by name")
async def listed(
    topic: Topic, service: TheService, limit: Count = 100, cursor: Cursor = ""
) -> RecurrenceList:
    found, more = await service.recurrences(topic, cursor, limit)
    return RecurrenceList(
        recurrences=[_answer(each) for each in found], cursor=found[-1].name if more else None
    )


@router.get("/{name:text}", summary="Show a recurrence")
async def shown(topic: Topic, name: Name, service: TheService) -> Recurrence:
    return _answer(await _known(service, topic, name))


@router.put(
    "/{name:text}", summary="Create a recurrence, or put other terms in place of its own",
    responses={201: {"model": Recurrence, "description": "It was created."}},
)  # fmt: skip
async def put(topic: Topic, name: Name, asked: Terms, service: TheService, response: Response) -> Recurrence:
    terms = await _terms(topic, asked, service)
    terms.setdefault("missed", "last")
    terms.setdefault("overlap", "allow")
    terms.setdefault("payload", b"")
    try:
        await service.client.create_recurrence(topic, name, **terms)
        response.status_code = status.HTTP_201_CREATED
    except RecurrenceExists:
        cleared: dict[str, Any] = {"start": 0, "end": 0, "jitter": 0, "headers": {}, "rank": 0, "group": ""}
        await service.client.update_recurrence(topic, name, **(cleared | terms))
    return _answer(await _known(service, topic, name))


@router.patch("/{name:text}", summary="Change a recurrence; what is left out stays as it is")
async def changed(topic: Topic, name: Name, asked: Terms, service: TheService) -> Recurrence:
    await service.client.update_recurrence(topic, name, **await _terms(topic, asked, service))
    return _answer(await _known(service, topic, name))


@router.delete("/{name:text}", status_code=status.HTTP_204_NO_CONTENT, summary="Delete a recurrence")
async def deleted(topic: Topic, name: Name, service: TheService) -> None:
    await service.client.delete_recurrence(topic, name)


@router.post("/{name:text}/pause", summary="Let it wait for no tick")
async def paused(topic: Topic, name: Name, service: TheService) -> Recurrence:
    await service.client.pause_recurrence(topic, name)
    return _answer(await _known(service, topic, name))


@router.post("/{name:text}/resume", summary="Let it wait for its next tick again")
async def resumed(topic: Topic, name: Name, service: TheService) -> Recurrence:
    await service.client.resume_recurrence(topic, name)
    return _answer(await _known(service, topic, name))


@router.post("/{name:text}/trigger", status_code=status.HTTP_201_CREATED, summary="Make one message at once")
async def triggered(topic: Topic, name: Name, service: TheService) -> Triggered:
    return Triggered(id=await service.client.trigger_recurrence(topic, name))


async def _known(service: Service, topic: str, name: str) -> RecurrenceInfo:
    info = await service.client.recurrence(topic, name)
    if info is None:
        raise RecurrenceNotFound(f"topic {topic!r} has no recurrence {name!r}")
    return info


async def _terms(topic: str, asked: Terms, service: Service) -> dict[str, Any]:
    """Return the terms of a request, as the SDK takes them."""
    now_us = await service.now_us()

    def instant(value: int | str, name: str) -> int:
        return instants.instant_ms(value, now_us, f"body.{name}")

    as_they_are = {"cron", "zone", "missed", "overlap", "headers", "rank", "group"}
    terms: dict[str, Any] = asked.model_dump(include=as_they_are, exclude_none=True)
    if asked.every is not None:
        terms["every"] = instants.duration(asked.every, "body.every")
    if asked.jitter is not None:
        terms["jitter"] = instants.duration(asked.jitter, "body.jitter")
    if asked.at is not None:
        terms["at"] = [instant(value, f"at.{place}") for place, value in enumerate(asked.at)]
    if asked.start is not None:
        terms["start"] = instant(asked.start, "start")
    if asked.end is not None:
        terms["end"] = instant(asked.end, "end")
    body = contents.body_of(asked, "body")
    if body is not None:
        await service.shared.keep(topic, body)
        return terms | {"payload": body}
    payload = contents.payload_of(asked, optional=True)
    return terms if payload is None else terms | {"payload": payload}


def _answer(info: RecurrenceInfo) -> Recurrence:
    return Recurrence(
        name=info.name, cron=info.cron or None, every_seconds=info.every_ms / 1000 if info.every_ms else None,
        at=[instants.text(at) for at in info.at_ms], zone=info.zone or None,
        start=instants.text_or_none(info.start_ms), end=instants.text_or_none(info.end_ms),
        jitter_seconds=info.jitter_ms / 1000, missed=info.missed, overlap=info.overlap,
        rank=info.rank, group=info.group,
        payload_bytes=info.payload_bytes, body_sha256=info.body or None,
        paused=info.paused, next=instants.text_or_none(info.next_ms),
        last=instants.text_or_none(info.last_ms), unfinished=info.unfinished, messages=info.messages,
        skipped=info.skipped, headers=dict(info.headers), **contents.shown(info.payload),
    )  # fmt: skip
