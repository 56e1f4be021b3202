"""The data of the page of messages: lists over all partitions, and one message with a part of its payload."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query

from dueq import AsyncClient, Filter, MessageState, ScheduledMessage, ids, limits
from dueq.client import surveys
from dueq.errors import InvalidRequest, MessageNotFound
from dueq.gateway import instants
from dueq.gateway.access import TheService
from dueq.gateway.dashboard.merged import Merged
from dueq.gateway.dashboard.preview import preview
from dueq.gateway.problems import Unfit
from dueq.gateway.service import Service

_TEXT_MAX: Final = 2000
"""Characters of a reason or a header that are shown."""
_HEADERS_MAX: Final = 50

router = APIRouter(prefix="/dashboard", include_in_schema=False)


@router.get("/messages")
async def listed(
    service: TheService,
    topic: str,
    state: Literal["waiting", "leased", "dead"] = "waiting",
    from_: Annotated[str, Query(alias="from")] = "",
    until: str = "",
    key_prefix: Annotated[str, Query(max_length=255)] = "",
    cursor: Annotated[str, Query(max_length=16_384)] = "",
) -> dict[str, Any]:
    """A page of messages; its snapshots are closed before it is answered."""
    if state == "leased":
        if given := from_ or until:
            text = f"messages that consumers have are listed by id, not by time: leave out {given!r:.80}"
            raise Unfit(text, given, None, "query.from" if from_ else "query.until")
        return await _leased(service, topic, key_prefix, cursor)
    now_us = await service.now_us()
    begin = instants.instant_ms(from_, now_us, "query.from") if from_ else None
    end = instants.instant_ms(until, now_us, "query.until") if until else None
    wanted = Merged(topic, state, begin, end, key_prefix, limits.DASHBOARD_ROWS_MAX)
    found, following = await wanted.page(service.client, cursor)
    return {
        "messages": [
            {**_fields(message), "reason": message.reason[:_TEXT_MAX], "died_at": message.died_at or None}
            for message in found
        ],
        "cursor": following,
    }


async def _leased(service: Service, topic: str, key_prefix: str, cursor: str) -> dict[str, Any]:
    """A page of messages that consumers have; the cursor is the id of the last one."""
    limit = limits.DASHBOARD_LOOKED_AT_MAX if key_prefix else limits.DASHBOARD_ROWS_MAX
    found = await service.client.leased(topic, after=cursor or None, limit=limit)
    return {
        "messages": [
            {**_fields(message), **_lease(message)} for message in found if message.key.startswith(key_prefix)
        ],
        "cursor": found[-1].id if len(found) == limit else None,
    }


@router.get("/message")
async def shown(
    service: TheService, topic: str, message_id: Annotated[str, Query(alias="id")]
) -> dict[str, Any]:
    """One message as it is now, and a part of its payload, if that is not too long to be read."""
    return await _whole(service.client, await service.client.get(topic, message_id))


@router.get("/find")
async def found(
    service: TheService,
    topic: str,
    name: Annotated[str, Query(min_length=1, max_length=255)],
    group: Annotated[str, Query(max_length=255)] = "",
) -> dict[str, Any]:
    """The message that a person names by its id, or by its key where keys are unique; null: there is none."""
    client = service.client
    info = await client.describe(topic)
    message = None
    if len(name) == ids.TEXT_LENGTH:
        with suppress(InvalidRequest, MessageNotFound):  # it may be a key, too
            message = await client.get(topic, name)
    if message is None and info.keys == "unique":
        with suppress(MessageNotFound):
            message = await client.get(topic, key=name, group=group or None)
    return {"message": None if message is None else await _whole(client, message), "keys": info.keys}


@router.get("/count")
async def counted(
    service: TheService,
    topic: str,
    state: Literal["waiting", "dead"] = "waiting",
    due_from: str = "",
    due_until: str = "",
    key_prefix: Annotated[str, Query(max_length=255)] = "",
    job: str = "",
    group: Annotated[str, Query(max_length=255)] = "",
) -> dict[str, Any]:
    """How many messages match; also of a gateway that is read-only, which takes no POST."""
    now_us = await service.now_us()
    wanted = Filter(
        job=job or None,
        key_prefix=key_prefix or None,
        group=group or None,
        due_from=instants.instant_ms(due_from, now_us, "query.due_from") if due_from else None,
        due_until=instants.instant_ms(due_until, now_us, "query.due_until") if due_until else None,
        state=state,
    )
    return {"matched": await service.client.count_where(topic, wanted)}


@router.get("/seconds")
async def seconds(
    service: TheService,
    topic: str,
    start: Annotated[int, Query(alias="from", ge=0, le=limits.DUE_MS_MAX)],
    length: Annotated[int, Query(alias="seconds", ge=1, le=limits.FORECAST_SECONDS_MAX)],
) -> dict[str, Any]:
    """Count the messages that wait until each second of an interval, one by one, up to DASHBOARD_COUNTED_MAX."""
    found = await service.client.connection.follow(
        surveys.seconds(topic, start, length, limits.DASHBOARD_COUNTED_MAX), None
    )
    counts = [(second // 1000, count) for second, count in found.counts]
    return {"due": counts, "complete": found.complete, "most": limits.DASHBOARD_COUNTED_MAX}


async def _whole(client: AsyncClient, found: MessageState) -> dict[str, Any]:
    if found.size <= limits.DASHBOARD_READ_BYTES_MAX:
        found = await client.get(found.topic, found.id, payload=True)
    document = _fields(found) | {
        "state": found.state,
        "group": found.group,
        "reason": found.reason[:_TEXT_MAX],
        "headers": {name: value[:_TEXT_MAX] for name, value in list(found.headers.items())[:_HEADERS_MAX]},
        "hidden": found.hidden,
        **_lease(found),
        "died_at": found.died_at or None,
        "preview": None,
    }
    if found.payload is not None:
        seen = preview(found.payload)
        document["preview"] = {"form": seen.form, "text": seen.text, "cut": seen.cut}
    return document


def _lease(found: MessageState) -> dict[str, Any]:
    """Its consumer, the end of the lease, and the token by which it can be taken back; none while it waits."""
    return {"holder": found.holder, "lease_ends": found.lease_ends, "token": str(found.token or "")}


def _fields(found: ScheduledMessage | MessageState) -> dict[str, Any]:
    return {
        "id": found.id,
        "partition": found.partition,
        "key": found.key,
        "due": found.due,
        "waits_until": found.waits_until,
        "size": found.size,
        "attempt": found.attempt,
        "rank": found.rank,
        "group": found.group or None,
        "version": str(found.version),
        "expires": found.expires or None,
    }
