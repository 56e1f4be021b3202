"""Connections that are used again: whose answer an answer is, and how often a request is sent."""

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
TOO_LOW = b"HTTP/1.1 099 No\r\ncontent-length: 0\r\n\r\n"
LATE = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


@pytest.fixture(autouse=True)
def kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections do not end because they are idle."""
    monkeypatch.setattr(sending, "_KEPT_ALIVE_S", 3600.0)


class Receiver:
    """One that the test has answer.

    Attributes:
        connections: as they come.
        open: that the test has taken.
        url: of it.
    """

    def __init__(self) -> None:
        self.connections: asyncio.Queue[Connection] = asyncio.Queue()
        self.open: list[Connection] = []
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


@pytest.mark.parametrize("first", [TAKEN, OK, b"HTTP/1.1 101 Switching Protocols\r\n\r\n", TOO_LOW])
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


async def attempt(receiver: Receiver, sender: Sender, method: str, said: bytes = b"") -> tuple[int, Answer]:
    """Have a receiver take each request, say this and die; return how many it got, and the answer of the sender."""
    sending_it, taken = receiver.sent(sender, b"2", method), 0

    async def take(connection: Connection) -> None:
        nonlocal taken
        while await connection.request() == b"2":
            taken += 1
            connection.say(said)
            connection.close()

    serving = [asyncio.create_task(take(connection)) for connection in receiver.open]
    while not sending_it.done():
        coming = asyncio.create_task(receiver.connections.get())
        await asyncio.wait([coming, sending_it], return_when=asyncio.FIRST_COMPLETED)
        if coming.done():
            serving.append(asyncio.create_task(take(coming.result())))
        coming.cancel()
    await sender.close()
    await asyncio.gather(*serving)
    return taken, sending_it.result()


async def kept_by(receiver: Receiver, sender: Sender, method: str, count: int) -> None:
    """Have connections that are idle."""
    under_way = [receiver.sent(sender, b"1", method) for _ in range(count)]
    for _ in under_way:
        receiver.open.append(await receiver.connections.get())
    for connection in receiver.open:
        assert await connection.request() == b"1"
        connection.say(TAKEN)
    assert {each.status for each in await asyncio.gather(*under_way)} <= {204}


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
@pytest.mark.parametrize(("idle", "times"), [(0, 1), (1, 2), (5, 2)])
def test_an_attempt_is_one_request_and_one_more_on_a_kept_connection(
    method: str, idle: int, times: int
) -> None:
    """A PUT was sent four times to a receiver that took it and died, whatever the topic's limits are."""

    async def story() -> None:
        receiver = Receiver()
        async with receiver.listening() as sender:
            await kept_by(receiver, sender, method, idle)
            taken, answer = await attempt(receiver, sender, method)
            assert (taken, answer.status) == (times, 0)
            assert answer.text.startswith("ServerDisconnectedError: ")

    asyncio.run(asyncio.wait_for(story(), 20))


@pytest.mark.parametrize("said", [b"HTTP/1.1 102 Processing\r\n\r\n", b"HTTP/1.1 200 O"])
def test_what_a_receiver_has_begun_to_answer_is_not_sent_again(said: bytes) -> None:
    """The connection was not closed while it was idle: the receiver has the request."""

    async def story() -> None:
        receiver = Receiver()
        async with receiver.listening() as sender:
            await kept_by(receiver, sender, "PUT", 1)
            taken, answer = await attempt(receiver, sender, "PUT", said)
            assert (taken, answer.status) == (1, 0)

    asyncio.run(asyncio.wait_for(story(), 20))


@pytest.mark.parametrize("status", [200, 500])
def test_the_rest_of_an_answer_is_waited_for_no_longer_than_the_answer(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """The lease of the message may end soon after that, and the answer is to be settled before."""

    async def story() -> None:
        monkeypatch.setattr(sending, "_DRAINED_S", 3600.0)
        receiver = Receiver()
        async with receiver.listening() as sender:
            headers: CIMultiDict[str] = CIMultiDict()
            sending_it = asyncio.create_task(sender.send("POST", receiver.url, headers, b"1", 0.5))
            connection = await receiver.connections.get()
            assert await connection.request() == b"1"
            connection.say(b"HTTP/1.1 %d X\r\ncontent-length: 3\r\n\r\nno" % status)
            assert (await sending_it).status == status
            assert await connection.request() == b"", "it is used for nothing else"

    asyncio.run(asyncio.wait_for(story(), 20))
