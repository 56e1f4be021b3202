"""A local mesh goes on where its own files cannot be written."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dueq.cli import up
from dueq.cluster import server
from dueq.cluster.server import ZooKeeperServer, ZooKeeperServerError
from dueq.local import BrokerChild, LocalMesh


@pytest.fixture
def mesh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalMesh]:
    """A mesh of one process that does nothing; its description can be written no more."""
    command = [sys.executable, "-c", "import signal; signal.pause()"]
    monkeypatch.setattr(BrokerChild, "command", lambda self: command)
    mesh = LocalMesh(tmp_path, brokers=1, zookeeper=False)
    mesh.write_description()
    mesh.description_path.with_suffix(".partial").mkdir()
    yield mesh
    mesh.brokers[0].kill()


def test_a_broker_is_started_again_where_the_description_cannot_be_written(mesh: LocalMesh) -> None:
    """The supervisor took it for not started, started it a second time, and ended with the whole mesh."""
    mesh.start_broker(0, wait=False)
    assert mesh.brokers[0].running
    assert mesh.newly_dead() == []


def test_a_mesh_ends_where_its_description_cannot_be_removed(mesh: LocalMesh) -> None:
    """On a file system that had become read-only, the processes went on, and a second signal did not help."""
    mesh.start_broker(0, wait=False)
    mesh.description_path.unlink()
    mesh.description_path.mkdir()
    mesh.kill_all()
    assert mesh.brokers[0].wait(60)


def test_a_zookeeper_whose_folder_cannot_be_written_cannot_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_java", lambda: "java")
    monkeypatch.setattr(server, "_classpath", lambda: "")
    (tmp_path / "zoo.cfg").mkdir()
    with pytest.raises(ZooKeeperServerError, match="cannot be used"):
        ZooKeeperServer(tmp_path).start()


def test_a_zookeeper_that_could_not_be_started_again_is_tried_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was given up for good: no leadership changed any more."""
    tries: list[int] = []
    now = [0.0]

    def start() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise ZooKeeperServerError("no room")
        mesh.zookeeper = SimpleNamespace(running=True)

    def stop() -> None:
        mesh.zookeeper = None

    mesh: Any = SimpleNamespace(
        brokers=[], zookeeper=SimpleNamespace(running=False), start_zookeeper=start, stop_zookeeper=stop
    )
    monkeypatch.setattr(up, "time", SimpleNamespace(monotonic=lambda: now[0]))
    supervisor = up._Supervisor(mesh, restart=True)
    for _ in range(100):
        supervisor._watch_zookeeper(up._Stop())
        now[0] += 1.0
    assert len(tries) == 3
    assert mesh.zookeeper.running


def test_a_gateway_that_could_not_be_started_again_is_tried_once_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody caught the error, and it ended the supervisor, and with it all brokers."""
    tries: list[int] = []
    now = [1.0]
    gateway = SimpleNamespace(running=False, exit_code=1, log="gateway.log")

    def start() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise OSError(28, "No space left on device")
        gateway.running = True

    mesh: Any = SimpleNamespace(brokers=[], gateway=gateway, start_gateway=start)
    monkeypatch.setattr(up, "time", SimpleNamespace(monotonic=lambda: now[0]))
    supervisor = up._Supervisor(mesh, restart=True)
    for _ in range(200):
        supervisor._watch_gateway()
        now[0] += 1.0
    assert len(tries) == 3
    assert capsys.readouterr().err.count("the gateway cannot be started") == 2
