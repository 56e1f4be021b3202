"""Gateways end, killed or in order, and nothing is lost: what one has given out is settled at another."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from typing import Any

import pytest

pytest.importorskip("fastapi")

from dueq import Client, Filter
from dueq.local import LocalMesh
from dueq.local.gateway import GatewayChild
from dueq.ports import free_ports
from tests.integration.http_caller import JSON, Caller
from tests.integration.test_gateway_streams import Stream, lease, opened, schedule

pytestmark = pytest.mark.integration

MESSAGES = 1000
READY_S = 180


@pytest.fixture
def other(http_mesh: LocalMesh) -> Iterator[GatewayChild]:
    """A second gateway of the mesh, which may be harmed."""
    found = GatewayChild(f"127.0.0.1:{free_ports(1)[0]}", http_mesh.folder / "logs" / "other.log")
    assert found.start(http_mesh.endpoints, READY_S)
    yield found
    found.kill()


def test_a_gateway_is_killed_amid_a_thousand_deliveries_and_nothing_is_lost(
    gateway: Caller, http_topic: str, http_mesh: LocalMesh, other: GatewayChild
) -> None:
    lines = b"".join(b'{"payload":"%d"}\n' % row for row in range(MESSAGES))
    assert gateway("POST", f"{http_topic}/messages", lines, {"content-type": "application/x-ndjson"})[1][
        "accepted"
    ] == MESSAGES  # fmt: skip
    acked: list[str] = []
    killed = threading.Event()
    doomed = Caller(other.url)

    def work(name: str) -> None:
        """Receive at the gateway that will be killed, ack at the other one, and then do both there."""
        asked = {"max": 7, "wait": "200ms", "lease": "1h", "consumer": name}
        while True:
            try:
                caller = gateway if killed.is_set() else doomed
                messages = caller("POST", f"{http_topic}/receive", asked)[1]["messages"]
            except (OSError, HTTPException):
                killed.wait(READY_S)  # what this answer had, the name gets again
                continue
            if not messages:
                if killed.is_set():
                    return
                continue
            leases = [{"id": each["id"], "token": each["token"]} for each in messages]
            settled = gateway("POST", f"{http_topic}/ack", {"messages": leases})[1]["messages"]
            acked.extend(each["id"] for each in settled if each["outcome"] == "done")
            if len(acked) > MESSAGES // 3 and not killed.is_set():
                other.kill()
                killed.set()

    workers = [threading.Thread(target=work, args=(f"worker-{number}",)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not other.running
    assert len(acked) == len(set(acked)) == MESSAGES
    with Client(http_mesh.endpoints) as client:
        name = http_topic.rpartition("/")[2]
        assert client.count_where(name, Filter()) == 0
        assert client.describe(name).leased == 0


def test_a_stream_that_was_followed_at_another_gateway_gets_nothing_more(
    gateway: Caller, http_topic: str, other: GatewayChild
) -> None:
    schedule(gateway, http_topic, "x")
    path = f"{http_topic}/stream?consumer=worker&lease=1h&credit=1"
    with closing(Stream(gateway, path)) as first:
        _, message = first.next()
        with closing(Stream(Caller(other.url), path)) as second:
            again = second.next()[1]
            assert (again["id"], again["attempt"]) == (message["id"], 2)
            assert int(again["token"]) > int(message["token"])
            # Both streams learn some time later that they have room.
            gateway("POST", f"{http_topic}/ack", {"messages": [lease(again)]})
            assert first.next()[0] == "superseded"
            schedule(gateway, http_topic, "y")
            assert second.next()[1]["payload"] == "y"


def test_a_gateway_that_is_told_to_end_lets_polls_and_streams_go(
    http_topic: str, other: GatewayChild
) -> None:
    caller = Caller(other.url)
    with (
        closing(HTTPConnection(caller.address, timeout=60)) as poll,
        closing(HTTPConnection(caller.address, timeout=60)) as named,
    ):
        poll.request("POST", f"{http_topic}/receive", json.dumps({"wait": "60s"}), JSON)
        named.request("POST", f"{http_topic}/receive", json.dumps({"wait": "60s", "consumer": "c"}), JSON)
        with closing(Stream(caller, f"{http_topic}/stream")) as stream, opened(caller, http_topic) as socket:
            other.stop(READY_S)
            name, problem = stream.next()
            assert (name, problem["retry"]) == ("end", True)
            answer: dict[str, Any] = json.loads(socket.recv(timeout=60))
            assert answer["type"] == "end"
        for waiting in (poll, named):
            ended = waiting.getresponse()
            assert (ended.status, json.loads(ended.read())) == (200, {"messages": []})
    assert other.exit_code == 0
