"""What the dashboard's pages are made of: their files, the live feed, lists, and what is written down."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from copy import deepcopy
from functools import reduce
from http.client import HTTPConnection, HTTPResponse
from operator import getitem
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

pytest.importorskip("fastapi")

from dueq import Client
from dueq.local import LocalMesh
from dueq.local.gateway import GatewayChild
from dueq.ports import free_ports
from tests.integration.http_caller import Caller

pytestmark = pytest.mark.integration


@contextmanager
def asked(address: str, path: str, method: str = "GET", body: str | None = None) -> Iterator[HTTPResponse]:
    """The answer to a request, while it is read."""
    with closing(HTTPConnection(address, timeout=60)) as connection:
        connection.request(
            method, path, body, {"content-type": "application/json"} if body is not None else {}
        )
        with connection.getresponse() as answer:
            yield answer


def read(address: str, path: str, **query: str) -> Any:
    with asked(address, f"{path}?{urlencode(query)}" if query else path) as answer:
        assert answer.status == 200, answer.read()
        return json.load(answer)


@contextmanager
def views(address: str, path: str) -> Iterator[Iterator[Any]]:
    """What a page shows, after each event."""

    def told(answer: HTTPResponse) -> Iterator[Any]:
        view: Any = None
        while line := answer.readline():
            if line.startswith(b"data: {"):
                yield (view := json.loads(line[6:]))
            elif line.startswith(b"data: ["):
                for place, *value in json.loads(line[6:]):
                    inside = reduce(getitem, place[:-1], view)
                    if value:
                        inside[place[-1]] = value[0]
                    else:
                        del inside[place[-1]]
                yield view

    with asked(address, path) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield told(answer)


@pytest.mark.parametrize("page", ["/", "/topic?topic=mail", "/messages", "/create"])
def test_pages_come_with_a_strict_policy_and_name_only_files_of_the_gateway(
    gateway: Caller, page: str
) -> None:
    with asked(gateway.address, page) as answer:
        text = answer.read().decode()
    assert answer.status == 200
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert "http" not in text.replace("http-equiv", "")


def test_files_are_asked_for_anew_only_if_they_have_changed(gateway: Caller) -> None:
    with asked(gateway.address, "/dashboard/files/app.js") as answer:
        answer.read()
    assert answer.headers["content-type"].startswith("text/javascript")
    assert (answer.headers["cache-control"], bool(answer.headers["etag"])) == ("no-cache", True)


def test_open_pages_are_told_of_each_look(gateway: Caller, http_topic: str) -> None:
    name = http_topic.rpartition("/")[2]
    with views(gateway.address, "/dashboard/live") as told:
        first = deepcopy(next(told))
        assert {"alarms", "totals", "chart", "lateness", "brokers", "topics", "acts"} <= first.keys()
        gateway("POST", f"{http_topic}/messages", {"payload": "x", "delay": "30s"})
        with views(gateway.address, f"/dashboard/live?{urlencode({'topic': name})}") as of_topic:
            seen = next(view for view in of_topic if view["topic"] and view["chart"]["due"])
        assert [*seen["chart"]["due"].values()] == [1]
        assert any(alarm["what"].startswith(f"No consumer of {name}") for alarm in seen["alarms"]["shown"])
        assert next(told)["number"] > first["number"]


def test_messages_of_paused_groups_are_said_to_wait_for_that(gateway: Caller) -> None:
    made = gateway("POST", "/v1/topics", {"name": "shared", "kind": "fair", "replicas": 1})
    assert made[0] == 201, made
    assert gateway("PUT", "/v1/topics/shared/groups/acme", {"paused": True})[0] == 204
    for group in ("acme", "acme.news"):
        gateway("POST", "/v1/topics/shared/messages", {"payload": "x", "group": group})
    with views(gateway.address, "/dashboard/live?topic=shared") as told:
        found = next(
            alarm
            for view in told
            for alarm in view["alarms"]["shown"]
            if alarm["what"].startswith("2 messages of shared")
        )
    assert found["what"].endswith("The group 'acme' is paused and holds 2 messages, due or not.")
    assert gateway("DELETE", "/v1/topics/shared")[0] == 204


def test_a_forecast_of_days_is_by_the_hour(gateway: Caller, http_topic: str) -> None:
    name = http_topic.rpartition("/")[2]
    for hours in (30, 30, 24 * 20):
        gateway("POST", f"{http_topic}/messages", {"payload": "x", "delay": f"{hours}h"})
    path = f"/dashboard/live?{urlencode({'topic': name, 'ahead': 7 * 86_400})}"
    with views(gateway.address, path) as told:
        view = next(view for view in told if view["topic"] and view["chart"]["due"])
    ((second, count),) = view["chart"]["due"].items()
    hour = int(second)
    assert (hour % 3600, count, view["ahead"]) == (0, 2, 7 * 86_400)
    assert 29 * 3600 < hour - view["at"] / 1000 <= 30 * 3600


def test_a_list_has_the_soonest_of_all_partitions_first(gateway: Caller, http_topic: str) -> None:
    name = http_topic.rpartition("/")[2]
    # One request is of one partition.
    for seconds in (3000, 1000, 2000, 4000):
        gateway("POST", f"{http_topic}/messages", {"payload": "x", "delay": seconds, "key": f"k{seconds}"})
    page = read(gateway.address, "/dashboard/messages", topic=name)
    assert [each["key"] for each in page["messages"]] == ["k1000", "k2000", "k3000", "k4000"]
    found = read(gateway.address, "/dashboard/messages", topic=name, key_prefix="k3", until="2h")
    assert [each["key"] for each in found["messages"]] == ["k3000"]


def test_messages_that_consumers_have_are_listed_with_their_holders(
    gateway: Caller, http_topic: str, http_mesh: LocalMesh
) -> None:
    name = http_topic.rpartition("/")[2]
    for key in ("a1", "a2", "b1"):
        gateway("POST", f"{http_topic}/messages", {"payload": "x", "key": key})
    with Client(http_mesh.endpoints) as client, client.consumer(name) as consumer:
        while len(client.leased(name)) < 3:
            consumer.receive(1)
        page = read(gateway.address, "/dashboard/messages", topic=name, state="leased", key_prefix="a")
        assert {each["key"] for each in page["messages"]} == {"a1", "a2"}
        assert {each["holder"] for each in page["messages"]} == {consumer.consumer_id.hex()}
        assert all(each["lease_ends"] > each["due"] for each in page["messages"])
        first = gateway("GET", f"{http_topic}/messages?state=leased&limit=2")[1]
        rest = gateway("GET", f"{http_topic}/messages?state=leased&limit=2&cursor={first['cursor']}")[1]
        assert sorted(each["key"] for each in first["messages"] + rest["messages"]) == ["a1", "a2", "b1"]
        assert (rest["cursor"], first["messages"][0]["lease_ends"] is not None) == (None, True)
        assert gateway("GET", f"{http_topic}/messages?state=leased&from=1h")[0] == 422
        with asked(gateway.address, f"/dashboard/messages?topic={name}&state=leased&until=1h") as answer:
            assert (answer.status, json.load(answer)["where"]) == (422, "query.until")


def test_one_message_is_found_by_its_id_or_by_its_unique_key(gateway: Caller, http_topic: str) -> None:
    name = http_topic.rpartition("/")[2]
    made = gateway("POST", f"{http_topic}/messages", {"payload": "x", "delay": 60, "key": "order 1"})[1]
    found = read(gateway.address, "/dashboard/find", topic=name, name=made["id"])
    assert (found["message"]["key"], found["message"]["preview"]["text"]) == ("order 1", "x")
    free = read(gateway.address, "/dashboard/find", topic=name, name="order 1")
    assert free == {"message": None, "keys": "free"}
    gateway("POST", "/v1/topics", {"name": f"{name}-u", "keys": "unique"})
    gateway("POST", f"/v1/topics/{name}-u/messages", {"payload": "y", "delay": 60, "key": "order 1"})
    found = read(gateway.address, "/dashboard/find", topic=f"{name}-u", name="order 1")
    assert (found["keys"], found["message"]["preview"]["text"]) == ("unique", "y")
    assert read(gateway.address, "/dashboard/find", topic=f"{name}-u", name="order 2")["message"] is None
    gateway("DELETE", f"/v1/topics/{name}-u")


def test_any_second_ahead_is_counted(gateway: Caller, http_topic: str) -> None:
    name = http_topic.rpartition("/")[2]
    at_ms = 1_900_000_000_000
    dues = [at_ms - 1, at_ms, at_ms + 999, at_ms + 5_000, at_ms + 60_000]
    gateway("POST", f"{http_topic}/messages", [{"payload": "x", "due": due} for due in dues])
    query = {"topic": name, "from": str(at_ms), "seconds": "60"}
    counted = read(gateway.address, "/dashboard/seconds", **query)
    second = at_ms // 1000
    assert (counted["due"], counted["complete"]) == ([[second, 2], [second + 5, 1]], True)
    query = {"from": str(at_ms), "until": str(at_ms + 60_000), "step": "10s"}
    status, told = gateway("GET", f"{http_topic}/forecast?{urlencode(query)}")
    assert (status, [each["messages"] for each in told["seconds"]]) == (200, [3])


def test_what_matches_is_counted_without_a_post(gateway: Caller, http_topic: str) -> None:
    name = http_topic.rpartition("/")[2]
    at_ms = 1_900_000_000_000
    gateway(
        "POST",
        f"{http_topic}/messages",
        [{"payload": "x", "due": at_ms + n, "key": f"k{n}"} for n in range(3)],
    )
    until = {"due_from": str(at_ms), "due_until": str(at_ms + 2)}
    assert read(gateway.address, "/dashboard/count", topic=name, **until) == {"matched": 2}
    assert read(gateway.address, "/dashboard/count", topic=name, key_prefix="k1") == {"matched": 1}
    assert read(gateway.address, "/dashboard/count", topic=name, state="dead") == {"matched": 0}


def test_dead_messages_are_listed_with_the_reason(
    gateway: Caller, http_topic: str, http_mesh: LocalMesh
) -> None:
    name = http_topic.rpartition("/")[2]
    gateway("POST", f"{http_topic}/messages", {"payload": "x", "max_attempts": 1, "key": "k"})
    with Client(http_mesh.endpoints) as client, client.consumer(name) as consumer:
        (message,) = consumer.receive(1)
        message.nack(reason="<b>no</b>", wait=True)
    (dead,) = read(gateway.address, "/dashboard/messages", topic=name, state="dead")["messages"]
    assert (dead["key"], dead["reason"], dead["died_at"] > 0) == ("k", "<b>no</b>", True)


def test_a_message_is_shown_with_the_beginning_of_its_payload(gateway: Caller, http_topic: str) -> None:
    name = http_topic.rpartition("/")[2]
    made = gateway(
        "POST", f"{http_topic}/messages", {"json": {"a": [1]}, "delay": 60, "headers": {"h": "v"}}
    )[1]
    found = read(gateway.address, "/dashboard/message", topic=name, id=made["id"])
    assert found["preview"] == {"form": "json", "text": '{\n  "a": [\n    1\n  ]\n}', "cut": False}
    assert (found["state"], found["headers"]) == ("waiting", {"h": "v"})
    long = gateway("POST", f"{http_topic}/messages", b"x" * (2 << 20), {"dueq-delay": "60s"})[1]
    assert read(gateway.address, "/dashboard/message", topic=name, id=long["id"])["preview"] is None


def test_what_pages_do_is_written_down_and_what_programs_do_is_not(
    gateway: Caller, http_topic: str, http_mesh: LocalMesh
) -> None:
    name = http_topic.rpartition("/")[2]
    json_type = {"content-type": "application/json"}
    gateway("POST", f"{http_topic}/messages", {"payload": "x"}, json_type)
    gateway("POST", f"{http_topic}/pause", {}, {**json_type, "x-dueq-act": "pause%20for%20caf%C3%A9"})
    with views(gateway.address, "/dashboard/live") as told:
        (act,) = next(
            each for view in told if (each := [act for act in view["acts"] if act["topic"] == name])
        )
    assert (act["act"], act["status"], act["by"]) == ("pause for café", 200, "127.0.0.1")
    assert http_mesh.gateway is not None
    lines = [line for line in http_mesh.gateway.log.read_text().splitlines() if "dashboard.acted" in line]
    assert any(name in line for line in lines)


def test_a_gateway_that_is_read_only_shows_all_and_changes_nothing(
    gateway: Caller, http_topic: str, http_mesh: LocalMesh
) -> None:
    (port,) = free_ports(1)
    child = GatewayChild(f"127.0.0.1:{port}", http_mesh.folder / "logs" / "read-only.log", ("--read-only",))
    try:
        assert child.start(http_mesh.endpoints, 60)
        address = urlsplit(child.url).netloc
        assert read(address, "/dashboard/about")["read_only"] is True
        with views(address, "/dashboard/live") as told:
            assert next(told)["totals"]["topics"] >= 1
        with asked(address, f"{http_topic}/pause", "POST", "{}") as answer:
            problem = json.load(answer)
        assert (answer.status, problem["error"], "read-only" in problem["detail"]) == (
            403,
            "NotAllowed",
            True,
        )
    finally:
        child.stop(10)


def test_a_pause_that_has_ended_by_itself_is_no_pause(gateway: Caller, http_topic: str) -> None:
    """Its topic was said to be paused until somebody resumed it, and nobody heard that it lacked consumers."""
    name = http_topic.rpartition("/")[2]
    url = "https://receiver.example/hook"
    assert gateway("PUT", f"/v1/endpoints/{name}", {"topic": name, "url": url})[0] == 200
    began = gateway("POST", f"{http_topic}/pause", {"until": "2020-01-01T00:00:00Z"})[1]
    listed = next(each for each in gateway("GET", "/v1/topics")[1]["topics"] if each["name"] == name)
    [endpoint] = [each for each in gateway("GET", "/v1/endpoints")[1]["endpoints"] if each["name"] == name]
    for seen in (
        began, listed, endpoint, gateway("GET", http_topic)[1], gateway("GET", f"/v1/endpoints/{name}")[1],
    ):  # fmt: skip
        assert (seen["paused"], seen["paused_until"]) == (False, None)
    with views(gateway.address, f"/dashboard/live?topic={name}") as told:
        view = next(each for each in told if each["topic"])
    assert not view["topic"]["paused"]
    assert not [each for each in view["alarms"]["shown"] if each["key"] == f"paused {name}"]
    assert gateway("DELETE", f"/v1/endpoints/{name}")[0] == 204
