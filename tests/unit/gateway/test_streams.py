"""Streams of deliveries leave nothing behind, however their clients go."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("fastapi")

from starlette.types import Message
from starlette.websockets import WebSocket

from dueq import Outcome, limits
from dueq.gateway.flows import Flows
from dueq.gateway.problems import Unfit
from dueq.gateway.v1 import stream


def test_a_socket_whose_client_goes_before_it_is_accepted_is_forgotten() -> None:
    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        raise OSError("the client has gone")

    async def described(topic: str) -> None:
        pass

    async def clock(*_: Any) -> Any:
        return lambda: 1

    async def run() -> None:
        client: Any = SimpleNamespace(describe=described, connection=SimpleNamespace(clock=clock))
        receiving: Any = SimpleNamespace(stopped=False)
        service: Any = SimpleNamespace(client=client, flows=Flows(client, receiving))
        scope = {"type": "websocket", "path": "/", "query_string": b"consumer=c", "headers": []}
        with pytest.raises(OSError, match="gone"):
            await stream.socket(WebSocket(scope, receive, send), "t", service)
        assert len(service.flows) == 0
        assert not service.flows._named

    asyncio.run(run())


def delivered(name: str) -> Any:
    """A message of a pull."""
    return SimpleNamespace(
        id=name, token=7, key="", due=1, released_at=2, attempt=1, rank=0, group="", headers={}, version=1, expires=0,
        payload=b"x", lease=30.0,
    )  # fmt: skip


class Mesh:
    """A client of a topic with three messages, and what receives and gives back at its gateway."""

    stopped = False

    def __init__(self) -> None:
        self.ready = [delivered(name) for name in "abc"]
        self.released: list[str] = []
        self.flows = Flows(self, self)  # type: ignore[arg-type]
        self.client = self

    async def describe(self, topic: str) -> None:
        pass

    async def take(self, *_: Any) -> list[Any]:
        if not self.ready:
            await asyncio.Event().wait()
        taken, self.ready = self.ready, []
        return taken

    def release(self, topic: str, messages: Any) -> None:
        self.released += [each.id for each in messages]


def test_what_a_socket_has_not_sent_as_its_client_goes_is_given_back() -> None:
    async def run() -> None:
        mesh: Any = Mesh()
        connected, sent, gone = iter([True]), list[str](), asyncio.Event()

        async def receive() -> Message:
            if next(connected, False):
                return {"type": "websocket.connect"}
            await gone.wait()
            return {"type": "websocket.disconnect", "code": 1006}

        async def send(message: Message) -> None:
            if len(sent) == 2:  # the client has the first message
                gone.set()
                raise OSError("the client has gone")
            sent.append(message["type"])

        scope = {"type": "websocket", "path": "/", "query_string": b"", "headers": []}
        await stream.socket(WebSocket(scope, receive, send), "t", mesh)
        assert sent == ["websocket.accept", "websocket.send"]
        assert mesh.released == ["b", "c"]
        assert not mesh.flows.by_lease

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.parametrize("token", ["9" * 5000, "9" * 20, "²", "0", "1\n", ""])
def test_what_is_held_by_no_token_is_refused(token: str) -> None:
    """Python reads no number of 5,000 digits, and that was a defect of the gateway: 500."""
    with pytest.raises(Unfit, match="ID:TOKEN") as refused:
        stream._held(f"x:17,y:{token}")
    assert refused.value.where == "query.held"
    assert len(str(refused.value)) < 200
    assert stream._held("x:17") == [("x", 17)]


async def turns() -> None:
    """Let everything go on that waits for its turn only."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_what_a_stream_could_not_send_before_its_client_went_is_given_back() -> None:
    """A server waits for a client that is slow, and says nothing if it goes meanwhile."""

    async def run() -> None:
        mesh: Any = Mesh()
        sent, full, gone = list[bytes](), asyncio.Event(), asyncio.Event()

        async def receive() -> Message:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if len(sent) == 2:  # the beginning, and the first message
                full.set()
                await gone.wait()
            elif body := message.get("body"):
                sent.append(body)

        flow = await mesh.flows.open("t", None, timedelta(seconds=30), 10)
        streamed = stream._Streamed(flow, stream._Events())
        following = asyncio.create_task(streamed({}, receive, send))
        await full.wait()
        gone.set()
        await following
        assert b'"id":"a"' in sent[1]
        assert mesh.released == ["b", "c"]

    asyncio.run(asyncio.wait_for(run(), 30))


