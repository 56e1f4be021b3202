"""Guards against web pages: a browser that shows somebody else's page must not act here for it.

Nobody is authenticated on the loopback. So any page that a browser on this machine shows could otherwise send
requests here. Three checks are made of every request, WebSockets included, before anything else sees it:

* `Host` is one of the allowed names. A page whose name was made to point at this machine (DNS rebinding) has its own.
* `Sec-Fetch-Site`, which browsers send and pages cannot forge, is `same-origin` or `none` (typed by the user).
* `Origin`, if there is one, is this gateway itself.

Programs such as curl send neither of the last two.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, MutableMapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from dueq.gateway import problems

LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""A page of the gateway may load the gateway's own files, nothing else."""

_HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
_UNCACHED: Final = (b"cache-control", b"no-store")
_DENIAL: Final = "websocket.http.response"
"""The ASGI extension of servers that can answer a request instead of opening a WebSocket."""
_HOST: Final = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?")
_ABSOLUTE: Final = re.compile(rb"https?://(?P<host>[^/]*)(?P<path>/.*)?", re.IGNORECASE)
_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}
_OWN_SITE: Final = (b"same-origin", b"none")


class Guards:
    """Refuses what a foreign page may have sent, and adds the headers that keep our own pages apart.

    Args:
        app: what comes after.
        hosts: names that `Host` may have, besides those of the loopback; without ports.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._hosts = {name.lower() for name in (*LOOPBACK_NAMES, *hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        scope = _in_origin_form(scope)
        refusal = self._refusal(scope)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                _add_headers(message)
            await send(message)

        if refusal is None and scope["type"] == "websocket":
            await self._app(scope, receive, _with_reason(scope, receive, send))
        elif refusal is None:
            await self._app(scope, receive, guarded)
        elif scope["type"] == "websocket":
            await refuse_socket(scope, receive, send, refusal)
        else:
            await problems.response(refusal)(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> problems.Document | None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        framing = {name for name, _ in headers} & {b"transfer-encoding", b"content-length"}
        if len(framing) > 1:
            # One server may take for the end of the body what another takes for the next request.
            return problems.of_status(400, "a request has transfer-encoding or content-length, not both")
        if scope.get("http_version") == "1.0" and b"transfer-encoding" in framing:  # RFC 9112, 6.1
            return problems.of_status(400, "a request of HTTP/1.0 has no transfer-encoding")
        if (
            scope.get("http_version") == "1.0" and scope.get("method") == "POST" and not framing
        ):  # RFC 1945, 8.3
            return problems.of_status(
                411, "a POST of HTTP/1.0 has a content-length: else its body has no end"
            )
        hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
        host = hosts[0] if len(hosts) == 1 else ""
        found = _HOST.fullmatch(host)
        if found is None or found["name"].lower() not in self._hosts:
            allowed = ", ".join(sorted(self._hosts))
            text = f"this gateway is not {host!r:.80}: it answers to {allowed} (dueq gateway --host NAME adds one)"
            return problems.of_status(421, text, host, allowed)
        for name, value in headers:
            if name == b"sec-fetch-site" and value.strip().lower() not in _OWN_SITE:
                return _foreign("Sec-Fetch-Site", value)
            if name == b"origin" and not _same_origin(value.decode("latin-1"), found):
                return _foreign("Origin", value)
        return None


def _in_origin_form(scope: Scope) -> Scope:
    """Take a target that is a whole URI apart, as proxies send it: its host counts, not `Host` (RFC 9112, 3.2.2)."""
    found = _ABSOLUTE.fullmatch(scope.get("raw_path") or b"")
    if found is None:
        return scope
    path = found["path"] or b"/"
    headers = [(name, value) for name, value in scope["headers"] if name != b"host"]
    headers.append((b"host", found["host"]))
    return {**scope, "path": unquote(path.decode("ascii")), "raw_path": path, "headers": headers}


async def refuse_socket(scope: Scope, receive: Receive, send: Send, refusal: problems.Document) -> None:
    """Refuse a WebSocket: by a problem, where the server can do that."""
    if _DENIAL in scope.get("extensions", {}):
        await WebSocket(scope, receive, send).send_denial_response(problems.response(refusal))
    else:
        await send({"type": "websocket.close", "code": 1008, "reason": refusal["detail"][:100]})


def _with_reason(scope: Scope, receive: Receive, send: Send) -> Send:
    """Have a WebSocket that no route opens answered by a problem, where the server can do that."""
    begun = False

    async def reasoned(message: Message) -> None:
        nonlocal begun
        if message["type"] == "websocket.close" and not begun and _DENIAL in scope.get("extensions", {}):
            missing = problems.of_status(404, f"there is no WebSocket at {scope['path']}", scope["path"])
            await WebSocket(scope, receive, send).send_denial_response(problems.response(missing))
        else:
            await send(message)
        begun = True

    return reasoned


def _foreign(name: str, value: bytes) -> problems.Document:
    text = f"{name} is {value.decode('latin-1')!r:.80}: the request was made by a page of another site"
    return problems.of_status(403, text, value.decode("latin-1"), "same-origin")


def _same_origin(origin: str, host: re.Match[str]) -> bool:
    try:
        parts = urlsplit(origin)
        port = str(parts.port) if parts.port is not None else _DEFAULT_PORTS.get(parts.scheme, "")
    except ValueError:
        return False
    if parts.scheme not in _DEFAULT_PORTS or parts.path or parts.username is not None:
        return False
    name = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return name == host["name"].lower() and port == (host["port"] or _DEFAULT_PORTS[parts.scheme])


def _add_headers(message: MutableMapping[str, Any]) -> None:
    headers = list(message.get("headers", ()))
    present = {name.lower() for name, _ in headers}
    added = [(name, value) for name, value in (*_HEADERS, _UNCACHED) if name not in present]
    message["headers"] = headers + added
