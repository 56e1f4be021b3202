"""Answers hold memory until their clients have taken them, and only so much of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.types import Message, Receive, Scope, Send

from dueq import AsyncClient
from dueq.errors import Busy
from dueq.gateway import answer_room
from dueq.gateway.answer_room import PIECE, AnswerRoom, InPieces, shown
from dueq.gateway.app import create_app
from dueq.gateway.bodies import BodyRoom
from dueq.gateway.service import Service
from dueq.testing import amesh

PAYLOAD = bytes(range(256)) * 4096
"""One MiB that is no text."""


class Client:
    """Asks for a path, and takes the beginning of the answer; the rest when the test says so."""

    def __init__(self, app: Any, path: str, query: str = "", method: str = "GET", body: Any = None) -> None:
        self.sent: list[Message] = []
        self._asked = [] if body is None else [json.dumps(body).encode()]
        self.begun, self.takes = asyncio.Event(), asyncio.Event()
        scope = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(), "http_version": "1.1",
            "query_string": query.encode(), "client": ("127.0.0.1", 1),
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        }  # fmt: skip
        self.served = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> Message:
        if self._asked:
            return {"type": "http.request", "body": self._asked.pop(), "more_body": False}
        await asyncio.Event().wait()
        raise AssertionError

    async def _send(self, message: Message) -> None:
        self.sent.append(message)
        if message["type"] == "http.response.body":
            self.begun.set()
            await self.takes.wait()

    async def answer(self) -> tuple[int, Any]:
        """Take all of it."""
        self.takes.set()
        await self.served
        start, *rest = self.sent
        body = b"".join(each["body"] for each in rest)
        return start["status"], json.loads(body) if body else None


def with_payload(story: Callable[[Any, AsyncClient, str], Awaitable[None]], most: int) -> None:
    """Run a story at a gateway with a message of one MiB and so much room for answers."""

    async def run() -> None:
        with amesh() as mesh:
            client = mesh.client()
            await client.create_topic("t", partitions=1, keys="unique")
            scheduled = await client.producer("t").schedule(PAYLOAD, timedelta(hours=1), key="k")
            app = create_app(lambda: client)
            app.state.service = Service(client)
            app.state.answers = BodyRoom(most, "answers are being sent")
            await story(app, client, scheduled)
            assert app.state.answers.taken == 0

    asyncio.run(asyncio.wait_for(run(), 60))


@pytest.mark.parametrize("path", ["messages/{}", "keys/k", "messages"])
def test_clients_that_take_nothing_of_their_answers_hold_no_more_than_the_room(path: str) -> None:
    async def story(app: Any, _: AsyncClient, message_id: str) -> None:
        path_ = "/v1/topics/t/" + path.format(message_id)
        query = "payloads=true" if path == "messages" else ""
        slow = [Client(app, path_, query) for _ in range(2)]
        for each in slow:
            await each.begun.wait()
        assert 2 * len(PAYLOAD) < app.state.answers.taken <= 3 * len(PAYLOAD)
        status, problem = await Client(app, path_, query).answer()
        assert (status, problem["error"], problem["retry"]) == (429, "Busy", True)
        assert f"answers are being sent, and {3 * len(PAYLOAD)} are the limit" in problem["detail"]
        assert (await Client(app, path_, "payload=false" if query == "" else "").answer())[0] == 200
        for each in slow:
            assert (await each.answer())[0] == 200
        assert (await Client(app, path_, query).answer())[0] == 200

    with_payload(story, 3 * len(PAYLOAD))


def test_messages_without_room_for_their_payloads_are_given_back_uncounted() -> None:
    async def story(app: Any, client: AsyncClient, message_id: str) -> None:
        await client.trigger("t", message_id)
        path, asked = "/v1/topics/t/receive", {"max": 1, "wait": "10s"}
        app.state.answers.take(1)
        status, problem = await Client(app, path, method="POST", body=asked).answer()
        assert (status, problem["error"]) == (429, "Busy")
        app.state.answers.give(1)
        status, found = await Client(app, path, method="POST", body=asked).answer()
        assert (status, found["messages"][0]["attempt"]) == (200, 1)

    with_payload(story, shown(len(PAYLOAD)))


@pytest.mark.parametrize("path", ["tasks", "tasks/k"])
def test_tasks_take_room_for_their_bodies(path: str) -> None:
    async def story(app: Any, _: AsyncClient, __: str) -> None:
        queue = "/v2/projects/p/locations/l/queues"
        name = f"{queue[4:]}/q"
        made = Client(app, queue, method="POST", body={"name": name, "state": "PAUSED"})
        assert (await made.answer())[0] == 200
        sent = {"url": "https://example.com/", "body": "YWFh" * (len(PAYLOAD) // 4)}
        task = {"name": f"{name}/tasks/k", "httpRequest": sent, "scheduleTime": "2099-01-01T00:00:00Z"}
        put = Client(app, f"{queue}/q/tasks", method="POST", body={"task": task})
        assert (await put.answer())[0] == 200
        slow = Client(app, f"{queue}/q/{path}", "responseView=FULL")
        await slow.begun.wait()
        assert app.state.answers.taken > len(PAYLOAD)
        status, refused = await Client(app, f"{queue}/q/{path}").answer()
        assert (status, refused["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")
        assert (await slow.answer())[0] == 200
        assert (await Client(app, f"{queue}/q/{path}").answer())[0] == 200

    with_payload(story, 2 * len(PAYLOAD))


def test_a_message_of_doq_takes_room_for_its_content() -> None:
    async def story(app: Any, _: AsyncClient, __: str) -> None:
        queues = "/API/v1/queues"
        made = Client(app, queues, method="POST", body={"name": "q", "type": "delayed"})
        assert (await made.answer())[0] == 200
        asked = {"content": "x" * (len(PAYLOAD) // 2), "priority": 1}
        status, put = await Client(app, f"{queues}/q/messages", method="POST", body=asked).answer()
        assert status == 200, put
        path = f"{queues}/q/messages/{put['id']}"
        slow = Client(app, path)
        await slow.begun.wait()
        assert (await Client(app, path).answer())[0] == 429
        assert (await slow.answer())[0] == 200
        assert (await Client(app, path).answer())[0] == 200

    with_payload(story, len(PAYLOAD) - 1)


@pytest.mark.parametrize("ack", ["true", "false"])
def test_a_message_of_doq_without_room_for_its_content_goes_back(ack: str) -> None:
    async def story(app: Any, _: AsyncClient, __: str) -> None:
        queues = "/API/v1/queues"
        made = Client(app, queues, method="POST", body={"name": "q", "type": "fair"})
        assert (await made.answer())[0] == 200
        asked = {"content": "x" * (len(PAYLOAD) // 2), "priority": 1}
        for _ in range(2):
            status, put = await Client(app, f"{queues}/q/messages", method="POST", body=asked).answer()
            assert status == 200, put
        slow = Client(app, f"{queues}/q/messages", f"ack={ack}")
        await slow.begun.wait()
        assert (await Client(app, f"{queues}/q/messages", f"ack={ack}").answer())[0] == 429
        _, queue = await Client(app, f"{queues}/q").answer()
        assert (queue["ready"], queue["total"]) == (1, 1 if ack == "true" else 2)
        assert (await slow.answer())[0] == 200
        assert (await Client(app, f"{queues}/q/messages", f"ack={ack}").answer())[0] == 200

    with_payload(story, len(PAYLOAD) - 1)


def test_an_answer_leaves_in_pieces_and_head_has_none() -> None:
    async def story(app: Any, client: AsyncClient, message_id: str) -> None:
        path = f"/v1/topics/t/messages/{message_id}"
        got = Client(app, path)
        assert (await got.answer())[0] == 200
        bodies = [each for each in got.sent if each["type"] == "http.response.body"]
        assert {len(each["body"]) for each in bodies[:-1]} == {PIECE}
        assert [each.get("more_body", False) for each in bodies] == [True] * (len(bodies) - 1) + [False]
        assert await Client(app, path, method="HEAD").answer() == (200, None)

    with_payload(story, 3 * len(PAYLOAD))


def test_room_is_given_back_whatever_becomes_of_the_answer() -> None:
    room = BodyRoom(100)
    scope: Scope = {"type": "http", "app": SimpleNamespace(state=SimpleNamespace(answers=room))}

    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.body", "body": b"x" * 300})

    async def nothing(*_: Any) -> None:
        pass

    async def fails(message: Message) -> None:
        with pytest.raises(Busy):  # others have to wait for it
            room.take(1)
        raise OSError("the client has gone")

    async def run() -> None:
        with pytest.raises(OSError, match="gone"):
            await InPieces(broken)(scope, nothing, fails)  # type: ignore[arg-type]
        assert room.taken == 0

    asyncio.run(run())


def test_while_little_is_held_the_size_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes another request to the mesh."""
    monkeypatch.setattr(answer_room, "_MOST", 50)

    async def run() -> None:
        asked: list[bool] = []

        async def get(payload: bool) -> int:
            asked.append(payload)
            return 12

        room = BodyRoom(100)
        first, second = AnswerRoom(room), AnswerRoom(room)
        assert await first.read(get, int) == await second.read(get, int) == 12
        assert asked == [True, False, True]
        assert room.taken == 50 + shown(12)
        first.hold(16)
        second.hold(0)
        assert room.taken == 16

    asyncio.run(run())


def test_a_stream_holds_no_room_for_what_has_left() -> None:
    """It may have nothing more to say for long, and there are many of them."""

    async def run() -> None:
        room, said, goes = BodyRoom(), asyncio.Event(), asyncio.Event()

        async def stream(scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})
            said.set()
            await goes.wait()

        async def send(message: Message) -> None:
            await asyncio.sleep(0)

        scope: Any = {"type": "http", "app": SimpleNamespace(state=SimpleNamespace(answers=room))}
        served = asyncio.create_task(InPieces(stream)(scope, asyncio.Event().wait, send))  # type: ignore[arg-type]
        await said.wait()
        assert room.taken == 0
        goes.set()
        await served

    asyncio.run(run())
