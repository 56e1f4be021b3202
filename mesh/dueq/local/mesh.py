"""A supervised mesh: ZooKeeper, brokers, and the file that says where they are."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from dueq import Client
from dueq.cluster.server import ZooKeeperServer
from dueq.errors import DueqError
from dueq.local.child import BrokerChild
from dueq.local.gateway import GatewayChild
from dueq.ports import free_ports, is_free
from dueq.storage.kinds import DEFAULT, is_durable

_HOST = "127.0.0.1"
_METRICS_OFFSET = 100
_GATEWAY_OFFSET = 80
_POLL_S = 0.05
_ATTEMPT_S = 1.0


class LocalMeshError(DueqError):
    """The local mesh cannot be started: a port is taken, the folder is in use, a broker ended."""


class LocalMesh:
    """A ZooKeeper and some brokers on this machine, as child processes that die with this one.

    Usable as a context manager; the mesh is ready on entry. Start it, and start brokers again, from a thread
    that lives as long as the mesh (the main thread): the kernel ends the children with that thread.

    Attributes:
        folder: holds `zookeeper/`, `brokers/<id>/`, `logs/<id>.log` and, while the mesh is up, `mesh.json`.
        brokers: one BrokerChild per broker; broker `i` has the id `b<i + 1>`.
        zookeeper: the server, None without ZooKeeper or while it is stopped.
        gateway: the HTTP gateway, None without one.
    """

    def __init__(
        self,
        folder: str | Path | None = None,
        brokers: int = 3,
        port: int = 0,
        zookeeper: bool = True,
        arguments: Sequence[str] = (),
        ready_timeout: float = 120.0,
        store: str = DEFAULT,
        gateway: bool = False,
    ) -> None:
        """Choose ports and folders; nothing is started yet.

        Args:
            folder: kept after the stop, and used again by the next start; None for a temporary one that is
                removed at the end.
            brokers: how many.
            port: of the first broker, the others follow; 0 for free ones.
            zookeeper: whether a real ZooKeeper serves; without it there can be one broker only.
            arguments: further arguments of each `dueq broker`.
            ready_timeout: seconds within which the mesh must serve.
            store: the kind of store of each broker, as in `dueq broker --store`.
            gateway: whether an HTTP gateway is started, too; its port is the first broker's and 80, or a free one.

        Raises:
            LocalMeshError: the numbers do not fit, or a port is taken.
            InvalidRequest: there is no such kind of store.
        """
        if brokers < 1:
            raise LocalMeshError(f"a mesh has at least one broker, not {brokers}")
        if not zookeeper and brokers != 1:
            raise LocalMeshError(f"without ZooKeeper a mesh has one broker, not {brokers}")
        self._durable, self._store = is_durable(store), store
        self._with_zookeeper = zookeeper
        self._ready_timeout = ready_timeout
        self._lock: IO[str] | None = None
        self._known_dead: set[int] = set()
        self.zookeeper: ZooKeeperServer | None = None
        ports, metrics, self._zookeeper_port = _choose_ports(brokers, port)
        self._temporary = folder is None
        self.folder = Path(folder or tempfile.mkdtemp(prefix="dueq-")).absolute()
        self.brokers = [self._child(f"b{i + 1}", ports[i], metrics[i], arguments) for i in range(brokers)]
        self.gateway: GatewayChild | None = None
        if gateway:
            used = [*ports, *metrics, self._zookeeper_port]
            wanted = ports[0] + _GATEWAY_OFFSET if port else 0
            if wanted in used or not 0 < wanted <= 65_535 or not is_free(wanted):
                (wanted,) = free_ports(1, avoid=used)
            self.gateway = GatewayChild(f"{_HOST}:{wanted}", self.folder / "logs" / "gateway.log")

    # ------------------------------------------------------------ what is there

    @property
    def endpoints(self) -> list[str]:
        """Every broker's endpoint, whether it runs or not."""
        return [broker.endpoint for broker in self.brokers]

    @property
    def metrics(self) -> list[str]:
        """Every broker's metrics address, `host:port`."""
        return [broker.metrics for broker in self.brokers]

    @property
    def pids(self) -> list[int]:
        """Every broker's process id."""
        return [broker.pid for broker in self.brokers]

    @property
    def description_path(self) -> Path:
        """The path of `mesh.json` while the mesh is up."""
        return self.folder / "mesh.json"

    def description(self) -> dict[str, Any]:
        """The content of `mesh.json`: ZooKeeper's address and pid, the gateway's (None without), and every broker."""
        server = self.zookeeper
        return {
            "zookeeper": {"address": server.address, "pid": server.pid} if server else None,
            "gateway": {"url": self.gateway.url, "pid": self.gateway.pid} if self.gateway else None,
            "brokers": [
                {"id": b.broker_id, "endpoint": b.endpoint, "metrics": b.metrics, "pid": b.pid}
                for b in self.brokers
            ],
        }

    # ------------------------------------------------------------ the whole

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start everything and return once every broker answers and knows all the others.

        Raises:
            LocalMeshError: the folder is in use, a broker ended, or the mesh was not ready in time;
                nothing is left running.
        """
        self._take_folder()
        try:
            self.description_path.unlink(missing_ok=True)
            if self._with_zookeeper:
                self.start_zookeeper()
            for broker in self.brokers:
                broker.start()
            self.wait_ready()
            if self.gateway is not None and not self.gateway.start(self.endpoints, self._ready_timeout):
                raise LocalMeshError(
                    f"the gateway at {self.gateway.url} does not answer, see {self.gateway.log}"
                )
            self.write_description()
        except BaseException:
            self.stop(timeout=2.0)
            raise

    def stop(self, timeout: float = 10.0) -> None:
        """End everything: brokers first, all at once, then ZooKeeper. May be called at any time, also again.

        Args:
            timeout: seconds until what still runs is killed.
        """
        if self._lock is not None:
            self._stop_all(timeout)
            self._lock.close()
            self._lock = None
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _stop_all(self, timeout: float) -> None:
        self._remove_description()
        self._known_dead = set(range(len(self.brokers)))
        if self.gateway is not None:
            self.gateway.stop(timeout)
        for broker in self.brokers:
            broker.send(signal.SIGTERM)
            broker.send(signal.SIGCONT)
        deadline = time.monotonic() + timeout
        for broker in self.brokers:
            if not broker.wait(max(0.0, deadline - time.monotonic())):
                broker.kill()
        self.stop_zookeeper()

    def kill_all(self) -> None:
        """Have everything end by SIGKILL, and wait for nothing; fit for a signal handler."""
        self._remove_description()
        for child in (self.gateway, *self.brokers, self.zookeeper):
            if child is not None and child.running:
                # It may have ended, where the signal has interrupted who would know.
                with suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGKILL)

    def wait_ready(self, brokers: Iterable[int] | None = None, timeout: float | None = None) -> None:
        """Return once these brokers answer and each sees all of them alive.

        Args:
            brokers: their numbers from 0; None for all that run.
            timeout: seconds; None for the mesh's `ready_timeout`.

        Raises:
            LocalMeshError: one of them ended, or time ran out.
        """
        wanted = [self.brokers[i] for i in brokers] if brokers is not None else list(self.brokers)
        ids = {broker.broker_id for broker in wanted}
        seconds = self._ready_timeout if timeout is None else timeout
        deadline = time.monotonic() + seconds
        for broker in wanted:
            seen: set[str] | str = set()
            while not (isinstance(seen, set) and seen >= ids):
                if not broker.running:
                    raise LocalMeshError(_ended(broker))
                if time.monotonic() > deadline:
                    raise LocalMeshError(
                        f"{broker.broker_id} at {broker.endpoint} was not ready within {seconds:g} s: "
                        f"{_seen_text(seen, ids)}"
                    )
                seen = _brokers_seen(broker.endpoint)
                if not (isinstance(seen, set) and seen >= ids):
                    time.sleep(_POLL_S)

    def write_description(self) -> None:
        """Write `mesh.json`, in one piece or not at all."""
        partial = self.description_path.with_suffix(".partial")
        with partial.open("w", encoding="utf-8") as file:
            json.dump(self.description(), file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.description_path)

    def _describe_again(self) -> None:
        """Write `mesh.json` for a part that was started again: it runs, also where that cannot be written."""
        if self.description_path.exists():
            with suppress(OSError):
                self.write_description()

    def _remove_description(self) -> None:
        """Remove `mesh.json`, if that is possible: what ends goes on ending on a disk that refuses everything."""
        with suppress(OSError):
            self.description_path.unlink(missing_ok=True)

    # ------------------------------------------------------------ its parts

    def newly_dead(self) -> list[BrokerChild]:
        """Return the brokers that have ended by themselves since the last call."""
        dead = [i for i, b in enumerate(self.brokers) if not b.running and i not in self._known_dead]
        self._known_dead.update(dead)
        return [self.brokers[i] for i in dead]

    def start_broker(self, i: int, wait: bool = True, timeout: float | None = None) -> None:
        """Start broker `i` again on its old port and folder.

        Args:
            i: the broker's number from 0.
            wait: whether to return only when it answers.
            timeout: seconds to wait; None for the mesh's `ready_timeout`.

        Raises:
            LocalMeshError: it ended, or was not ready in time.
        """
        self.brokers[i].start()
        self._known_dead.discard(i)
        self._describe_again()
        if wait:
            self.wait_ready([i], timeout)

    def start_gateway(self) -> None:
        """Start the gateway again at its old address; it answers soon."""
        assert self.gateway is not None
        self.gateway.launch(self.endpoints)
        self._describe_again()

    def kill(self, i: int) -> None:
        """End broker `i` with SIGKILL and wait until it is gone."""
        self._known_dead.add(i)
        self.brokers[i].kill()

    def stop_broker(self, i: int, timeout: float = 10.0) -> int | None:
        """End broker `i` with SIGTERM (SIGKILL after `timeout` seconds) and return its exit code."""
        self._known_dead.add(i)
        self.brokers[i].send(signal.SIGTERM)
        if not self.brokers[i].wait(timeout):
            self.brokers[i].kill()
        return self.brokers[i].exit_code

    def pause(self, i: int) -> None:
        """Stop broker `i` in its tracks (SIGSTOP)."""
        self.brokers[i].send(signal.SIGSTOP)

    def resume(self, i: int) -> None:
        """Let broker `i` go on after `pause`."""
        self.brokers[i].send(signal.SIGCONT)

    def start_zookeeper(self) -> None:
        """Start ZooKeeper (again), on the same port and folder.

        Raises:
            DueqError: there is no Java, or it did not answer in time.
        """
        assert self.zookeeper is None, "ZooKeeper runs already"
        server = ZooKeeperServer(self.folder / "zookeeper", self._zookeeper_port)
        server.start()
        self.zookeeper = server

    def stop_zookeeper(self) -> None:
        """End ZooKeeper, if it is there."""
        if self.zookeeper is not None:
            self.zookeeper.stop()
            self.zookeeper = None

    def kill_zookeeper(self) -> None:
        """End ZooKeeper with SIGKILL, if it is there."""
        if self.zookeeper is not None:
            self.zookeeper.kill()
            self.zookeeper = None

    def _child(self, broker_id: str, port: int, metrics: int, arguments: Sequence[str]) -> BrokerChild:
        where = (
            ("--zookeeper", f"{_HOST}:{self._zookeeper_port}")
            if self._with_zookeeper
            else ("--no-zookeeper",)
        )
        return BrokerChild(
            broker_id=broker_id,
            endpoint=f"tcp://{_HOST}:{port}",
            metrics=f"{_HOST}:{metrics}",
            data=self.folder / "brokers" / broker_id,
            log=self.folder / "logs" / f"{broker_id}.log",
            arguments=(*where, "--store", self._store, *arguments),
            durable=self._durable,
        )

    def _take_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / "mesh.lock").open("w", encoding="utf-8")
        except OSError as error:
            raise LocalMeshError(f"the data folder {self.folder} cannot be used: {error}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise LocalMeshError(f"the data folder {self.folder} is in use by another local mesh") from error
        self._lock = lock


def _choose_ports(brokers: int, port: int) -> tuple[list[int], list[int], int]:
    """Return the brokers' ports, their metrics ports, and ZooKeeper's."""
    if port == 0:
        chosen = free_ports(2 * brokers + 1)
        return chosen[:brokers], chosen[brokers:-1], chosen[-1]
    if not 1 <= port <= 65_536 - brokers:
        raise LocalMeshError(f"{brokers} ports from {port} on do not fit below 65536")
    ports = list(range(port, port + brokers))
    if taken := [p for p in ports if not is_free(p)]:
        raise LocalMeshError(f"port {taken[0]} of {_HOST} is in use: choose other ports with --port")
    metrics = [p + _METRICS_OFFSET for p in ports]
    if max(metrics) > 65_535 or not all(map(is_free, metrics)) or set(metrics) & set(ports):
        metrics = free_ports(brokers, avoid=ports)
    return ports, metrics, free_ports(1, avoid=ports + metrics)[0]


def _brokers_seen(endpoint: str) -> set[str] | str:
    """Ask one broker which brokers are alive; returns the reason when it does not answer."""
    try:
        with Client(endpoint, timeout=_ATTEMPT_S) as client:
            brokers: dict[str, dict[str, Any]] = client.status().get("brokers", {})
    except DueqError as error:
        return str(error)
    return {name for name, broker in brokers.items() if broker.get("alive", True)}


def _seen_text(seen: set[str] | str, wanted: set[str]) -> str:
    if isinstance(seen, str):
        return seen or "it did not answer"
    return f"it does not see {', '.join(sorted(wanted - seen))}"


def _ended(broker: BrokerChild) -> str:
    tail = broker.log_tail()
    said = f"; it said last:\n{tail}" if tail else ""
    return f"{broker.broker_id} ended with code {broker.exit_code} ({broker.log}){said}"
