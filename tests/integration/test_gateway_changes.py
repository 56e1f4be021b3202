"""What HTTP changes: one message if it is still as it was seen, many by id, all that match, and dead ones."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, unquote

import pytest

pytest.importorskip("fastapi")

from dueq import Client
from dueq.local import LocalMesh
from tests.integration.http_caller import Caller

pytestmark = pytest.mark.integration


def scheduled(gateway: Caller, topic: str, *messages: dict[str, Any]) -> list[str]:
    """Schedule messages, in an hour unless they say when; return their ids."""
    body = [{"payload": "x", **({} if "due" in each else {"delay": "1h"}), **each} for each in messages]
    status, said = gateway("POST", f"{topic}/messages", body)
    assert status == 201, said
    return [each["id"] for each in said["messages"]]


def done(gateway: Caller, topic: str, path: str, body: Any) -> dict[str, Any]:
    """Begin a pass and wait for its end; return how it ended."""
    status, found = gateway("POST", f"{topic}/{path}", body)
    assert status == 202, found
    while not found["ended"]:
        found = gateway("GET", f"{topic}/passes/{quote(found['name'])}")[1]
    return dict(found)


def die(http_mesh: LocalMesh, topic: str, count: int) -> None:
    """Have so many messages that are due fail for good."""
    name = topic.rpartition("/")[2]
    with Client(http_mesh.endpoints) as client:
        for _ in range(count):
            while not (found := client.pull(name, 1, 10)):
                pass
            found[0].nack(dead=True, reason="no such card", wait=True)


def test_a_message_is_changed_only_if_it_is_as_it_was_seen(gateway: Caller, http_topic: str) -> None:
    [message_id] = scheduled(gateway, http_topic, {})
    path = f"{http_topic}/messages/{message_id}"
    seen = {"if-match": gateway.headers("GET", path)["etag"], "content-type": "application/json"}
    assert gateway("POST", f"{path}/move", {"delay": "2h"}, seen)[0] == 200
    version = gateway("GET", path)[1]["version"]
    for method, verb, body in (
        ("DELETE", "", None),
        ("POST", "/move", {"delay": "3h"}),
        ("POST", "/trigger", None),
    ):
        status, problem = gateway(method, path + verb, body, seen)
        assert (status, problem["error"], problem["present"]) == (412, "VersionDiffers", version)
    for wrong in ('"x"', f'W/"{message_id}.1"', f'"{message_id}.1", "y.2"', f'"{message_id}.{"9" * 19}"'):
        assert gateway("DELETE", path, None, {"if-match": wrong})[0] == 400
    assert gateway("DELETE", path, None, {"if-match": '"' + "0" * 26 + '.1"'})[0] == 412
    assert gateway("POST", f"{path}/trigger", None, {"if-match": "*"})[0] == 204
    assert gateway("DELETE", path, None, {})[0] == 204


def test_a_topic_is_changed_only_if_it_is_as_it_was_seen(gateway: Caller, http_topic: str) -> None:
    name = http_topic.rpartition("/")[2]
    seen = {"if-match": gateway.headers("GET", http_topic)["etag"], "content-type": "application/json"}
    status, shown = gateway("PATCH", http_topic, {"labels": {"owner": "a"}}, seen)
    assert (status, shown["labels"]) == (200, {"owner": "a"})
    status, problem = gateway("PATCH", http_topic, {"labels": {"owner": "b"}}, seen)
    version = shown["settings_version"]
    assert (status, problem["error"], problem["present"]) == (412, "VersionDiffers", str(version))
    assert f"have version {version}, and version {version - 1} was expected" in problem["detail"]
    wrong = seen | {"if-match": '"other.1"'}
    assert gateway("PATCH", http_topic, {"labels": {}}, wrong)[0] == 400
    assert gateway.headers("GET", http_topic)["etag"] == f'"{name}.{version}"'


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_a_topic_is_paused_and_resumed_only_if_it_is_as_it_was_seen(
    gateway: Caller, http_topic: str, verb: str
) -> None:
    """The header was ignored."""
    seen = {"if-match": gateway.headers("GET", http_topic)["etag"]}
    other = "resume" if verb == "pause" else "pause"
    before = gateway("POST", f"{http_topic}/{other}")[1]
    status, problem = gateway("POST", f"{http_topic}/{verb}", None, seen)
    assert (status, problem["error"], problem["present"]) == (
        412,
        "VersionDiffers",
        str(before["settings_version"]),
    )
    assert gateway("GET", http_topic)[1]["paused"] == before["paused"] == (verb == "resume")
    now = {"if-match": gateway.headers("GET", http_topic)["etag"]}
    status, after = gateway("POST", f"{http_topic}/{verb}", None, now)
    assert (status, after["paused"]) == (200, verb == "pause")
    assert gateway("POST", f"{http_topic}/{verb}", None, {"if-match": '"other.1"'})[0] == 400


@pytest.mark.parametrize("until", [0, "1970-01-01T00:00:00Z"])
def test_a_pause_until_the_beginning_of_time_is_over(
    gateway: Caller, http_topic: str, until: int | str
) -> None:
    status, after = gateway("POST", f"{http_topic}/pause", {"until": until})
    assert (status, after["paused"]) == (200, False)


@pytest.mark.parametrize(("method", "path"), [("DELETE", ""), ("POST", "/purge")])
def test_what_is_not_done_by_version_refuses_one(
    gateway: Caller, http_topic: str, method: str, path: str
) -> None:
    """The header was ignored: a topic was deleted that had been changed since."""
    [message_id] = scheduled(gateway, http_topic, {})
    seen = {"if-match": gateway.headers("GET", http_topic)["etag"]}
    status, problem = gateway(method, http_topic + path, None, seen)
    assert (status, problem["error"]) == (400, "InvalidRequest")
    assert "if-match" in problem["detail"]
    assert gateway("GET", f"{http_topic}/messages/{message_id}")[0] == 200
    assert gateway("POST", f"{http_topic}/purge", None, {"if-match": "*"})[0] == 202


def test_many_are_cancelled_moved_and_triggered_by_id(gateway: Caller, http_topic: str) -> None:
    first, second, third = scheduled(gateway, http_topic, {}, {}, {})
    version = gateway("GET", f"{http_topic}/messages/{first}")[1]["version"]
    chosen = [{"id": first, "version": version}, {"id": second, "version": "99999999"}, {"id": third}]
    status, said = gateway(
        "POST", f"{http_topic}/messages/move", {"messages": chosen, "due": "2030-01-31T09:00:00Z"}
    )
    assert (status, [each["outcome"] for each in said["messages"]]) == (200, ["done", "changed", "done"])
    said = gateway("POST", f"{http_topic}/messages/trigger", {"messages": [{"id": third}]})[1]
    assert [each["outcome"] for each in said["messages"]] == ["done"]
    every = {"messages": [{"id": each} for each in (first, second, third)]}
    said = gateway("POST", f"{http_topic}/messages/cancel", every)[1]
    assert {each["outcome"] for each in said["messages"]} == {"done"}
    said = gateway("POST", f"{http_topic}/messages/cancel", every)[1]
    assert {each["outcome"] for each in said["messages"]} == {"not_found"}
    assert gateway("POST", f"{http_topic}/messages/change", {**every, "rank": 1})[0] == 422


def test_all_that_match_are_counted_shifted_moved_and_cancelled(gateway: Caller, http_topic: str) -> None:
    scheduled(
        gateway, http_topic, *({"key": f"{'even' if row % 2 == 0 else 'odd'}-{row}"} for row in range(100))
    )
    where, even = f"{http_topic}/where", {"key_prefix": "even-"}
    assert gateway("POST", where, {"do": "cancel", "filter": even, "dry_run": True}) == (200, {"matched": 50})
    assert gateway("POST", where, {"do": "count"}) == (200, {"matched": 100})
    shifted = done(gateway, http_topic, "where", {"do": "shift", "filter": even, "by": "24h", "name": "a/b"})
    assert (shifted["name"], shifted["done"]) == ("a/b", 50)
    again = {"do": "cancel", "filter": even, "name": "a/b"}
    assert gateway("POST", where, again)[1]["error"] == "PassExists"
    later = {**even, "due_from": "23h"}
    assert gateway("POST", where, {"do": "count", "filter": later}) == (200, {"matched": 50})
    done(gateway, http_topic, "where", {"do": "shift", "filter": later, "by": "-24h"})
    assert gateway("POST", where, {"do": "count", "filter": later}) == (200, {"matched": 0})
    move = {"do": "move", "filter": even, "due": "2030-01-31T09:00:00Z", "spread": "1h"}
    assert done(gateway, http_topic, "where", move)["done"] == 50
    assert done(gateway, http_topic, "where", {"do": "cancel", "filter": even})["done"] == 50
    assert done(gateway, http_topic, "purge", {"state": "all"})["done"] == 50
    assert gateway("GET", f"{http_topic}/passes/nobody")[0] == 404
    assert gateway("DELETE", f"{http_topic}/passes/a/b")[1]["ended"]


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"do": "shift"}, "body.by"),
        ({"do": "move"}, "body.due"),
        ({"do": "change"}, "body.rank"),
        ({"do": "cancel", "rank": 1}, "body.rank"),
        ({"do": "count", "filter": {"due_from": 1_896_080_400}}, "body.filter.due_from"),
        ({"do": "redrive", "filter": {"state": "waiting"}}, "body.filter.state"),
        ({"do": "destroy"}, "body.do"),
        ({}, "body.do"),
        ({"do": "cancel", "filtre": {}}, "body.filtre"),
    ],
)
def test_what_is_not_meant_is_refused(gateway: Caller, http_topic: str, body: Any, where: str) -> None:
    status, problem = gateway("POST", f"{http_topic}/where", body)
    assert (status, problem["error"], problem["where"]) == (422, "InvalidRequest", where)


def test_dead_messages_are_listed_redriven_and_discarded(
    gateway: Caller, http_topic: str, http_mesh: LocalMesh
) -> None:
    ids = scheduled(gateway, http_topic, *({"due": 0, "key": f"k{row}"} for row in range(5)))
    die(http_mesh, http_topic, 5)
    found, cursor = [], ""
    while cursor is not None:
        page = gateway("GET", f"{http_topic}/messages?state=dead&limit=2&cursor={cursor}")[1]
        found, cursor = found + page["messages"], page["cursor"]
    assert sorted(each["id"] for each in found) == sorted(ids)
    assert {(each["reason"], each["attempt"]) for each in found} == {("no such card", 1)}
    assert all(each["died_at"] for each in found)
    by_id = {"ids": [ids[0]], "delay": "1h"}
    assert gateway("POST", f"{http_topic}/messages/redrive", by_id)[1]["messages"][0]["outcome"] == "done"
    assert (
        gateway("POST", f"{http_topic}/messages/redrive", by_id)[1]["messages"][0]["outcome"] == "not_found"
    )
    assert gateway("POST", f"{http_topic}/messages/discard", {"ids": ids[1:2]})[1]["messages"] == [
        {"id": ids[1], "outcome": "done"}
    ]
    assert done(gateway, http_topic, "dead/discard", {"filter": {"key_prefix": "k2"}})["done"] == 1
    assert done(gateway, http_topic, "where", {"do": "redrive", "filter": {"key_prefix": "k3"}})["done"] == 1
    assert gateway("POST", f"{http_topic}/where", {"do": "count", "filter": {"state": "dead"}})[1] == {
        "matched": 1
    }
    assert done(gateway, http_topic, "dead/redrive", None)["done"] == 1
    assert done(gateway, http_topic, "purge", {"state": "dead"})["done"] == 0


def test_a_dead_message_is_left_alone_that_was_redriven_since_it_was_seen(
    gateway: Caller, http_topic: str, http_mesh: LocalMesh
) -> None:
    [message_id] = scheduled(gateway, http_topic, {"due": 0})
    die(http_mesh, http_topic, 1)
    path = f"{http_topic}/messages"
    seen = {"messages": [{"id": message_id, "version": gateway("GET", f"{path}/{message_id}")[1]["version"]}]}
    assert gateway("POST", f"{path}/redrive", seen)[1]["messages"][0]["outcome"] == "done"
    die(http_mesh, http_topic, 1)
    for verb in ("redrive", "discard"):
        assert gateway("POST", f"{path}/{verb}", seen)[1]["messages"] == [
            {"id": message_id, "outcome": "changed"}
        ]
        for named in ({}, seen | {"ids": [message_id]}):
            assert gateway("POST", f"{path}/{verb}", named)[0] == 422
    assert gateway("GET", f"{path}/{message_id}")[1]["state"] == "dead"
    seen["messages"][0]["version"] = gateway("GET", f"{path}/{message_id}")[1]["version"]
    assert gateway("POST", f"{path}/discard", seen)[1]["messages"][0]["outcome"] == "done"


def test_a_topic_says_and_changes_how_its_messages_end(gateway: Caller, http_topic: str) -> None:
    settings = {
        "max_attempts": 3, "expired": "dead", "dead_retention": "1d", "payload_bytes_max": 1000, "horizon": "30d",
        "backoff": {"first": "250ms", "factor": 3.0, "longest": "1m", "jitter": 0.5, "doublings": 4},
    }  # fmt: skip
    status, said = gateway("PATCH", http_topic, settings)
    assert (status, said["max_attempts"], said["expired"], said["dead_retention_seconds"]) == (
        200, 3, "dead", 86_400.0,
    )  # fmt: skip
    assert said["backoff"] == {
        "first_seconds": 0.25, "factor": 3.0, "longest_seconds": 60.0, "jitter": 0.5, "doublings": 4,
    }  # fmt: skip
    assert gateway("PATCH", http_topic, {})[0] == 422
    expiring = {"payload": "x", "delay": "1h", "expires": "2h", "max_attempts": 1, "window": "1m"}
    status, said = gateway("POST", f"{http_topic}/messages", expiring)
    shown = gateway("GET", f"{http_topic}/messages/{said['id']}")[1]
    assert (status, shown["expires"] > shown["due"]) == (201, True)
    raw = {"dueq-delay": "1h", "dueq-expires": "2h", "dueq-max-attempts": "2", "dueq-window": "1m"}
    assert gateway("POST", f"{http_topic}/messages", b"raw", raw)[0] == 201
    assert gateway("POST", f"{http_topic}/messages", b"raw", {"dueq-max-attempts": "0"})[0] == 422


def test_messages_of_a_hidden_job_are_shown_once_it_is_committed(gateway: Caller, http_topic: str) -> None:
    messages = f"{http_topic}/messages?job=load&hidden_for=1h"
    for row in range(2):
        assert gateway("POST", messages, [{"payload": f"{row}", "delay": "1h"}] * 2)[0] == 201
    assert gateway("POST", messages, b"raw", {"dueq-delay": "1h"})[0] == 201
    assert gateway("GET", f"{http_topic}/messages")[1]["messages"] == []
    assert gateway("GET", f"{http_topic}/jobs/load")[1]["messages"] == 5
    assert gateway("POST", f"{http_topic}/jobs/load/commit")[1]["state"] == "committed"
    status, problem = gateway("POST", messages, {"payload": "late"})
    assert (status, problem["error"]) == (409, "JobEnded")
    assert gateway("POST", f"{http_topic}/messages?hidden_for=1h", {"payload": "x"})[0] == 422
    assert gateway("POST", f"{http_topic}/jobs/load/cancel")[1]["state"] == "cancelled"
    assert [each["state"] for each in gateway("GET", f"{http_topic}/jobs")[1]["jobs"]] == ["cancelled"]


@pytest.mark.parametrize("name", ["2030/01", "2030%2F01", "a/commit/b", "a/"])
def test_names_of_jobs_may_have_slashes(gateway: Caller, http_topic: str, name: str) -> None:
    messages = f"{http_topic}/messages?job={name}&hidden_for=1h"
    assert gateway("POST", messages, {"payload": "x", "delay": "1h"})[0] == 201
    job = f"{http_topic}/jobs/{name}"
    assert gateway("GET", job)[1]["messages"] == 1
    assert gateway("POST", f"{job}/commit")[1]["state"] == "committed"
    assert gateway("POST", f"{job}/cancel")[1]["state"] == "cancelled"


@pytest.mark.parametrize("name", ["reports/daily", "reports%2Fdaily", "a/pause/b", "a/"])
def test_names_of_recurrences_may_have_slashes(gateway: Caller, http_topic: str, name: str) -> None:
    found = f"{http_topic}/recurrences/{name}"
    assert gateway("PUT", found, {"every": "1h", "payload": "x"})[0] == 201
    assert gateway("POST", f"{found}/pause")[1]["paused"]
    assert gateway("POST", f"{found}/resume")[1]["name"] == unquote(name)
    assert gateway("POST", f"{found}/trigger")[0] == 201
    assert gateway("PATCH", found, {"every": "2h"})[1]["every_seconds"] == 7200
    assert gateway("DELETE", found)[0] == 204
    assert gateway("GET", found)[1]["error"] == "RecurrenceNotFound"


def test_statistics_are_there(gateway: Caller, http_topic: str) -> None:
    scheduled(gateway, http_topic, {})
    name = http_topic.rpartition("/")[2]
    hours = gateway("GET", f"/v1/statistics?topic={name}&since=0")[1]["hours"]
    assert sum(sum(hour["scheduled"].values()) for hour in hours) == 1


@pytest.mark.parametrize("kind", ["priority", "fair"])
def test_a_list_goes_on_where_it_was_though_its_last_message_has_gone(gateway: Caller, kind: str) -> None:
    name = f"gone-{kind}"
    gateway("POST", "/v1/topics", {"name": name, "kind": kind})
    topic = f"/v1/topics/{name}"
    groups: list[dict[str, Any]] = [{"group": each} if kind == "fair" else {} for each in "abab"]
    ids = scheduled(gateway, topic, *({"rank": rank, **group} for rank, group in enumerate(groups)))
    shown, cursor = [], ""
    while cursor is not None:
        page = gateway("GET", f"{topic}/messages?limit=1&cursor={cursor}")[1]
        cursor = page["cursor"]
        for each in page["messages"]:
            shown.append(each["id"])
            gateway("DELETE", f"{topic}/messages/{each['id']}")
    assert sorted(shown) == sorted(ids)
    gateway("DELETE", topic)


def test_a_list_has_what_waits_and_then_what_consumers_have(gateway: Caller, http_topic: str) -> None:
    ids = scheduled(gateway, http_topic, {"delay": 0}, {"delay": 0}, {"key": "later"})
    got = gateway("POST", f"{http_topic}/receive", {"max": 1, "wait": 10, "consumer": "c"})[1]["messages"]
    shown, cursor, pages = [], "", 0
    while cursor is not None:
        page = gateway("GET", f"{http_topic}/messages?limit=1&cursor={cursor}")[1]
        shown, cursor, pages = shown + page["messages"], page["cursor"], pages + 1
    assert pages <= 4
    assert sorted(each["id"] for each in shown) == sorted(ids)
    assert [each["state"] for each in shown] == ["waiting", "waiting", "leased"]
    assert (shown[-1]["id"], shown[-1]["lease_ends"] is not None) == (got[0]["id"], True)
    whole = gateway("GET", f"{http_topic}/messages?payloads=true")[1]
    assert [(each["id"], each["payload"]) for each in whole["messages"][2:]] == [(got[0]["id"], None)]
    assert len(whole["messages"]) == 3
    assert [each["key"] for each in gateway("GET", f"{http_topic}/messages?from=1m")[1]["messages"]] == [
        "later"
    ]
    of_key = gateway("GET", f"{http_topic}/messages?key_prefix=later")[1]["messages"]
    assert [each["state"] for each in of_key] == ["waiting"]
    waiting = gateway("GET", f"{http_topic}/messages?state=waiting")[1]
    assert got[0]["id"] not in {each["id"] for each in waiting["messages"]}
