"""doq's API: what its own clients rely on, and what it promises."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("fastapi")

from dueq import Client
from dueq.local import LocalMesh

pytestmark = pytest.mark.integration


class Doq:
    """Sends requests to a gateway."""

    def __init__(self, address: str) -> None:
        self._address = address

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Return (status, document)."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {} if body is None else {"content-type": "application/json"}
        connection = HTTPConnection(self._address, timeout=60)
        connection.request(method, path if path.startswith("/") else f"/API/v1/{path}", data, headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        assert answer.status < 300 or answer.headers["content-type"] == "application/problem+json"
        return answer.status, json.loads(text) if text else None

    def put(self, queue: str, content: str, priority: int = 0, **more: Any) -> str:
        """Put a message in, and return its id."""
        status, found = self(
            "POST", f"queues/{queue}/messages", {"content": content, "priority": priority, **more}
        )
        assert (status, found["status"]) == (200, "ENQUEUED"), found
        return str(found["id"])

    def take(self, queue: str, ack: bool = False) -> Any:
        """Take a message; None: there is none."""
        status, found = self("GET", f"queues/{queue}/messages?ack={str(ack).lower()}")
        if status == 400:
            assert found["errors"] == [{"message": f"Queue is empty: {queue}"}]
            return None
        assert (status, found["status"]) == (200, "DEQUEUED")
        return found

    def drain(self, queue: str) -> list[str]:
        """Take all messages, done; return their contents."""
        found = []
        while (message := self.take(queue, True)) is not None:
            found.append(message["content"])
        return found


@pytest.fixture(scope="module")
def doq(http_mesh: LocalMesh) -> Doq:
    return Doq(http_mesh.description()["gateway"]["url"].removeprefix("http://"))


@pytest.fixture
def queue(doq: Doq, request: pytest.FixtureRequest) -> Iterator[str]:
    """A delayed queue, or one of another kind that the test asks for."""
    name = request.node.name.partition("[")[0]
    kind, settings = getattr(request, "param", ("delayed", {}))
    assert doq("POST", "queues", {"name": name, "type": kind, "settings": settings})[0] == 200
    yield name
    assert doq("DELETE", f"queues/{name}") == (200, {"status": "DELETED"})


FAIR = pytest.mark.parametrize("queue", [("fair", {})], indirect=True, ids=["fair"])


def test_a_queue_is_created_shown_changed_and_deleted(doq: Doq) -> None:
    asked = {"name": "ä b", "type": "fair", "settings": {"strategy": "weighted", "max_unacked": 3}}
    echo = {"strategy": "WEIGHTED", "max_unacked": 3}
    made = {"status": "CREATED", "name": "ä b", "type": "fair", "settings": echo}
    assert doq("POST", "queues", asked) == (200, made)
    assert doq("POST", "queues", {**asked, "settings": {}})[0] == 200, "twice is once"
    path = "queues/%C3%A4%20b"
    status, info = doq("GET", path)
    assert status == 200
    assert info["settings"] == echo | {"ack_timeout": 1800}
    assert (info["name"], info["type"], info["ready"], info["unacked"], info["total"]) == (
        "ä b",
        "fair",
        0,
        0,
        0,
    )
    assert {"enqueue_rps", "dequeue_rps", "ack_rps", "nack_rps"} <= set(info)
    assert doq("PUT", path, {"settings": {"strategy": "round_robin"}})[0] == 409, "the strategy stays"
    assert doq("PUT", path, {"settings": {"strategy": "weighted", "ack_timeout": 90}})[0] == 200
    assert doq("GET", path)[1]["settings"] == {"strategy": "WEIGHTED", "ack_timeout": 90}
    assert "ä b" in [each["name"] for each in doq("GET", "queues")[1]["queues"]]
    assert doq("DELETE", path) == (200, {"status": "DELETED"})
    assert doq("GET", path)[0] == 400
    assert doq("DELETE", path)[0] == 400
    assert doq("PUT", path, {"settings": {}})[0] == 409


@pytest.mark.parametrize("name", ["mail/urgent", "mail/messages/5", "100%25", "a%2Fb/"])
def test_a_name_may_have_slashes_and_percent_signs(doq: Doq, name: str) -> None:
    assert doq("POST", "queues", {"name": name, "type": "delayed"})[0] == 200
    queue = quote(name, safe="")
    made = doq.put(queue, "x")
    assert doq("GET", f"queues/{queue}/messages/{made}")[1]["content"] == "x"
    assert doq.take(queue)["id"] == made
    assert doq("POST", f"queues/{queue}/messages/{made}/ack")[0] == 200
    assert doq("GET", f"queues/{queue}")[1]["name"] == name
    assert doq("DELETE", f"queues/{queue}") == (200, {"status": "DELETED"})


def test_small_priorities_go_first_and_large_ones_are_instants(doq: Doq, queue: str) -> None:
    doq.put(queue, "tomorrow", 4_000_000_000)
    doq.put(queue, "third", 1_000_000_000)
    for priority, content in ((7, "second"), (3, "first")):
        doq.put(queue, content, priority)
    assert doq("GET", f"queues/{queue}")[1]["ready"] == 4
    assert doq.drain(queue) == ["first", "second", "third"]
    alike = (("a", 5, "9"), ("b", 5, "8"), ("c", 1_000_000_050, "7"), ("d", 1_000_000_000, "6"))
    for content, priority, number in alike:
        doq.put(queue, content, priority, id=number)
    assert doq.drain(queue) == ["a", "b", "c", "d"]


def test_labels_of_others_and_changes_of_others_outlive_a_change(
    doq: Doq, queue: str, http_mesh: LocalMesh
) -> None:
    with Client(http_mesh.endpoints) as client:
        topic = f"doq.n.{queue}"
        client.update_topic(topic, labels={**client.describe(topic).labels, "team": "mail"})
        answers: list[int] = []

        def change(seconds: int) -> None:
            answers.append(doq("PUT", f"queues/{queue}", {"settings": {"ack_timeout": seconds}})[0])

        threads = [threading.Thread(target=change, args=(60 + each,)) for each in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert answers == [200] * 4
        assert client.describe(topic).labels["team"] == "mail"
        assert 60 <= doq("GET", f"queues/{queue}")[1]["settings"]["ack_timeout"] < 64


@FAIR
def test_groups_take_turns_each_by_priority(doq: Doq, queue: str) -> None:
    for group, priority in (("a", 3), ("a", 2), ("a", 1), ("b", 9), ("c", 5), ("c", 4)):
        doq.put(queue, f"{group}{priority}", priority, group=group)
    assert doq.drain(queue) == ["a1", "b9", "c4", "a2", "c5", "a3"]


@pytest.mark.parametrize(
    "queue", [("fair", {"strategy": "round_robin", "max_unacked": 1})], indirect=True, ids=["one"]
)
def test_a_group_has_no_more_in_flight_than_it_may(doq: Doq, queue: str) -> None:
    first, second = (doq.put(queue, content, group="g") for content in "xy")
    assert doq.take(queue)["id"] == first
    assert doq.take(queue) is None
    assert doq("POST", f"queues/{queue}/messages/{first}/nack", {"priority": 0})[0] == 200
    taken = doq.take(queue)["id"]
    assert taken in (first, second)
    assert doq("POST", f"queues/{queue}/messages/{taken}/ack") == (
        200,
        {"status": "ACKNOWLEDGED", "id": taken},
    )
    assert doq.take(queue) is not None


def test_a_message_lives_as_it_is_told(doq: Doq, queue: str) -> None:
    path = f"queues/{queue}/messages"
    number = doq.put(queue, "", 5, metadata={"a": "b"}, id="0", group="ignored")
    shown = {
        "status": "GOT",
        "id": number,
        "group": "default",
        "priority": 5,
        "content": "",
        "metadata": {"a": "b"},
    }
    assert doq("GET", f"{path}/{number}") == (200, shown)
    for verb, body in (("ack", None), ("nack", {"priority": 0}), ("touch", None)):
        status, problem = doq("POST", f"{path}/{number}/{verb}", body)
        assert (status, problem["errors"][0]["message"]) == (400, f"Message not found: {queue}"), (
            "not in flight"
        )
    assert doq("PUT", f"{path}/{number}/priority", {"priority": 4})[1] == {
        "status": "UPDATED", "id": number, "priority": 4,
    }  # fmt: skip
    assert doq.take(queue)["priority"] == 4
    assert doq("POST", f"{path}/{number}/touch") == (200, {"status": "TOUCHED", "id": number})
    assert doq("PUT", f"{path}/{number}/priority", {"priority": 4})[0] == 409, "it is in flight"
    status, answer = doq("POST", f"{path}/{number}/nack", {"priority": 9, "metadata": {"c": "d"}})
    assert (status, answer["status"], answer["priority"]) == (200, "UNACKNOWLEDGED", 0)
    again = doq.take(queue)
    assert (again["id"], again["priority"], again["metadata"]) == (number, 9, {"c": "d"})
    assert doq("POST", f"{path}/{number}/nack", {"priority": 0, "metadata": {}})[0] == 200
    assert doq.take(queue)["metadata"] == {"c": "d"}
    assert doq("DELETE", f"{path}/{number}") == (204, None)
    assert doq("GET", f"{path}/{number}")[0] == 400
    assert doq("DELETE", f"{path}/{number}")[0] == 400


@pytest.mark.parametrize(
    "asked",
    [{"priority": 1 << 62}, {"priority": 1, "metadata": {str(each): "" for each in range(65)}}],
    ids=["priority", "metadata"],
)
def test_a_message_whose_nack_is_refused_stays_in_flight(doq: Doq, queue: str, asked: Any) -> None:
    number = doq.put(queue, "x")
    doq.take(queue)
    path = f"queues/{queue}/messages/{number}"
    assert doq("POST", f"{path}/nack", asked)[0] == 422
    assert doq("POST", f"{path}/ack")[0] == 200


def test_a_number_names_one_message(doq: Doq, queue: str) -> None:
    assert doq.put(queue, "old", 1, id="42") == "42"
    assert doq.put(queue, "new", 2, id="42") == "42"
    assert doq("GET", f"queues/{queue}")[1]["total"] == 1
    assert doq.take(queue)["content"] == "new"
    asked = {"content": "third", "priority": 0, "id": "42"}
    status, problem = doq("POST", f"queues/{queue}/messages", asked)
    assert (status, problem["errors"]) == (409, [{"message": "message 42 is in flight"}])
    assert doq("POST", f"queues/{queue}/messages/42/ack")[0] == 200
    assert doq.put(queue, "third", 0, id="42") == "42", "an ended one frees its number"
    made = [int(each) for each in doq("POST", "ids", {"number": 1000})[1]["ids"]]
    assert made == sorted(set(made))
    assert made[0] > 1 << 60


@pytest.mark.parametrize("key", ["order-1", "007", "9223372036854775808", "9" * 255, "\u0663"])
def test_a_message_without_a_number_is_passed_over_and_kept(
    doq: Doq, queue: str, http_mesh: LocalMesh, key: str
) -> None:
    """Nobody could settle it: numbers in paths are decimal, without zeros before them, and have 63 bits."""
    topic = f"doq.n.{queue}"
    with Client(http_mesh.endpoints) as client:
        client.producer(topic).schedule(b"stray", 0, key=key)
        while not client.describe(topic).ready:
            pass
        assert doq.take(queue) is None
        [dead] = client.browse(topic, state="dead")
    assert dead.reason == f"the key {key!r:.80} is no number of doq"


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("queues", b"{", 400, None),
        ("queues", b"", 400, None),
        ("queues", {"name": "x", "type": "lifo"}, 422, None),
        ("queues", {"name": "x", "type": "fair", "colour": 1}, 422, "unexpected property"),
        ("queues", {"name": "x" * 1025, "type": "fair"}, 422, None),
        ("queues", {"name": "x", "type": "fair", "settings": {"ack_timeout": 59}}, 422, None),
        ("queues", {"name": "x", "type": "fair", "settings": {"ack_timeout": 43_201}}, 422, None),
        (
            "queues",
            {"name": "x", "type": "delayed", "settings": {"strategy": "weighted"}},
            409,
            "Failed to create",
        ),
        ("queues/none/messages", {"content": "x", "priority": 0}, 409, "Failed to get a queue: none"),
        ("queues/none/messages", {"content": "x", "priority": 1.0}, 422, None),
        ("queues/none/messages", {"content": "x", "priority": -1}, 422, None),
        ("queues/none/messages", {"content": 5, "priority": 1}, 422, None),
        ("queues/none/messages/1/ack", None, 400, "Failed to get a queue: none"),
        (
            "queues/none/messages",
            {"content": "x", "priority": 1, "id": "1", "ID": "2"},
            422,
            "'id' comes twice",
        ),
        (
            "queues",
            {"name": "x", "type": "fair", "settings": {"Strategy": "", "strategy": ""}},
            422,
            "comes twice",
        ),
        ("ids", {"number": 1001}, 422, None),
    ],
)
def test_what_cannot_be_is_refused(doq: Doq, path: str, body: Any, status: int, text: str | None) -> None:
    found, problem = doq("POST", path, body)
    assert (found, problem["status"]) == (status, status)
    if text is not None:
        assert text in problem["errors"][0]["message"]


def test_numbers_and_flags_of_paths_are_looked_at(doq: Doq, queue: str) -> None:
    for path in (f"{queue}/messages/abc", f"{queue}/messages/{1 << 63}", f"{queue}/messages?ack=yes"):
        assert doq("GET", f"queues/{path}")[0] == 422
    asked = {"content": "x", "priority": 0, "id": str(1 << 63)}
    assert doq("POST", f"queues/{queue}/messages", asked)[0] == 422
    for path, text in (("cluster/join", "join and leave"), ("/db/backup", "no backup")):
        status, refused = doq("POST", path, {"id": "x", "addr": "y"})[:2]
        assert (status, text in refused["detail"]) == (501, True)
    assert doq("GET", "cluster/servers")[1]["servers"][0]["suffrage"] == "Voter"
