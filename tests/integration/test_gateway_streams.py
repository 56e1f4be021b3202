"""Deliveries that go on and on: server-sent events, NDJSON and WebSockets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import pytest

pytest.importorskip("fastapi")

from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from dueq import Client
from dueq.local import LocalMesh
from tests.integration.http_caller import Caller

pytestmark = pytest.mark.integration


class Stream:
    """A stream of server-sent events, or of lines."""

    def __init__(self, gateway: Caller, path: str, accept: str = "text/event-stream") -> None:
        self._connection = HTTPConnection(gateway.address, timeout=60)
        self._connection.request("GET", path, headers={"accept": accept})
        self.answer: HTTPResponse = self._connection.getresponse()
        self.kind = self.answer.headers.get_content_type()

    def next(self) -> tuple[str, Any]:
        """The next event: its name and document; of lines "" and the document."""
        name = ""
        while line := self.answer.readline().decode():
            field, _, value = line.rstrip("\n").partition(": ")
            if self.kind == "application/x-ndjson":
                if line != "{}\n":
                    return "", json.loads(line)
            elif field == "event":
                name = value
            elif field == "data":
                assert self.answer.readline() == b"\n"
                return name, json.loads(value)
        return "closed", None

    def close(self) -> None:
        """Be gone."""
        self.answer.close()
        self._connection.close()


@contextmanager
def opened(gateway: Caller, topic: str, asked: str = "") -> Iterator[ClientConnection]:
    """A WebSocket."""
    address = gateway.url.replace("http://", "ws://")
    with connect(f"{address}{topic}/socket{asked}", max_size=None) as found:
        yield found


def said(socket: ClientConnection, **command: Any) -> dict[str, Any]:
    """Send a command and return what comes next."""
    socket.send(json.dumps(command))
    return got(socket)


def got(socket: ClientConnection) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(socket.recv(timeout=60))
    return found


def lease(message: dict[str, Any]) -> dict[str, str]:
    return {"id": message["id"], "token": message["token"]}


def schedule(gateway: Caller, topic: str, *payloads: str) -> None:
    for payload in payloads:
        assert gateway("POST", f"{topic}/messages", {"payload": payload})[0] == 201


def test_events_come_while_there_is_credit_and_acks_anywhere_give_it_back(
    gateway: Caller, http_topic: str, http_mesh: LocalMesh
) -> None:
    with closing(Stream(gateway, f"{http_topic}/stream?credit=2&lease=1h")) as stream:
        assert stream.kind == "text/event-stream"
        schedule(gateway, http_topic, "a", "b", "c", "d")
        found = [stream.next() for _ in range(2)]
        assert {name for name, _ in found} == {"message"}
        first, second = (document for _, document in found)
        assert first["attempt"] == 1
        gateway("POST", f"{http_topic}/ack", {"messages": [lease(first)]})
        _, third = stream.next()
        # Not at this gateway: it asks, since it may send no more.
        with Client(http_mesh.endpoints) as client:
            client.settle(http_topic.rpartition("/")[2], [(second["id"], int(second["token"]))], "ack")
        _, fourth = stream.next()
        assert {each["payload"] for each in (first, second, third, fourth)} == set("abcd")


def test_lines_come_if_they_are_asked_for(gateway: Caller, http_topic: str) -> None:
    schedule(gateway, http_topic, "x")
    with closing(Stream(gateway, f"{http_topic}/stream", "application/x-ndjson")) as stream:
        assert stream.kind == "application/x-ndjson"
        assert stream.next()[1]["payload"] == "x"


def test_what_a_name_has_comes_again_under_the_same_token_and_the_earlier_stream_ends(
    gateway: Caller, http_topic: str
) -> None:
    schedule(gateway, http_topic, "x")
    path = f"{http_topic}/stream?consumer=worker&lease=1h"
    with closing(Stream(gateway, path)) as first:
        _, message = first.next()
        with closing(Stream(gateway, path)) as second:
            assert second.next()[1]["token"] == message["token"]
            name, problem = first.next()
            assert (name, problem["error"]) == ("superseded", "Superseded")
            assert first.next() == ("closed", None)


def test_what_a_later_stream_says_to_hold_stays_its_own_and_takes_credit(
    gateway: Caller, http_topic: str
) -> None:
    schedule(gateway, http_topic, "x", "y")
    path = f"{http_topic}/stream?consumer=worker&lease=1h&credit=2"
    with closing(Stream(gateway, path)) as first:
        one, other = first.next()[1], first.next()[1]
        schedule(gateway, http_topic, "z")
        with closing(Stream(gateway, f"{path}&held={one['id']}:{one['token']}")) as second:
            again = second.next()[1]
            assert again["id"] == other["id"]
            gateway("POST", f"{http_topic}/ack", {"messages": [lease(one)]})
            assert second.next()[1]["payload"] == "z"


def test_a_message_that_was_not_handed_over_goes_to_another_uncounted(
    gateway: Caller, http_topic: str
) -> None:
    Stream(gateway, f"{http_topic}/stream").close()
    schedule(gateway, http_topic, "x")
    with closing(Stream(gateway, f"{http_topic}/stream")) as stream:
        assert stream.next()[1]["attempt"] == 1


def test_those_that_wait_share_what_comes(gateway: Caller, http_topic: str) -> None:
    streams = [Stream(gateway, f"{http_topic}/stream?credit=1&lease=1h") for _ in range(5)]
    schedule(gateway, http_topic, *"abcde")
    assert sorted(stream.next()[1]["payload"] for stream in streams) == list("abcde")
    for stream in streams:
        stream.close()


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ("credit=0", 422),
        ("credit=1001", 422),
        ("lease=13h", 422),
        ("lease=1ms", 422),
        ("consumer=", 422),
        ("held=00000000000000000000000000:1", 422),
        ("consumer=w&held=x:1", 422),
        ("consumer=w&held=00000000000000000000000000", 422),
        ("consumer=w&held=00000000000000000000000000:0", 422),
        ("consumer=w&held=00000000000000000000000000:9999999999999999999", 422),
        ("consumer=w&held=00000000000000000000000000:" + "9" * 5000, 422),
        ("consumer=w&held=00000000000000000000000000:%C2%B2", 422),
        ("unknown=1", 422),
    ],
)
def test_a_stream_that_cannot_be_is_refused(
    gateway: Caller, http_topic: str, asked: str, status: int
) -> None:
    assert gateway("GET", f"{http_topic}/stream?{asked}")[0] == status
    with pytest.raises(InvalidStatus) as refused, opened(gateway, http_topic, f"?{asked}"):
        pass
    assert refused.value.response.status_code == status
    assert refused.value.response.headers["content-type"] == "application/problem+json"


def test_what_is_too_long_for_a_stream_is_refused(gateway: Caller, http_topic: str) -> None:
    asked = "consumer=w&held=" + ",".join(["00000000000000000000000000:1"] * 1001)
    status, problem = gateway("GET", f"{http_topic}/stream?{asked}")
    assert (status, problem["detail"]) == (422, "query.held lists 1001 messages: at most 1000")
    with pytest.raises(InvalidStatus) as refused, opened(gateway, http_topic, f"?{asked}"):
        pass
    assert refused.value.response.status_code == 414
    assert refused.value.response.headers["content-type"] == "application/problem+json"
    with (
        pytest.raises(InvalidStatus) as refused,
        connect(f"ws://{gateway.address}{http_topic}/socket", additional_headers={"x": "y" * 9_000}),
    ):
        pass
    assert refused.value.response.status_code == 431


def test_there_is_no_stream_of_no_topic(gateway: Caller) -> None:
    assert gateway("GET", "/v1/topics/nobody/stream")[1]["error"] == "TopicNotFound"


def test_a_socket_takes_acks_and_gives_credit(gateway: Caller, http_topic: str) -> None:
    schedule(gateway, http_topic, "a", "b", "c")
    with opened(gateway, http_topic, "?credit=1&lease=1h") as socket:
        first = got(socket)
        assert (first["type"], first["payload"] in "abc") == ("message", True)
        answers = [said(socket, do="ack", messages=[lease(first)], ref=7), got(socket)]
        settled = next(each for each in answers if each["type"] == "settled")
        assert settled == {"type": "settled", "messages": [{"id": first["id"], "outcome": "done"}], "ref": 7}
        second = next(each for each in answers if each["type"] == "message")
        answers = [said(socket, do="credit", credit=2), got(socket)]
        third = next(each for each in answers if each["type"] == "message")
        both = [lease(second), lease(third)]
        assert said(socket, do="extend", messages=both, seconds="2h")["messages"][0]["outcome"] == "done"
        assert said(socket, do="credit", credit=0)["credit"] == 0
        assert (
            said(socket, do="nack", messages=both, dead=True, reason="no")["messages"][1]["outcome"] == "done"
        )
        assert said(socket, do="release", messages=both)["messages"][1]["outcome"] == "stale"


@pytest.mark.parametrize(
    "text",
    [
        "no", "{}", '{"do":"destroy"}', '{"do":"ack"}', '{"do":"ack","messages":[]}', "[" * 10_000, "null",
        '{"do":"ack","messages":[{"id":"x","token":"1"}]}', '{"do":"credit","credit":1e9}', b"\0\xff",
        '{"do":"extend","messages":[{"id":"00000000000000000000000000","token":"1"}]}',
    ],
)  # fmt: skip
def test_a_command_that_is_none_is_answered_by_a_problem(gateway: Caller, http_topic: str, text: Any) -> None:
    with opened(gateway, http_topic) as socket:
        socket.send(text)
        found = got(socket)
        assert (found["type"], found["problem"]["error"]) == ("problem", "InvalidRequest")
        assert said(socket, do="credit", credit=1)["type"] == "credit"


def test_a_socket_ends_the_earlier_one_of_its_name(gateway: Caller, http_topic: str) -> None:
    with (
        opened(gateway, http_topic, "?consumer=worker") as first,
        opened(gateway, http_topic, "?consumer=worker"),
    ):
        assert got(first)["type"] == "superseded"
        with pytest.raises(ConnectionClosed):
            first.recv(timeout=60)
        assert first.close_code == 4409


def test_many_wait_at_once_and_each_gets_what_is_its_own(gateway: Caller, http_topic: str) -> None:
    """Each message reaches exactly one of a hundred polls and fifty streams."""
    polls = [HTTPConnection(gateway.address, timeout=60) for _ in range(100)]
    for poll in polls:
        asked = {"max": 1, "wait": "60s", "lease": "1h"}
        poll.request("POST", f"{http_topic}/receive", json.dumps(asked), {"content-type": "application/json"})
    streams = [Stream(gateway, f"{http_topic}/stream?credit=1&lease=1h") for _ in range(50)]
    payloads = [f"{number}" for number in range(150)]
    gateway("POST", f"{http_topic}/messages", [{"payload": payload} for payload in payloads])
    found = [stream.next()[1]["payload"] for stream in streams]
    for poll in polls:
        [message] = json.loads(poll.getresponse().read())["messages"]
        found.append(message["payload"])
        poll.close()
    assert sorted(found) == sorted(payloads)
    for stream in streams:
        stream.close()
