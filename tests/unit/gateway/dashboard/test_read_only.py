"""A gateway that is read-only lets nothing be changed or delivered."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("fastapi")

from dueq.gateway.dashboard.acts import ReadOnly
from dueq.gateway.guards import Guards


async def _passed(scope: dict[str, Any]) -> bool:
    reached = False

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal reached
        reached = True

    async def send(message: Any) -> None:
        assert message.get("status", 403) == 403

    await ReadOnly(app)({"type": "http", "headers": [], **scope}, None, send)  # type: ignore[arg-type]
    return reached


@pytest.mark.parametrize(
    ("method", "path", "passes"),
    [
        ("GET", "/", True),
        ("GET", "/topic", True),
        ("GET", "/dashboard/live", True),
        ("GET", "/v1/topics/mail/messages/ID", True),
        ("HEAD", "/docs", True),
        ("GET", "/livez", True),
        ("GET", "/.well-known/openid-configuration", True),
        ("GET", "/.well-known/jwks.json", True),
        ("GET", "/v1/topics/stream", True),
        ("GET", "/v1/topics/mail/keys/up/stream", True),
        ("GET", "/v1/topics/mail/stream", False),
        ("GET", "/API/v1/queue", False),
        ("POST", "/v1/topics/mail/messages", False),
        ("POST", "/v1/topics/mail/receive", False),
        ("DELETE", "/v1/topics/mail", False),
        ("PATCH", "/v1/topics/mail", False),
    ],
)
def test_only_what_looks_gets_through(method: str, path: str, passes: bool) -> None:
    assert asyncio.run(_passed({"method": method, "path": path})) is passes


def test_a_websocket_is_refused() -> None:
    assert asyncio.run(_passed({"type": "websocket", "path": "/v1/topics/mail/socket"})) is False


def test_a_websocket_is_refused_with_the_reason() -> None:
    """Not as one that there is not: whoever reads that looks for a mistake in the address."""
    answered: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        answered.append(message)

    scope = {
        "type": "websocket", "path": "/v1/topics/mail/socket", "headers": [(b"host", b"localhost")],
        "extensions": {"websocket.http.response": {}},
    }  # fmt: skip
    asyncio.run(Guards(ReadOnly(app))(scope, receive, send))
    assert answered[0]["status"] == 403
    assert "read-only" in json.loads(answered[1]["body"])["detail"]
