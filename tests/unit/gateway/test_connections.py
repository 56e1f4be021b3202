"""Clients that do not take what they asked for are cut off."""

from __future__ import annotations

import asyncio
import socket

import pytest

pytest.importorskip("fastapi")

import uvicorn
from starlette.types import Receive, Scope, Send

from dueq.gateway import connections


def test_a_client_that_never_reads_is_cut_off_and_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_PAUSE_S", 0.05)
    told = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        """An answer without end, but for those who ask for a short one."""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/short":
            await send({"type": "http.response.body", "body": b"short"})
            return
        gone = asyncio.create_task(_gone(receive))
        while not gone.done():
            await send({"type": "http.response.body", "body": bytes(65_536), "more_body": True})
        told.set()

    async def _gone(receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def run() -> bytes:
        listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            app, http=connections.HttpConnection, lifespan="off", log_config=None, access_log=False
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve([listener]))
        where = listener.getsockname()
        deaf = socket.create_connection(where)
        deaf.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        reader, writer = await asyncio.open_connection(*where)
        writer.write(b"GET /short HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await told.wait()
        deaf.close()
        server.should_exit = True
        await serving
        return answer

    assert b"short" in asyncio.run(run())
