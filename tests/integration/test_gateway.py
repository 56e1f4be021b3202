"""A real gateway before a real broker, as programs without an SDK see it."""

from __future__ import annotations

import json
import select
from http.client import HTTPConnection
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("fastapi")

from dueq import Client
from dueq.cli.main import dueq
from dueq.local import LocalMesh
from tests.integration.http_caller import JSON, NDJSON, Caller

pytestmark = pytest.mark.integration


def test_it_is_healthy_and_ready(gateway: Caller) -> None:
    assert gateway("GET", "/healthz") == gateway("GET", "/readyz") == (200, {"status": "ok"})


def test_what_is_scheduled_by_http_is_delivered_to_the_sdk(
    gateway: Caller, http_topic: str, http_mesh: LocalMesh
) -> None:
    status, said = gateway("POST", f"{http_topic}/messages", {"json": {"a": 1}, "key": "k"})
    assert status == 201
    with Client(http_mesh.endpoints) as client, client.consumer(http_topic.rpartition("/")[2]) as consumer:
        (message,) = consumer.receive(1)
        assert (message.id, message.payload, message.key) == (said["id"], b'{"a":1}', "k")
        message.ack(wait=True)


def test_every_form_of_a_payload_can_be_listed_page_by_page(gateway: Caller, http_topic: str) -> None:
    messages = f"{http_topic}/messages"
    gateway("POST", messages, [{"payload": "é", "delay": "1h"}, {"base64": "/w==", "delay": 3600}])
    gateway("POST", messages, b"raw", {"dueq-delay": "1h", "dueq-key": "r"})
    shown, cursor = [], ""
    while cursor is not None:
        status, page = gateway("GET", f"{messages}?payloads=true&limit=1&cursor={cursor}")
        assert (status, len(page["messages"]) <= 1) == (200, True)
        shown += [each["payload"] or each["base64"] for each in page["messages"]]
        cursor = page["cursor"]
    assert sorted(shown) == ["/w==", "raw", "é"]


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("image/png", {"content_type": "image/png"}),
        (" Text/Plain; charset=utf-8", {"content_type": "Text/Plain; charset=utf-8"}),
        ("application/octet-stream", {}),
        ("application/x-www-form-urlencoded", {}),
        ("", {}),
    ],
)
def test_raw_bytes_keep_their_type(gateway: Caller, http_topic: str, said: str, kept: dict[str, str]) -> None:
    """It was lost: nothing that shows payloads knew what they were."""
    messages = f"{http_topic}/messages"
    status, made = gateway("POST", messages, b"raw", {"dueq-delay": "1h", "content-type": said})
    assert status == 201
    assert gateway("GET", f"{messages}/{made['id']}")[1]["headers"] == kept


def test_a_message_is_moved_and_cancelled(gateway: Caller, http_topic: str) -> None:
    message_id = gateway("POST", f"{http_topic}/messages", {"payload": "x", "delay": "1h"})[1]["id"]
    status, said = gateway(
        "POST", f"{http_topic}/messages/{message_id}/move", {"due": "2030-01-31T09:00:00Z"}
    )
    assert (status, said["due"]) == (200, "2030-01-31T09:00:00.000Z")
    assert gateway("DELETE", f"{http_topic}/messages/{message_id}")[0] == 204
    status, problem = gateway("DELETE", f"{http_topic}/messages/{message_id}")
    assert (status, problem["error"], problem["retry"]) == (404, "MessageNotFound", False)


def test_a_message_is_triggered(gateway: Caller, http_topic: str) -> None:
    path = (
        f"{http_topic}/messages/"
        + gateway("POST", f"{http_topic}/messages", {"payload": "x", "delay": "1h"})[1]["id"]
    )
    before = gateway("GET", path)[1]
    assert gateway("POST", f"{path}/trigger") == (204, None)
    after = gateway("GET", f"{path}?linearizable=true")[1]
    assert after["due"] < before["due"]
    assert int(after["version"]) > int(before["version"])
    assert (
        gateway("POST", f"{http_topic}/receive", {"max": 1, "wait": 30})[1]["messages"][0]["payload"] == "x"
    )
    status, problem = gateway("POST", f"{path}/trigger")
    assert (status, problem["error"]) == (409, "MessageLeased")


LINES = b'{"payload":"a","delay":"1h"}\nno\n\n{"payload":"b","due":1896080400}\n{"payload":"c","delay":"1h"}'


MOVED = {"payload": "x", "delay": "1h", "headers": {"a": "b"}}