def test_what_comes_as_its_client_goes_is_given_back() -> None:
    async def run() -> None:
        mesh: Any = Mesh()
        arrived, gone, taking = asyncio.Event(), asyncio.Event(), mesh.take

        async def receive() -> Message:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            """As servers do, it says nothing of a client that has gone."""

        async def take(*_: Any) -> list[Any]:
            await arrived.wait()
            # The server gets to know of that before these are handed over, and the stream a turn later.
            loop = asyncio.get_running_loop()
            loop.call_soon(loop.call_soon, gone.set)
            return cast("list[Any]", await taking())

        mesh.take = take
        flow = await mesh.flows.open("t", None, timedelta(seconds=30), 10)
        following = asyncio.create_task(stream._Streamed(flow, stream._Lines())({}, receive, send))
        await turns()
        arrived.set()
        await following
        assert mesh.released == ["a", "b", "c"]

    asyncio.run(asyncio.wait_for(run(), 30))


def test_what_has_come_for_a_stalled_client_is_given_back_as_the_gateway_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "_HEARTBEAT_S", 0.0)

    async def run() -> None:
        mesh: Any = Mesh()
        ready, mesh.ready = mesh.ready, []
        beating, came = asyncio.Event(), asyncio.Event()

        async def receive() -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Message) -> None:
            if message.get("body") == stream._Events.heartbeat:
                beating.set()
                await asyncio.Event().wait()

        async def take(*_: Any) -> list[Any]:
            await came.wait()
            return cast("list[Any]", ready)

        mesh.take = take
        flow = await mesh.flows.open("t", None, timedelta(seconds=30), 10)
        following = asyncio.create_task(stream._Streamed(flow, stream._Events())({}, receive, send))
        await beating.wait()
        came.set()
        await turns()
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following
        assert mesh.released == ["a", "b", "c"]
        assert len(mesh.flows) == 0

    asyncio.run(asyncio.wait_for(run(), 30))


def test_what_a_socket_was_told_before_its_client_went_is_done() -> None:
    async def run() -> None:
        mesh: Any = Mesh()
        mesh.ready = []
        asked, answered, acked = asyncio.Event(), asyncio.Event(), list[str]()

        async def settle(topic: str, leases: Any, how: str, **_: Any) -> list[Outcome]:
            asked.set()
            await answered.wait()
            acked.extend(f"{how} {message_id}" for message_id, _ in leases)
            return [Outcome.DONE]

        mesh.settle = settle
        told: list[Message] = [
            {"type": "websocket.connect"},
            {"type": "websocket.receive", "text": '{"do":"ack","messages":[{"id":"a","token":"7"}]}'},
            {"type": "websocket.disconnect", "code": 1000},
        ]

        async def receive() -> Message:
            return told.pop(0)

        async def send(message: Message) -> None:
            if message["type"] != "websocket.accept":
                raise OSError("the client has gone")

        scope = {"type": "websocket", "path": "/", "query_string": b"", "headers": []}
        serving = asyncio.create_task(stream.socket(WebSocket(scope, receive, send), "t", mesh))
        await asked.wait()
        await turns()
        answered.set()
        await serving
        assert acked == ["ack a"]
        assert len(mesh.flows) == 0

    asyncio.run(asyncio.wait_for(run(), 30))


