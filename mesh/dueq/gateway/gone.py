"""Clients that go while something is done for them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

T = TypeVar("T")


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Do something for a client; it is cancelled when the client goes.

    Raises:
        ClientDisconnect: it has gone.
    """

    async def going() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    done, gone = asyncio.create_task(work), asyncio.create_task(going())
    try:
        await asyncio.wait((done, gone), return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            raise ClientDisconnect
        return done.result()
    finally:
        gone.cancel()
        done.cancel()