def test_one_message_is_shown_with_its_version(gateway: Caller, http_topic: str) -> None:
    path = f"{http_topic}/messages/" + gateway("POST", f"{http_topic}/messages", MOVED)[1]["id"]
    before = gateway("GET", path)[1]
    assert before["headers"] == {"a": "b"}
    assert (before["payload"], before["state"], before["holder"]) == ("x", "waiting", None)
    gateway("POST", f"{path}/move", {"delay": "2h"})
    assert int(gateway("GET", f"{path}?linearizable=true")[1]["version"]) > int(before["version"])


def test_ndjson_is_answered_by_a_summary_or_line_by_line(gateway: Caller, http_topic: str) -> None:
    status, said = gateway("POST", f"{http_topic}/messages", LINES, NDJSON)
    assert (status, said["lines"], said["accepted"], said["failed"]) == (200, 4, 2, 2)
    assert [each["line"] for each in said["failures"]] == [2, 3]
    status, lines = gateway("POST", f"{http_topic}/messages?answers=each", LINES, NDJSON)
    assert [each["status"] for each in lines[:-1]] == [201, 400, 422, 201]
    assert lines[-1] == {"done": True, "accepted": 2, "failed": 2}


def received(gateway: Caller, topic: str, **asked: Any) -> list[Any]:
    status, said = gateway("POST", f"{topic}/receive", asked)
    assert status == 200, said
    messages: list[Any] = said["messages"]
    return messages


def settled(gateway: Caller, topic: str, how: str, *messages: Any, **asked: Any) -> list[str]:
    leases = [{"id": each["id"], "token": each["token"]} for each in messages]
    status, said = gateway("POST", f"{topic}/{how}", {"messages": leases, **asked})
    assert (status, [each["id"] for each in said["messages"]]) == (200, [each["id"] for each in messages])
    return [each["outcome"] for each in said["messages"]]


def test_messages_are_received_and_settled(gateway: Caller, http_topic: str) -> None:
    gateway("POST", f"{http_topic}/messages", {"payload": "é", "key": "k", "headers": {"a": "b"}})
    assert gateway("POST", f"{http_topic}/messages", b"\xff", {})[0] == 201
    found = received(gateway, http_topic, wait="10s", consumer="c")
    while len(found) < 2:
        found += received(gateway, http_topic, wait="10s", consumer="c", held=_leases(found))
    text, raw = sorted(found, key=lambda each: each["base64"] or "")
    assert (text["payload"], text["key"], text["headers"], text["attempt"]) == ("é", "k", {"a": "b"}, 1)
    assert (raw["payload"], raw["base64"], raw["key"]) == (None, "/w==", None)
    assert {each["token"] for each in received(gateway, http_topic, consumer="c")} == {
        text["token"],
        raw["token"],
    }
    assert settled(gateway, http_topic, "extend", text, seconds="5m") == ["done"]
    assert settled(gateway, http_topic, "release", raw) == ["done"]
    assert settled(gateway, http_topic, "ack", text, raw) == ["done", "stale"]
    (again,) = received(gateway, http_topic, wait="10s")
    assert (again["id"], again["attempt"]) == (raw["id"], 1)
    assert settled(gateway, http_topic, "nack", again, reason="no", delay="0s") == ["done"]
    (again,) = received(gateway, http_topic, wait="10s")
    assert (again["id"], again["attempt"]) == (raw["id"], 2)
    assert settled(gateway, http_topic, "nack", again, reason="never", dead=True) == ["done"]
    assert received(gateway, http_topic, wait="100ms") == []


def _leases(messages: list[Any]) -> list[dict[str, str]]:
    return [{"id": each["id"], "token": each["token"]} for each in messages]


def waiting(gateway: Caller, topic: str, **asked: Any) -> HTTPConnection:
    """Begin to receive."""
    connection = HTTPConnection(gateway.address, timeout=60)
    connection.request("POST", f"{topic}/receive", json.dumps(asked), JSON)
    return connection


def test_messages_of_a_client_that_is_gone_are_released_uncounted(gateway: Caller, http_topic: str) -> None:
    waiting(gateway, http_topic, wait="30s", lease="12h").close()
    gateway("POST", f"{http_topic}/messages", {"payload": "x"})
    (message,) = received(gateway, http_topic, wait="30s")
    assert message["attempt"] == 1


