"""Connections of clients, with patience that ends.

uvicorn waits for ever: for the rest of a request's head, and for a client that takes nothing of its answer, even while
the connection is being closed. Here both are cut off, so that such clients cost a bounded time.
"""

from __future__ import annotations

import asyncio
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from dueq import limits
from dueq.gateway import problems

_PAUSE_S: Final = limits.GATEWAY_PAUSE_MS / 1000


class Patience:
    """A timer that cuts a connection off."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, transport: asyncio.Transport) -> None:
        """Cut the connection off after the longest pause, unless `end` is called before."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_PAUSE_S, transport.abort)

    def end(self) -> None:
        """What was waited for has come."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class HttpConnection(H11Protocol):
    """One connection of HTTP/1.1."""

    _taking: Patience
    _heading: Patience

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin: the head of the first request is due."""
        super().connection_made(transport)
        self._taking, self._heading = Patience(), Patience()
        self._heading.begin(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._taking.end()
        self._heading.end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what has come; a head that has begun has to end in time."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._heading.begin(self.transport)
        elif self.conn.their_state is not h11.IDLE:
            self._heading.end()

    def pause_writing(self) -> None:
        """The client does not take what is sent."""
        self._taking.begin(self.transport)
        super().pause_writing()

    def resume_writing(self) -> None:
        """It does again."""
        self._taking.end()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, as a problem."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = problems.raw(problems.of_status(400, msg))
            headers = [
                (b"content-type", problems.MEDIA_TYPE.encode()),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
            ]
            for event in (
                h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class SocketConnection(WebSocketsSansIOProtocol):
    """One WebSocket."""

    _taking: Patience

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        super().connection_made(transport)
        self._taking = Patience()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._taking.end()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not take what is sent."""
        self._taking.begin(self.transport)
        super().pause_writing()

    def resume_writing(self) -> None:
        """It does again."""
        self._taking.end()
        super().resume_writing()
