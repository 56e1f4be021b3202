"""How routes get at what the application holds."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from dueq.gateway.service import Service
from dueq.gateway.webhooks.watching import Webhooks


def _service(connection: HTTPConnection) -> Service:
    service: Service = connection.app.state.service
    return service


def _webhooks(connection: HTTPConnection) -> Webhooks:
    webhooks: Webhooks = connection.app.state.webhooks
    return webhooks


TheService = Annotated[Service, Depends(_service)]
"""A parameter of this type is the gateway's service."""
TheWebhooks = Annotated[Webhooks, Depends(_webhooks)]
"""A parameter of this type is what the gateway sends to URLs."""
