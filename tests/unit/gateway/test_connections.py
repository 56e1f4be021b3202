"""Clients that do not take what they asked for are cut off."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

import uvicorn
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from dueq import limits
from dueq.gateway import connections
from dueq.gateway.answer_room import InPieces
from dueq.gateway.bodies import BodyRoom


def _read_all(found: socket.socket) -> None:
    while found.recv(65_536):
        pass


def test_a_client_that_never_reads_is_cut_off_and_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_PAUSE_S", 0.05)
    told = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        """An answer without end, but for those who ask for a short one."""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/short":
            await send({"type": "http.response.body", "body": b"short"})
            return
        gone = asyncio.create_task(_gone(receive))
        while not gone.done():
            await send({"type": "http.response.body", "body": bytes(65_536), "more_body": True})
        told.set()

    async def _gone(receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def run() -> bytes:
        listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            app, http=connections.HttpConnection, lifespan="off", log_config=None, access_log=False
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve([listener]))
        where = listener.getsockname()
        deaf = socket.create_connection(where)
        deaf.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        reader, writer = await asyncio.open_connection(*where)
        writer.write(b"GET /short HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        await told.wait()
        with pytest.raises(ConnectionResetError):  # nothing that was sent to it is kept
            _read_all(deaf)
        deaf.close()
        server.should_exit = True
        await serving
        return answer

    assert b"short" in asyncio.run(run())


class Watched(connections.HttpConnection):
    """A connection that tells when it is lost."""

    lost: asyncio.Event

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.lost.set()


class WatchedSocket(connections.SocketConnection):
    """A WebSocket that tells when it is lost."""

    lost: asyncio.Event

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.lost.set()


UPGRADE = (
    b"host: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@pytest.mark.parametrize(
    ("headers", "half"),
    [(b"host: localhost\r\nconnection: close\r\n", False), (b"host: localhost\r\n", True), (UPGRADE, True)],
    ids=["closed", "half-closed", "websocket"],
)
def test_who_does_not_take_the_little_that_is_left_is_cut_off(
    headers: bytes, half: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So little that asyncio never says that the client is slow: a transport that is closed waits for it for ever."""
    monkeypatch.setattr(connections, "_PAUSE_S", 0.05)
    little = bytes(40_000)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": little})
            return
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "bytes": little})

    async def run() -> None:
        Watched.lost = WatchedSocket.lost = lost = asyncio.Event()
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        config = uvicorn.Config(
            app, http=Watched, ws=WatchedSocket, lifespan="off", log_config=None, access_log=False
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve([listener]))
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.connect(listener.getsockname())
            deaf.setblocking(False)
            deaf.sendall(b"GET / HTTP/1.1\r\n" + headers + b"\r\n")
            if half:
                while await asyncio.get_running_loop().sock_recv(deaf, 1) != b"\0":
                    pass  # all of the answer has been written before its first byte comes
                deaf.shutdown(socket.SHUT_WR)
            await lost.wait()
        server.should_exit = True
        await serving

    asyncio.run(asyncio.wait_for(run(), 30))


class Slow:
    """A transport whose client takes some of what is left each time that it is asked, and at last nothing."""

    def __init__(self, left: list[int]) -> None:
        self.left, self.aborted = left, asyncio.Event()

    def get_write_buffer_size(self) -> int:
        assert not self.aborted.is_set()
        return self.left.pop(0)

    def get_extra_info(self, name: str) -> None:
        return None

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        self.aborted.set()


def test_who_is_slow_but_keeps_the_least_rate_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    least = limits.GATEWAY_BYTES_PER_S_MIN * limits.GATEWAY_PAUSE_MS // 1000

    async def run() -> list[int]:
        slow: Any = Slow([4 * least, 3 * least, 2 * least, least, least - 1_000, 0])
        config = uvicorn.Config(PlainTextResponse(), lifespan="off", log_config=None)
        connection = connections.HttpConnection(config, ServerState(), {})
        connection.connection_made(slow)
        monkeypatch.setattr(connections, "_PAUSE_S", 0.0)
        connection.pause_writing()
        await slow.aborted.wait()
        connection.connection_lost(ConnectionResetError())
        left: list[int] = slow.left
        return left

    assert asyncio.run(asyncio.wait_for(run(), 30)) == [0]  # it was asked until the client had taken nothing


def test_who_says_that_it_sends_no_more_gets_the_whole_answer() -> None:
    """It leaves in pieces, and the client may close its side between two of them."""
    length = 20 << 20

    async def whole(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"%d" % length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": bytes(length)})

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = SimpleNamespace(state=SimpleNamespace(answers=BodyRoom()))
        await InPieces(whole)(scope, receive, send)

    async def run() -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            app, http=connections.HttpConnection, lifespan="off", log_config=None, access_log=False
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve([listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        writer.write_eof()
        found = len(await reader.read())
        writer.close()
        server.should_exit = True
        await serving
        return found

    assert asyncio.run(asyncio.wait_for(run(), 60)) == length


class Flooded:
    """A server whose application reads nothing of what it is sent.

    Attributes:
        where: its address.
    """

    def __init__(self, most: int = 1 << 16) -> None:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"4")]})
            await send({"type": "http.response.body", "body": b"long"})

        config = uvicorn.Config(
            app, http=connections.HttpConnection, lifespan="off", log_config=None, access_log=False,
            h11_max_incomplete_event_size=most,
        )  # fmt: skip
        self._server, self._listener = uvicorn.Server(config), socket.create_server(("127.0.0.1", 0))
        self.where = self._listener.getsockname()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._server.serve([self._listener])))

    def __enter__(self) -> Flooded:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()

    def asked(self, *parts: bytes) -> bytes:
        """Send all of it, then read the answer to its end."""
        with socket.create_connection(self.where, timeout=30) as found:
            for part in parts:
                found.sendall(part)
            answer = b""
            while part := found.recv(65_536):
                answer += part
        return answer


