"""Messages by the keys that their owners have chosen, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest

pytest.importorskip("fastapi")

from tests.integration.http_caller import NDJSON, Caller

pytestmark = pytest.mark.integration


@pytest.fixture
def unique(gateway: Caller) -> Iterator[str]:
    """The path of a topic whose keys are unique."""
    status, said = gateway(
        "POST", "/v1/topics", {"name": "unique", "keys": "unique", "kind": "priority", "labels": {"a": "b"}}
    )
    assert (status, said["keys"], said["remember_seconds"], said["labels"]) == (
        201,
        "unique",
        0.0,
        {"a": "b"},
    )
    yield "/v1/topics/unique"
    gateway("DELETE", "/v1/topics/unique")


def test_a_key_names_one_message(gateway: Caller, unique: str) -> None:
    asked = {"payload": "x", "delay": "1h", "key": "a/b"}
    first = gateway("POST", f"{unique}/messages", asked)[1]["id"]
    status, problem = gateway("POST", f"{unique}/messages", asked)
    assert (status, problem["error"], problem["present"]) == (409, "KeyTaken", first)
    assert gateway("POST", f"{unique}/messages?on_duplicate=keep", asked)[1]["id"] == first
    raw = {"dueq-key": "a/b", "dueq-delay": "1h"}
    second = gateway("POST", f"{unique}/messages?on_duplicate=replace", b"y", raw)[1]["id"]
    assert second != first
    shown = gateway("GET", f"{unique}/keys/a/b")[1]
    assert (shown["id"], shown["payload"]) == (second, "y")


def test_what_a_key_names_is_moved_changed_and_cancelled_if_it_is_as_it_was_seen(
    gateway: Caller, unique: str
) -> None:
    gateway("POST", f"{unique}/messages", {"payload": "x", "delay": "1h", "key": "move"})
    path = f"{unique}/keys/move"
    seen = {"if-match": gateway.headers("GET", path)["etag"], "content-type": "application/json"}
    assert gateway("POST", f"{path}/move", {"delay": "2h"}, seen)[1]["key"] == "move"
    status, problem = gateway("POST", f"{path}/change", {"rank": 3}, seen)
    assert (status, problem["error"]) == (412, "VersionDiffers")
    assert gateway("POST", f"{path}/change", {"rank": 3})[0] == 204
    gateway("POST", f"{unique}/messages?on_duplicate=replace", {"payload": "x", "delay": "1h", "key": "move"})
    assert gateway("DELETE", path, None, seen)[0] == 412
    assert gateway("DELETE", path)[0] == 204
    assert gateway("GET", path)[0] == gateway("DELETE", path)[0] == 404


def test_a_key_may_have_line_breaks(gateway: Caller, unique: str) -> None:
    """The path of such a key led nowhere, or to the message whose key is the same without its last line break."""
    ids = {
        key: gateway("POST", f"{unique}/messages", {"payload": "x", "delay": "1h", "key": key})[1]["id"]
        for key in ("a", "a\n", "a\nb")
    }
    for key, message_id in ids.items():
        path = f"{unique}/keys/{quote(key, safe='')}"
        assert gateway("GET", path)[1]["id"] == message_id
        assert gateway("POST", f"{path}/move", {"delay": "2h"})[1]["id"] == message_id
    assert gateway("DELETE", f"{unique}/keys/a%0A")[0] == 204
    left = [each["key"] for each in gateway("GET", f"{unique}/messages")[1]["messages"]]
    assert sorted(left) == ["a", "a\nb"]


def test_of_many_those_whose_keys_are_taken_are_told(gateway: Caller, unique: str) -> None:
    gateway("POST", f"{unique}/messages", {"payload": "x", "delay": "1h", "key": "taken"})
    three = [{"payload": "x", "delay": "1h", "key": key} for key in ("new", "taken", "new")]
    status, said = gateway("POST", f"{unique}/messages", three)
    assert (status, [each["problem"]["error"] if "problem" in each else "" for each in said["messages"]]) == (
        200, ["", "KeyTaken", "KeyTaken"],
    )  # fmt: skip
    lines = b'{"payload":"x","key":"line","delay":"1h"}\n{"payload":"x","key":"taken","delay":"1h"}\n'
    status, said = gateway("POST", f"{unique}/messages", lines, NDJSON)
    assert (said["accepted"], said["failed"], said["failures"][0]["line"]) == (1, 1, 2)
    assert gateway("POST", f"{unique}/messages?on_duplicate=keep", lines, NDJSON)[1]["accepted"] == 2


def test_keys_name_nothing_where_they_are_free(gateway: Caller, http_topic: str) -> None:
    status, problem = gateway("GET", f"{http_topic}/keys/k")
    assert (status, problem["error"]) == (422, "InvalidRequest")
    status, problem = gateway("POST", f"{http_topic}/messages?on_duplicate=keep", {"payload": "x"})
    assert (status, problem["error"]) == (422, "InvalidRequest")
