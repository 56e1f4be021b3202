"""Idempotency keys: a repeated request has the first answer and no effect, whichever gateway is asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi")

from dueq.local import LocalMesh
from dueq.local.gateway import GatewayChild
from dueq.ports import free_ports
from tests.integration.http_caller import NDJSON, Caller

pytestmark = pytest.mark.integration
JSON = {"content-type": "application/json"}


def keyed(key: str) -> dict[str, str]:
    return JSON | {"idempotency-key": key}


def count(gateway: Caller, topic: str) -> int:
    return len(gateway("GET", f"{topic}/messages")[1]["messages"])


@pytest.fixture
def unique(gateway: Caller) -> Iterator[str]:
    """The path of a topic whose keys are unique, in two partitions."""
    gateway("POST", "/v1/topics", {"name": "once", "keys": "unique", "partitions": 2})
    yield "/v1/topics/once"
    gateway("DELETE", "/v1/topics/once")


def test_a_repetition_gets_the_first_answer_and_another_request_is_refused(
    gateway: Caller, http_topic: str
) -> None:
    path, asked = f"{http_topic}/messages", {"payload": "x", "delay": "1h"}
    status, first = gateway("POST", path, asked, keyed("order-1"))
    assert status == 201
    assert gateway("POST", path, asked, keyed("order-1")) == (201, first)
    status, problem = gateway("POST", path, {"payload": "y", "delay": "1h"}, keyed("order-1"))
    assert (status, problem["error"], problem["retry"]) == (422, "RequestDiffers", False)
    assert gateway("POST", path, asked, keyed("order-2"))[1]["id"] != first["id"]
    assert count(gateway, http_topic) == 2
    gateway("DELETE", f"{path}/{first['id']}")
    assert gateway("POST", path, asked, keyed("order-1")) == (201, first)
    raw = {"dueq-delay": "1h", "idempotency-key": "Ürün".encode().decode("latin-1")}
    first = gateway("POST", path, b"raw", raw)[1]
    assert gateway("POST", path, b"raw", raw)[1] == first
    assert gateway("POST", path, b"raw", raw | {"dueq-delay": "2h"})[0] == 422
    assert count(gateway, http_topic) == 2


def test_arrays_and_lines_are_repeated_as_wholes(gateway: Caller, http_topic: str) -> None:
    path, each = f"{http_topic}/messages", {"payload": "x", "delay": "1h"}
    status, first = gateway("POST", path, [each] * 5, keyed("many"))
    assert (status, len({message["id"] for message in first["messages"]})) == (201, 5)
    assert gateway("POST", path, [each] * 5, keyed("many")) == (201, first)
    for other in [each] * 6, [each] * 4, each:
        assert gateway("POST", path, other, keyed("many"))[1]["error"] == "RequestDiffers"
    lines = b"".join(b'{"payload":"%d","delay":"1h","idempotency_key":"l%d"}\n' % (n, n) for n in range(3))
    ids = [row["id"] for row in _rows(gateway, path, lines)]
    assert [row["id"] for row in _rows(gateway, path, lines)] == ids
    other = _rows(gateway, path, lines.replace(b'"payload":"1"', b'"payload":"z"'))
    assert [row["status"] for row in other] == [201, 422, 201]
    assert count(gateway, http_topic) == 8


def _rows(gateway: Caller, path: str, lines: bytes) -> list[dict[str, Any]]:
    *rows, end = gateway("POST", f"{path}?answers=each", lines, NDJSON)[1]
    assert end["done"]
    return rows


def test_a_line_is_another_one_in_another_job(gateway: Caller, http_topic: str) -> None:
    """It would be answered by the message of the job before, which may be gone."""
    path, line = f"{http_topic}/messages", b'{"payload":"x","delay":"1h","idempotency_key":"l"}\n'
    first = gateway("POST", f"{path}?job=one&hidden_for=1h", line, NDJSON)[1]
    again = gateway("POST", f"{path}?hidden_for=1h&job=one", line, NDJSON)[1]
    assert (first["accepted"], again["accepted"], count(gateway, http_topic)) == (1, 1, 0)
    gateway("POST", f"{http_topic}/jobs/one/abort")
    said = gateway("POST", f"{path}?job=two&hidden_for=1h", line, NDJSON)[1]
    assert (said["accepted"], said["failures"][0]["problem"]["error"]) == (0, "RequestDiffers")


def test_beside_unique_keys_the_request_counts(gateway: Caller, unique: str) -> None:
    path, asked = f"{unique}/messages", {"payload": "x", "delay": "1h", "key": "a"}
    status, first = gateway("POST", path, asked, keyed("k"))
    assert (status, gateway("POST", path, asked, keyed("k"))) == (201, (201, first))
    for key in "bcdef":  # some are at home in the other partition
        assert gateway("POST", path, asked | {"key": key}, keyed("k"))[0] == 422
    assert gateway("POST", path, asked, keyed("k2"))[1]["error"] == "KeyTaken"
    assert gateway("GET", f"{unique}/keys/a")[1]["id"] == first["id"]
    lines = b'{"payload":"x","delay":"1h","key":"%s","idempotency_key":"l"}\n'
    both = _rows(gateway, path, lines % b"m" + lines % b"n")
    assert [row["status"] for row in both] == [201, 422]
    assert count(gateway, unique) == 2


def test_the_answer_is_the_same_after_the_gateway_has_died(
    gateway: Caller, http_mesh: LocalMesh, http_topic: str
) -> None:
    path, asked = f"{http_topic}/messages", {"payload": "x", "delay": "1h"}
    child = GatewayChild(f"127.0.0.1:{free_ports(1)[0]}", http_mesh.folder / "logs" / "mortal.log")
    assert child.start(http_mesh.endpoints, 30)
    try:
        first = Caller(child.url)("POST", path, asked, keyed("k"))[1]
    finally:
        child.kill()
    assert gateway("POST", path, asked, keyed("k")) == (201, first)


@pytest.mark.parametrize(
    ("key", "body", "status"),
    [("", {"payload": "x"}, 422), ("k" * 256, {"payload": "x"}, 422), ("k", b'{"payload":"x"}\n', 400)],
)
def test_keys_that_cannot_be_are_refused(
    gateway: Caller, http_topic: str, key: str, body: Any, status: int
) -> None:
    headers = NDJSON | {"idempotency-key": key} if isinstance(body, bytes) else keyed(key)
    assert gateway("POST", f"{http_topic}/messages", body, headers)[0] == status
    assert count(gateway, http_topic) == 0
