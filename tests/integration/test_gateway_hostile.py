"""Requests that no sound program sends: each gets a problem that names what is wrong, and changes nothing."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

pytest.importorskip("fastapi")

from tests.integration.http_caller import JSON, NDJSON, Caller

pytestmark = pytest.mark.integration

LONE = '"\\ud800"'
"""Half of a surrogate pair, as JSON can say it and UTF-8 cannot."""
ID = "0" * 26

UPGRADE = (
    "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n"
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


def answer_to(gateway: Caller, request: bytes) -> tuple[bytes, bytes]:
    """Send bytes as they are, on a connection that the gateway ends; return head and body of its answer."""
    host, _, port = gateway.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as found:
        found.sendall(request)
        answer = b""
        while part := found.recv(65_536):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


def raw(gateway: Caller, request: bytes) -> tuple[int, dict[str, Any]]:
    """Send bytes as they are; return (status, problem)."""
    head, body = answer_to(gateway, request)
    assert b"application/problem+json" in head, head
    return int(head.split()[1]), json.loads(body)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "messages", '{"payload":' + LONE + "}"),
        ("POST", "messages", '{"json":{"a":' + LONE + "}}"),
        ("POST", "messages", '{"payload":"x","key":' + LONE + "}"),
        ("POST", "messages", '{"payload":"x","group":' + LONE + "}"),
        ("POST", "messages", '{"payload":"x","headers":{"a":' + LONE + "}}"),
        ("POST", "messages", '{"payload":"x","headers":{' + LONE + ':"a"}}'),
        ("POST", "messages", '{"payload":"x","due":' + LONE + "}"),
        ("POST", "messages", '{"payload":"x","delay":' + LONE + "}"),
        ("POST", "messages", '{"base64":' + LONE + "}"),
        ("POST", "messages", "{" + LONE + ":1}"),
        ("POST", "messages", '{"payload":"x","delay":1e400}'),
        ("POST", "messages", '{"payload":"x","delay":-1}'),
        ("POST", "messages", '{"payload":"x","due":' + "9" * 5000 + "}"),
        ("POST", "messages", '{"payload":"x","rank":true}'),
        ("POST", "messages", json.dumps([{"payload": "x"}] * 1001)),
        ("POST", "messages", json.dumps({f"k{each}": each for each in range(40_000)})),
        ("POST", "messages", "[]"),
        ("POST", "messages", "null"),
        ("POST", "messages", '{"payload":"x","payload":"y","due":1e3}'),
        ("POST", "messages/cancel", '{"messages":[{"id":' + LONE + "}]}"),
        ("POST", "messages/move", json.dumps({"messages": [{"id": ID}], "due": 1_896_080_400})),
        ("POST", "messages/redrive", json.dumps({"ids": [ID] * 1001})),
        ("POST", "where", '{"do":"count","filter":{"key_prefix":' + LONE + "}}"),
        ("POST", "where", '{"do":"cancel","name":' + LONE + "}"),
        ("POST", "where", '{"do":"count","filter":{"job":' + LONE + "}}"),
        ("POST", "where", '{"do":"count","filter":{"group":' + LONE + "}}"),
        ("POST", "where", '{"do":"shift","by":' + LONE + "}"),
        ("POST", "receive", '{"consumer":' + LONE + "}"),
        ("POST", "ack", '{"messages":[{"id":' + LONE + ',"token":"1"}]}'),
        ("POST", "nack", '{"messages":[{"id":"' + ID + '","token":"1"}],"reason":' + LONE + "}"),
        ("PUT", "recurrences/r", '{"cron":' + LONE + "}"),
        ("PUT", "recurrences/r", '{"every":"1h","zone":' + LONE + "}"),
        ("PUT", "recurrences/r", '{"every":"1h","headers":{"a":' + LONE + "}}"),
        ("PUT", "groups/g", '{"weight":1e9}'),
        ("PATCH", "", '{"rate":-1}'),
        ("PATCH", "", '{"backoff":{"factor":1e309}}'),
        ("PATCH", "", '{"horizon":' + LONE + "}"),
    ],
)
def test_what_json_says_and_dueq_cannot_is_refused(
    gateway: Caller, http_topic: str, method: str, path: str, body: str
) -> None:
    status, problem = gateway(method, f"{http_topic}/{path}".rstrip("/"), body.encode(), JSON)
    assert (status, problem["error"]) in ((422, "InvalidRequest"), (400, "InvalidRequest"))
    assert gateway("GET", f"{http_topic}/messages")[1]["messages"] == []


@pytest.mark.parametrize(
    "path",
    ["/v1/topics/%00", "/v1/topics/%ff", "/v1/topics/a%2Fb", "/v1/topics/" + "x" * 300, "/v1/topics/..%2f"],
)
def test_no_topic_has_such_a_name(gateway: Caller, path: str) -> None:
    for method in ("GET", "DELETE"):
        status, problem = gateway(method, path)
        assert (status, problem["status"]) in ((404, 404), (422, 422)), problem


@pytest.mark.parametrize(
    "asked",
    [
        "limit=0", "limit=1001", "limit=x", "cursor=%00", "cursor=eA", "cursor=LTE6MTp4", "from=1896080400",
        "from=%00", "state=lost", "key_prefix=" + "x" * 256, "from=2030-02-31T00:00:00Z", "payloads=maybe",
        "cursor=" + "x" * 2000,
    ],
)  # fmt: skip
def test_a_list_that_cannot_be_is_refused(gateway: Caller, http_topic: str, asked: str) -> None:
    status, problem = gateway("GET", f"{http_topic}/messages?{asked}")
    assert (status, problem["error"]) == (422, "InvalidRequest")


@pytest.mark.parametrize(
    ("kind", "status"),
    [("text/plain", 415), ("application/json; charset=utf-16", 400), ("", 415), ("application/JSON", 422)],
)
def test_a_command_is_json_and_says_so(gateway: Caller, http_topic: str, kind: str, status: int) -> None:
    body = '{"do":"destroy"}'.encode("utf-16" if "16" in kind else "utf-8")
    assert gateway("POST", f"{http_topic}/where", body, {"content-type": kind})[0] == status


def test_a_body_of_a_hundred_megabytes_is_refused_and_whoever_sends_it_can_read_why(
    gateway: Caller, http_topic: str
) -> None:
    head = f"POST {http_topic}/where HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
    sized = "content-type: application/json\r\ncontent-length: 104857600\r\n\r\n"
    status, problem = raw(gateway, (head + sized).encode() + b"[" * 104_857_600)
    assert (status, problem["error"], problem["value"]) == (413, "PayloadTooLarge", 104_857_600)


def test_a_socket_of_a_page_of_another_site_is_refused_with_a_problem(
    gateway: Caller, http_topic: str
) -> None:
    request = (
        f"GET {http_topic}/socket HTTP/1.1\r\nhost: {gateway.address}\r\norigin: http://evil.example\r\n"
        f"{UPGRADE}\r\n"
    )
    assert raw(gateway, request.encode())[0] == 403


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/topics", UPGRADE, 404),
        ("/nothing", UPGRADE, 404),
        ("/v1/topics/none/socket", UPGRADE, 404),
        ("/v1/topics/none/socket", UPGRADE.replace(": 13", ": 7"), 400),
        ("/v1/topics/none/socket", UPGRADE.replace("dGhlIHNhbXBsZSBub25jZQ==", "x"), 400),
    ],
)
def test_what_becomes_no_websocket_is_a_problem(
    gateway: Caller, path: str, headers: str, status: int
) -> None:
    found, problem = raw(gateway, f"GET {path} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n".encode())
    assert (found, problem["status"]) == (status, status)


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://localhost:1/v1/topics?limit=1", "other.example", 200),
        ("HTTPS://LOCALHOST/v1/topics", "localhost", 200),
        ("http://localhost", "localhost", 200),
        ("http://localhost/v1/topic%73", "localhost", 200),
        ("http://evil.example/v1/topics", "localhost", 421),
        ("http:///v1/topics", "localhost", 421),
        ("http://localhost@evil.example/v1/topics", "localhost", 421),
        ("ftp://localhost/v1/topics", "localhost", 404),
    ],
)
def test_a_target_may_be_a_whole_uri_whose_host_counts(
    gateway: Caller, target: str, host: str, status: int
) -> None:
    head = f"GET {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n"
    assert int(answer_to(gateway, head.encode())[0].split()[1]) == status


def test_two_content_types_are_refused(gateway: Caller, http_topic: str) -> None:
    """One reader takes the first, another one the last."""
    head = f"POST {http_topic}/messages HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
    types = "content-type: application/json\r\ncontent-type: text/plain\r\n"
    status, problem = raw(gateway, f"{head}{types}content-length: 2\r\n\r\n{{}}".encode())
    assert (status, problem["limit"]) == (400, 1)


def test_a_line_that_is_too_long_ends_ndjson(gateway: Caller, http_topic: str) -> None:
    body = b'{"payload":"a","delay":"1h"}\n' + b'{"payload":"' + b"x" * (1 << 20) + b'"}\n'
    status, said = gateway("POST", f"{http_topic}/messages", body, NDJSON)
    assert (status, said["accepted"], said["failed"]) == (200, 1, 1)
    assert said["failures"][0]["problem"]["status"] == 413


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("dueq-key: a\r\ndueq-key: b\r\n", 422),
        ("dueq-due: 1896080400\r\n", 422),
        ("dueq-key: \xff\r\n", 422),
        ("dueq-rank: -1\r\n", 422),
        ("content-length: 1\r\ncontent-length: 2\r\n", 400),
        ("transfer-encoding: chunked\r\ncontent-length: 3\r\n", 400),
        ("transfer-encoding: gzip\r\n", 400),
        ("content-length: -1\r\n", 400),
        ("host: evil.example\r\n", 400),
        ("bad header\r\n", 400),
        ("a\0b: c\r\n", 400),
    ],
)
def test_a_head_that_is_none_is_refused(gateway: Caller, http_topic: str, head: str, status: int) -> None:
    sized = "" if "content-length" in head or "transfer" in head else "content-length: 1\r\n"
    request = (
        f"POST {http_topic}/messages HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{sized}{head}\r\nx"
    )
    found, problem = raw(gateway, request.encode("latin-1"))
    assert (found, problem["status"]) == (status, status)


@pytest.mark.parametrize(
    ("head", "body", "status"),
    [("", b"lost", 411), ("transfer-encoding: chunked\r\n", b"1\r\nx\r\n0\r\n\r\n", 400)],
)
def test_a_body_of_http_1_0_has_a_length(
    gateway: Caller, http_topic: str, head: str, body: bytes, status: int
) -> None:
    """Without it nobody knows where it ends, and an empty payload was scheduled in its place."""
    request = f"POST {http_topic}/messages HTTP/1.0\r\nhost: localhost\r\n{head}\r\n".encode()
    found, problem = raw(gateway, request + body)
    assert (found, problem["status"]) == (status, status)
    assert gateway("GET", f"{http_topic}/messages")[1]["messages"] == []


@pytest.mark.parametrize("chunks", [b"zz\r\n", b"5\r\nab", b"-1\r\n", b"ffffffffffffffffffffff\r\n"])
def test_a_broken_chunk_changes_nothing(gateway: Caller, http_topic: str, chunks: bytes) -> None:
    head = f"POST {http_topic}/messages HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    host, _, port = gateway.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as found:
        found.sendall(head.encode() + chunks)
        found.shutdown(socket.SHUT_WR)
        answer = found.recv(65_536)
    assert not answer or answer.startswith(b"HTTP/1.1 400 ")
    assert gateway("GET", f"{http_topic}/messages")[1]["messages"] == []


@pytest.mark.parametrize(
    ("path", "body", "where"),
    [
        ("messages", {"payload": 5}, "body.payload"),
        ("messages", {"payload": "x", "due": True}, "body.due"),
        ("messages", {"payload": "x", "headers": {"int": 1}}, "body.headers.int"),
        ("messages", [{"payload": "x"}, {"payload": "x", "delay": []}], "body.1.delay"),
        ("receive", {"wait": True}, "body.wait"),
        ("nack", {"messages": [{"id": ID, "token": 7}]}, "body.messages.0.token"),
    ],
)
def test_a_problem_says_the_place_in_the_request(
    gateway: Caller, http_topic: str, path: str, body: Any, where: str
) -> None:
    status, problem = gateway("POST", f"{http_topic}/{path}", body)
    assert (status, problem["where"]) == (422, where)
    assert problem["detail"].startswith(f"{where}: ")
