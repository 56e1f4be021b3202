"""A request that a page of another site could send is refused before anything else sees it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.responses import PlainTextResponse

from dueq.gateway.guards import Guards


def answer(*headers: tuple[str, str], kind: str = "http") -> list[dict[str, Any]]:
    """Send a request with these headers; return what was sent back."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": kind, "method": "POST", "path": "/",
        "headers": [(name.encode(), value.encode()) for name, value in headers],
    }  # fmt: skip
    asyncio.run(Guards(PlainTextResponse("in"), ["dueq.example"])(scope, receive, send))
    return sent


HOST = ("host", "localhost:7480")


@pytest.mark.parametrize(
    "headers",
    [
        [HOST],
        [("host", "127.0.0.1:1")],
        [("host", "[::1]:7480")],
        [("host", "DUEQ.example")],
        [HOST, ("sec-fetch-site", "same-origin"), ("origin", "http://localhost:7480")],
        [HOST, ("sec-fetch-site", "none")],
        [("host", "dueq.example"), ("origin", "https://dueq.example")],
    ],
)
def test_programs_and_our_own_pages_come_in(headers: list[tuple[str, str]]) -> None:
    begin = answer(*headers)[0]
    assert begin["status"] == 200
    assert b"content-security-policy" in dict(begin["headers"])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([], 421),
        ([HOST, HOST], 421),
        ([HOST, ("transfer-encoding", "chunked"), ("content-length", "3")], 400),
        ([("host", "evil.example")], 421),
        ([("host", "localhost.evil.example")], 421),
        ([HOST, ("sec-fetch-site", "cross-site")], 403),
        ([HOST, ("sec-fetch-site", "same-site")], 403),
        ([HOST, ("origin", "http://evil.example")], 403),
        ([HOST, ("origin", "http://localhost:3000")], 403),
        ([HOST, ("origin", "null")], 403),
    ],
)
def test_others_are_refused(headers: list[tuple[str, str]], status: int) -> None:
    assert answer(*headers)[0]["status"] == status


def test_a_websocket_of_another_site_is_closed_before_it_opens() -> None:
    assert answer(HOST, ("origin", "http://evil.example"), kind="websocket")[0]["type"] == "websocket.close"
