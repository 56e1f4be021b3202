"""The Cloud Tasks API, asked by Google's own client."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("google.cloud.tasks_v2")

from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import tasks_v2
from google.cloud.tasks_v2.services.cloud_tasks.transports.rest import CloudTasksRestTransport
from google.protobuf import duration_pb2, field_mask_pb2, timestamp_pb2

from dueq import Client
from dueq.local import LocalMesh
from tests.integration.waiting import until

pytestmark = pytest.mark.integration

PLACE = "projects/example.com:shop/locations/here"
TARGET = "https://example.com/pay"


@pytest.fixture(scope="module")
def cloud(http_mesh: LocalMesh) -> Any:
    """Google's client, of a gateway."""
    host = http_mesh.description()["gateway"]["url"].removeprefix("http://")
    transport = CloudTasksRestTransport(host=host, url_scheme="http", credentials=AnonymousCredentials())
    return tasks_v2.CloudTasksClient(transport=transport)


@pytest.fixture
def queue(cloud: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    """A paused queue of the test's own."""
    name = f"{PLACE}/queues/" + "".join(each if each.isalnum() else "-" for each in request.node.name)[:100]
    cloud.create_queue(parent=PLACE, queue={"name": name})
    cloud.pause_queue(name=name)
    yield name
    cloud.delete_queue(name=name)


def test_a_queue_is_created_with_the_defaults_of_the_service(cloud: Any) -> None:
    name = f"{PLACE}/queues/fresh"
    made = cloud.create_queue(parent=PLACE, queue={"name": name})
    assert made == cloud.get_queue(name=name)
    assert (made.name, made.state) == (name, tasks_v2.Queue.State.RUNNING)
    limits, retry = made.rate_limits, made.retry_config
    assert (limits.max_dispatches_per_second, limits.max_burst_size, limits.max_concurrent_dispatches) == (
        500, 100, 1000,
    )  # fmt: skip
    assert (retry.max_attempts, retry.max_doublings, retry.min_backoff, retry.max_backoff) == (
        100, 16, timedelta(seconds=0.1), timedelta(hours=1),
    )  # fmt: skip
    with pytest.raises(exceptions.Conflict, match="already"):
        cloud.create_queue(parent=PLACE, queue={"name": name})
    cloud.delete_queue(name=name)
    with pytest.raises(exceptions.NotFound, match="there is no queue"):
        cloud.get_queue(name=name)
    with pytest.raises(exceptions.NotFound):
        cloud.delete_queue(name=name)


def test_a_queue_is_changed_field_by_field(cloud: Any, queue: str) -> None:
    changed = cloud.update_queue(
        queue={
            "name": queue,
            "rate_limits": {"max_dispatches_per_second": 0.5, "max_concurrent_dispatches": 2},
            "retry_config": {"max_attempts": 7, "min_backoff": duration_pb2.Duration(seconds=3)},
        },
        update_mask=field_mask_pb2.FieldMask(
            paths=["rate_limits.max_dispatches_per_second", "retry_config.max_attempts"]
        ),
    )
    assert changed.rate_limits.max_dispatches_per_second == 0.5
    assert changed.rate_limits.max_burst_size == 1
    assert changed.rate_limits.max_concurrent_dispatches == 1000
    assert (changed.retry_config.max_attempts, changed.retry_config.min_backoff) == (
        7,
        timedelta(seconds=0.1),
    )
    whole = cloud.update_queue(queue={"name": queue, "retry_config": {"max_attempts": -1}})
    assert (whole.rate_limits.max_dispatches_per_second, whole.retry_config.max_attempts) == (500, -1)
    for wrong, text in (
        ({"retry_config": {"max_attempts": -2}}, "1 to 1000000, not -2"),
        ({"rate_limits": {"max_dispatches_per_second": 1e-4}}, "is 0.001 to 1000000 here, not 0.0001"),
        ({"retry_config": {"min_backoff": duration_pb2.Duration(seconds=7200)}}, "at most maxBackoff"),
    ):
        with pytest.raises(exceptions.BadRequest, match=text):
            cloud.update_queue(queue={"name": queue, **wrong})
    assert cloud.get_queue(name=queue) == whole


def test_queues_are_listed_page_by_page_and_by_location(cloud: Any) -> None:
    place = "projects/pages/locations/there"
    names = [f"{place}/queues/q{number}" for number in range(5)]
    for name in names:
        cloud.create_queue(parent=place, queue={"name": name})
    assert [found.name for found in cloud.list_queues(request={"parent": place, "page_size": 2})] == names
    assert not list(cloud.list_queues(parent="projects/pages/locations/elsewhere"))
    for name in names:
        cloud.delete_queue(name=name)


def test_a_pause_and_its_end_are_seen(cloud: Any, queue: str) -> None:
    assert cloud.get_queue(name=queue).state == tasks_v2.Queue.State.PAUSED
    assert cloud.resume_queue(name=queue).state == tasks_v2.Queue.State.RUNNING
    assert cloud.pause_queue(name=queue).state == tasks_v2.Queue.State.PAUSED


def test_a_pause_that_has_ended_by_itself_is_over(cloud: Any, queue: str, http_mesh: LocalMesh) -> None:
    with Client(http_mesh.endpoints) as client:
        (topic,) = [each.name for each in client.topics() if queue.rpartition("/")[2] in each.name]
        client.pause(topic, until=datetime.now(UTC) + timedelta(milliseconds=300))
    until(lambda: cloud.get_queue(name=queue).state == tasks_v2.Queue.State.RUNNING, "the end of the pause")
    listed = {each.name: each.state for each in cloud.list_queues(parent=PLACE)}
    assert listed[queue] == tasks_v2.Queue.State.RUNNING


def test_a_task_is_what_was_asked_for(cloud: Any, queue: str) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    when = timestamp_pb2.Timestamp()
    when.FromDatetime(at)
    made = cloud.create_task(
        parent=queue,
        task={
            "http_request": {
                "url": TARGET, "http_method": tasks_v2.HttpMethod.PUT, "headers": {"X-Shop": "7"}, "body": b"\0pay",
            },
            "schedule_time": when,
            "dispatch_deadline": duration_pb2.Duration(seconds=20),
        },
    )  # fmt: skip
    assert made.name.startswith(f"{queue}/tasks/")
    assert made.http_request.body == b""
    assert (made.view, made.dispatch_count) == (tasks_v2.Task.View.BASIC, 0)
    assert timedelta(0) <= made.schedule_time - at < timedelta(milliseconds=1)
    shown = cloud.get_task(request={"name": made.name, "response_view": tasks_v2.Task.View.FULL})
    assert shown.http_request.body == b"\0pay"
    assert shown.http_request.http_method == tasks_v2.HttpMethod.PUT
    assert dict(shown.http_request.headers) == {"X-Shop": "7"}
    assert shown.dispatch_deadline == timedelta(seconds=20)
    assert [found.name for found in cloud.list_tasks(parent=queue)] == [made.name]
    cloud.delete_task(name=made.name)
    for verb in (cloud.get_task, cloud.delete_task, cloud.run_task):
        with pytest.raises(exceptions.NotFound, match="there is no task"):
            verb(name=made.name)


def test_a_task_is_sent_when_it_is_told_to(cloud: Any, queue: str) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    when = timestamp_pb2.Timestamp()
    when.FromDatetime(at)
    made = cloud.create_task(parent=queue, task={"http_request": {"url": TARGET}, "schedule_time": when})
    assert cloud.run_task(name=made.name).schedule_time < at


def test_a_name_is_taken_until_an_hour_after_its_task(cloud: Any, queue: str) -> None:
    asked = {"name": f"{queue}/tasks/order-42", "http_request": {"url": TARGET, "body": b"x"}}
    assert cloud.create_task(parent=queue, task=asked).name == asked["name"]
    with pytest.raises(exceptions.Conflict, match="order-42"):
        cloud.create_task(parent=queue, task=asked)
    assert cloud.get_task(name=asked["name"]).name == asked["name"]
    assert [found.name for found in cloud.list_tasks(parent=queue)] == [asked["name"]]
    cloud.delete_task(name=asked["name"])
    with pytest.raises(exceptions.NotFound):
        cloud.get_task(name=asked["name"])
    with pytest.raises(exceptions.Conflict, match="in the last hour"):
        cloud.create_task(parent=queue, task=asked)
    like_an_id = f"{queue}/tasks/{'0' * 26}"
    cloud.create_task(parent=queue, task={**asked, "name": like_an_id})
    assert cloud.get_task(name=like_an_id).name == like_an_id


def test_tasks_are_listed_page_by_page_and_purged(cloud: Any, queue: str) -> None:
    made = {cloud.create_task(parent=queue, task={"http_request": {"url": TARGET}}).name for _ in range(7)}
    listed = [found.name for found in cloud.list_tasks(request={"parent": queue, "page_size": 3})]
    assert (len(listed), set(listed)) == (7, made)
    purged = cloud.purge_queue(name=queue)
    assert purged.purge_time > datetime.now(UTC) - timedelta(minutes=5)
    until(lambda: not list(cloud.list_tasks(parent=queue)), "the queue is empty")


@pytest.mark.parametrize(
    ("task", "error", "text"),
    [
        ({}, exceptions.BadRequest, "a task has an httpRequest"),
        ({"http_request": {"url": "ftp://x"}}, exceptions.BadRequest, "begins with https:// or http://"),
        ({"http_request": {"url": ""}}, exceptions.BadRequest, "a URL has 1 to"),
        (
            {"http_request": {"url": TARGET, "http_method": 2, "body": b"x"}},
            exceptions.BadRequest,
            "a GET request has no body",
        ),
        (
            {"http_request": {"url": TARGET, "headers": {"a b": "c"}}},
            exceptions.BadRequest,
            "is no header of HTTP",
        ),
        (
            {"http_request": {"url": TARGET}, "dispatch_deadline": duration_pb2.Duration(seconds=1)},
            exceptions.BadRequest,
            "dispatchDeadline is 15s to 1800s, not '1s'",
        ),
        (
            {"http_request": {"url": TARGET, "oidc_token": {"service_account_email": "a@b"}}},
            exceptions.MethodNotImplemented,
            "httpRequest.oidcToken is not implemented",
        ),
        (
            {"app_engine_http_request": {"relative_uri": "/x"}},
            exceptions.MethodNotImplemented,
            "appEngineHttpRequest is not implemented",
        ),
        (
            {"name": "projects/p/locations/l/queues/other/tasks/x", "http_request": {"url": TARGET}},
            exceptions.BadRequest,
            "a task of this queue is",
        ),
        (
            {"http_request": {"url": TARGET, "body": b"x" * (2 << 20)}},
            exceptions.BadRequest,
            "a task has at most 2097152 bytes",
        ),
    ],
)
def test_what_is_no_task_is_refused(cloud: Any, task: dict[str, Any], error: Any, text: str) -> None:
    name = f"{PLACE}/queues/refusing"
    if name not in [found.name for found in cloud.list_queues(parent=PLACE)]:
        cloud.create_queue(parent=PLACE, queue={"name": name})
    with pytest.raises(error, match=text):
        cloud.create_task(parent=name, task=task)
    assert not list(cloud.list_tasks(parent=name))


def test_names_and_bodies_that_cannot_be_are_said_as_a_status(cloud: Any, http_mesh: LocalMesh) -> None:
    url = http_mesh.description()["gateway"]["url"]
    for path, body, code, text in (
        ("projects/p/locations/l/queues/a_b/tasks", {}, "INVALID_ARGUMENT", "the ID of a queue is"),
        ("projects/p/locations/l/queues", {"name": "x"}, "INVALID_ARGUMENT", "a queue is projects/"),
        ("projects/p/locations/l/queues", {"nmae": "x"}, "INVALID_ARGUMENT", "nmae"),
        ("projects/p/locations/l/queues", [], "INVALID_ARGUMENT", "the body is a JSON object"),
        ("projects/p/locations/l/queues/q/tasks", {"task": {"httpRequest": {"url": TARGET}}}, "NOT_FOUND", "no queue"),
        ("projects/p/locations/l/queues/q/tasks:batchCreate", {}, "UNIMPLEMENTED", "batchCreate is not"),
        ("projects/p/locations/l/queues/q:getIamPolicy", {}, "UNIMPLEMENTED", "getIamPolicy is not implemented"),
    ):  # fmt: skip
        asked = urllib.request.Request(f"{url}/v2/{path}", json.dumps(body).encode(), method="POST")
        with pytest.raises(urllib.error.HTTPError) as failed:
            urllib.request.urlopen(asked, timeout=60)
        with failed.value as answer:
            error = json.loads(answer.read())["error"]
        assert (error["status"], error["code"]) == (code, failed.value.code)
        assert text in error["message"]


def test_what_no_route_has_is_refused_as_google_s_client_reads_it(cloud: Any, http_mesh: LocalMesh) -> None:
    """Of a problem it raised an AttributeError."""
    here = cloud.transport._session
    url = http_mesh.description()["gateway"]["url"]
    queues, foreign = "projects/p/locations/l/queues", "evil.example"
    for method, path, headers, status, code, text in (
        ("POST", f"{queues}/q:nope", {}, 405, "UNIMPLEMENTED", "POST is not for"),
        ("GET", "nothing", {}, 404, "NOT_FOUND", "there is nothing at /v2/nothing"),
        ("GET", queues, {"host": foreign}, 421, "INVALID_ARGUMENT", "dueq gateway --host"),
        ("POST", queues, {"origin": f"http://{foreign}"}, 403, "PERMISSION_DENIED", "Origin is"),
    ):
        answer = here.request(method, f"{url}/v2/{path}", headers=headers, timeout=60)
        refused = exceptions.from_http_response(answer)
        assert (refused.code, answer.json()["error"]["status"]) == (status, code)
        assert text in refused.message
        assert "content-security-policy" in answer.headers


def test_whatever_else_is_in_such_a_topic_is_no_defect(cloud: Any, queue: str, http_mesh: LocalMesh) -> None:
    topic = f"cloud-tasks.here.{queue.rpartition('/')[2]}.example.com_shop"
    with Client(http_mesh.endpoints) as client, client.producer(topic) as producer:
        found = producer.schedule(b"not a task", timedelta(hours=1), group="tasks")
    with pytest.raises(exceptions.BadRequest, match="the payload is no task"):
        cloud.get_task(name=f"{queue}/tasks/{found}")
    task = {"http_request": {"url": TARGET}, "schedule_time": datetime.now(UTC) + timedelta(hours=1)}
    made = cloud.create_task(parent=queue, task=task)
    assert [each.name for each in cloud.list_tasks(parent=queue)] == [made.name]
