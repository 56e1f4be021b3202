"""One request to a receiver, and its answer."""

from __future__ import annotations

import asyncio
import errno
import io
import re
import socket
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from multidict import CIMultiDict
from yarl import URL

from dueq import limits
from dueq.gateway.webhooks.addresses import Addresses, AddressRefused
from dueq.gateway.webhooks.answers import REASON_BYTES_MAX, Answer
from dueq.gateway.webhooks.room import Room
from dueq.gateway.webhooks.threads import Threads

_KEPT_ALIVE_S: Final = 4.0
"""How long an idle connection is kept: less than most servers do, so that it rarely ends as it is used again."""
_DRAINED_BYTES: Final = 16 << 10
"""Longest answer that is read so that its connection can be used again."""
_DRAINED_S: Final = 1.0
"""Longest time for that, within the time-out: who has sent the message may have little time left to settle it."""
_AT_ONCE_BYTES: Final = 1 << 20
"""Longest payload that is given to the connection in one piece."""


_INTERIM_MAX: Final = 16
"""Most answers of status 1xx before the one that counts: a flood of them would keep the gateway busy."""


_HEAD_ENDS: Final = re.compile(rb"\n\r?\n")


_asking: Final[ContextVar[str]] = ContextVar("asking", default="")
"""Whose request is being made."""


class _Turn:
    """The look-ups of one that the gateway sends for."""

    def __init__(self, room: Room) -> None:
        self._woken = asyncio.Event()
        self.share = room.share(self._woken.set)
        self.users = 0

    async def come(self) -> None:
        """Wait until one more may begin."""
        while not self.share.free:
            self._woken.clear()
            await self._woken.wait()


class _Lookups:
    """Looks names up in threads of its own: a name whose servers do not answer holds up nothing else of the gateway.

    Half of the threads are in equal shares for those whose names are being looked up, since the servers of all names of
    one endpoint may be dead.
    """

    def __init__(self) -> None:
        self._threads = Threads(limits.WEBHOOK_LOOKUPS_MAX, "webhook lookup")
        self._room = Room(limits.WEBHOOK_LOOKUPS_MAX)
        self._turns: dict[str, _Turn] = {}

    async def getaddrinfo(self, *given: Any, **more: Any) -> Any:
        """As the loop's."""
        return await self._run(partial(socket.getaddrinfo, *given, **more))

    async def getnameinfo(self, *given: Any) -> Any:
        """As the loop's."""
        return await self._run(partial(socket.getnameinfo, *given))

    def close(self) -> None:
        """Begin no more."""
        self._threads.close()

    async def _run(self, look: Callable[[], Any]) -> Any:
        loop, whose = asyncio.get_running_loop(), _asking.get()
        turn = self._turns.get(whose)
        if turn is None:
            turn = self._turns[whose] = _Turn(self._room)
        turn.users += 1
        try:
            await turn.come()
        except asyncio.CancelledError:
            self._leave(whose, turn)
            raise
        turn.share.begin()

        def over() -> None:
            turn.share.end()
            self._leave(whose, turn)

        def ended(_: Future[Any]) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(over)

        # The caller may give up; the thread is taken until the look-up ends.
        try:
            future = self._threads.submit(look)
        except RuntimeError as error:  # there is no thread for it
            over()
            raise OSError(errno.EAGAIN, str(error)) from error
        future.add_done_callback(ended)
        return await asyncio.wrap_future(future)

    def _leave(self, whose: str, turn: _Turn) -> None:
        turn.users -= 1
        if not turn.users:
            turn.share.leave()
            del self._turns[whose]


class _Unanswered(aiohttp.ClientError):
    """The connection has ended before anything was answered; the cause says how."""


