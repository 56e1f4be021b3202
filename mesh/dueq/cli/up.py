"""`dueq up`: a local mesh in the foreground."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import click

from dueq.errors import DueqError, InvalidRequest
from dueq.local import BrokerChild, LocalMesh
from dueq.local.gateway import GatewayChild, installed
from dueq.storage.kinds import DEFAULT, is_durable

_WATCH_S = 0.2
_STOP_S = 10.0
_RESTART_S_MIN = 1.0
_RESTART_S_MAX = 30.0
_WELL_S = 60.0
"""A child that has run for so long has run well: what ends it then is another trouble than the last one."""


@click.command()
@click.option("--brokers", type=click.IntRange(1, 9), default=None, help="How many brokers.  [default: 3]")
@click.option(
    "--data", type=click.Path(file_okay=False, path_type=Path), help="Folder that keeps everything."
)
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=7400, show_default=True,
    help="Port of the first broker; the others have the next ones. 0: any free ports.",
)  # fmt: skip
@click.option("--no-zookeeper", is_flag=True, help="One broker without ZooKeeper, and so without Java.")
@click.option(
    "--store",
    default=DEFAULT,
    metavar="KIND",
    help="leveldb, or memory: nothing is kept.  [default: leveldb]",
)
@click.option("--store-memory-bytes", type=int, help="How much a store in memory holds.  [default: 1 GiB]")
@click.option("--no-gateway", is_flag=True, help="Leave the HTTP gateway out.")
@click.option("--restart", is_flag=True, help="Start a broker or the gateway again when it dies.")
def up(
    brokers: int | None,
    data: Path | None,
    port: int,
    no_zookeeper: bool,
    store: str,
    store_memory_bytes: int | None,
    no_gateway: bool,
    restart: bool,
) -> int:
    """Run a local mesh in the foreground, its own ZooKeeper included.

    Prints `ready` and the endpoints once all brokers serve, and writes mesh.json into its data folder. Beside the
    brokers it starts an HTTP gateway with the dashboard (port 7480: 80 above that of the first broker), if the
    gateway's packages are installed (pip install 'dueq[gateway]'). Ctrl-C, SIGTERM or closing the terminal
    (without nohup) ends it cleanly, a second Ctrl-C or SIGTERM at once. Started again on the same folder, the mesh
    continues with what it had.

    With --store memory the brokers keep everything in memory. A broker that dies comes back empty and
    catches up from the others; when all have ended, everything is gone. ZooKeeper and the logs are in a
    temporary folder until then.
    """
    if no_zookeeper and brokers not in (None, 1):
        raise click.UsageError("--no-zookeeper is for --brokers 1.")
    count = brokers or (1 if no_zookeeper else 3)
    arguments = () if store_memory_bytes is None else ("--store-memory-bytes", str(store_memory_bytes))
    folder = _folder(data, store, zookeeper=not no_zookeeper)
    gateway = not no_gateway and installed()
    mesh = LocalMesh(
        folder, count, port, zookeeper=not no_zookeeper, arguments=arguments, store=store, gateway=gateway
    )
    with _signals(mesh) as stop:
        try:
            mesh.start()
            click.echo(" ".join(["ready", *mesh.endpoints]))
            if mesh.gateway is not None:
                click.echo(f"gateway {mesh.gateway.url}")
            return _Supervisor(mesh, restart).run(stop)
        except _Interrupted:
            return 0
        finally:
            stop.ending = True
            mesh.stop(_STOP_S)


def _folder(data: Path | None, store: str, zookeeper: bool) -> Path | None:
    """The mesh's folder; None: a temporary one.

    ZooKeeper must not remember topics whose messages are gone.
    """
    try:
        durable = is_durable(store)
    except InvalidRequest as error:
        raise click.UsageError(str(error)) from error
    if not durable and data is not None:
        raise click.UsageError(f"--store {store} keeps nothing, so it takes no --data.")
    return (data or default_data(zookeeper)) if durable else None


def default_data(zookeeper: bool) -> Path:
    """The folder under XDG_STATE_HOME that keeps a mesh when none is named.

    With and without ZooKeeper these are two meshes: a store refuses the other's brokers.
    """
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "dueq" / ("up" if zookeeper else "up-single")


class _Interrupted(BaseException):
    """A signal came while the mesh was starting or stopping."""


class _Stop(threading.Event):
    """Set by the first signal.

    Attributes:
        watching: the mesh is up, and somebody waits for this event; otherwise a signal aborts what is being started.
        ending: the mesh is stopping, and another signal means "at once".
    """

    watching = False
    ending = False


@contextmanager
def _signals(mesh: LocalMesh) -> Iterator[_Stop]:
    stop = _Stop()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            if number == signal.SIGHUP:  # of a terminal that closes there are several
                return
            mesh.kill_all()
            os._exit(128 + number)
        stop.set()
        if not stop.watching and not stop.ending:
            raise _Interrupted

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # else nohup has asked for a mesh that stays
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Pause:
    """How long it takes until a child is started again: twice as long each time, unless it has run well since."""

    def __init__(self) -> None:
        self._seconds = _RESTART_S_MIN
        self._started_at = time.monotonic()

    def started(self) -> None:
        """The child has been started again."""
        self._started_at = time.monotonic()

    def ended(self) -> float:
        """Return the seconds until a child that has just ended is started again."""
        if time.monotonic() - self._started_at >= _WELL_S:
            self._seconds = _RESTART_S_MIN
        seconds, self._seconds = self._seconds, min(2 * self._seconds, _RESTART_S_MAX)
        return seconds


class _Supervisor:
    """Watches a mesh that is up, reports processes that died, and restarts them if allowed."""

    def __init__(self, mesh: LocalMesh, restart: bool) -> None:
        self._mesh = mesh
        self._restart = restart
        self._restart_at: dict[str, float] = {}
        self._pauses = {broker.broker_id: _Pause() for broker in mesh.brokers}
        self._gateway_at = 0.0
        self._gateway_pause = _Pause()
        self._zookeeper_at = float("inf")
        self._zookeeper_pause = _Pause()

    def run(self, stop: _Stop) -> int:
        """Return the exit code once a signal came, or once nothing is left."""
        stop.watching = True
        while not stop.wait(_WATCH_S):
            for broker in self._mesh.newly_dead():
                self._on_death(broker)
            self._watch_zookeeper(stop)
            self._watch_gateway()
            self._start_again()
            if not self._restart and not any(broker.running for broker in self._mesh.brokers):
                _say("dueq: no broker is left")
                return 1
        return 0

    def _watch_zookeeper(self, stop: _Stop) -> None:
        server = self._mesh.zookeeper
        if server is not None and not server.running:
            pause_s = self._zookeeper_pause.ended() if self._restart else None
            again = _again(pause_s)
            _say(f"dueq: ZooKeeper has ended; messages flow on, changes of leadership wait{again}")
            self._mesh.stop_zookeeper()
            if pause_s is not None:
                self._zookeeper_at = time.monotonic() + pause_s
        if time.monotonic() >= self._zookeeper_at:
            self._zookeeper_at = float("inf")
            try:
                self._start_zookeeper(stop)
            except DueqError as error:
                _say(f"dueq: ZooKeeper cannot be started: {error}")
                self._zookeeper_at = time.monotonic() + _RESTART_S_MAX

    def _start_zookeeper(self, stop: _Stop) -> None:
        """Start it and wait until it serves, which may take minutes: a signal ends that."""
        stop.watching = False
        try:
            if not stop.is_set():
                self._mesh.start_zookeeper()
                self._zookeeper_pause.started()
        finally:
            stop.watching = True

    def _watch_gateway(self) -> None:
        gateway = self._mesh.gateway
        if gateway is None or gateway.running:
            return
        now = time.monotonic()
        if not self._gateway_at:
            pause_s = self._gateway_pause.ended() if self._restart else None
            self._gateway_at = float("inf") if pause_s is None else now + pause_s
            _say_ended("the gateway", gateway, pause_s)
        elif now >= self._gateway_at:
            self._gateway_at = 0.0
            self._gateway_pause.started()
            try:
                self._mesh.start_gateway()
            except OSError as error:
                _say(f"dueq: the gateway cannot be started: {error}")
                self._gateway_at = now + _RESTART_S_MAX

    def _on_death(self, broker: BrokerChild) -> None:
        pause_s = self._pauses[broker.broker_id].ended() if self._restart else None
        _say_ended(f"broker {broker.broker_id}", broker, pause_s)
        if pause_s is not None:
            self._restart_at[broker.broker_id] = time.monotonic() + pause_s

    def _start_again(self) -> None:
        for i, broker in enumerate(self._mesh.brokers):
            if time.monotonic() < self._restart_at.get(broker.broker_id, float("inf")):
                continue
            del self._restart_at[broker.broker_id]
            self._pauses[broker.broker_id].started()
            try:
                self._mesh.start_broker(i, wait=False)
            except (DueqError, OSError) as error:
                _say(f"dueq: broker {broker.broker_id} cannot be started: {error}")
                self._restart_at[broker.broker_id] = time.monotonic() + _RESTART_S_MAX


def _say(text: str) -> None:
    """Tell on standard error, if that can be written: on a full disk, or without a reader, the mesh goes on."""
    with suppress(OSError):
        click.echo(text, err=True)


def _say_ended(name: str, child: BrokerChild | GatewayChild, again_s: float | None) -> None:
    """Say that a process has ended, how, and when it is started again; None: it is not."""
    how = f"exit code {child.exit_code}"
    if child.exit_code is not None and child.exit_code < 0:
        how = _signal_name(-child.exit_code)
    _say(f"dueq: {name} has ended ({how}), see {child.log}{_again(again_s)}")


def _again(seconds: float | None) -> str:
    return "" if seconds is None else f"; starting it again in {seconds:g} s"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have no name
        return f"signal {number}"
