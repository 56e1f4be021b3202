"""doq's gRPC API, asked by a channel of grpc."""

from __future__ import annotations

import json
import queue as queues
import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("grpc")

import grpc

from dueq.gateway.faces.doq import protobuf
from dueq.local import LocalMesh
from dueq.local.gateway import GatewayChild

pytestmark = pytest.mark.integration

CLASSES = protobuf.classes()


class Rpc:
    """Calls procedures."""

    def __init__(self, channel: Any) -> None:
        self._channel = channel

    def __call__(self, procedure: str, /, **fields: Any) -> Any:
        """Return an answer."""
        call = self._channel.unary_unary(
            f"/queue.DOQ/{procedure}",
            request_serializer=CLASSES[f"{procedure}Request"].SerializeToString,
            response_deserializer=CLASSES[f"{procedure}Response"].FromString,
        )
        return call(CLASSES[f"{procedure}Request"](**fields), timeout=60)

    def stream(self, name: str, requests: Iterator[Any]) -> Any:
        """Return the answers of a stream."""
        call = self._channel.stream_stream(
            f"/queue.DOQ/{name}Stream",
            request_serializer=CLASSES[f"{name}Request"].SerializeToString,
            response_deserializer=CLASSES[f"{name}Response"].FromString,
        )
        return call(requests, timeout=60)


def free_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"


@pytest.fixture(scope="module", params=["legacy", "new"])
def rpc(
    request: pytest.FixtureRequest, http_mesh: LocalMesh, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rpc]:
    """Procedures of a gateway, with the errors of older and of newer versions."""
    address = free_address()
    log = tmp_path_factory.mktemp("gateway") / "gateway.log"
    child = GatewayChild(free_address(), log, ("--doq-grpc", address, "--doq-errors", request.param))
    assert child.start(http_mesh.endpoints, 60), log.read_text()
    with grpc.insecure_channel(address) as channel:
        found = Rpc(channel)
        found.errors, found.http = request.param, child.address  # type: ignore[attr-defined]
        yield found
    child.stop(30)


@pytest.fixture
def name(rpc: Rpc, request: pytest.FixtureRequest) -> Iterator[str]:
    """A delayed queue."""
    found = "rpc-" + request.node.name.partition("[")[0]
    assert rpc("CreateQueue", name=found, type="delayed").success
    yield found
    assert rpc("DeleteQueue", name=found).success


def test_messages_have_the_numbers_of_the_wire() -> None:
    encoded = bytes.fromhex("0a01711003200532060a016112016 22a0178".replace(" ", ""))
    found = CLASSES["EnqueueRequest"].FromString(encoded)
    assert (found.queueName, found.id, found.priority, found.content, dict(found.metadata)) == (
        "q", 3, 5, "x", {"a": "b"},
    )  # fmt: skip
    settings = CLASSES["QueueSettings"].FromString(bytes.fromhex("080210031864"))
    assert (settings.strategy, settings.max_unacked, settings.ack_timeout) == (2, 3, 100)


def test_a_queue_lives_as_it_is_told(rpc: Rpc) -> None:
    settings = {"strategy": 2, "max_unacked": 4, "ack_timeout": 10}
    assert rpc("CreateQueue", name="rpc-fair", type="fair", settings=settings).success
    found = rpc("GetQueue", name="rpc-fair")
    assert (found.type, found.settings.strategy, found.settings.max_unacked, found.settings.ack_timeout) == (
        "fair", 2, 4, 10,
    )  # fmt: skip
    assert rpc("UpdateQueue", name="rpc-fair", settings={"strategy": 2}).success
    assert rpc("GetQueue", name="rpc-fair").settings.ack_timeout == 1800
    assert "rpc-fair" in [each.name for each in rpc("GetQueues", type="fair").queues]
    assert "rpc-fair" not in [each.name for each in rpc("GetQueues", type="delayed").queues]
    assert rpc("DeleteQueue", name="rpc-fair").success


def test_a_message_lives_as_it_is_told(rpc: Rpc, name: str) -> None:
    made = rpc("Enqueue", queueName=name, priority=3, content="x", metadata={"a": "b"})
    again = rpc("Get", queueName=name, id=made.id)
    assert (again.content, again.priority, dict(again.metadata)) == ("x", 3, {"a": "b"})
    assert rpc("UpdatePriority", queueName=name, id=made.id, priority=2).success
    assert rpc("Dequeue", queueName=name).priority == 2
    assert rpc("Touch", queueName=name, id=made.id).success
    assert rpc("Nack", queueName=name, id=made.id, priority=9, metadata={"c": "d"}).success
    taken = rpc("Dequeue", queueName=name)
    assert (taken.id, taken.priority, dict(taken.metadata)) == (made.id, 9, {"c": "d"})
    assert rpc("Ack", queueName=name, id=made.id).success
    second = rpc("Enqueue", queueName=name, id=7, priority=0, content="y")
    assert second.id == 7
    assert rpc("Delete", queueName=name, id=7).success
    ids = list(rpc("GenerateIDs", number=3).ids)
    assert ids == sorted(set(ids))


