"""/v1/brokers and /v1/status"""

from __future__ import annotations

from typing import Any, Final

from fastapi import APIRouter

from dueq.gateway.access import TheService
from dueq.gateway.v1.model import Answer

_EXACT_BELOW: Final = 1 << 53

router = APIRouter(prefix="/v1", tags=["brokers"])


class BrokerList(Answer):
    """The brokers, as they tell it themselves."""

    brokers: list[dict[str, Any]]


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


def _readable(document: Any) -> Any:
    """A document whose large numbers are strings: JavaScript would round them."""
    if isinstance(document, dict):
        return {name: _readable(value) for name, value in document.items()}
    if isinstance(document, list):
        return [_readable(value) for value in document]
    if isinstance(document, int) and abs(document) >= _EXACT_BELOW:
        return str(document)
    return document
