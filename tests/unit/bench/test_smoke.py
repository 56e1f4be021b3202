"""Measurements at a size that says nothing but that they work."""

from __future__ import annotations

import socket
from http.client import HTTPConnection
from pathlib import Path

import pytest

from dueq.bench.crowd import Crowd, Gathered
from dueq.bench.pushing import push
from dueq.bench.tasks import Produce, Produced
from dueq.bench.webhooks import Receive
from dueq.bench.workers import Crew, finish
from dueq.client.sync import Client
from dueq.local import LocalMesh


@pytest.mark.integration
def test_a_crowd_of_consumers_gets_every_message_once_and_each_its_share(tmp_path: Path) -> None:
    with LocalMesh(tmp_path, 1, zookeeper=False) as mesh, Client(mesh.endpoints) as client, Crew() as crew:
        client.create_topic("t", partitions=2)
        (crowd,) = crew.start(Crowd(mesh.endpoints, "t", 3, 16))
        (producer,) = crew.start(Produce(mesh.endpoints, "t", 50, rows=600, ahead_ms=10))
        crowd.go()
        producer.go()
        produced: Produced = producer.result(30.0)
        crew.wait(lambda: crowd.done >= produced.rows, 30.0, "600 messages")
        (gathered,) = finish([crowd])
    assert isinstance(gathered, Gathered)
    assert sum(gathered.each) == len(gathered.due_ms) == 600
    assert min(gathered.each) > 0
    assert (gathered.received_ms >= gathered.due_ms).all()


def test_bare_senders_send_everything_and_nothing_early() -> None:
    late_ms = push([number // 3 for number in range(600)])
    assert len(late_ms) == 600
    assert (late_ms >= 0).all()


def test_a_receiver_of_webhooks_keeps_what_came_and_when() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with Crew() as crew:
        (receiver,) = crew.start(Receive(port))
        receiver.go()
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        for number in range(3):
            said = {"dueq-due": "1000", "dueq-released-at": "1001", "dueq-attempt": "1"}
            connection.request("POST", "/", number.to_bytes(8, "big") + b".." * 9000, said)
            assert connection.getresponse().read() == b""
        connection.close()
        (received,) = finish([receiver])
    assert received.numbers.tolist() == [0, 1, 2]
    assert received.released_ms.tolist() == [1.0] * 3
