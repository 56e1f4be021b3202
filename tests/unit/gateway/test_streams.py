"""Streams of deliveries leave nothing behind, however their clients go."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.types import Message
from starlette.websockets import WebSocket

from dueq.gateway.flows import Flows
from dueq.gateway.v1 import stream


def test_a_socket_whose_client_goes_before_it_is_accepted_is_forgotten() -> None:
    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        raise OSError("the client has gone")

    async def described(topic: str) -> None:
        pass

    async def run() -> None:
        client: Any = SimpleNamespace(describe=described)
        receiving: Any = SimpleNamespace(stopped=False)
        service: Any = SimpleNamespace(client=client, flows=Flows(client, receiving))
        scope = {"type": "websocket", "path": "/", "query_string": b"consumer=c", "headers": []}
        with pytest.raises(OSError, match="gone"):
            await stream.socket(WebSocket(scope, receive, send), "t", service)
        assert len(service.flows) == 0
        assert not service.flows._named

    asyncio.run(run())


def test_a_socket_has_one_value_for_each_wish() -> None:
    answered = list[Message]()

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        answered.append(message)

    scope = {
        "type": "websocket", "path": "/", "query_string": b"credit=1&credit=1000", "headers": [],
        "extensions": {"websocket.http.response": {}},
    }  # fmt: skip
    service: Any = None
    asyncio.run(stream.socket(WebSocket(scope, receive, send), "t", service))
    assert answered[0]["status"] == 422
    assert b"query.credit comes 2 times" in answered[1]["body"]
