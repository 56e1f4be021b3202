"""What every request passes costs no thread, and no look at the whole of the API."""

from __future__ import annotations

import asyncio
import inspect
from types import SimpleNamespace

import pytest

pytest.importorskip("fastapi")

from fastapi.routing import APIRoute
from starlette.types import Message

from dueq.gateway import probes
from dueq.gateway.access import known_query, whole_path
from dueq.gateway.app import _ROUTERS, create_app
from dueq.gateway.dashboard import pages


def dependencies(of: object) -> list[object]:
    """All functions that a route depends on."""
    found = list(getattr(of, "dependencies", ()))
    return [each.call for each in found] + [deeper for each in found for deeper in dependencies(each)]


def test_nothing_that_a_request_passes_waits_for_a_thread() -> None:
    checked = 0
    for route in [route for router in (probes.router, pages.router, *_ROUTERS) for route in router.routes]:
        if not isinstance(route, APIRoute):
            continue
        for call in [known_query, whole_path, route.endpoint, *dependencies(route.dependant)]:
            checked += 1
            assert inspect.iscoroutinefunction(call), f"{route.path}: {call}"
    assert checked > 100


def answered(method: str, path: str) -> Message:
    """Send a request to a gateway whose mesh is none; return the beginning of its answer."""
    sent = list[Message]()
    kind = "websocket" if method == "SOCKET" else "http"

    async def receive() -> Message:
        if kind == "websocket":
            return {"type": "websocket.connect"}
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    app = create_app(lambda: None)  # type: ignore[arg-type, return-value]
    app.state.service = app.state.feed = SimpleNamespace()
    scope = {
        "type": kind, "path": path, "query_string": b"", "headers": [(b"host", b"localhost")], "http_version": "1.1",
        "extensions": {"websocket.http.response": {}},
    }  # fmt: skip
    asyncio.run(app(scope if kind == "websocket" else {**scope, "method": method}, receive, send))
    return sent[0]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("HEAD", "/v1/topics/t/stream\n"),
        ("GET", "/v1/topics/t/stream\n"),
        ("SOCKET", "/v1/topics/t/socket\n"),
        ("POST", "/v1/topics/t/pause\n"),
        ("POST", "/v1/topics/t/jobs/a\nb/cancel\n"),
        ("HEAD", "/dashboard/live\n"),
        ("GET", "/healthz\n"),
    ],
)
def test_a_line_break_behind_a_path_leads_nowhere(method: str, path: str) -> None:
    assert answered(method, path)["status"] == 404


def test_a_line_break_in_a_name_leads_to_it() -> None:
    """To a route that looks for the mesh, which there is not."""
    with pytest.raises(AttributeError):
        answered("GET", "/v1/topics/t/keys/a\n")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/v1/topics", "GET, HEAD, POST"),
        ("PUT", "/v1/topics/t", "DELETE, GET, HEAD, PATCH"),
        ("OPTIONS", "/v1/topics/t/stream", "GET"),
        ("HEAD", "/v1/topics/t/stream", "GET"),
        ("GET", "/v1/topics/t/receive", "POST"),
        ("POST", "/healthz", "GET, HEAD"),
        ("PUT", "/dashboard/files/app.js", "GET, HEAD"),
        ("PUT", "/v2/projects/p/locations/here/queues/q", "DELETE, GET, PATCH"),
    ],
)
def test_a_method_that_is_not_for_a_path_is_told_all_that_are(method: str, path: str, allowed: str) -> None:
    """It was told those of the first route of that path only."""
    answer = answered(method, path)
    said = [value.decode() for name, value in answer["headers"] if name.lower() == b"allow"]
    assert (answer["status"], said) == (405, [allowed])