LINE = b"POST / HTTP/1.1\r\nhost: localhost\r\n"


@pytest.mark.parametrize(
    ("flood", "status"),
    [
        ((LINE, *[b"x-filler: " + b"x" * 1000 + b"\r\n"] * 2000, b"\r\n"), b"431"),
        ((LINE, b"x: " + b"x" * (4 << 20) + b"\r\n\r\n"), b"431"),
        ((LINE + b"x: " + b"x" * 100_000 + b"\r\n\r\n",), b"431"),
        ((b"GET /" + b"x" * (4 << 20) + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",), b"414"),
        ((b"\0\r\n\r\n" * (1 << 20),), b"400"),
        ((LINE + b"connection: close\r\ncontent-length: 33554432\r\n\r\n", bytes(32 << 20)), b"413"),
    ],
)
def test_who_sends_too_much_can_read_why(flood: tuple[bytes, ...], status: bytes) -> None:
    with Flooded() as server:
        answer = server.asked(*flood)
    assert answer.startswith(b"HTTP/1.1 " + status), answer[:200]
    if status != b"413":
        assert b"application/problem+json" in answer


def test_a_head_as_long_as_it_may_be_is_taken() -> None:
    head = LINE + b"connection: close\r\ncontent-length: 0\r\nx: "
    with Flooded() as server:
        for length, status in ((1 << 16, b"413"), ((1 << 16) + 1, b"431")):
            asked = head + b"x" * (length - len(head) - 4) + b"\r\n\r\n"
            assert server.asked(asked).startswith(b"HTTP/1.1 " + status)


def _drip(found: socket.socket) -> None:
    while True:
        found.sendall(b"x")


def test_what_is_left_of_a_request_has_to_come_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_DROPPED_S", 0.05)
    with Flooded() as server, socket.create_connection(server.where, timeout=30) as found:
        found.sendall(LINE + b"content-length: 1000000000\r\n\r\n")
        with pytest.raises(ConnectionError):
            _drip(found)


def test_a_head_that_does_not_end_in_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with Flooded() as server, socket.create_connection(server.where, timeout=30) as found:
        found.sendall(LINE + b"content-length: 0\r\n\r\n")
        answer = b""
        while not answer.endswith(b"long"):
            answer += found.recv(65_536)
        monkeypatch.setattr(connections, "_PAUSE_S", 0.05)
        found.sendall(b"GET / HTTP/1.1\r\nhost: loc")
        late = b""
        while part := found.recv(65_536):
            late += part
    assert late.startswith(b"HTTP/1.1 408")
    assert b"application/problem+json" in late


def test_who_begins_no_request_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_PAUSE_S", 0.05)
    with (
        Flooded() as server,
        socket.create_connection(server.where, timeout=30) as found,
        contextlib.suppress(ConnectionError),
    ):
        assert found.recv(1) == b""


def test_a_connection_goes_on_when_the_rest_of_a_refused_body_has_come() -> None:
    asked = LINE + b"content-length: 8388608\r\n\r\n" + bytes(8 << 20)
    with Flooded() as server:
        answer = server.asked(asked, LINE + b"connection: close\r\ncontent-length: 0\r\n\r\n")
    assert answer.count(b"HTTP/1.1 413") == 2


@pytest.mark.parametrize(
    "asked", [b"POST / HTTP/1.1\r\n" + UPGRADE, b"GET / HTTP/1.1\r\n" + UPGRADE + b"content-length: 0\r\n"]
)
def test_what_cannot_become_a_websocket_is_answered(asked: bytes) -> None:
    with Flooded() as server:
        assert server.asked(asked + b"\r\n").startswith(b"HTTP/1.1 413")


def test_a_websocket_is_told_that_the_gateway_ends_before_it_is_closed() -> None:
    """Its client may never answer to that."""
    ending = asyncio.Event()

    class Told(connections.SocketConnection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self.close_timeout = 3600.0

        def shutdown(self) -> None:
            super().shutdown()
            ending.set()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await ending.wait()
        await send({"type": "websocket.send", "text": "it ends"})
        await send({"type": "websocket.close", "code": 1012})

    async def run() -> bytes:
        listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            app, http=connections.HttpConnection, ws=Told, lifespan="off", log_config=None
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve([listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"GET / HTTP/1.1\r\n" + UPGRADE + b"\r\n")
        await reader.readuntil(b"\r\n\r\n")
        server.should_exit = True
        said = await reader.read()
        await serving
        writer.close()
        return said

    said = asyncio.run(asyncio.wait_for(run(), 60))
    assert b"it ends" in said
    assert said.endswith((1012).to_bytes(2, "big"))


def test_a_websocket_that_is_refused_is_no_defect(caplog: pytest.LogCaptureFixture) -> None:
    """Else anybody could fill the log, and hide true defects in it."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"2")]
        await send({"type": "websocket.http.response.start", "status": 404, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": b"no"})

    async def run() -> bytes:
        listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            app,
            http=connections.HttpConnection,
            ws=connections.SocketConnection,
            lifespan="off",
            log_config=None,
        )
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve([listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(b"GET / HTTP/1.1\r\n" + UPGRADE + b"\r\n")
        said = await reader.read()
        writer.close()
        server.should_exit = True
        await serving
        return said

    said = asyncio.run(asyncio.wait_for(run(), 60))
    assert said.startswith(b"HTTP/1.1 404 ")
    assert said.endswith(b"no")
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