class _Response(aiohttp.ClientResponse):
    """An answer before which only a few others of status 1xx come, and that says if it has begun when it breaks off."""

    async def start(self, connection: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        protocol: Any = connection.protocol
        read, count = protocol.read, 0

        async def counted() -> Any:
            nonlocal count
            count += 1
            if count > _INTERIM_MAX + 1:
                raise aiohttp.ClientConnectionError(f"more than {_INTERIM_MAX} answers of status 1xx")
            return await read()

        protocol.read = counted
        try:
            return await super().start(connection)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            if protocol.heard:
                raise aiohttp.ClientConnectionError(f"the answer broke off: {error}") from error
            raise
        finally:
            del protocol.read


class _Protocol(ResponseHandler):
    """A connection whose parser gets the head of an answer by itself, and that ends with what nobody has asked for.

    The parser tells what it has found once it has read all of a piece. If no HTTP follows the head, such as the body of
    a 204, it would tell nothing: a message that has arrived would be sent again until it is dead.

    What a receiver says behind its answer, such as a second one, would be kept for whoever uses the connection next: a
    message would be acknowledged that the receiver has not read (RFC 9112, 6.3).
    """

    heard = False
    """Something of an answer has come."""
    _heads = 0
    """How many heads may still come until the answer is there."""
    _last = b""
    """The end of what came before: a head may end with the next piece."""
    _body: Any = None
    """Of the answer, once its head is there."""

    def set_response_params(self, **params: Any) -> None:
        self._heads, self._last, self._body = _INTERIM_MAX + 1, b"", None
        self.heard = False
        super().set_response_params(**params)

    def feed_data(self, data: Any, size: int = 0) -> None:
        head, body = data
        if self._body is not None:  # it came in one piece with the end of the answer
            self._end()
            return
        if not 100 <= head.code < 200 or head.code == 101:  # as the session takes them
            self._heads, self._body = 0, body
        super().feed_data(data, size)

    def _end(self) -> None:
        self.force_close()
        self.close()

    def data_received(self, data: bytes) -> None:
        self.heard = self.heard or bool(data)
        while self._heads and (found := _HEAD_ENDS.search(self._last + data)):
            end = found.end() - len(self._last)
            self._heads, self._last = self._heads - 1, b""
            super().data_received(data[:end])
            data = data[end:]
            if not data or self.exception() is not None:
                return
        if data and self._body is not None and self._body.is_eof():
            self._end()
            return
        self._last = (self._last + data)[-2:]
        super().data_received(data)


class _Connector(aiohttp.TCPConnector):
    """Makes such connections."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        made: Any = partial(_Protocol, loop=self._loop)
        self._factory = made


class Sender:
    """Sends requests, to addresses that are allowed and nowhere else. For the tasks of one loop; close it."""

    def __init__(self, addresses: Addresses) -> None:
        tracing = aiohttp.TraceConfig()
        tracing.on_connection_reuseconn.append(_reused)
        self._lookups = _Lookups()
        lookups: Any = self._lookups
        self._session = aiohttp.ClientSession(
            response_class=_Response,
            connector=_Connector(
                resolver=aiohttp.ThreadedResolver(lookups),
                limit=limits.WEBHOOK_CONNECTIONS_MAX,
                keepalive_timeout=_KEPT_ALIVE_S,
                socket_factory=addresses.socket,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            skip_auto_headers=("Content-Type", "User-Agent"),
            trace_configs=[tracing],
            middlewares=(_once,),
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()
        self._lookups.close()

    async def send(
        self, method: str, url: str, headers: CIMultiDict[str], body: bytes, timeout_s: float, whose: str = ""
    ) -> Answer:
        """Send one request and return its answer; failures are answers too.

        Args:
            whose: the endpoint or queue that it is sent for: each has its share of the look-ups of names.
        """
        _asking.set(whose)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            async with asyncio.timeout(timeout_s):
                response = await self._begun(method, url, headers, body)
        except TimeoutError:
            return Answer(0, f"no answer within {timeout_s:g} s", seconds=loop.time() - begun)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Answer(0, _said(error), seconds=loop.time() - begun)
        seconds = loop.time() - begun
        good = 200 <= response.status < 300
        drained_s = min(_DRAINED_S, timeout_s - seconds)
        text = await _beginning(response, _DRAINED_BYTES if good else REASON_BYTES_MAX, drained_s)
        return Answer(response.status, "" if good else text, response.headers.get("retry-after", ""), seconds)

    async def _begun(
        self, method: str, url: str, headers: CIMultiDict[str], body: bytes
    ) -> aiohttp.ClientResponse:
        use = SimpleNamespace(reused=False)
        try:
            return await self._sent(method, url, headers, body, use)
        except _Unanswered:
            if not use.reused:
                raise
            # The receiver closed an idle connection as it was used again: that is no failure of the receiver.
            return await self._sent(method, url, headers, body, use)

    async def _sent(
        self, method: str, url: str, headers: CIMultiDict[str], body: bytes, use: SimpleNamespace
    ) -> aiohttp.ClientResponse:
        data: Any = body if len(body) <= _AT_ONCE_BYTES else io.BytesIO(body)
        return await self._session.request(
            method, URL(url, encoded=True), data=data, headers=headers, allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None), trace_request_ctx=use,
        )  # fmt: skip


async def _beginning(response: aiohttp.ClientResponse, most: int, seconds: float) -> str:
    """Return the beginning of the body, as far as it comes in time; a longer body costs the connection."""
    found = b""
    try:
        async with asyncio.timeout(seconds):
            while len(found) <= most and (part := await response.content.read(most + 1 - len(found))):
                found += part
    except (TimeoutError, aiohttp.ClientError, OSError):
        pass
    if response.content.at_eof():
        response.release()
    else:
        response.close()
    return found[:most].decode(errors="replace")


def _said(error: BaseException) -> str:
    """Return what went wrong, in a few words."""
    if isinstance(error, _Unanswered) and error.__cause__ is not None:
        error = error.__cause__
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, AddressRefused):
            return f"refused: {found}"
        found = found.__cause__ or found.__context__
    return f"{type(error).__name__}: {error}"


async def _once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Send a request once: by itself aiohttp sends some methods again, on new connections too.

    It does so after two kinds of errors, so it gets another one. Whether it is sent again is for `Sender` to say.
    """
    try:
        return await handler(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError) as error:
        raise _Unanswered from error


async def _reused(
    _session: aiohttp.ClientSession, context: SimpleNamespace, _params: aiohttp.TraceConnectionReuseconnParams
) -> None:
    context.trace_request_ctx.reused = True
