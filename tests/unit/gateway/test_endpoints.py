"""Endpoints by HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("fastapi")

from fastapi import Request
from starlette.requests import ClientDisconnect
from starlette.types import Message

from dueq.gateway.v1 import endpoints


def test_a_test_ends_when_nobody_waits_for_its_answer() -> None:
    """A receiver may take half an hour, and its connection is one of those of all endpoints."""

    async def run() -> None:
        begun, ended = asyncio.Event(), asyncio.Event()

        class Webhooks:
            async def test(self, name: str) -> None:
                begun.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.set()

        async def receive() -> Message:
            await begun.wait()
            return {"type": "http.disconnect"}

        webhooks: Any = Webhooks()
        with pytest.raises(ClientDisconnect):
            await endpoints.tested("billing", webhooks, Request({"type": "http"}, receive))
        await ended.wait()

    asyncio.run(asyncio.wait_for(run(), 30))
