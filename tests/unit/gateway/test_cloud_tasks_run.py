"""Sending a task now: it may be done before its document is asked for."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from fastapi import Request

from dueq.client.message_state import MessageState
from dueq.errors import MessageNotFound
from dueq.gateway import instants
from dueq.gateway.bodies import BodyRoom
from dueq.gateway.faces.cloud_tasks.task import HttpMethod, Task
from dueq.gateway.faces.cloud_tasks.tasks import run

ID, NOW_MS, HOUR_MS = "01M85AQ7HP0000J0000000A000", 1_700_000_000_000, 3_600_000


class Mesh:
    """It has one task, of an hour later; whoever triggers it is answered after it was sent and is done."""

    def __init__(self) -> None:
        self.client = self
        self.done = False

    async def now_us(self) -> int:
        return NOW_MS * 1000

    async def get(self, topic: str, message_id: str = "", **_: Any) -> MessageState:
        if self.done:
            raise MessageNotFound("done")
        payload = Task("https://example.com/pay", HttpMethod.POST, {}, b"", 15_000, NOW_MS).payload()
        due = NOW_MS + HOUR_MS
        return MessageState(ID, topic, 0, "", "waiting", due, due, 0, len(payload), 0, payload=payload)

    async def trigger(self, _topic: str, _message_id: str) -> None:
        self.done = True


def test_a_task_that_is_done_at_once_is_shown_as_it_was_sent() -> None:
    async def body() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    app = SimpleNamespace(state=SimpleNamespace(room=BodyRoom(), issuer=None))
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": b"", "app": app}
    shown = asyncio.run(run("p", "l", "q", ID, Mesh(), Request(scope, body)))  # type: ignore[arg-type]
    assert shown["name"].endswith(f"/tasks/{ID}")
    assert shown["scheduleTime"] == instants.text(NOW_MS)
