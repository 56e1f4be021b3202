"""How routes get at what the application holds."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from dueq.gateway.service import Service


def _service(connection: HTTPConnection) -> Service:
    service: Service = connection.app.state.service
    return service


TheService = Annotated[Service, Depends(_service)]
"""A parameter of this type is the gateway's service."""
