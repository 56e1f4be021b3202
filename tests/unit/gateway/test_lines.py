"""NDJSON in bounded memory, and clients that leave amid it."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.requests import ClientDisconnect
from starlette.types import Message

from dueq import AsyncClient, limits
from dueq.client.core.ports.parts import whole
from dueq.errors import DueqError, KeyTaken, RequestDiffers, Unavailable
from dueq.gateway import bodies
from dueq.gateway.app import create_app
from dueq.gateway.bodies import BodyRoom
from dueq.gateway.lines import Answers, Loading
from dueq.gateway.service import NewMessage


class Mesh:
    """Takes messages."""

    def __init__(self) -> None:
        self.taken: list[NewMessage] = []

    async def now_us(self) -> int:
        return 0

    async def schedule(self, topic: str, messages: list[NewMessage], load: object) -> list[str]:
        self.taken += messages
        return ["id"] * len(messages)


def loading(mesh: Any) -> Loading:
    return Loading(mesh, "t", lambda found, now_us, text: NewMessage(json.dumps(found).encode(), 0))


def request(room: BodyRoom, stream: AsyncIterator[bytes]) -> Any:
    return SimpleNamespace(
        headers={}, stream=lambda: stream, app=SimpleNamespace(state=SimpleNamespace(room=room))
    )


def test_unfinished_lines_take_room_and_give_it_back() -> None:
    room, more = BodyRoom(100), asyncio.Event()

    async def sent(size: int, ends: bool) -> AsyncIterator[bytes]:
        yield b"7\n" + b"8" * size
        if not ends:
            await more.wait()

    async def run() -> None:
        slow = asyncio.create_task(loading(Mesh()).summary(request(room, sent(60, False))))
        while room.taken != 60:
            await asyncio.sleep(0)
        mesh = Mesh()
        refused = await loading(mesh).summary(request(room, sent(60, True)))
        assert (refused["problem"]["error"], refused["problem"]["retry"]) == ("Busy", True)
        assert not mesh.taken
        short = await loading(mesh).summary(request(room, sent(30, True)))
        assert (short["accepted"], room.taken) == (2, 60)
        more.set()
        assert (await slow)["accepted"] == 2
        assert room.taken == 0

    asyncio.run(asyncio.wait_for(run(), 30))


def slowly(monkeypatch: pytest.MonkeyPatch, *pieces: bytes) -> dict[str, Any]:
    """Send pieces of lines with at least ten seconds between them; return the answer."""
    room, clock = BodyRoom(), itertools.count(0, 10)
    monkeypatch.setattr(bodies, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    async def sent() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    found = asyncio.run(loading(Mesh()).summary(request(room, sent())))
    assert room.taken == 0
    return found


def test_a_line_that_drips_is_refused_before_it_holds_room_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    said = slowly(monkeypatch, b"7\n8", *[b"8"] * 60)
    assert (said["accepted"], said["problem"]["status"]) == (1, 408)
    assert "line 2 comes at less than 16384 bytes a second" in said["problem"]["detail"]


@pytest.mark.parametrize("piece", [b"8\n", b"\n8", b"\n8\n"])
def test_lines_may_come_slowly_while_each_is_quick(piece: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    said = slowly(monkeypatch, *[piece] * 60)
    assert (said["accepted"], "problem" in said) == (60, False)


def test_a_long_line_may_take_its_time_while_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    said = slowly(monkeypatch, b'"', *[b"x" * 10 * limits.GATEWAY_BYTES_PER_S_MIN] * 6, b'"\n')
    assert (said["accepted"], "problem" in said) == (1, False)


def test_a_client_that_leaves_amid_its_answers_ends_them() -> None:
    """That is no defect of the gateway, which would be logged."""
    room, mesh, answered = BodyRoom(), Mesh(), list[Message]()

    async def sent() -> AsyncIterator[bytes]:
        yield b"7\n8"
        raise ClientDisconnect

    async def send(message: Message) -> None:
        answered.append(message)

    async def run() -> None:
        await Answers(loading(mesh).each(request(room, sent())))({}, None, send)  # type: ignore[arg-type]

    asyncio.run(run())
    assert [each.payload for each in mesh.taken] == [b"7"]
    assert (len(answered), room.taken) == (2, 0)


@pytest.mark.parametrize("refusal", [KeyTaken("another has it", "id", 0), RequestDiffers("another came")])
def test_a_line_that_comes_alone_and_is_refused_ends_nothing(refusal: DueqError) -> None:
    """As it does not among others: how a client's lines come together is no matter of theirs."""

    class Taken(Mesh):
        async def schedule(self, topic: str, messages: list[NewMessage], load: object) -> list[str]:
            return whole([refusal if each.payload == b"7" else "id" for each in messages])

    async def sent() -> AsyncIterator[bytes]:
        yield b"7\n"
        yield b"8\n"

    said = asyncio.run(loading(Taken()).summary(request(BodyRoom(), sent())))
    assert (said["accepted"], said["failed"], "problem" in said) == (1, 1, False)
    assert [each["line"] for each in said["failures"]] == [1]


@pytest.mark.parametrize("answers", ["summary", "each"])
def test_lines_that_come_before_any_broker_has_told_the_time_are_refused(answers: str) -> None:
    """With an answer for each line, 200 was said already, and the connection broke off."""

    async def untold() -> int:
        raise Unavailable("no broker answers")

    async def receive() -> Message:
        return {"type": "http.request", "body": b'{"payload": "x", "delay": "1s"}\n', "more_body": False}

    app, answered = create_app(AsyncClient), list[Message]()
    app.state.service = SimpleNamespace(now_us=untold, stopping=asyncio.Event())

    async def send(message: Message) -> None:
        answered.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/v1/topics/t/messages", "http_version": "1.1",
        "query_string": f"answers={answers}".encode(),
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/x-ndjson")],
    }  # fmt: skip
    asyncio.run(app(scope, receive, send))
    assert answered[0]["status"] == 503
    assert json.loads(answered[1]["body"])["error"] == "Unavailable"
