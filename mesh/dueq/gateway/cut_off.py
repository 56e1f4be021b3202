"""The answer to requests that still wait when the time that a gateway has to end is over."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dueq.errors import DueqError, OutcomeUnknown, Unavailable
from dueq.gateway import problems

_READING: Final = ("GET", "HEAD", "OPTIONS")


class CutOff:
    """Answers a request that is cancelled because the gateway ends; uvicorn would answer that the server is broken."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except asyncio.CancelledError:
            if begun or not scope["app"].state.service.stopping.is_set():
                raise
            await problems.response(problems.of_error(_why(scope["method"])))(scope, receive, send)


def _why(method: str) -> DueqError:
    if method in _READING:
        return Unavailable("this gateway has ended before the mesh answered; ask again, or another gateway")
    return OutcomeUnknown("this gateway has ended before the mesh answered: it may or may not have been done")
