"""The supervisor of `dueq up`, over processes of the test's own."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
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


class StopAfter(up._Stop):
    """A stop that comes after some rounds."""

    def __init__(self, rounds: int) -> None:
        super().__init__()
        self._left = rounds

    def wait(self, timeout: float | None = None) -> bool:
        self._left -= 1
        return self._left < 0


def supervise(mesh: LocalMesh, rounds: int = 1) -> int:
    return up._Supervisor(mesh, restart=True).run(StopAfter(rounds))


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


class MadeUp:
    """A mesh of one broker, a gateway and a ZooKeeper, of which none is a process, in a time of the test's own.

    Attributes:
        now: seconds.
        broker, gateway, server: whether they run is for the test to say.
    """

    def __init__(self) -> None:
        self.now = 1_000.0
        self.broker: Any = SimpleNamespace(broker_id="b1", running=True, exit_code=1, log="b1.log")
        self.gateway: Any = SimpleNamespace(running=True, exit_code=1, log="gateway.log")
        self.server = SimpleNamespace(running=True)
        self.zookeeper: SimpleNamespace | None = self.server
        self.brokers = [self.broker]
        self._told = False

    def monotonic(self) -> float:
        return self.now

    def newly_dead(self) -> list[Any]:
        dead = [] if self.broker.running or self._told else [self.broker]
        self._told = not self.broker.running
        return dead

    def start_broker(self, i: int, wait: bool) -> None:
        self.broker.running, self._told = True, False

    def start_gateway(self) -> None:
        self.gateway.running = True

    def stop_zookeeper(self) -> None:
        self.zookeeper = None

    def start_zookeeper(self) -> None:
        self.zookeeper = self.server
        self.server.running = True


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> MadeUp:
    mesh = MadeUp()
    monkeypatch.setattr(up, "time", mesh)
    return mesh


@pytest.mark.parametrize("name", ["broker", "gateway", "server"])
def test_the_pause_before_a_restart_grows_and_is_short_again_after_a_good_run(
    made_up: MadeUp, name: str
) -> None:
    """It never became short again: the fifth death in a month took half a minute. ZooKeeper had none."""
    mesh: Any = made_up
    supervisor = up._Supervisor(mesh, restart=True)
    child = getattr(made_up, name)

    def pause_s() -> float:
        """How long the child is away when it ends now."""
        child.running, ended = False, made_up.now
        while not child.running:
            supervisor.run(StopAfter(1))
            made_up.now += 0.25
        return round(made_up.now - ended)

    assert [pause_s() for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    made_up.now += 3_600
    assert [pause_s() for _ in range(2)] == [1, 2]


def test_a_signal_while_zookeeper_is_started_again_ends_the_mesh(
    made_up: MadeUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was heeded only when ZooKeeper served or had failed, which may take two minutes."""
    mesh: Any = made_up
    serves: list[int] = []

    def start() -> None:
        signal.raise_signal(signal.SIGTERM)
        serves.append(1)

    monkeypatch.setattr(made_up, "start_zookeeper", start)
    monkeypatch.setattr(made_up, "monotonic", itertools.count(made_up.now).__next__)
    made_up.server.running = False
    with up._signals(mesh) as stop, pytest.raises(up._Interrupted):
        up._Supervisor(mesh, restart=True).run(stop)
    assert not serves


@contextmanager
def begun_with(disposition: signal.Handlers) -> Iterator[None]:
    """Whoever started this process has left SIGHUP so; `nohup` has it ignored."""
    before = signal.signal(signal.SIGHUP, disposition)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_terminal_that_closes_ends_the_mesh_in_order_though_it_says_so_twice(made_up: MadeUp) -> None:
    """The brokers were killed, and a temporary folder stayed behind."""
    mesh: Any = made_up
    with begun_with(signal.SIG_DFL), up._signals(mesh) as stop:
        stop.watching = True
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)
        assert up._Supervisor(mesh, restart=True).run(stop) == 0


def test_nohup_is_heeded(made_up: MadeUp) -> None:
    mesh: Any = made_up
    with begun_with(signal.SIG_IGN), up._signals(mesh) as stop:
        signal.raise_signal(signal.SIGHUP)
        assert not stop.is_set()
