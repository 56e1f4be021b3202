"""A local mesh of three brokers: killed, stopped and started again, part by part."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dueq import Client
from dueq.errors import DueqError
from dueq.local import LocalMesh, LocalMeshError

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def mesh() -> Iterator[LocalMesh]:
    with LocalMesh() as mesh:
        yield mesh


def status_when(
    mesh: LocalMesh, holds: Callable[[dict[str, Any]], bool], seconds: float = 180.0
) -> dict[str, Any]:
    """Ask for the status until something holds of it."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    with Client(mesh.endpoints) as client:
        while True:
            try:
                status = client.status(timeout=5.0)
            except DueqError:
                status = {"brokers": {}}
            if holds(status):
                return status
            assert time.monotonic() < deadline, json.dumps(status, indent=1)
            pause.wait(0.05)


def test_a_mesh_is_ready_when_it_is_entered(mesh: LocalMesh) -> None:
    with Client(mesh.endpoints[2]) as client:
        brokers = client.status()["brokers"]
    assert {name: broker["alive"] for name, broker in brokers.items()} == dict.fromkeys(
        ("b1", "b2", "b3"), True
    )
    description = json.loads(mesh.description_path.read_text())
    assert description == mesh.description()
    assert [broker["endpoint"] for broker in description["brokers"]] == mesh.endpoints
    assert [broker["pid"] for broker in description["brokers"]] == mesh.pids
    assert description["zookeeper"]["pid"] > 0


def test_a_killed_broker_comes_back_on_its_port_and_folder(mesh: LocalMesh) -> None:
    before = mesh.pids[1]
    mesh.kill(1)
    assert not mesh.brokers[1].running
    assert mesh.brokers[1].exit_code == -signal.SIGKILL
    mesh.start_broker(1)
    assert mesh.pids[1] != before
    assert json.loads(mesh.description_path.read_text())["brokers"][1]["pid"] == mesh.pids[1]
    status_when(
        mesh,
        lambda status: all(b["alive"] for b in status["brokers"].values()) and len(status["brokers"]) == 3,
    )


def test_a_broker_stops_cleanly_on_sigterm(mesh: LocalMesh) -> None:
    assert mesh.stop_broker(2) == 0
    mesh.start_broker(2)


def test_who_dies_by_itself_is_told_once(mesh: LocalMesh) -> None:
    assert mesh.newly_dead() == []
    mesh.brokers[0].kill()
    assert [broker.broker_id for broker in mesh.newly_dead()] == ["b1"]
    assert mesh.newly_dead() == []
    mesh.start_broker(0)


def test_without_zookeeper_the_mesh_says_so_and_goes_on(mesh: LocalMesh) -> None:
    with Client(mesh.endpoints) as client, client.producer("going-on") as producer:
        client.create_topic("going-on", partitions=3, replicas=3)
        mesh.stop_zookeeper()
        status_when(mesh, lambda s: all(b.get("degraded") == "zookeeper" for b in s["brokers"].values()))
        ids = producer.schedule_many([b"x"] * 30, 0)
        assert len(ids) == 30
        mesh.start_zookeeper()
        status_when(mesh, lambda s: all(b.get("degraded") == "" for b in s["brokers"].values()))
        with client.consumer("going-on") as consumer:
            got = []
            while len(got) < 30:
                batch = consumer.receive(timeout=200.0)
                assert batch, f"only {len(got)} came"
                got += [message.id for message in batch]
                consumer.ack(batch)
        assert sorted(got) == sorted(ids)


def test_a_broker_that_cannot_start_is_told_with_its_last_words(mesh: LocalMesh) -> None:
    with pytest.raises(LocalMeshError, match=r"b1 ended with code 2 .*Did you mean|b1 ended with code 2"):
        LocalMesh(brokers=1, zookeeper=False, arguments=["--log-level", "loud"]).start()
