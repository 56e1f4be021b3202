"""HEAD wherever GET is: the same answer without its body. Streams have no end, so they have no HEAD either."""

from __future__ import annotations

import re
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_PATHS: Final = ("/v1/", "/healthz", "/readyz", "/livez", "/openapi.json", "/dashboard/", "/docs")
"""A GET of a path below these changes nothing."""
_PAGES: Final = ("/", "/topic", "/messages", "/create")
ENDLESS: Final = re.compile(r"/v1/topics/[^/]+/(?:stream|socket)")
"""A stream of deliveries; other paths may end in such a name, too."""
_LIVE: Final = "/dashboard/live"


class Heads:
    """Answers HEAD as GET.

    Args:
        app: what comes after.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] != "HEAD" or not is_read(scope["path"]):
            await self._app(scope, receive, send)
            return

        async def headed(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self._app({**scope, "method": "GET"}, receive, headed)


def is_read(path: str) -> bool:
    """Return whether a GET of this path, if there is one, has a HEAD beside it."""
    if path == _LIVE or ENDLESS.fullmatch(path) is not None:
        return False
    return path in _PAGES or path.startswith(_PATHS)
