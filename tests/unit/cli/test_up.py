"""The supervisor of `dueq up`, over processes of the test's own."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import pytest

from dueq.cli import up
from dueq.local import BrokerChild, LocalMesh


@pytest.fixture
def mesh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalMesh]:
    """A mesh of one process that does nothing."""
    command = [sys.executable, "-c", "import signal; signal.pause()"]
    monkeypatch.setattr(BrokerChild, "command", lambda self: command)
    mesh = LocalMesh(tmp_path, brokers=1, zookeeper=False)
    mesh.start_broker(0, wait=False)
    yield mesh
    mesh.brokers[0].kill()


class StopAfter:
    """A stop that comes after some rounds."""

    watching = False

    def __init__(self, rounds: int) -> None:
        self._left = rounds

    def wait(self, seconds: float) -> bool:
        self._left -= 1
        return self._left < 0


def supervise(mesh: LocalMesh, rounds: int = 1) -> int:
    stop: Any = StopAfter(rounds)
    return up._Supervisor(mesh, restart=True).run(stop)


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGKILL, "SIGKILL"), (signal.SIGRTMIN + 6, "signal 40")]
)
def test_a_signal_that_has_ended_a_broker_is_named(
    mesh: LocalMesh, capsys: pytest.CaptureFixture[str], number: int, name: str
) -> None:
    """Most real-time signals have no name, and one that ended a broker ended the whole mesh."""
    os.kill(mesh.brokers[0].pid, number)
    mesh.brokers[0].wait()
    assert supervise(mesh) == 0
    assert f"broker b1 has ended ({name})" in capsys.readouterr().err


def full_disk() -> IO[str]:
    return Path("/dev/full").open("w", encoding="utf-8", buffering=1)


def test_what_cannot_be_told_ends_no_mesh(mesh: LocalMesh, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its standard error on a full disk, the supervisor ended all brokers because one had ended."""
    full = full_disk()
    monkeypatch.setattr(sys, "stderr", full)
    mesh.brokers[0].kill()
    assert supervise(mesh) == 0
    with suppress(OSError):
        full.close()
