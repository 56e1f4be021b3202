"""How routes get at what the application holds."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from dueq.gateway.problems import Unfit
from dueq.gateway.service import Service
from dueq.gateway.webhooks.watching import Webhooks


def _service(connection: HTTPConnection) -> Service:
    service: Service = connection.app.state.service
    return service


def _webhooks(connection: HTTPConnection) -> Webhooks:
    webhooks: Webhooks = connection.app.state.webhooks
    return webhooks


def known_query(connection: HTTPConnection) -> None:
    """Refuse a query that says what nobody reads, or twice what can be said once: it may have been meant.

    Raises:
        Unfit: it does.
    """
    given = connection.query_params
    if not given:
        return
    described = connection.app.openapi()["paths"].get(connection.scope["route"].path, {})
    operation = described.get(connection.scope.get("method", "").lower())
    if operation is None:
        return
    known = {each["name"] for each in operation.get("parameters", ()) if each["in"] == "query"}
    for name in given:
        if name not in known:
            said = ", ".join(sorted(known)) or "none"
            raise Unfit(
                f"there is no query parameter {name!r:.80} here; there are: {said}", name, said, "query"
            )
        if len(given.getlist(name)) > 1:
            where = f"query.{name}"
            raise Unfit(f"{where} comes {len(given.getlist(name))} times", given.getlist(name), 1, where)


TheService = Annotated[Service, Depends(_service)]
"""A parameter of this type is the gateway's service."""
TheWebhooks = Annotated[Webhooks, Depends(_webhooks)]
"""A parameter of this type is what the gateway sends to URLs."""
