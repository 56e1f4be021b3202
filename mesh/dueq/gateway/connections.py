"""Connections of clients, with patience that ends.

uvicorn waits for ever: for the rest of a request's head, and for a client that takes nothing of its answer, even while
the connection is being closed. Here both are cut off, so that such clients cost a bounded time. A client that is slow,
but takes its answer at the least rate, is not.

A client that sends more than is taken gets the answer all the same. A socket that is closed with unread bytes resets
the connection, and the client loses the part of the answer that it has not read yet. So further bytes are read and
dropped for a while.
"""

from __future__ import annotations

import asyncio
import fcntl
import re
import socket
import struct
import termios
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Response as HttpResponse

from dueq import limits
from dueq.gateway import problems
from dueq.gateway.answer_room import is_divided

_PAUSE_S: Final = limits.GATEWAY_PAUSE_MS / 1000
_TAKEN_MIN: Final = limits.GATEWAY_BYTES_PER_S_MIN * limits.GATEWAY_PAUSE_MS // 1000
"""Bytes that a client takes in that time: as with bodies that come, one that is slower is cut off."""
_DROPPED_S: Final = limits.GATEWAY_DROPPED_MS / 1000
_HEAD_ENDS: Final = re.compile(rb"\n\r?\n")
_AT_ONCE: Final = struct.pack("ii", 1, 0)


def cut_off(transport: asyncio.Transport) -> None:
    """End a connection that takes nothing, by a reset: else the kernel keeps megabytes of it for minutes."""
    found = transport.get_extra_info("socket")
    if found is not None:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
    transport.abort()


class Patience:
    """A timer that cuts a connection off."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waits(self) -> bool:
        """Whether it has begun, and neither ended nor cut off."""
        return self._timer is not None

    def begin(self, cut_off: Callable[[], object], seconds: float | None = None) -> None:
        """Cut the connection off after this long, or the longest pause, unless `end` is called before."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(_PAUSE_S if seconds is None else seconds, cut_off)

    def end(self) -> None:
        """End the wait: its event has come."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Taking:
    """Cuts a connection off whose client has not taken as much in the longest pause as it takes at the least rate.

    It does not ask whether all that is due was taken: a slow client may need minutes for that. Nor whether anything
    was: a byte now and then would hold the room of an answer for ever.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._patience = Patience()
        self._left = 0

    def begin(self) -> None:
        """Bytes are due to the client, unless that is known already."""
        if not self._patience.waits:
            self._left = self._untaken()
            self._patience.begin(self._late)

    def end(self) -> None:
        """Nothing is, or the connection is no more."""
        self._patience.end()

    def _late(self) -> None:
        self._patience.end()
        left = self._untaken()
        if left <= self._left - _TAKEN_MIN:
            self._left = left
            self._patience.begin(self._late)
        else:
            cut_off(self._transport)

    def _untaken(self) -> int:
        """Bytes that the client has not taken: the kernel holds some, and takes more only once it has much room."""
        found = self._transport.get_extra_info("socket")
        held = 0
        if found is not None:
            (held,) = struct.unpack("i", fcntl.ioctl(found.fileno(), termios.TIOCOUTQ, bytes(4)))
        return self._transport.get_write_buffer_size() + held


class Ending:
    """A transport whose `close` ends the connection so that the client can read the answer first.

    A transport that is closed waits for ever until the client has taken the answer. So one that takes nothing is cut
    off, as it is while there is more to write.

    The wrapped transport does everything else.
    """

    def __init__(self, transport: asyncio.Transport, is_unread: Callable[[], bool]) -> None:
        self._transport, self._is_unread = transport, is_unread
        self._timer: asyncio.TimerHandle | None = None
        self._left = limits.GATEWAY_DROPPED_BYTES_MAX
        self._taking = Taking(transport)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    @property
    def dropping(self) -> bool:
        """The answer is sent, and what still comes is dropped."""
        return self._timer is not None

    def is_closing(self) -> bool:
        """As a transport's."""
        return self.dropping or self._transport.is_closing()

    def close(self) -> None:
        """Close at once if the client has sent all, else once it has read the answer, or takes too long for that."""
        if self.is_closing():
            return
        if not self._is_unread() or not self._transport.can_write_eof():
            self._transport.close()
            self.closing()
            return
        self._timer = asyncio.get_running_loop().call_later(_DROPPED_S, self._transport.abort)
        self._transport.write_eof()
        self._transport.resume_reading()

    def drop(self, size: int) -> None:
        """Drop bytes that have come and that nobody takes; the connection is cut off after too many of them."""
        self._left -= size
        if self._left < 0:
            self._transport.abort()

    def closing(self) -> None:
        """The transport is closed, or will be at once: but for what the client has not taken yet."""
        if self._transport.get_write_buffer_size():
            self._taking.begin()

    def full(self) -> None:
        """The client does not take what is sent."""
        self._taking.begin()

    def writable(self) -> None:
        """It does again; what is left when the transport is closed has to be taken, too."""
        if not self.is_closing():
            self._taking.end()

    def end(self) -> None:
        """The connection is no more."""
        self._taking.end()
        if self._timer is not None:
            self._timer.cancel()


