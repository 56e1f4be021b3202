"""/v1/brokers, /v1/status and /v1/statistics"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from pydantic import Field

from dueq.gateway import instants
from dueq.gateway.access import TheService
from dueq.gateway.v1.model import Answer, Said

_EXACT_BELOW: Final = 1 << 53

router = APIRouter(prefix="/v1", tags=["brokers"])


class BrokerList(Answer):
    """The brokers, as they tell it themselves."""

    brokers: list[dict[str, Any]]


class Hour(Answer):
    """One hour of one topic at one broker; add up the brokers for all of the topic."""

    broker: str
    topic: str = Field(description="`*` stands for all beyond the 500 of an hour.")
    hour: Said
    delivered: int = Field(description="Deliveries, repeated ones included.")
    redelivered: int
    lateness_bounds_ms: list[float] = Field(description="Upper bounds of the buckets of `lateness_counts`.")
    lateness_counts: list[int] = Field(
        description="First deliveries: one count a bound, then those above all."
    )
    scheduled: dict[str, int] = Field(description="Messages scheduled, by sender.")


class Statistics(Answer):
    """The last seven days, by hour, topic and broker."""

    hours: list[Hour]


@router.get("/brokers", summary="List the brokers")
async def brokers(service: TheService) -> BrokerList:
    found = (await service.client.status())["brokers"]
    return BrokerList(
        brokers=[{"id": broker_id, **_readable(found[broker_id])} for broker_id in sorted(found)]
    )


@router.get("/status", summary="Brokers, topics with their partitions, and consumers")
async def status(service: TheService) -> dict[str, Any]:
    found: dict[str, Any] = _readable(await service.client.status())
    return found


@router.get("/statistics", summary="Deliveries and inserts of the last seven days")
async def statistics(
    service: TheService,
    topic: Annotated[str | None, Query(description="Only of this topic.")] = None,
    since: Annotated[str, Query(description="Only hours that begin at this instant or later.")] = "",
) -> Statistics:
    """Brokers that do not answer are missing."""
    from_ms = instants.instant_ms(since, await service.now_us(), "query.since") if since else 0
    rows = await service.client.statistics()
    return Statistics(
        hours=[
            Hour(
                broker=row.broker, topic=row.topic, hour=instants.text(row.hour), delivered=row.delivered,
                redelivered=row.redelivered, lateness_bounds_ms=list(row.lateness_bounds_ms),
                lateness_counts=list(row.lateness_counts), scheduled=row.scheduled,
            )
            for row in rows
            if row.hour >= from_ms and topic in (None, row.topic)
        ]
    )  # fmt: skip


def _readable(document: Any) -> Any:
    """A document whose large numbers are strings: JavaScript would round them."""
    if isinstance(document, dict):
        return {name: _readable(value) for name, value in document.items()}
    if isinstance(document, list):
        return [_readable(value) for value in document]
    if isinstance(document, int) and abs(document) >= _EXACT_BELOW:
        return str(document)
    return document
