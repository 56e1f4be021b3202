"""Real gateways send what is due to a real receiver, which answers in every way that there is."""

from __future__ import annotations

import json
import socket
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("standardwebhooks")

from click.testing import CliRunner
from standardwebhooks import Webhook, WebhookVerificationError

from dueq import Backoff, Client, MessageNotFound, ScheduledMessage, limits
from dueq.cli.main import dueq
from dueq.client import endpoints
from dueq.local import LocalMesh
from dueq.local.gateway import GatewayChild
from dueq_codecs.endpoint import is_sealed
from tests.receiver import Received, Receiver, Say

pytestmark = pytest.mark.integration

AT_ONCE = Backoff(first=0.0, factor=1.0, longest=0.0, jitter=0.0)
NOW = timedelta(0)
ALLOWED = ("--webhook-allow", "127.0.0.1/32")


@pytest.fixture(scope="module")
def local() -> Iterator[LocalMesh]:
    """A broker that seals secrets; gateways that are started here have its key."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DUEQ_SECRETS_KEY", b64encode(bytes(32)).decode())
        yield from _local()


def _local() -> Iterator[LocalMesh]:
    with LocalMesh(brokers=1, zookeeper=False, store="memory") as found:
        yield found


def started(local: LocalMesh, folder: Path) -> GatewayChild:
    """Return a gateway that serves."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    child = GatewayChild(address, folder / "gateway.log", ALLOWED)
    assert child.start(local.endpoints, 60), child.log.read_text()
    return child


@pytest.fixture(scope="module")
def gateway(local: LocalMesh, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayChild]:
    child = started(local, tmp_path_factory.mktemp("gateway"))
    yield child
    child.stop(30)


@pytest.fixture
def client(local: LocalMesh) -> Iterator[Client]:
    with Client(local.endpoints) as found:
        yield found


