"""How routes get at doq's verbs."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from dueq.gateway.access import TheService
from dueq.gateway.faces.doq.verbs import Doq


async def _doq(request: Request, service: TheService) -> Doq:
    return Doq(service, request.app.state.doq_rates)


TheDoq = Annotated[Doq, Depends(_doq)]
"""A parameter of this type is doq's verbs."""
