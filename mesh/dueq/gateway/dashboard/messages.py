"""What the page of messages asks for: lists over all partitions, and one message with a part of its payload."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query

from dueq import MessageState, ScheduledMessage, limits
from dueq.gateway import instants
from dueq.gateway.access import TheService
from dueq.gateway.dashboard.merged import Merged
from dueq.gateway.dashboard.preview import preview

_TEXT_MAX: Final = 2000
"""Characters of a reason or a header that are shown."""
_HEADERS_MAX: Final = 50

router = APIRouter(prefix="/dashboard", include_in_schema=False)


@router.get("/messages")
async def listed(
    service: TheService,
    topic: str,
    state: Literal["waiting", "dead"] = "waiting",
    from_: Annotated[str, Query(alias="from")] = "",
    until: str = "",
    key_prefix: Annotated[str, Query(max_length=255)] = "",
    cursor: Annotated[str, Query(max_length=16_384)] = "",
) -> dict[str, Any]:
    """A page of messages; its snapshots are closed before it is answered."""
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


@router.get("/message")
async def shown(
    service: TheService, topic: str, message_id: Annotated[str, Query(alias="id")]
) -> dict[str, Any]:
    """One message as it is now, and a part of its payload, if that is not too long to be read."""
    found = await service.client.get(topic, message_id)
    if found.size <= limits.DASHBOARD_READ_BYTES_MAX:
        found = await service.client.get(topic, message_id, payload=True)
    document = _fields(found) | {
        "state": found.state,
        "group": found.group,
        "headers": {name: value[:_TEXT_MAX] for name, value in list(found.headers.items())[:_HEADERS_MAX]},
        "hidden": found.hidden,
        "holder": found.holder,
        "lease_ends": found.lease_ends,
        "died_at": found.died_at or None,
        "preview": None,
    }
    if found.payload is not None:
        seen = preview(found.payload)
        document["preview"] = {"form": seen.form, "text": seen.text, "cut": seen.cut}
    return document


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
        "version": str(found.version),
        "expires": found.expires or None,
    }
