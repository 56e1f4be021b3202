"""A disk that does not answer raises no error: the broker has to notice, so that others take over."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dueq import Client
from dueq.local import LocalMesh
from dueq.local.child import BrokerChild
from dueq_chaos.shell import traced

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        not traced.attachable(),
        reason="needs an strace that may attach (Debian: apt install strace; as root)",
    ),
]

_PATIENCE_S = 120.0
_LONG_US = 3_600_000_000


@contextmanager
def hanging(pid: int, calls: str) -> Iterator[None]:
    """None of these system calls of a process ends any more."""
    command = ["strace", "-f", "-o", "/dev/null", "-e", f"trace={calls}"]
    command += ["-e", f"inject={calls}:delay_enter={_LONG_US}", "-p", str(pid)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as strace:
        assert strace.stderr is not None
        assert "attached" in strace.stderr.readline()
        try:
            yield
        finally:
            strace.kill()


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[LocalMesh]:
    with LocalMesh(tmp_path, arguments=("--disk-timeout-ms", "5000", "--log-format", "json")) as found:
        yield found


def leader_of(client: Client, topic: str, mesh: LocalMesh) -> BrokerChild:
    leader = client.describe(topic).placement[0].leader
    return next(broker for broker in mesh.brokers if broker.broker_id == leader)


def said(broker: BrokerChild, event: str) -> list[str]:
    """The reasons that the lines of an event give."""
    lines = (json.loads(line) for line in broker.log.read_text().splitlines() if line.startswith("{"))
    return [line.get("reason", "") for line in lines if line["event"] == event]


@pytest.mark.parametrize("calls", ["fsync,fdatasync", "statfs,fstatfs"], ids=["sync", "free space"])
def test_a_leader_whose_disk_does_not_answer_ends_and_another_one_delivers(
    mesh: LocalMesh, calls: str
) -> None:
    with Client(mesh.endpoints) as client:
        client.create_topic("t", partitions=1, replicas=3)
        broker = leader_of(client, "t", mesh)
        with client.consumer("t") as consumer, client.producer("t") as producer, hanging(broker.pid, calls):
            producer.schedule(b"due", 0, timeout=_PATIENCE_S)
            [message] = consumer.receive(timeout=_PATIENCE_S)
            assert message.payload == b"due"
            message.ack(wait=True, timeout=_PATIENCE_S)
    assert broker.wait(_PATIENCE_S)  # no process is gone before the calls of its threads have returned
    assert broker.exit_code == 75
    [reason] = said(broker, "broker.stopped")
    assert reason.startswith("the disk has not answered for ")
