"""What all faces have in common."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("fastapi")

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from starlette.types import Message
from structlog.testing import capture_logs

from dueq.gateway import problems
from dueq.gateway.bodies import JsonRoute
from dueq.gateway.faces.cloud_tasks.status import RpcRoute
from dueq.gateway.faces.doq.failures import DoqRoute


@pytest.mark.parametrize("kind", [JsonRoute, RpcRoute, DoqRoute])
def test_a_client_that_leaves_amid_its_request_is_no_defect(kind: type[APIRoute]) -> None:
    """Whoever watches the log for defects must not hear of it."""
    app, answered = FastAPI(), list[Message]()
    problems.install(app)
    app.state.doq_errors = "new"
    app.router.route_class = kind

    @app.post("/")
    async def read() -> None:
        raise ClientDisconnect

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        answered.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": [], "http_version": "1.1",
    }  # fmt: skip
    with capture_logs() as logs:
        asyncio.run(app(scope, receive, send))
    assert logs == []
    assert answered[0]["status"] == 400
