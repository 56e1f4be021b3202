"""What the probes of a gateway answer: it lives, and it can serve."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.types import Message

from dueq.errors import Disconnected
from dueq.gateway.app import create_app
from dueq.gateway.service import Service


async def reached(*_: object) -> None:
    """A broker answers."""


async def not_reached(*_: object) -> None:
    raise Disconnected("no broker was reached")


def answered(path: str, connect: Callable[..., Awaitable[None]], *, stopping: bool = False) -> Any:
    """Ask a gateway; return the status and the document of its answer."""
    sent = list[Message]()

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    async def ask() -> None:
        service = Service(SimpleNamespace(connection=SimpleNamespace(run=connect)))  # type: ignore[arg-type]
        if stopping:
            service.stopping.set()
        app = create_app(lambda: None)  # type: ignore[arg-type, return-value]
        app.state.service = service
        scope = {
            "type": "http", "method": "GET", "path": path, "query_string": b"", "headers": [(b"host", b"localhost")],
            "http_version": "1.1",
        }  # fmt: skip
        await app(scope, receive, send)

    asyncio.run(ask())
    return sent[0]["status"], json.loads(sent[1]["body"])


def test_it_is_ready_while_a_broker_answers() -> None:
    assert answered("/readyz", reached) == (200, {"status": "ok"})


def test_without_a_broker_it_is_not_ready_and_lives() -> None:
    """A supervisor that would end it for that would mend nothing: it serves again when a broker answers."""
    assert answered("/readyz", not_reached) == (503, {"status": "unready"})
    assert answered("/healthz", not_reached) == (200, {"status": "ok"})


def test_one_that_is_told_to_end_gets_no_more_requests() -> None:
    assert answered("/readyz", reached, stopping=True) == (503, {"status": "unready"})
    assert answered("/healthz", reached, stopping=True) == (200, {"status": "ok"})
