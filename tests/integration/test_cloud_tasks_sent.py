"""Tasks of the Cloud Tasks API reach a real receiver, as their queues say."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any
from urllib.request import urlopen

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("google.cloud.tasks_v2")

from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import tasks_v2
from google.cloud.tasks_v2.services.cloud_tasks.transports.rest import CloudTasksRestTransport
from google.protobuf import duration_pb2, timestamp_pb2

from dueq import Client
from dueq.local import LocalMesh
from dueq.local.gateway import GatewayChild
from tests.integration.waiting import until
from tests.receiver import Received, Receiver, Say
from tests.unit.gateway.test_issuer import believed, new_key

pytestmark = pytest.mark.integration

PLACE = "projects/p/locations/here"
AT_ONCE = {"min_backoff": duration_pb2.Duration(), "max_backoff": duration_pb2.Duration()}


@pytest.fixture(scope="module")
def local() -> Iterator[LocalMesh]:
    with LocalMesh(brokers=1, zookeeper=False, store="memory") as found:
        yield found


@pytest.fixture(scope="module")
def cloud(local: LocalMesh, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Google's client, of a gateway that may send to this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    folder = tmp_path_factory.mktemp("gateway")
    log, key = folder / "gateway.log", folder / "issuer.pem"
    key.write_bytes(new_key())
    issuer = ("--oidc-issuer", f"http://{address}", "--oidc-key-file", str(key))
    child = GatewayChild(address, log, ("--webhook-allow", "127.0.0.1/32", *issuer))
    assert child.start(local.endpoints, 60), log.read_text()
    transport = CloudTasksRestTransport(host=address, url_scheme="http", credentials=AnonymousCredentials())
    client: Any = tasks_v2.CloudTasksClient(transport=transport)
    client.gateway = child.url
    yield client
    child.stop(30)


def fetched(url: str) -> dict[str, Any]:
    """A document of the gateway."""
    with urlopen(url, timeout=60) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


@contextmanager
def queue_of(
    cloud: Any, name: str, answer: Callable[[Received], Say] | None = None, **settings: Any
) -> Iterator[tuple[str, Receiver]]:
    """A queue, and a receiver for its tasks."""
    full = f"{PLACE}/queues/{name}"
    with Receiver(answer) as receiver:
        cloud.create_queue(parent=PLACE, queue={"name": full, **settings})
        try:
            yield full, receiver
        finally:
            cloud.delete_queue(name=full)


def gone(cloud: Any, name: str) -> None:
    """Wait until a task is done."""

    def done() -> bool:
        try:
            cloud.get_task(name=name)
        except exceptions.NotFound:
            return True
        return False

    until(done, f"{name} is done")


def test_a_task_is_sent_as_it_says_and_never_early(cloud: Any) -> None:
    at = timestamp_pb2.Timestamp()
    at.FromDatetime(datetime.now(UTC) + timedelta(seconds=1))
    with queue_of(cloud, "plain") as (queue, receiver):
        request = {
            "url": receiver.url,
            "headers": {"X-Shop": "7", "Host": "evil", "X-CloudTasks-QueueName": "no"},
        }
        made = cloud.create_task(
            parent=queue,
            task={"http_request": {**request, "http_method": 4, "body": b"\0pay"}, "schedule_time": at},
        )
        found = receiver.requests.get(timeout=60)
        assert datetime.now(UTC).timestamp() >= at.ToDatetime(UTC).timestamp()
        gone(cloud, made.name)
        cloud.create_task(parent=queue, task={"http_request": {"url": receiver.url, "http_method": 2}})
        plain = receiver.requests.get(timeout=60)
    assert (found.method, found.body, found.headers["x-shop"]) == ("PUT", b"\0pay", "7")
    said = {name: value for name, value in found.headers.items() if name.startswith("x-cloudtasks-")}
    assert float(said.pop("x-cloudtasks-tasketa")) == made.schedule_time.timestamp()
    assert said == {
        "x-cloudtasks-queuename": "plain",
        "x-cloudtasks-taskname": made.name.rpartition("/")[2],
        "x-cloudtasks-taskretrycount": "0",
        "x-cloudtasks-taskexecutioncount": "0",
    }
    assert found.headers["user-agent"] == "Google-Cloud-Tasks"
    assert found.headers["content-type"] == "application/octet-stream"
    assert found.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert (plain.method, plain.body, "content-type" in plain.headers) == ("GET", b"", False)


def test_a_failed_task_is_sent_again_until_its_attempts_are_used_up(cloud: Any, local: LocalMesh) -> None:
    with queue_of(
        cloud,
        "failing",
        lambda request: Say(500, body=b"no such card"),
        retry_config={**AT_ONCE, "max_attempts": 3},
    ) as (queue, receiver):
        made = cloud.create_task(parent=queue, task={"http_request": {"url": receiver.url}})
        found = [receiver.requests.get(timeout=60) for _ in range(3)]
        gone(cloud, made.name)
        assert receiver.requests.empty()
        with Client(local.endpoints) as client:
            [dead] = client.browse("cloud-tasks.here.failing.p", state="dead")
    counts = ("taskretrycount", "taskexecutioncount", "taskpreviousresponse")
    assert [[each.headers.get(f"x-cloudtasks-{name}") for name in counts] for each in found] == [
        ["0", "0", None], ["1", "1", "500"], ["2", "2", "500"],
    ]  # fmt: skip
    assert dead.reason.startswith("HTTP 500: no such card")


def test_what_became_of_an_attempt_is_shown(cloud: Any) -> None:
    with queue_of(
        cloud,
        "shown",
        lambda request: Say(503),
        retry_config={"min_backoff": duration_pb2.Duration(seconds=600)},
    ) as (queue, receiver):
        made = cloud.create_task(parent=queue, task={"http_request": {"url": receiver.url}})
        receiver.requests.get(timeout=60)
        until(lambda: cloud.get_task(name=made.name).response_count == 1, "the answer is known")
        shown = cloud.get_task(name=made.name)
        assert (shown.dispatch_count, shown.response_count) == (1, 1)
        assert shown.last_attempt.response_status.code == 14
        assert shown.last_attempt.response_status.message == "HTTP status code 503"
        assert (
            shown.first_attempt.dispatch_time
            == shown.last_attempt.dispatch_time
            <= shown.last_attempt.response_time
        )
        assert shown.schedule_time > datetime.now(UTC) + timedelta(seconds=300)
        cloud.run_task(name=made.name)
        again = receiver.requests.get(timeout=60)
    assert again.headers["x-cloudtasks-taskretrycount"] == "1"


def test_no_more_are_under_way_than_the_queue_allows(cloud: Any) -> None:
    free = Event()
    with queue_of(
        cloud, "few", lambda request: Say(wait=free), rate_limits={"max_concurrent_dispatches": 2}
    ) as (queue, receiver):
        for _ in range(5):
            cloud.create_task(parent=queue, task={"http_request": {"url": receiver.url, "body": b"b"}})
        for _ in range(2):
            receiver.requests.get(timeout=60)
        listed = [
            list(cloud.list_tasks(request={"parent": queue, "page_size": size})) for size in (1, 2, 1000)
        ]
        assert [sorted(found.dispatch_count for found in tasks) for tasks in listed] == [[0, 0, 0, 1, 1]] * 3
        assert len({found.name for found in listed[0]}) == 5
        full = {"parent": queue, "response_view": tasks_v2.Task.View.FULL}
        assert {found.http_request.body for found in cloud.list_tasks(request=full)} == {b"b"}
        assert receiver.requests.empty()
        free.set()
        for _ in range(3):
            receiver.requests.get(timeout=60)


def test_a_paused_queue_sends_nothing_until_it_is_resumed(cloud: Any) -> None:
    with queue_of(cloud, "paused") as (queue, receiver):
        cloud.pause_queue(name=queue)
        made = cloud.create_task(parent=queue, task={"http_request": {"url": receiver.url}})
        assert cloud.get_task(name=made.name).dispatch_count == 0
        cloud.resume_queue(name=queue)
        receiver.requests.get(timeout=60)


def test_addresses_that_are_not_allowed_are_not_reached(cloud: Any) -> None:
    with queue_of(cloud, "refused", retry_config={**AT_ONCE, "max_attempts": 2}) as (queue, _):
        made = cloud.create_task(parent=queue, task={"http_request": {"url": "http://[::ffff:10.0.0.1]/"}})
        gone(cloud, made.name)


def test_a_task_that_is_being_sent_can_be_deleted_and_is_not_sent_again(cloud: Any) -> None:
    held = Event()
    with queue_of(cloud, "withdrawn", lambda _: Say(500, wait=held), retry_config=AT_ONCE) as (
        queue,
        receiver,
    ):
        named = f"{queue}/tasks/only"
        cloud.create_task(parent=queue, task={"name": named, "http_request": {"url": receiver.url}})
        receiver.requests.get(timeout=60)
        cloud.delete_task(name=named)
        for verb in (cloud.get_task, cloud.delete_task):
            with pytest.raises(exceptions.NotFound):
                verb(name=named)
        with pytest.raises(exceptions.Conflict, match="in the last hour"):
            cloud.create_task(parent=queue, task={"name": named, "http_request": {"url": receiver.url}})
        assert list(cloud.list_tasks(parent=queue)) == []
        held.set()
        cloud.create_task(parent=queue, task={"http_request": {"url": receiver.url, "body": b"next"}})
        assert receiver.requests.get(timeout=60).body == b"next"


def test_a_receiver_can_tell_from_which_account_a_task_is(cloud: Any) -> None:
    """By a token of the gateway, whose keys are where its issuer says."""
    with queue_of(cloud, "identified") as (queue, receiver):
        token = tasks_v2.OidcToken(service_account_email="mailer@shop.example")
        request = {"url": receiver.url, "headers": {"Authorization": "Basic eDp5"}, "oidc_token": token}
        made = cloud.create_task(parent=queue, task={"http_request": request})
        found = receiver.requests.get(timeout=60)
    assert made.http_request.oidc_token.audience == receiver.url
    kind, _, sent = found.headers["authorization"].partition(" ")
    configuration = fetched(f"{cloud.gateway}/.well-known/openid-configuration")
    said = believed(sent, fetched(configuration["jwks_uri"]), receiver.url)
    assert (kind, said["email"], said["iss"]) == ("Bearer", "mailer@shop.example", configuration["issuer"])
