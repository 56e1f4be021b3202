"""How routes get at what the application holds.

Dependencies are coroutines: functions would run in threads, and a request would wait for its turn there.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from fastapi.openapi.utils import get_openapi
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.routing import BaseRoute

from dueq.gateway.problems import Unfit
from dueq.gateway.service import Service
from dueq.gateway.webhooks.watching import Webhooks


async def _service(connection: HTTPConnection) -> Service:
    service: Service = connection.app.state.service
    return service


async def _webhooks(connection: HTTPConnection) -> Webhooks:
    webhooks: Webhooks = connection.app.state.webhooks
    return webhooks


async def whole_path(connection: HTTPConnection) -> None:
    """Refuse a path of which a route has taken only a part: routes ignore a line break at its end.

    So `POST …/pause%0A` would pause, and what knows a stream by its path would not know `…/stream%0A`. A name in a path
    may have line breaks; then it has all of them.

    Raises:
        HTTPException: one is in no name.
    """
    path: str = connection.scope["path"]
    breaks = path.count("\n")
    if breaks and breaks > sum(str(value).count("\n") for value in connection.path_params.values()):
        raise HTTPException(404)


async def known_query(connection: HTTPConnection) -> None:
    """Refuse a query with an unknown name, or a second value for a name that takes one: it may have been meant.

    Raises:
        Unfit: it does.
    """
    given = connection.query_params
    if not given:
        return
    method, route = connection.scope.get("method", "").lower(), connection.scope["route"]
    kept: dict[tuple[str, str], set[str] | None] = connection.app.state.known
    if (method, route.path) not in kept:
        kept[method, route.path] = _known(route, method)
    known = kept[method, route.path]
    if known is None:
        return
    for name in given:
        if name not in known:
            said = ", ".join(sorted(known)) or "none"
            raise Unfit(
                f"there is no query parameter {name!r:.80} here; there are: {said}", name, said, "query"
            )
        refuse_second(given, name)


def refuse_second(given: QueryParams, name: str) -> None:
    """Refuse a second value for a name of a query that takes one: only one of both could count.

    Raises:
        Unfit: there is one.
    """
    if len(given.getlist(name)) > 1:
        where = f"query.{name}"
        raise Unfit(f"{where} comes {len(given.getlist(name))} times", given.getlist(name), 1, where)


def _known(route: BaseRoute, method: str) -> set[str] | None:
    """The names of query parameters; only of this route, since a description of all takes a second."""
    for operations in get_openapi(title="dueq", version="1", routes=[route])["paths"].values():
        if method in operations:
            return {
                each["name"] for each in operations[method].get("parameters", ()) if each["in"] == "query"
            }
    return None


TheService = Annotated[Service, Depends(_service)]
"""A parameter of this type is the gateway's service."""
TheWebhooks = Annotated[Webhooks, Depends(_webhooks)]
"""A parameter of this type is what the gateway sends to URLs."""
