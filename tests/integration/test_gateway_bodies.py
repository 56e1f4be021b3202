"""One body for many messages, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256

import pytest

pytest.importorskip("fastapi")

from dueq.limits import BODY_BYTES_MAX
from tests.integration.http_caller import NDJSON, Caller

pytestmark = pytest.mark.integration

_TEXT = "Everything must go. " * 400


@pytest.fixture
def topic(gateway: Caller) -> Iterator[str]:
    assert (
        gateway("POST", "/v1/topics", {"name": "sale", "partitions": 3, "payload_bytes_max": 250_000})[0]
        == 201
    )
    yield "/v1/topics/sale"
    gateway("DELETE", "/v1/topics/sale")


def test_messages_and_recurrences_name_a_body_that_was_put(gateway: Caller, topic: str) -> None:
    digest = sha256(_TEXT.encode()).hexdigest()
    status, said = gateway("POST", f"{topic}/bodies?sha256={digest}", _TEXT.encode())
    assert (status, said["sha256"], said["size"]) == (201, digest, len(_TEXT))
    body = said["body"]
    assert gateway("POST", f"{topic}/bodies", _TEXT.encode())[1]["body"] == body

    ids = [gateway("POST", f"{topic}/messages", {"body": body, "delay": "1h", "key": "anna"})[1]["id"]]
    status, said = gateway("POST", f"{topic}/messages", [{"body": body, "delay": "1h"}] * 3)
    assert status == 201
    ids += [each["id"] for each in said["messages"]]
    lines = b'{"body": "%s", "delay": "1h"}\n{"payload": "own", "delay": "1h"}\n' % body.encode()
    status, said = gateway("POST", f"{topic}/messages", lines * 2, NDJSON)
    assert (status, said["accepted"], said["failed"]) == (200, 4, 0)
    assert {gateway("GET", f"{topic}/messages/{each}")[1]["payload"] for each in ids} == {_TEXT}
    shown = gateway("GET", f"{topic}/messages?payloads=true")[1]["messages"]
    assert sorted(each["payload"] for each in shown) == [*[_TEXT] * 6, *["own"] * 2]

    status, said = gateway("PUT", f"{topic}/recurrences/daily", {"every": "1d", "body": body})
    assert (status, said["body_sha256"], said["payload_bytes"]) == (201, digest, len(_TEXT))
    made = gateway("POST", f"{topic}/recurrences/daily/trigger")[1]["id"]
    assert gateway("GET", f"{topic}/messages/{made}")[1]["payload"] == _TEXT
    assert gateway("PATCH", f"{topic}/recurrences/daily", {"payload": "own"})[1]["body_sha256"] is None
    assert gateway("DELETE", f"{topic}/bodies/{body}")[1] == {"partitions": 3}


def test_what_is_wrong_with_a_body_is_said_and_nothing_is_scheduled(gateway: Caller, topic: str) -> None:
    status, problem = gateway("POST", f"{topic}/bodies?sha256={'0' * 64}", b"x")
    assert (status, "0" * 64 in problem["detail"]) == (409, True)
    assert gateway("POST", f"{topic}/bodies", b"")[0] == 422
    status, problem = gateway("POST", f"{topic}/bodies", bytes(BODY_BYTES_MAX + 1))
    assert (status, str(BODY_BYTES_MAX) in problem["detail"]) == (413, True)
    assert gateway("POST", "/v1/topics/nowhere/bodies", b"x")[0] == 404

    strange = f"{'ab' * 32}-5-00000000"
    for path, asked in (
        ("messages", {"body": strange}),
        ("messages", [{"body": strange}] * 2),
        ("recurrences/r", {"every": "1d", "body": strange}),
    ):
        status, problem = gateway("PUT" if "recurrences" in path else "POST", f"{topic}/{path}", asked)
        assert (status, problem["error"], strange in problem["detail"]) == (404, "UnknownBody", True)
    status, said = gateway("POST", f"{topic}/messages", b'{"body": "%s"}\n' % strange.encode(), NDJSON)
    assert (status, said["accepted"], said["problem"]["error"]) == (200, 0, "UnknownBody")

    body = gateway("POST", f"{topic}/bodies", b"x")[1]["body"]
    for asked, word in (
        ({"body": "nothing"}, "what the upload of a body was answered with"),
        ({"body": body, "payload": "y"}, "one of payload, json, base64 and body"),
        ([{"body": body}, {"payload": "y"}], "body.1: all messages of an array"),
        ({"body": body, "target": {"url": "https://example.com"}}, "a target or a shared body"),
    ):
        status, problem = gateway("POST", f"{topic}/messages", asked)
        assert (status, word in problem["detail"]) == (422, True), problem
    assert gateway("GET", f"{topic}/messages")[1]["messages"] == []
    assert gateway("DELETE", f"{topic}/bodies/{body}")[1] == {"partitions": 3}
    assert gateway("DELETE", f"{topic}/bodies/{strange}")[1] == {"partitions": 0}


def test_lines_before_one_that_is_refused_are_scheduled_once_and_said_to_be(
    gateway: Caller, topic: str
) -> None:
    body = gateway("POST", f"{topic}/bodies", b"x")[1]["body"]
    unknown, unfit = {"body": f"{'ab' * 32}-5-00000000"}, {"payload": "y", "key": "k" * 256}
    for number, refused in enumerate((unknown, unfit)):
        lines = "".join(f"{json.dumps(each)}\n" for each in ({"body": body}, refused))
        status, said = gateway("POST", f"{topic}/messages", lines.encode(), NDJSON)
        assert (status, said["accepted"], said["failed"]) == (200, 1, 1)
        assert [each["line"] for each in said["failures"]] == [2]
        assert len(gateway("GET", f"{topic}/messages")[1]["messages"]) == number + 1
