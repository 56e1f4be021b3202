"""Labels and payloads that somebody else has written are no queues and no tasks, whatever they are."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from dueq.client import endings
from dueq.gateway.dashboard.merged import _Cursor
from dueq.gateway.faces.cloud_tasks.queue import LABEL, Configuration
from dueq.gateway.faces.cloud_tasks.status import RpcError
from dueq.gateway.faces.cloud_tasks.task import HttpRequest, Task, TaskDocument
from dueq.gateway.faces.doq import queue as doq
from dueq.gateway.problems import Unfit

FOREIGN = ["", "x", "[]", "[" * 2000, '{"a":"\\ud800"}']


def topic(label: str, text: str) -> Any:
    return SimpleNamespace(name="mail", labels={label: text})


@pytest.mark.parametrize("text", FOREIGN)
def test_a_label_of_somebody_else_is_no_queue(text: str) -> None:
    assert doq.Queue.of(topic(doq.LABEL, text)) is None
    with pytest.raises(RpcError, match="does not say what a queue is set to"):
        Configuration.of(topic(LABEL, text))


@pytest.mark.parametrize(
    "changed",
    [
        {"rate": "abc"},
        {"rate": float("inf")},
        {"concurrent": 0.5},
        {"concurrent": True},
        {"purged_ms": 10**30},
        {"retry": {"attempts": "x"}},
        {"retry": {"least_ms": -1}},
        {"retry": {"most_ms": 10**12}},
        {"retry": {"doublings": -1}},
        {"sampling": "all"},
    ],
)
def test_a_queue_of_tasks_has_numbers_that_can_be(changed: dict[str, Any]) -> None:
    sound = json.loads(Configuration().label())
    assert Configuration.of(topic(LABEL, json.dumps(sound))) == Configuration()
    text = json.dumps({**sound, **changed, "retry": {**sound["retry"], **changed.get("retry", {})}})
    with pytest.raises(RpcError, match="does not say what a queue is set to"):
        Configuration.of(topic(LABEL, text))


@pytest.mark.parametrize(
    "changed",
    [
        {"name": 7},
        {"type": 5},
        {"type": "slow"},
        {"strategy": 7},
        {"max_unacked": "x"},
        {"ack_timeout_s": -1},
    ],
)
def test_a_queue_of_doq_has_settings_that_can_be(changed: dict[str, Any]) -> None:
    sound = json.loads(doq.Queue("mail", "fair", "round_robin").label())
    assert doq.Queue.of(topic(doq.LABEL, json.dumps(sound))) is not None
    assert doq.Queue.of(topic(doq.LABEL, json.dumps({**sound, **changed}))) is None


@pytest.mark.parametrize(
    "text",
    [
        *FOREIGN,
        '{"url":"u","method":"POST","headers":{},"body":"","deadline_ms":1e400,"created_ms":1}',
    ],
)
def test_a_payload_of_somebody_else_is_no_task(text: str) -> None:
    with pytest.raises(ValueError, match="the payload is no task"):
        Task.of_payload(text.encode())
    with pytest.raises(ValueError, match="the payload is no task"):
        Task.of_payload(b"\xff")


@pytest.mark.parametrize(
    "payload",
    [
        b"\xff" * 2000,
        b'{"url":"u","method":"' + b"x" * 2000 + b'"}',
        b'{"url":"u","method":"' + "é".encode() * 2000 + b'"}',
    ],
    ids=["bytes", "method", "letters"],
)
def test_a_long_payload_of_somebody_else_gives_a_reason_that_a_dead_message_can_keep(payload: bytes) -> None:
    """Else it is never settled: it comes again and again, and takes the place of a task each time."""
    with pytest.raises(ValueError, match="the payload is no task") as refused:
        Task.of_payload(payload)
    assert endings.nack(None, str(refused.value), dead=True).reason == str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("url", "file:///etc/passwd"),
        ("url", 7),
        ("method", "TRACE"),
        ("headers", {"a": 1}),
        ("headers", {"a b": "x"}),
        ("headers", {"a": "x\r\ny: z"}),
        ("deadline_ms", 10**12),
        ("deadline_ms", -5),
        ("created_ms", -(10**18)),
        ("created_ms", 10**30),
    ],
)
def test_a_task_that_cannot_be_sent_is_none(name: str, value: object) -> None:
    """It would be tried for ever: only what the API takes can fail and be dead."""
    sound = {
        "url": "https://example.com", "method": "POST", "headers": {"a": "b"}, "body": "", "deadline_ms": 15_000,
        "created_ms": 1,
    }  # fmt: skip
    assert Task.of_payload(json.dumps(sound).encode()).url == "https://example.com"
    with pytest.raises(ValueError, match="the payload is no task"):
        Task.of_payload(json.dumps({**sound, name: value}).encode())


@pytest.mark.parametrize("said", ["HTTP_METHOD_UNSPECIFIED", "0", 0, None])
def test_a_task_without_a_method_is_posted(said: Any) -> None:
    asked = TaskDocument(http_request=HttpRequest(url="https://example.com", http_method=said, body="eA=="))
    assert Task.of(asked, 1, issues=False).method.name == "POST"


@pytest.mark.parametrize("text", ["", "W1tb" * 1000, "WzFlNDAwLCBbXV0=", "WzAsIFt7fV1d"])
def test_a_cursor_of_somebody_else_is_refused(text: str) -> None:
    with pytest.raises(Unfit):
        _Cursor.of(text)
