"""/API/v1/cluster and /livez: what doq's own page reads; brokers are not added or removed here."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

from dueq.gateway.access import TheService
from dueq.gateway.faces.doq.failures import DoqRoute
from dueq.gateway.problems import Refusal

router = APIRouter(route_class=DoqRoute, include_in_schema=False)


@router.get("/API/v1/cluster/servers")
async def servers(service: TheService) -> dict[str, Any]:
    """All brokers are equal: there is no leader of the mesh."""
    brokers = (await service.client.status())["brokers"]
    return {
        "servers": [
            {"id": name, "addr": "", "leader_addr": "", "is_leader": False, "suffrage": "Voter"}
            for name in sorted(brokers)
        ]
    }


@router.post("/API/v1/cluster/join")
@router.post("/API/v1/cluster/leave")
@router.post("/API/v1/cluster/transfer-leadership")
async def membership() -> None:
    raise Refusal(501, "not implemented: brokers join and leave by being started and stopped")


@router.post("/db/backup")
@router.post("/db/restore")
async def backup() -> None:
    raise Refusal(501, "not implemented: a mesh has replicas, and no backup in doq's format")


@router.get("/livez")
async def alive() -> PlainTextResponse:
    return PlainTextResponse("OK")
