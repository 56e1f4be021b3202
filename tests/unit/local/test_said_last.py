"""What a child said last is of its last start: logs are appended."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dueq.cluster import server
from dueq.cluster.server import ZooKeeperServer, ZooKeeperServerError
from dueq.local import BrokerChild


def test_a_broker_that_ended_is_not_told_of_by_an_earlier_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mesh that could not be started blamed what had happened on another day."""
    child = BrokerChild("b1", "tcp://127.0.0.1:1", "127.0.0.1:2", tmp_path / "b1", tmp_path / "b1.log")
    for trouble in ("old", "new"):
        command = [sys.executable, "-c", f"raise SystemExit('{trouble} trouble')"]
        monkeypatch.setattr(BrokerChild, "command", lambda self, command=command: command)
        child.start()
        assert child.wait(60)
        assert child.log_tail() == f"{trouble} trouble"


def test_a_zookeeper_that_ended_is_not_told_of_by_an_earlier_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho new trouble\nexit 1\n", encoding="ascii")
    java.chmod(0o700)
    monkeypatch.setattr(server, "_java", lambda: str(java))
    monkeypatch.setattr(server, "_classpath", lambda: "")
    (tmp_path / "zookeeper.log").write_text("old trouble\n", encoding="ascii")
    with pytest.raises(ZooKeeperServerError, match=r"says:\nnew trouble$"):
        ZooKeeperServer(tmp_path).start()