def test_a_later_request_of_a_name_ends_one_that_waits(
    gateway: Caller, http_topic: str, http_mesh: LocalMesh
) -> None:
    with Client(http_mesh.endpoints) as client:
        first = waiting(gateway, http_topic, wait="60s", consumer="c")
        while first.sock is None or not select.select([first.sock], [], [], 0.1)[0]:
            client.pull(http_topic.rpartition("/")[2], wait=0.1, consumer="c")
    answer = first.getresponse()
    problem = json.loads(answer.read())
    assert (answer.status, problem["error"], problem["retry"]) == (409, "Superseded", False)
    first.close()


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("receive", {"max": 1001}),
        ("receive", {"wait": "61s"}),
        ("receive", {"lease": "13h"}),
        ("receive", {"held": [{"id": "0" * 26, "token": "1"}]}),
        ("ack", {"messages": []}),
        ("ack", {"messages": [{"id": "0" * 26, "token": 1}]}),
        ("ack", {"messages": [{"id": "no", "token": "1"}]}),
        ("ack", {"messages": [{"id": "0" * 26, "token": "9" * 19}]}),
        ("release", {"messages": [{"id": "0" * 26, "token": "1"}], "reason": "x"}),
        ("extend", {"messages": [{"id": "0" * 26, "token": "1"}]}),
    ],
)
def test_bad_leases_are_problems(gateway: Caller, http_mesh: LocalMesh, verb: str, body: Any) -> None:
    with Client(http_mesh.endpoints) as client:
        client.create_topic("bad", exist_ok=True)
    status, problem = gateway("POST", f"/v1/topics/bad/{verb}", body)
    assert (status, problem["error"]) == (422, "InvalidRequest")


@pytest.mark.parametrize(
    ("body", "headers", "status", "error"),
    [
        (b'{"payload":"x","due":1896080400}', JSON, 422, "InvalidRequest"),
        (b'{"payload":"x","due":"2030-01-31"}', JSON, 422, "InvalidRequest"),
        (b'{"payload":"x","dealy":"1h"}', JSON, 422, "InvalidRequest"),
        (b'{"payload":"x","json":1}', JSON, 422, "InvalidRequest"),
        (b"[" * 900_000, JSON, 400, "InvalidRequest"),
        (b" " * 1_100_000, JSON, 413, "PayloadTooLarge"),
        (b"raw", {"dueq-dealy": "1h"}, 400, "InvalidRequest"),
        (b"raw", {"content-encoding": "gzip"}, 415, "UnsupportedMediaType"),
        (b"raw", {"origin": "http://evil.example"}, 403, "NotAllowed"),
    ],
)
def test_bad_requests_are_problems_and_change_nothing(
    gateway: Caller, http_mesh: LocalMesh, body: bytes, headers: dict[str, str], status: int, error: str
) -> None:
    with Client(http_mesh.endpoints) as client:
        client.create_topic("bad", exist_ok=True)
        got, problem = gateway("POST", "/v1/topics/bad/messages", body, headers)
        assert (got, problem["status"], problem["error"]) == (status, status, error)
        assert not list(client.browse("bad"))


def test_a_broken_chunk_is_a_problem(gateway: Caller, http_topic: str) -> None:
    connection = HTTPConnection(gateway.address, timeout=60)
    connection.putrequest("POST", f"{http_topic}/messages")
    connection.putheader("transfer-encoding", "chunked")
    connection.endheaders(b"zz\r\nnothing\r\n")
    answer = connection.getresponse()
    assert (answer.status, answer.headers.get_content_type()) == (400, "application/problem+json")
    connection.close()


def test_recurrences_topics_and_brokers_are_there(gateway: Caller, http_topic: str) -> None:
    assert gateway("PUT", f"{http_topic}/recurrences/r", {"every": "1h", "payload": "x"})[0] == 201
    assert (
        gateway("PUT", f"{http_topic}/recurrences/r", {"cron": "0 9 * * *", "payload": "y"})[1]["cron"]
        == "0 9 * * *"
    )
    assert [each["name"] for each in gateway("GET", f"{http_topic}/recurrences")[1]["recurrences"]] == ["r"]
    assert gateway("POST", f"{http_topic}/pause", {"until": "1h"})[1]["paused"]
    assert not gateway("POST", f"{http_topic}/resume")[1]["paused"]
    assert gateway("GET", "/v1/brokers")[1]["brokers"][0]["alive"]


def test_it_ends_in_order(gateway: Caller) -> None:
    with LocalMesh(brokers=1, zookeeper=False, store="memory", gateway=True) as found:
        assert found.gateway is not None
        assert found.gateway.running
    assert not found.gateway.running