def asked(gateway: GatewayChild, method: str, path: str, body: Any = None, **more: str) -> tuple[int, Any]:
    connection = HTTPConnection(gateway.address, timeout=60)
    headers = {} if body is None else {"content-type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers | more)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if text else None


@contextmanager
def hook(
    client: Client, name: str, answer: Callable[[Received], Say] | None = None, **endpoint: Any
) -> Iterator[tuple[Receiver, str]]:
    """A topic whose messages go to a receiver; yields it and the secret."""
    with Receiver(answer) as receiver:
        client.create_topic(name)
        secret = client.set_endpoint(
            name, name, receiver.url, **{"backoff": AT_ONCE, "request_timeout": 10.0} | endpoint
        )
        try:
            yield receiver, secret
        finally:
            client.delete_topic(name)


def finished(client: Client, topic: str, message_id: str) -> None:
    """Wait until a message is."""
    try:
        while True:
            client.get(topic, message_id)
    except MessageNotFound:
        pass


def died(client: Client, topic: str, message_id: str) -> ScheduledMessage:
    """Wait until a message is dead; return what is known of it."""
    while True:
        for found in client.browse(topic, state="dead"):
            if found.id == message_id:
                return found


def scripted(*answers: Say) -> Callable[[Received], Say]:
    """Answer with these, one after the other; the last one stays."""
    left = list(answers)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


def test_a_message_is_sent_when_it_is_due_and_signed(client: Client, gateway: GatewayChild) -> None:
    with hook(client, "signed", headers={"authorization": "Bearer x"}) as (receiver, secret):
        message = client.producer("signed").schedule(
            b'{"a":1}',
            timedelta(seconds=2),
            key="k-1",
            headers={"content_type": "application/json", "x-b": "c"},
        )
        request = receiver.next()
        assert Webhook(secret).verify(request.body, request.headers) == {"a": 1}
        headers = request.headers
        assert (headers["webhook-id"], headers["dueq-topic"], headers["dueq-key"]) == (
            message,
            "signed",
            "k-1",
        )
        assert (headers["content-type"], headers["x-b"]) == ("application/json", "c")
        assert headers["authorization"] == "Bearer x"
        assert int(headers["dueq-released-at"]) >= int(headers["dueq-due"])
        assert request.attempt == 1
        finished(client, "signed", message)
        status, shown = asked(gateway, "GET", "/v1/endpoints/signed")
        assert (status, shown["here"]["delivered"], shown["here"]["last_error"]) == (200, 1, "")
        assert secret not in json.dumps(shown)
        kept = client.connection.follow(endpoints.find("signed"), None).document
        assert all(map(is_sealed, [kept["secrets"][0][0], kept["headers"]["authorization"]]))
        assert "Bearer" not in json.dumps(shown)
        assert shown["sealed"]


@pytest.mark.parametrize("status", [500, 404, 307])
def test_a_failed_attempt_is_repeated_under_the_same_id(
    client: Client, gateway: GatewayChild, status: int
) -> None:
    name = f"failed-{status}"
    failing = Say(status, {"location": "http://127.0.0.1:1/"}, b"not today")
    with hook(client, name, scripted(failing, Say())) as (receiver, secret):
        message = client.producer(name).schedule(b"{}", NOW)
        first, second = receiver.next(), receiver.next()
        assert [first.attempt, second.attempt] == [1, 2]
        assert first.headers["webhook-id"] == second.headers["webhook-id"] == message
        for request in (first, second):
            Webhook(secret).verify(request.body, request.headers)
        finished(client, name, message)
        assert (
            asked(gateway, "GET", f"/v1/endpoints/{name}")[1]["here"]["last_error"]
            == f"HTTP {status}: not today"
        )


def test_a_receiver_that_is_slow_or_gone_has_failed(client: Client, gateway: GatewayChild) -> None:
    held = threading.Event()
    with hook(client, "slow", scripted(Say(wait=held), Say()), request_timeout=0.2) as (receiver, _):
        message = client.producer("slow").schedule(b"{}", NOW)
        assert [receiver.next().attempt, receiver.next().attempt] == [1, 2]
        finished(client, "slow", message)
        assert (
            asked(gateway, "GET", "/v1/endpoints/slow")[1]["here"]["last_error"] == "no answer within 0.2 s"
        )
        held.set()
    client.create_topic("nobody", max_attempts=2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        client.set_endpoint("nobody", "nobody", f"http://127.0.0.1:{free.getsockname()[1]}/", backoff=AT_ONCE)
        message = client.producer("nobody").schedule(b"{}", NOW)
        assert "Cannot connect" in died(client, "nobody", message).reason
    client.delete_topic("nobody")


def test_489_is_the_last_attempt(client: Client, gateway: GatewayChild) -> None:
    with hook(client, "never", lambda _: Say(489, body=b"no such account")) as (receiver, _):
        message = client.producer("never").schedule(b"{}", NOW)
        receiver.next()
        found = died(client, "never", message)
        assert (found.reason, found.attempt) == ("HTTP 489: no such account", 1)


def test_a_pause_that_a_receiver_asks_for_holds_the_topic_and_is_not_counted(
    client: Client, gateway: GatewayChild
) -> None:
    def answer(request: Received) -> Say:
        return Say(429, {"retry-after": "2"}) if not asked_before.is_set() else Say()

    asked_before = threading.Event()
    with hook(client, "throttled", answer) as (receiver, _):
        client.producer("throttled").schedule(b"{}", NOW)
        first = receiver.next()
        asked_before.set()
        while not client.endpoint("throttled").paused:
            pass
        paused_until = client.endpoint("throttled").paused_until
        assert paused_until is not None
        client.producer("throttled").schedule(b"{}", NOW)
        second, third = receiver.next(), receiver.next()
        assert [first.attempt, second.attempt, third.attempt] == [1, 1, 1]
        for request in (second, third):
            assert int(request.headers["dueq-released-at"]) >= paused_until.timestamp() * 1000 - 1


def test_410_disables_the_endpoint_and_messages_wait(client: Client, gateway: GatewayChild) -> None:
    with hook(client, "gone", scripted(Say(410, body=b"moved out"), Say())) as (receiver, _):
        message = client.producer("gone").schedule(b"{}", NOW)
        receiver.next()
        while not (info := client.endpoint("gone")).disabled:
            pass
        assert (info.disabled, info.paused) == ("HTTP 410: moved out", True)
        assert client.get("gone", message).state in ("waiting", "leased")
        assert asked(gateway, "POST", "/v1/endpoints/gone/resume")[1]["disabled"] == ""
        assert receiver.next().attempt == 1
        finished(client, "gone", message)


def test_only_what_the_filter_wants_is_sent(client: Client, gateway: GatewayChild) -> None:
    with hook(client, "filtered", matching={"kind": "invoice"}) as (receiver, _):
        with client.producer("filtered") as producer:
            other = producer.schedule(b"{}", NOW, headers={"kind": "other"})
            wanted = producer.schedule(b"{}", NOW, headers={"kind": "invoice"})
        assert receiver.next().headers["webhook-id"] == wanted
        finished(client, "filtered", other)
        assert receiver.requests.empty()
        assert asked(gateway, "GET", "/v1/endpoints/filtered")[1]["here"]["filtered"] == 1


def test_a_message_may_name_its_own_url(client: Client, gateway: GatewayChild) -> None:
    with hook(client, "targets", targets=True, headers={"authorization": "Bearer x"}) as (receiver, secret):
        said = {"url": receiver.url + "/own", "headers": {"x-a": "1"}, "deadline": "20s"}
        status, _ = asked(
            gateway,
            "POST",
            "/v1/topics/targets/messages",
            {"json": {"task": 1}, "target": said, "delay": "0s"},
        )
        assert status == 201
        request = receiver.next()
        assert (request.path, request.headers["x-a"]) == ("/hook/own", "1")
        assert "authorization" not in request.headers
        assert Webhook(secret).verify(request.body, request.headers) == {"task": 1}
    with hook(client, "no-targets") as (receiver, _):
        message = asked(gateway, "POST", "/v1/topics/no-targets/messages", {"payload": "", "target": said})[
            1
        ]["id"]
        found = died(client, "no-targets", message)
        assert found.reason == "the endpoint 'no-targets' allows no targets of messages"


def test_a_target_is_answered_in_its_own_time_though_the_secret_changes(
    client: Client, gateway: GatewayChild
) -> None:
    held = threading.Event()
    answers = scripted(Say(wait=held), Say())
    with hook(client, "rotated", answers, targets=True, request_timeout=0.5) as (receiver, _):
        said = {"url": receiver.url, "deadline": "60s"}
        message = asked(gateway, "POST", "/v1/topics/rotated/messages", {"payload": "", "target": said})[1]
        receiver.next()
        secret = client.rotate_endpoint("rotated", grace=0)
        while True:  # until the endpoint is served anew
            client.producer("rotated").schedule(b"{}", NOW)
            other = receiver.next()
            try:
                Webhook(secret).verify(other.body, other.headers)
            except WebhookVerificationError:
                continue
            break
        client.producer("rotated").schedule(b"later", timedelta(seconds=1))
        while receiver.next().body != b"later":  # than the time-out of other requests, which may come again
            pass
        held.set()
        finished(client, "rotated", message["id"])
        while not receiver.requests.empty():
            assert receiver.next().headers["webhook-id"] != message["id"]


def test_a_new_secret_and_a_test_by_http(client: Client, gateway: GatewayChild) -> None:
    with Receiver() as receiver:
        client.create_topic("by-http")
        body = {"topic": "by-http", "url": receiver.url, "timeout": "5s", "filter": {"a": ["b"]}}
        status, made = asked(gateway, "PUT", "/v1/endpoints/tested", body)
        assert (status, made["version"], made["timeout_seconds"]) == (200, "1", 5.0)
        status, rotated = asked(gateway, "POST", "/v1/endpoints/tested/rotate", {"grace": "1h"})
        assert (status, len(rotated["secrets"]), rotated["secrets"][0]["until"]) == (200, 2, None)
        status, answer = asked(gateway, "POST", "/v1/endpoints/tested/test")
        assert (status, answer["status"]) == (200, 204)
        request = receiver.next()
        for secret in (made["secret"], rotated["secret"]):
            assert Webhook(secret).verify(request.body, request.headers) == {"type": "dueq.test"}
        assert asked(gateway, "GET", "/v1/endpoints")[1]["endpoints"][0]["name"] == "tested"
        for etag, status in (('"tested.1"', 412), ('"other.2"', 400), ('"tested.2"', 204)):
            assert asked(gateway, "DELETE", "/v1/endpoints/tested", **{"if-match": etag})[0] == status
        assert asked(gateway, "GET", "/v1/endpoints/tested")[0] == 404
        status, problem = asked(gateway, "PUT", "/v1/endpoints/tested", body | {"url": "file:///etc/passwd"})
        assert (status, problem["error"]) == (422, "InvalidRequest")
        client.delete_topic("by-http")


@pytest.mark.parametrize("name", ["", "x" * 256, "ä" * 128])
def test_a_filter_by_a_name_that_no_header_has_is_refused(
    client: Client, gateway: GatewayChild, name: str
) -> None:
    """It was taken, and finished every message."""
    client.create_topic("unheard-of")
    body = {"topic": "unheard-of", "url": "https://example.com", "filter": {name: ["x"]}}
    status, problem = asked(gateway, "PUT", "/v1/endpoints/unheard-of", body)
    assert (status, problem["error"]) == (422, "InvalidRequest")
    named = body | {"filter": {"x" * 255: ["x"]}}
    assert asked(gateway, "PUT", "/v1/endpoints/unheard-of", named)[0] == 200
    client.delete_topic("unheard-of")


@pytest.mark.parametrize(
    "url", ["http://127.0.0.2:{}/", "http://[::1]:{}/", "http://169.254.169.254/", "http://10.0.0.1/"]
)
def test_addresses_that_are_not_allowed_are_refused(client: Client, gateway: GatewayChild, url: str) -> None:
    with hook(client, "refused") as (receiver, _):
        client.set_endpoint("refused", "refused", url.format(receiver.port))
        status, answer = asked(gateway, "POST", "/v1/endpoints/refused/test")
        assert (status, answer["status"]) == (200, 0)
        assert "is not a public address" in answer["text"]
        assert receiver.requests.empty()


def test_a_killed_gateway_loses_nothing_and_another_goes_on(tmp_path: Path) -> None:
    held = threading.Event()
    with (
        LocalMesh(brokers=1, zookeeper=False, store="memory") as local,
        Client(local.endpoints) as client,
        hook(client, "killed", scripted(Say(wait=held), Say()), request_timeout=2.0) as (receiver, _),
    ):
        first_gateway = started(local, tmp_path)
        message = client.producer("killed").schedule(b"{}", NOW)
        first = receiver.next()
        first_gateway.kill()
        second_gateway = started(local, tmp_path)
        second = receiver.next()
        held.set()
        assert first.headers["webhook-id"] == second.headers["webhook-id"] == message
        assert second.attempt == 2
        apart_ms = int(second.headers["dueq-released-at"]) - int(first.headers["dueq-released-at"])
        assert apart_ms >= 2_000 + limits.WEBHOOK_SPARE_MS  # the whole lease, which silence does not end
        finished(client, "killed", message)
        second_gateway.stop(30)


def test_two_gateways_share_the_work_and_a_stopped_one_gives_back(
    client: Client, gateway: GatewayChild, local: LocalMesh, tmp_path: Path
) -> None:
    held = threading.Event()
    with hook(client, "shared", lambda _: Say(wait=held), max_in_flight=2) as (receiver, _):
        other = started(local, tmp_path)
        with client.producer("shared") as producer:
            ids = producer.schedule_many([b"{}"] * 8, NOW)
        # Each of the two has two under way, so both are at work.
        begun = [receiver.next() for _ in range(4)]
        held.set()
        rest = [receiver.next() for _ in range(4)]
        for message in ids:
            finished(client, "shared", message)
        assert sorted(each.headers["webhook-id"] for each in begun + rest) == sorted(ids)
        done = [
            asked(each, "GET", "/v1/endpoints/shared")[1]["here"]["delivered"] for each in (gateway, other)
        ]
        assert min(done) >= 2
        assert sum(done) == 8
        other.stop(30)


def test_the_command_line_does_the_same(client: Client, local: LocalMesh) -> None:
    def run(*words: str) -> str:
        result = CliRunner().invoke(dueq, ["endpoint", *words, "--endpoint", local.endpoints[0]])
        assert result.exit_code == 0, result.output
        return result.stdout

    client.create_topic("by-hand")
    url = "https://example.com/hook"
    secret = run(
        "set", "by-hand", "--topic", "by-hand", "--url", url, "--only", "kind=a", "--only", "kind=b",
        "--header", "x-a=1", "--request-timeout", "30s",
    )  # fmt: skip
    assert secret.startswith("whsec_")
    shown = json.loads(run("show", "by-hand", "--json"))
    assert (shown["url"], shown["filter"], shown["headers"]) == (url, {"kind": ["a", "b"]}, ["x-a"])
    assert "in use" in run("show", "by-hand")
    assert url in run("list")
    assert run("rotate", "by-hand").startswith("whsec_")
    assert len(json.loads(run("list", "--json"))["secrets"]) == 2
    run("pause", "by-hand", "--until", "2099-01-01T00:00:00Z")
    assert json.loads(run("show", "by-hand", "--json"))["paused"]
    run("resume", "by-hand")
    assert not json.loads(run("show", "by-hand", "--json"))["paused"]
    run("delete", "by-hand")
    assert "no endpoints" in run("list")
    client.delete_topic("by-hand")
