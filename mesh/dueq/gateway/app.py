"""The application: the guards that every request passes, and the faces that answer.

    socket ─► guards ─► routes: probes, /docs, /v1 (and other faces) ─► service ─► AsyncClient ─► mesh

A face is a router over the service; it is added to `_ROUTERS`, and nothing of it is elsewhere.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

from fastapi import APIRouter, Depends, FastAPI

from dueq import AsyncClient, __version__, limits
from dueq.gateway import manual, probes, problems
from dueq.gateway.access import known_query, whole_path
from dueq.gateway.answer_room import InPieces
from dueq.gateway.bodies import BodyRoom
from dueq.gateway.cut_off import CutOff
from dueq.gateway.dashboard import pages
from dueq.gateway.dashboard.acts import Acts, ReadOnly
from dueq.gateway.dashboard.feed import Feed
from dueq.gateway.faces import cloud_tasks, doq
from dueq.gateway.faces.cloud_tasks.dispatching import Dispatcher
from dueq.gateway.faces.cloud_tasks.issuer import Issuer
from dueq.gateway.faces.doq.failures import Statuses
from dueq.gateway.faces.doq.rates import Rates
from dueq.gateway.faces.doq.verbs import Doq
from dueq.gateway.guards import Guards
from dueq.gateway.heads import Heads
from dueq.gateway.service import Service
from dueq.gateway.v1 import (
    brokers,
    changes,
    endpoints,
    groups,
    jobs,
    keys,
    leases,
    messages,
    passes,
    recurrences,
    shared_bodies,
    stream,
    topics,
)
from dueq.gateway.v1.messages import ScheduledSome, Summary
from dueq.gateway.v1.model import PROBLEM
from dueq.gateway.webhooks.addresses import Addresses
from dueq.gateway.webhooks.room import Room
from dueq.gateway.webhooks.sending import Sender
from dueq.gateway.webhooks.watching import Webhooks
from dueq.sealing import Keys

_NATIVE: Final[tuple[APIRouter, ...]] = (
    topics.router,
    messages.router,
    shared_bodies.router,
    changes.router,
    keys.router,
    passes.router,
    leases.router,
    stream.router,
    jobs.router,
    recurrences.router,
    groups.router,
    endpoints.router,
    brokers.router,
)
_ROUTERS: Final[tuple[APIRouter, ...]] = (
    *_NATIVE,
    cloud_tasks.queues.router,
    cloud_tasks.tasks.router,
    cloud_tasks.issuer.router,
    doq.queues.router,
    doq.messages.router,
    doq.cluster.router,
)
_ABOUT: Final = """Deliver these bytes at this millisecond, to exactly one consumer, never before.

Instants are RFC 3339 with a zone, Unix milliseconds, or durations from now; ids and versions are strings. Errors are
`application/problem+json`."""


def create_app(
    connect: Callable[[], AsyncClient],
    hosts: Iterable[str] = (),
    allowed: Iterable[str] = (),
    read_only: bool = False,
    doq_errors: Statuses = "legacy",
    doq_grpc: str = "",
    keys: Keys | None = None,
    issuer: Issuer | None = None,
) -> FastAPI:
    """Return the application.

    Args:
        connect: makes the client, once the application starts.
        hosts: names by which it may be called, besides those of the loopback.
        allowed: networks to which webhooks and tasks may go, beside public addresses.
        read_only: nothing is changed or delivered by it.
        doq_errors: statuses of which of doq's versions its API has.
        doq_grpc: HOST:PORT of doq's gRPC API; "": it is not served.
        keys: open the secrets of endpoints.
        issuer: of tokens for requests of tasks.
    """
    networks = tuple(allowed)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        async with connect() as client:
            service = app.state.service = Service(client)
            webhooks = app.state.webhooks = Webhooks(client, keys)
            feed = app.state.feed = Feed(service, webhooks.failing)
            tasks = Dispatcher(service, issuer)
            # One of each: endpoints and queues share the connections that a gateway may have.
            sender, room = Sender(Addresses(networks)), Room(limits.WEBHOOK_CONNECTIONS_MAX)
            if not read_only:
                webhooks.start(sender, room)
                tasks.start(sender, room)
            sides: list[Closing] = [webhooks, tasks]
            if doq_grpc:
                from dueq.gateway.faces.doq.rpc import RpcServer  # its packages are an extra

                server = RpcServer(Doq(service, app.state.doq_rates), doq_grpc, doq_errors)
                await server.start()
                sides.append(server)
            ending = asyncio.create_task(_close(service, sides, sender))
            try:
                yield
            finally:
                service.stop()
                await feed.close()
                await ending
                await service.receiving.released()

    app = FastAPI(
        title="dueq",
        version=__version__,
        description=_ABOUT,
        lifespan=lifespan,
        dependencies=[Depends(whole_path)],
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.room = BodyRoom()
    app.state.answers = BodyRoom(limits.GATEWAY_ANSWERS_BYTES_MAX, "answers are being sent")
    app.state.read_only, app.state.known = read_only, {}
    app.state.issuer = issuer
    app.state.doq_errors, app.state.doq_rates = doq_errors, Rates(lambda: int(time.monotonic()))
    problems.install(app)
    app.include_router(probes.router)
    for router in _ROUTERS:
        strict = [Depends(known_query)] if router in _NATIVE else []
        app.include_router(router, responses=PROBLEM, dependencies=strict)
    manual.install(app)
    pages.install(app)
    app.add_middleware(InPieces)
    if read_only:
        app.add_middleware(ReadOnly)
    app.add_middleware(CutOff)
    app.add_middleware(Acts)
    app.add_middleware(Heads)
    app.add_middleware(Guards, hosts=tuple(hosts))
    app.add_middleware(cloud_tasks.refusals.Refusals)
    _describe_more(app)
    return app


class Closing(Protocol):
    """Something beside the routes that ends in order."""

    async def close(self) -> None: ...


async def _close(service: Service, sides: Iterable[Closing], sender: Sender) -> None:
    """Close what sends while the requests under way end, and then its connections."""
    await service.stopping.wait()
    try:
        await asyncio.gather(*(side.close() for side in sides))
    finally:
        await sender.close()


def _describe_more(app: FastAPI) -> None:
    """Add the models that only `$ref`s name."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schemas = made()["components"]["schemas"]
            for model in (problems.Problem, Summary, ScheduledSome):
                found = model.model_json_schema(ref_template="#/components/schemas/{model}")
                schemas |= found.pop("$defs", {}) | {model.__name__: found}
        assert app.openapi_schema is not None
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
