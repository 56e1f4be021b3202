"""Whether the process lives, and whether it can serve."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Response
from pydantic import BaseModel

from dueq.gateway.access import TheService

router = APIRouter(tags=["probes"])


class Health(BaseModel):
    """How the gateway is."""

    status: Literal["ok", "unready"]


@router.get("/healthz", summary="The process answers")
async def healthz() -> Health:
    return Health(status="ok")


@router.get("/readyz", summary="A broker answers", responses={503: {"model": Health}})
async def readyz(service: TheService, response: Response) -> Health:
    if await service.ready():
        return Health(status="ok")
    response.status_code = 503
    return Health(status="unready")
