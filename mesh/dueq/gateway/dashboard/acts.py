"""Actions of people at the dashboard: logged, remembered for a while, and refused by a gateway that is read-only."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import unquote

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dueq.gateway import problems
from dueq.gateway.dashboard.feed import Feed
from dueq.gateway.guards import refuse_socket
from dueq.gateway.heads import ENDLESS
from dueq.gateway.logs import log

_HEADER: Final = "x-dueq-act"
_ACT_MAX: Final = 200
_READING: Final = ("GET", "HEAD")
_TOPIC: Final = re.compile(r"/v1/topics/([^/]+)")
_READABLE: Final = re.compile(
    r"/(?:topic|messages|create|openapi\.json|healthz|readyz|livez|(?:dashboard|docs|v1|\.well-known)(?:/.*)?)?"
)


class Acts:
    """Writes down each request that a page makes in somebody's name."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        act = Headers(scope=scope).get(_HEADER) if scope["type"] == "http" else None
        if act is None or scope["method"] in _READING:
            await self._app(scope, receive, send)
            return
        status = 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noted)
        finally:
            feed: Feed = scope["app"].state.feed
            feed.acted(_written(scope, act, status))


class ReadOnly:
    """Lets through what only looks: nothing is changed, and nothing is delivered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] not in ("http", "websocket") or _only_looks(scope):
            await self._app(scope, receive, send)
            return
        text = "this gateway is read-only: it changes and delivers nothing (dueq gateway --read-only)"
        refusal = problems.of_status(403, text)
        if scope["type"] == "websocket":
            await refuse_socket(scope, receive, send, refusal)
        else:
            await problems.response(refusal)(scope, receive, send)


def _only_looks(scope: Scope) -> bool:
    path: str = scope["path"]
    return (
        scope["type"] == "http"
        and scope["method"] in _READING
        and _READABLE.fullmatch(path) is not None
        and ENDLESS.fullmatch(path) is None
    )


def _one_line(text: str) -> str:
    """A text that cannot look like several lines of a log, nor move a terminal's cursor."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:_ACT_MAX])


def _written(scope: Scope, act: str, status: int) -> dict[str, Any]:
    topic = _TOPIC.match(scope["path"])
    written = {
        "act": _one_line(unquote(act)),
        "topic": _one_line(topic[1]) if topic is not None else "",
        "status": status,
        "by": scope["client"][0] if scope.get("client") else "",
    }
    log.info("dashboard.acted", method=scope["method"], path=_one_line(scope["path"]), **written)
    return written