def test_what_a_socket_was_told_is_done_though_its_client_goes_amid_many_commands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No more of them than a few are read at once, and the next message cannot be sent any more."""
    monkeypatch.setattr(stream, "_LAST_S", 0.0)  # those that wait for others are waited for all the same

    async def run() -> None:
        mesh: Any = Mesh()
        mesh.ready = []
        many = limits.GATEWAY_COMMANDS_MAX + 2
        answered, going, acked = asyncio.Event(), asyncio.Event(), list[str]()

        async def settle(topic: str, leases: Any, how: str, **_: Any) -> list[Outcome]:
            await answered.wait()
            acked.extend(message_id for message_id, _ in leases)
            return [Outcome.DONE]

        async def take(*_: Any) -> list[Any]:
            await going.wait()
            return [delivered("next")]

        mesh.settle, mesh.take = settle, take
        text = '{"do":"ack","messages":[{"id":"%d","token":"7"}]}'
        told: list[Message] = [
            {"type": "websocket.connect"},
            *({"type": "websocket.receive", "text": text % number} for number in range(many)),
            {"type": "websocket.disconnect", "code": 1000},
        ]

        async def receive() -> Message:
            return told.pop(0)

        async def send(message: Message) -> None:
            if message["type"] != "websocket.accept":
                raise OSError("the client has gone")

        scope = {"type": "websocket", "path": "/", "query_string": b"", "headers": []}
        serving = asyncio.create_task(stream.socket(WebSocket(scope, receive, send), "t", mesh))
        await turns()
        going.set()
        await turns()
        answered.set()
        await serving
        assert sorted(map(int, acked)) == list(range(many))
        assert mesh.released == ["next"]

    asyncio.run(asyncio.wait_for(run(), 30))


def test_a_socket_whose_server_never_tells_its_end_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_LAST_S", 0.0)

    async def run() -> None:
        mesh: Any = Mesh()
        told: list[Message] = [{"type": "websocket.connect"}]

        async def receive() -> Message:
            if not told:
                await asyncio.Event().wait()
            return told.pop()

        async def send(message: Message) -> None:
            if message["type"] != "websocket.accept":
                raise OSError("the client has gone")

        scope = {"type": "websocket", "path": "/", "query_string": b"", "headers": []}
        await stream.socket(WebSocket(scope, receive, send), "t", mesh)
        assert mesh.released == ["a", "b", "c"]
        assert len(mesh.flows) == 0

    asyncio.run(asyncio.wait_for(run(), 30))


def test_a_socket_has_one_value_for_each_wish() -> None:
    answered = list[Message]()

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        answered.append(message)

    scope = {
        "type": "websocket", "path": "/", "query_string": b"credit=1&credit=1000", "headers": [],
        "extensions": {"websocket.http.response": {}},
    }  # fmt: skip
    service: Any = None
    asyncio.run(stream.socket(WebSocket(scope, receive, send), "t", service))
    assert answered[0]["status"] == 422
    assert b"query.credit comes 2 times" in answered[1]["body"]


@pytest.mark.parametrize(
    ("command", "ref"),
    [
        ('{"do":"ack","messages":[],"ref":7}', 7),
        ('{"do":"destroy","ref":"a"}', "a"),
        ('{"ref":0}', 0),
        ('{"do":"credit","credit":5,"ref":""}', ""),
        ('{"do":"extend","messages":[{"id":"x"}],"seconds":5,"ref":3}', 3),
        ('{"do":"credit","credit":5,"ref":1.5}', None),
        ('{"do":"credit","credit":5,"ref":true}', None),
        ('{"do":"credit","credit":5,"ref":["a"]}', None),
        ('["ref"]', None),
        ('{"do":"ack","ref":7', None),
    ],
)
def test_the_ref_of_a_command_comes_back_though_the_command_is_none(command: str, ref: object) -> None:
    """Else a client that has several under way cannot tell which one was refused."""
    said: list[str] = []

    async def send(text: str) -> None:
        said.append(text)

    async def run() -> None:
        mesh: Any = Mesh()
        websocket: Any = SimpleNamespace(send_text=send)
        flow = await mesh.flows.open("t", None, timedelta(seconds=30), 10)
        await stream._Socket(websocket, mesh, flow)._answer(command)

    asyncio.run(run())
    [answer] = map(json.loads, said)
    assert (answer["type"], answer.get("ref")) == ("credit" if ref == "" else "problem", ref)


def test_messages_at_hand_go_back_when_there_is_no_credit_for_them_any_more() -> None:
    """After the answer to a credit of 0 nothing more comes."""

    async def run() -> None:
        mesh: Any = Mesh()
        flow = await mesh.flows.open("t", None, timedelta(seconds=30), 3)
        told = list[str]()

        async def tell(document: dict[str, Any]) -> None:
            told.append(document["id"])
            flow.give(0)

        gone = asyncio.create_task(asyncio.Event().wait())
        await stream._hand_over(flow, [delivered(name) for name in "abc"], gone, tell)  # type: ignore[arg-type]
        assert (told, sorted(mesh.released), list(flow.out)) == (["a"], ["b", "c"], ["a"])
        gone.cancel()

    asyncio.run(asyncio.wait_for(run(), 30))