def test_head_is_get_without_a_body(gateway: Caller, http_topic: str) -> None:
    message = gateway("POST", f"{http_topic}/messages", {"payload": "x", "delay": "1h"})[1]
    path = f"{http_topic}/messages/{message['id']}"
    got, head = gateway.headers("GET", path), gateway.headers("HEAD", path)
    assert (head["etag"], head["content-length"]) == (got["etag"], got["content-length"])
    for path, status in (
        (f"{http_topic}/messages/none", 422),
        (f"{http_topic}/stream", 405),
        ("/v1/topics/stream", 404),
        (f"{http_topic}/jobs/up/stream", 404),
        ("/v1/topics", 200),
        ("/", 200),
        ("/messages?topic=mail", 200),
        ("/docs", 200),
        ("/docs/begin.js", 200),
        ("/docs/files/swagger-ui.css", 200),
        ("/dashboard/about", 200),
        ("/dashboard/files/app.js", 200),
        ("/dashboard/live", 405),
        ("/livez", 200),
    ):
        connection = HTTPConnection(gateway.address, timeout=60)
        connection.request("HEAD", path)
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (status, b"")
        connection.close()


@pytest.mark.parametrize(
    ("query", "body", "said"),
    [
        ("?on_duplicat=keep", b'{"payload":"x"}', "there is no query parameter 'on_duplicat' here"),
        ("?job=a&job=b", b'{"payload":"x"}', "query.job comes 2 times"),
        ("", b'{"payload":"x","delay":"1h","payload":"y"}', "the field 'payload' comes twice"),
        ("", b'{"json":{"a":[{"b":1,"b":2}]}}', "the field 'b' comes twice"),
    ],
)
def test_what_could_be_meant_otherwise_is_refused(
    gateway: Caller, http_topic: str, query: str, body: bytes, said: str
) -> None:
    status, problem = gateway(
        "POST", f"{http_topic}/messages{query}", body, {"content-type": "application/json"}
    )
    assert (status in (400, 422), problem["error"]) == (True, "InvalidRequest")
    assert said in problem["detail"]
    assert gateway("GET", f"{http_topic}/messages")[1]["messages"] == []


def test_secrets_that_are_stored_in_clear_are_warned_of(http_mesh: LocalMesh) -> None:
    reach = ["--endpoint", http_mesh.endpoints[0]]

    def said(*words: str) -> str:
        found = CliRunner().invoke(dueq, ["endpoint", *words, *reach])
        assert found.exit_code == 0, found.output
        return found.output

    with Client(http_mesh.endpoints) as client:
        client.create_topic("open")
        for _ in range(2):
            assert "stored in clear" in said("set", "open", "--topic", "open", "--url", "https://example.com")
        assert "stored in clear" in said("rotate", "open")
        assert "in clear" in said("show", "open")
        client.delete_topic("open")
    log = (http_mesh.folder / "logs" / "b1.log").read_text()
    assert log.count("endpoint.secrets_in_clear") == 1, "once is enough"


def test_a_forecast_may_be_of_the_next_hour(gateway: Caller, http_topic: str) -> None:
    assert gateway("POST", f"{http_topic}/messages", {"payload": "x", "delay": "50m"})[0] == 201
    status, said = gateway("GET", f"{http_topic}/forecast?until=1h")
    assert (status, [each["messages"] for each in said["seconds"]]) == (200, [1])


@pytest.mark.parametrize("begin", ["2030-01-31T09:00:00Z", "2030-01-31T09:00:00.250Z"])
def test_a_forecast_is_of_an_hour_whenever_that_begins(gateway: Caller, http_topic: str, begin: str) -> None:
    end = begin.replace("T09", "T10")
    # The last one is due in the very second in which the hour ends.
    for due in (begin, end.replace("00Z", "00.001Z").replace(".250Z", ".001Z")):
        assert gateway("POST", f"{http_topic}/messages", {"payload": "x", "due": due})[0] == 201
    status, said = gateway("GET", f"{http_topic}/forecast?from={begin}&until={end}&step=1800s")
    found = [(each["at"], each["messages"]) for each in said["seconds"]]
    expected = [("2030-01-31T09:00:00.000Z", 1)]
    assert (status, found) == (200, expected + [("2030-01-31T10:00:00.000Z", 1)] * (".250" in begin))
    status, problem = gateway("GET", f"{http_topic}/forecast?from={begin}&until=2030-01-31T10:00:00.251Z")
    seconds = 3600.001 if ".250" in begin else 3600.251
    assert (status, problem["where"], problem["value"]) == (422, "query.until", str(seconds))
    assert f"not of {seconds}" in problem["detail"]
