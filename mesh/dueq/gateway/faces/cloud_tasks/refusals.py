"""What is refused before a route of this face has it, said as a google.rpc.Status.

Guards, the read-only gateway, one that ends, and unknown paths answer with problems. Google's client reads
`error` as an object: of a problem it raises no error of its own, but an AttributeError.
"""

from __future__ import annotations

import json
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dueq.gateway import problems
from dueq.gateway.faces.cloud_tasks.status import Code

_PATHS: Final = "/v2/"
_CODES: Final = {
    403: Code.PERMISSION_DENIED,
    404: Code.NOT_FOUND,
    405: Code.UNIMPLEMENTED,
    429: Code.RESOURCE_EXHAUSTED,
    503: Code.UNAVAILABLE,
    504: Code.DEADLINE_EXCEEDED,
}


class Refusals:
    """Says problems as this face says errors; their HTTP statuses stay.

    Args:
        app: what comes after.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or not scope["path"].startswith(_PATHS):
            await self._app(scope, receive, send)
            return
        begun: Message | None = None
        parts: list[bytes] = []

        async def said(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start" and _is_problem(message):
                begun = message
            elif begun is None or message["type"] != "http.response.body":
                await send(message)
            else:
                parts.append(message.get("body", b""))
                if not message.get("more_body"):
                    body = _status(begun["status"], b"".join(parts))
                    await send({**begun, "headers": _headers(begun, len(body))})
                    await send({"type": "http.response.body", "body": body})

        await self._app(scope, receive, said)


def _is_problem(begun: Message) -> bool:
    return (b"content-type", problems.MEDIA_TYPE.encode()) in begun["headers"]


def _headers(begun: Message, length: int) -> list[tuple[bytes, bytes]]:
    kept = [each for each in begun["headers"] if each[0] not in (b"content-type", b"content-length")]
    return [*kept, (b"content-type", b"application/json"), (b"content-length", b"%d" % length)]


def _status(status: int, body: bytes) -> bytes:
    code = _CODES.get(status, Code.INTERNAL if status >= 500 else Code.INVALID_ARGUMENT)
    text = json.loads(body)["detail"]
    return problems.raw({"error": {"code": status, "message": text, "status": code.name}})
