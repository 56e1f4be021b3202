"""Requests that still wait when a gateway's time to end is over."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.types import Message, Receive, Scope, Send

from dueq.gateway.cut_off import CutOff


async def _cancelled(method: str, begun: bool, ends: bool) -> list[Message]:
    """What is sent for a request that is cancelled while it waits."""
    waits, stopping = asyncio.Event(), asyncio.Event()
    if ends:
        stopping.set()
    sent: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        waits.set()
        await asyncio.Event().wait()

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError

    state = SimpleNamespace(service=SimpleNamespace(stopping=stopping))
    scope: dict[str, Any] = {"type": "http", "method": method, "app": SimpleNamespace(state=state)}
    task = asyncio.create_task(CutOff(app)(scope, receive, send))
    await waits.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled() == (begun or not ends)
    return sent


@pytest.mark.parametrize(("method", "status", "error"), [
    ("GET", 503, "Unavailable"), ("HEAD", 503, "Unavailable"), ("POST", 504, "OutcomeUnknown"),
])  # fmt: skip
def test_they_are_told_that_the_gateway_has_ended(method: str, status: int, error: str) -> None:
    start, body = asyncio.run(_cancelled(method, begun=False, ends=True))
    assert (start["status"], json.loads(body["body"])["error"]) == (status, error)
    assert dict(start["headers"])[b"content-type"] == b"application/problem+json"


def test_what_has_begun_to_be_answered_or_is_cancelled_otherwise_is_left_alone() -> None:
    assert [each["type"] for each in asyncio.run(_cancelled("GET", True, True))] == ["http.response.start"]
    assert asyncio.run(_cancelled("GET", False, False)) == []
