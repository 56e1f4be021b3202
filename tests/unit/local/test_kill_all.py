"""A mesh that is ended at once waits for nobody."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dueq.cluster.server import ZooKeeperServer
from dueq.local import BrokerChild, LocalMesh
from dueq.local.gateway import GatewayChild

PAUSE = [sys.executable, "-c", "import signal; signal.pause()"]


def test_a_second_signal_waits_for_no_process_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one that hangs in the disk there is no end. Nor is there one where the signal has interrupted another wait."""
    monkeypatch.setattr(BrokerChild, "command", lambda self: PAUSE)
    mesh = LocalMesh(tmp_path, brokers=1, zookeeper=False)
    mesh.gateway = GatewayChild("127.0.0.1:1", tmp_path / "gateway.log")
    mesh.zookeeper = ZooKeeperServer(tmp_path / "zookeeper")
    mesh.gateway._process, mesh.zookeeper._process = processes = [subprocess.Popen(PAUSE) for _ in range(2)]
    mesh.start_broker(0, wait=False)
    with monkeypatch.context() as patch:
        patch.setattr(subprocess.Popen, "wait", lambda self, timeout=None: pytest.fail("it waits"))
        mesh.kill_all()
    assert [process.wait(60) for process in processes] == [-signal.SIGKILL] * 2
    assert mesh.brokers[0].wait(60)