class HttpConnection(H11Protocol):
    """One connection of HTTP/1.1."""

    _heading: Patience
    _rest: Patience
    _ending: Ending
    _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin: the head of the first request is due."""
        self._ending = Ending(transport, self._is_unread)
        ending: Any = self._ending
        super().connection_made(ending)
        self._heading, self._rest = Patience(), Patience()
        self._heading.begin(self._late)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        for each in (self._heading, self._rest, self._ending):
            each.end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take the bytes that have come; a head that has begun has to end in time."""
        if self._ending.dropping:
            self._ending.drop(len(data))
            return
        if self.conn.their_state is h11.IDLE and self._is_too_long(data):
            return
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0]:
            self._heading.begin(self._late)
        elif self.conn.their_state is not h11.IDLE:
            self._heading.end()
        if self.conn.their_state is not h11.SEND_BODY:
            self._rest.end()

    def on_response_complete(self) -> None:
        """The answer is sent; the rest of the request, if the answer did not wait for it, has to come soon."""
        if self.conn.their_state is h11.SEND_BODY:
            self._rest.begin(self.transport.abort, _DROPPED_S)
        super().on_response_complete()

    def eof_received(self) -> bool:  # type: ignore[override]
        """The client sends no more: the transport closes itself, and does not ask `Ending` for that.

        It would forget the pieces of an answer that are not written yet; so it stays open for these.
        """
        super().eof_received()
        scope: Any = self.scope
        if is_divided(scope):
            self.cycle.keep_alive = False
            return True
        self._ending.closing()
        return False

    def pause_writing(self) -> None:
        """The client does not take what is sent."""
        self._ending.full()
        super().pause_writing()

    def resume_writing(self) -> None:
        """It does again."""
        self._ending.writable()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, as a problem."""
        self._refuse(problems.of_status(400, msg))

    def _late(self) -> None:
        """The head of a request did not come in time; a client that has begun one is told so."""
        if not self.conn.trailing_data[0]:
            self.transport.abort()
            return
        self._unset_keepalive_if_required()
        text = f"the head of the request did not come within {_PAUSE_S:g} seconds"
        self._refuse(problems.of_status(408, text, limit=_PAUSE_S, retry=True))

    def _should_upgrade(self) -> bool:
        """Only a GET without a body becomes a WebSocket; of any other request Upgrade is ignored."""
        names = {name for name, _ in self.headers}
        plain = self.scope["method"] == "GET" and not names & {b"content-length", b"transfer-encoding"}
        return plain and super()._should_upgrade()

    def _is_unread(self) -> bool:
        """Whether the client may be sending still."""
        return self._refused or self.conn.their_state is h11.SEND_BODY

    def _is_too_long(self, data: bytes) -> bool:
        """Refuse a request whose head has too many bytes, whether all of it is here or not."""
        most = limits.GATEWAY_HEAD_BYTES_MAX
        before = self.conn.trailing_data[0]
        if len(before) + len(data) <= most:
            return False
        begun = (before + data).lstrip(b"\r\n")
        found = _HEAD_ENDS.search(begun, 0, most)
        if found is not None or len(begun) <= most:
            return False
        if 0 <= begun.find(b"\n") < most:
            refused = problems.of_status(431, f"the headers have at most {most} bytes", limit=most)
        else:
            refused = problems.of_status(414, f"the line of the request has at most {most} bytes", limit=most)
        self._unset_keepalive_if_required()
        self._heading.end()
        self._refuse(refused)
        return True

    def _refuse(self, problem: problems.Document) -> None:
        """Answer before there is a request, and end."""
        self._refused = True
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = problems.raw(problem)
            headers = [
                (b"content-type", problems.MEDIA_TYPE.encode()),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
            ]
            status = HTTPStatus(problem["status"])
            for event in (
                h11.Response(status_code=status.value, headers=headers, reason=status.phrase.encode()),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class SocketConnection(WebSocketsSansIOProtocol):
    """One WebSocket."""

    _ending: Ending
    _reject: Callable[[HTTPStatus | int, str], HttpResponse]

    def _rejected(self, status: HTTPStatus | int, text: str) -> HttpResponse:
        """Refuse an upgrade that is none, as a problem."""
        refused = self._reject(
            HTTPStatus(status), problems.raw(problems.of_status(status, text.strip())).decode()
        )
        del refused.headers["content-type"]
        refused.headers["content-type"] = problems.MEDIA_TYPE
        return refused

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin; the connection of HTTP, whose this was, hands its own over."""
        assert isinstance(transport, Ending)
        self._ending = transport
        super().connection_made(transport)
        self._reject, self.conn.reject = self.conn.reject, self._rejected  # type: ignore[method-assign]

    def data_received(self, data: bytes) -> None:
        """Take the bytes that have come; uvicorn keeps the refusal of a head whose lines are too long to itself."""
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self.handshake_complete = self.close_sent = True
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()

    async def send(self, message: Any) -> None:
        """Take what the application says; uvicorn logs a WebSocket that it has refused as a defect of its own."""
        await super().send(message)
        if self.close_sent:
            self.handshake_complete = True

    def shutdown(self) -> None:
        """The gateway ends: it says so in its own words, and closes the WebSocket then.

        uvicorn would close it at once, maybe before these words, and before the outcomes of what the client asked for.
        As there, nobody waits for the client to say goodbye, too.
        """
        self.close_timeout = 0.0
        if self.close_sent or not self.handshake_complete:
            super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._ending.end()
        super().connection_lost(exc)

    def eof_received(self) -> None:
        """The client sends no more: the transport closes itself, and does not ask `Ending` for that."""
        super().eof_received()
        self._ending.closing()

    def pause_writing(self) -> None:
        """The client does not take what is sent."""
        self._ending.full()
        super().pause_writing()

    def resume_writing(self) -> None:
        """It does again."""
        self._ending.writable()
        super().resume_writing()