@pytest.mark.parametrize(
    ("procedure", "fields", "code", "text"),
    [
        ("Dequeue", {"queueName": "none"}, "NOT_FOUND", "failed to dequeue a message"),
        ("Ack", {"queueName": "none", "id": 1}, "NOT_FOUND", "failed to ack a message"),
        ("GetQueue", {"name": "none"}, "NOT_FOUND", "failed to get a queue"),
        ("GenerateIDs", {"number": 0}, "INVALID_ARGUMENT", "number must be between 1 and 1000"),
        ("CreateQueue", {"name": "x", "type": "lifo"}, "INVALID_ARGUMENT", "failed to create a queue"),
        (
            "CreateQueue",
            {"name": "x", "type": "fair", "settings": {"strategy": -1}},
            "INVALID_ARGUMENT",
            "failed to create a queue",
        ),
        (
            "CreateQueue",
            {"name": "x", "type": "fair", "settings": {"max_unacked": 1_000_001}},
            "INVALID_ARGUMENT",
            "failed to create a queue",
        ),
        (
            "CreateQueue",
            {"name": "x", "type": "fair", "settings": {"ack_timeout": 9}},
            "INVALID_ARGUMENT",
            "",
        ),
        ("Enqueue", {"queueName": "none", "priority": -1}, "INVALID_ARGUMENT", "failed to enqueue a message"),
        ("Enqueue", {"queueName": "none", "id": 1 << 63}, "INVALID_ARGUMENT", "failed to enqueue a message"),
    ],
)
def test_what_cannot_be_is_refused(rpc: Any, procedure: str, fields: Any, code: str, text: str) -> None:
    with pytest.raises(grpc.RpcError) as failed:
        rpc(procedure, **fields)
    assert failed.value.code().name == ("UNKNOWN" if rpc.errors == "legacy" else code)
    if rpc.errors == "legacy":
        assert text in failed.value.details()


def test_statuses_of_http_are_those_of_the_version(rpc: Any) -> None:
    connection = HTTPConnection(rpc.http, timeout=60)
    for method, path, body, statuses in (
        ("GET", "/none", None, (400, 404)),
        ("POST", "", {"name": "x", "type": "delayed", "settings": {"max_unacked": 1}}, (409, 422)),
        ("POST", "/none/messages", {"content": "x", "priority": 0}, (409, 404)),
    ):
        connection.request(method, f"/API/v1/queues{path}", body and json.dumps(body))
        answer = connection.getresponse()
        answer.read()
        assert answer.status == statuses[rpc.errors == "new"], path
    connection.close()


class Asking:
    """Requests of a stream, one by one."""

    def __init__(self, name: str, ack: bool) -> None:
        self._asked: queues.Queue[Any] = queues.Queue()
        self._request = CLASSES["DequeueRequest"](queueName=name, ack=ack)

    def one(self) -> None:
        """Ask for one message more."""
        self._asked.put(self._request)

    def no_more(self) -> None:
        """Half-close."""
        self._asked.put(None)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._asked.get, None)


def test_a_stream_gives_as_many_as_are_asked_for(rpc: Rpc, name: str) -> None:
    asking = Asking(name, True)
    answers = rpc.stream("Dequeue", iter(asking))
    asking.one()
    for content in ("a", "b", "c"):
        rpc("Enqueue", queueName=name, priority=1, content=content)
    assert next(answers).content == "a"
    assert rpc("GetQueue", name=name).total == 2, "no more than was asked for"
    asking.one()
    asking.one()
    assert [next(answers).content for _ in range(2)] == ["b", "c"]
    asking.one()
    asking.no_more()
    rpc("Enqueue", queueName=name, priority=1, content="d")
    assert next(answers).content == "d", "a half-closed stream still gives what was asked for"
    with pytest.raises(grpc.RpcError, match="EOF"):
        next(answers)


def test_a_stream_waits_for_its_queue(rpc: Rpc) -> None:
    asking = Asking("rpc-later", True)
    answers = rpc.stream("Dequeue", iter(asking))
    asking.one()
    rpc("CreateQueue", name="rpc-later", type="fair", settings={"strategy": 1})
    rpc("Enqueue", queueName="rpc-later", priority=1, content="x")
    assert next(answers).content == "x"
    asking.no_more()
    with pytest.raises(grpc.RpcError, match="EOF"):
        next(answers)
    rpc("DeleteQueue", name="rpc-later")


def test_a_stream_of_messages_is_answered_in_order(rpc: Rpc, name: str) -> None:
    asked = [CLASSES["EnqueueRequest"](queueName=name, id=each, priority=each) for each in (5, 3, 4)]
    assert [answer.id for answer in rpc.stream("Enqueue", iter(asked))] == [5, 3, 4]
    assert [rpc("Dequeue", queueName=name, ack=True).id for _ in range(3)] == [3, 4, 5]
