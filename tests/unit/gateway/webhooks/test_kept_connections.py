"""A connection that is used again: whose answer an answer is, and how often a request is sent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("aiohttp")

from multidict import CIMultiDict

from dueq.gateway.webhooks import sending
from dueq.gateway.webhooks.addresses import Addresses
from dueq.gateway.webhooks.answers import Answer
from dueq.gateway.webhooks.sending import Sender

LOOPBACK = Addresses(["127.0.0.0/8"])
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
TAKEN = b"HTTP/1.1 204 No Content\r\n\r\n"
LATE = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections do not end because they are idle."""
    monkeypatch.setattr(sending, "_KEPT_ALIVE_S", 3600.0)


class Receiver:
    """One that the test has answer.

    Attributes:
        connections: as they come.
        url: of it.
    """

    def __init__(self) -> None:
        self.connections: asyncio.Queue[Connection] = asyncio.Queue()
        self.url = ""
        self._writers: list[asyncio.StreamWriter] = []

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[Sender]:
        """Listen, and give a sender."""
        server = await asyncio.start_server(self._come, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        sender = Sender(LOOPBACK)
        try:
            yield sender
        finally:
            await sender.close()
            server.close()
            for writer in self._writers:
                writer.close()
            await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)

    async def _come(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self.connections.put_nowait(Connection(reader, writer))

    def sent(self, sender: Sender, body: bytes, method: str = "POST") -> asyncio.Task[Answer]:
        """Send a request to it."""
        headers: CIMultiDict[str] = CIMultiDict()
        return asyncio.create_task(sender.send(method, self.url, headers, body, 60.0))


class Connection:
    """One connection of the receiver."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def request(self) -> bytes:
        """Return the body of the next request; b"": the gateway has closed the connection."""
        try:
            await self._reader.readuntil(b"\r\n\r\n")
            return await self._reader.readexactly(1)
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""

    def say(self, said: bytes) -> None:
        """Send something."""
        self._writer.write(said)

    def close(self) -> None:
        """End it."""
        self._writer.close()


@pytest.mark.parametrize("first", [TAKEN, OK, b"HTTP/1.1 101 Switching Protocols\r\n\r\n"])
@pytest.mark.parametrize("late", [OK, OK[:9], LATE, b"HTTP/1.1 100 Continue\r\n\r\n", b"\r\n", b"junk"])
def test_what_nobody_has_asked_for_answers_no_request(first: bytes, late: bytes) -> None:
    """A receiver that answered twice acknowledged the next message, which it had not even read."""

    async def story() -> None:
        receiver = Receiver()
        async with receiver.listening() as sender:
            sending_it = receiver.sent(sender, b"1")
            connection = await receiver.connections.get()
            assert await connection.request() == b"1"
            connection.say(first)
            assert (await sending_it).status == int(first[9:12])
            connection.say(late)
            assert await connection.request() == b""
            sending_it = receiver.sent(sender, b"2")
            connection = await receiver.connections.get()
            assert await connection.request() == b"2"
            connection.say(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n")
            assert (await sending_it).status == 500

    asyncio.run(asyncio.wait_for(story(), 20))


@pytest.mark.parametrize("more", [OK, b"HTTP/1.1 100 Continue\r\n\r\n", b"junk"])
def test_what_follows_a_body_answers_no_request(monkeypatch: pytest.MonkeyPatch, more: bytes) -> None:
    """A body longer than was announced, or a second answer that comes with the end of the first."""

    async def story() -> None:
        begun, beginning = asyncio.Event(), sending._beginning

        async def told(*given: Any) -> str:
            begun.set()
            return await beginning(*given)

        monkeypatch.setattr(sending, "_beginning", told)
        receiver = Receiver()
        async with receiver.listening() as sender:
            sending_it = receiver.sent(sender, b"1")
            connection = await receiver.connections.get()
            assert await connection.request() == b"1"
            connection.say(b"HTTP/1.1 500 No\r\ncontent-length: 2\r\n\r\n")
            await begun.wait()
            connection.say(b"ok" + more)
            assert (await sending_it).text == "ok"
            assert await connection.request() == b""

    asyncio.run(asyncio.wait_for(story(), 20))


def test_a_connection_is_used_again_after_an_answer_that_was_asked_for() -> None:
    async def story() -> None:
        receiver = Receiver()
        async with receiver.listening() as sender:
            connection: Connection | None = None
            for number in (b"1", b"2", b"3"):
                sending_it = receiver.sent(sender, number)
                connection = connection or await receiver.connections.get()
                assert await connection.request() == number
                connection.say(b"HTTP/1.1 103 Early Hints\r\n\r\n" + TAKEN)
                assert (await sending_it).status == 204
            assert receiver.connections.empty()

    asyncio.run(asyncio.wait_for(story(), 20))
