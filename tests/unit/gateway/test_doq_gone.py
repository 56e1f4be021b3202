"""Clients of doq that go before their message comes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.datastructures import QueryParams
from starlette.requests import ClientDisconnect

from dueq.gateway.faces.doq import messages


def test_no_message_is_taken_for_a_client_that_has_gone() -> None:
    """It would be in flight for half an hour."""

    async def run() -> None:
        asked, given_up = asyncio.Event(), asyncio.Event()

        async def dequeue(*_: Any) -> None:
            asked.set()
            try:
                await asyncio.Event().wait()  # the mesh is busy
            finally:
                given_up.set()

        async def receive() -> dict[str, str]:
            await asked.wait()
            return {"type": "http.disconnect"}

        request: Any = SimpleNamespace(query_params=QueryParams(""), receive=receive)
        doq: Any = SimpleNamespace(dequeue=dequeue)
        with pytest.raises(ClientDisconnect):
            await messages.dequeued("mail", doq, request)
        await given_up.wait()

    asyncio.run(asyncio.wait_for(run(), 10))
