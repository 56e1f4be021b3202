"""The mesh under test: its wires, disks, clocks and processes can be tampered with; and its supervisor."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Protocol, Self

from dueq.local import LocalMesh
from dueq_chaos.nemesis.broker import FalseClock, SmallDisk, TamperedBroker
from dueq_chaos.nemesis.network.namespaces import NamespaceWires
from dueq_chaos.nemesis.network.wires import ProxyWires, Wires
from dueq_chaos.nemesis.placement import Placement

_RESTART_S = 1.0
_SMALL_DISK_BYTES = 448 << 20
"""Twice what six partitions keep of log and index after an hour: only a fault fills it for good."""
EXIT_REFUSED, EXIT_STORE_FAILED = 1, 75


class Consumers(Protocol):
    """The traffic's consumers, as far as faults act on them."""

    def kill_consumer(self) -> str:
        """`kill -9` one, and return its name."""

    def restore_consumers(self) -> None:
        """Start another one for each that was killed."""


@dataclass(frozen=True, slots=True)
class Death:
    """A broker that ended by itself.

    Attributes:
        at_s: `time.monotonic()`.
        broker: its id.
        exit_code: as `subprocess.Popen.returncode`.
        said: the end of its log.
    """

    at_s: float
    broker: str
    exit_code: int
    said: str

    @property
    def is_bug(self) -> bool:
        """Whether a broker may not end like this: it may refuse to start, and it stops when its disk fails."""
        return self.exit_code not in (EXIT_REFUSED, EXIT_STORE_FAILED)


class Target:
    """Three brokers and a ZooKeeper; use it as a context manager. All methods are for the thread that entered it.

    Args:
        folder: for data, logs and all; new or empty.
        seed: for the choice of "follower".
        clocks: whether brokers run with clocks that can be set.
        small_disk: whether the last broker has a small disk (needs root).
        namespaces: whether brokers have network namespaces of their own (needs root); else a proxy is between them.

    Attributes:
        mesh: the local mesh below.
        brokers: broker ids.
        endpoints: where clients shall connect.
        deaths: brokers that ended by themselves.
    """

    def __init__(
        self,
        folder: Path,
        seed: int = 0,
        *,
        clocks: bool = False,
        small_disk: bool = False,
        namespaces: bool = False,
    ) -> None:
        self.mesh = LocalMesh(folder, brokers=3)
        self._random = Random(seed)
        self._clocks: dict[str, FalseClock] = {}
        self._want_disk = small_disk
        self._disk: SmallDisk | None = None
        self._wires: Wires | None = None
        self._down: dict[str, set[object]] = {}
        self._paused: dict[str, set[object]] = {}
        self._ahead: dict[str, dict[object, float]] = {}
        self._zookeeper_down: set[object] = set()
        self._zookeeper_paused: set[object] = set()
        self._start_at: dict[str, float] = {}
        self.consumers: Consumers | None = None
        self.deaths: list[Death] = []
        self.brokers = [broker.broker_id for broker in self.mesh.brokers]
        if clocks:
            self._clocks = {b: FalseClock(folder.absolute() / "clocks", b) for b in self.brokers}
        self._namespaces = namespaces
        self.endpoints: list[str] = []
        self._placement: Placement | None = None

    # ------------------------------------------------------------ the whole

    def __enter__(self) -> Self:
        try:
            if self._want_disk:
                broker = self.brokers[-1]
                self._disk = SmallDisk(self.mesh.folder / "disks" / broker, broker, _SMALL_DISK_BYTES)
            self._wires = self._lay_wires()
            self.endpoints = [f"tcp://{self._wires.advertised(broker)}" for broker in self.brokers]
            self.mesh.brokers = [self._tampered(number) for number in range(len(self.brokers))]
            self.mesh.start()
            for child in self.mesh.brokers:
                self.wires.started(child.broker_id, child.pid)
            # Links that were made before the wires knew who is who count as clients': let them be made again.
            for name in self.brokers:
                self.wires.reset(name)
            self._placement = Placement(self.mesh.endpoints)
            self._placement.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End everything; may be called at any time, also again."""
        if self._placement is not None:
            self._placement.stop()
        if self.mesh.zookeeper is not None and self._zookeeper_paused:
            self.mesh.zookeeper.resume()
        self.mesh.stop()
        if self._wires is not None:
            self._wires.close()
            self._wires = None
        if self._disk is not None:
            self._disk.unmount()
            self._disk = None

    @property
    def placement(self) -> Placement:
        """The leader of each partition."""
        assert self._placement is not None, "the target is not entered"
        return self._placement

    @property
    def wires(self) -> Wires:
        """The network."""
        assert self._wires is not None, "the target is not entered"
        return self._wires

    def supervise(self) -> list[Death]:
        """Start brokers that are down and may run; to be called often.

        Returns:
            Those that have ended by themselves since the last call.
        """
        now = time.monotonic()
        dead = [Death(now, b.broker_id, b.exit_code or 0, b.log_tail(12)) for b in self.mesh.newly_dead()]
        self.deaths += dead
        for death in dead:
            self._start_at[death.broker] = now + _RESTART_S
        for number, broker in enumerate(self.mesh.brokers):
            name = broker.broker_id
            if broker.running or self._down.get(name) or now < self._start_at.get(name, 0.0):
                continue
            self.mesh.start_broker(number, wait=False)
            self.wires.started(name, broker.pid)
        return dead

    def whole(self) -> bool:
        """Whether all processes run, every partition has a serving leader and a full ISR."""
        return (
            all(broker.running for broker in self.mesh.brokers)
            and self.mesh.zookeeper is not None
            and self.placement.whole()
        )

    # ------------------------------------------------------------ who

    def choose(self, who: str) -> list[str]:
        """Say which brokers are meant.

        Args:
            who: "leader", "follower", "all" or a broker id.
        """
        if who == "all":
            return list(self.brokers)
        if who in self.brokers:
            return [who]
        leader = self.placement.leader() or self.brokers[0]
        if who == "leader":
            return [leader]
        return [self._random.choice([broker for broker in self.brokers if broker != leader])]

    def text(self, brokers: Sequence[str]) -> str:
        """Names for people, the leader of most partitions marked."""
        if len(brokers) == len(self.brokers):
            return "all brokers"
        leader = self.placement.leader()
        return ", ".join(f"{name} (leader)" if name == leader else name for name in brokers)

    # ------------------------------------------------------------ what faults do

    def hold_down(self, broker: str, fault: object) -> None:
        """`kill -9`, and no restart until every fault that wants it down has let it up."""
        self._down.setdefault(broker, set()).add(fault)
        self.mesh.kill(self.brokers.index(broker))

    def let_up(self, fault: object) -> None:
        """Undo `hold_down`."""
        _forget(self._down, fault)

    def pause(self, broker: str, fault: object) -> None:
        """SIGSTOP."""
        self._paused.setdefault(broker, set()).add(fault)
        self.mesh.pause(self.brokers.index(broker))

    def resume(self, fault: object) -> None:
        """Undo `pause` where no other fault wants it."""
        for broker in _forget(self._paused, fault):
            if not self._paused[broker]:
                self.mesh.resume(self.brokers.index(broker))

    def set_clock(self, broker: str, ahead_s: float, fault: object) -> None:
        """Set a broker's wall clock; of several faults the last one counts."""
        self._ahead.setdefault(broker, {})[fault] = ahead_s
        self._clocks[broker].set(ahead_s)

    def correct_clocks(self, fault: object) -> None:
        """Undo `set_clock`."""
        for broker, ahead in self._ahead.items():
            if ahead.pop(fault, None) is not None:
                self._clocks[broker].set(list(ahead.values())[-1] if ahead else 0)

    def small_disk(self) -> SmallDisk:
        """The one small disk."""
        assert self._disk is not None, "this target has no small disk"
        return self._disk

    def zookeeper_down(self, fault: object) -> None:
        """`kill -9`, if it is there."""
        self._zookeeper_down.add(fault)
        self._zookeeper_paused.clear()
        self.mesh.kill_zookeeper()

    def zookeeper_up(self, fault: object) -> None:
        """Undo `zookeeper_down` where no other fault wants it."""
        self._zookeeper_down.discard(fault)
        if not self._zookeeper_down and self.mesh.zookeeper is None:
            self.mesh.start_zookeeper()

    def zookeeper_pause(self, fault: object) -> None:
        """SIGSTOP, if it is there."""
        if self.mesh.zookeeper is not None:
            self._zookeeper_paused.add(fault)
            self.mesh.zookeeper.pause()

    def zookeeper_resume(self, fault: object) -> None:
        """Undo `zookeeper_pause` where no other fault wants it."""
        if fault in self._zookeeper_paused:
            self._zookeeper_paused.discard(fault)
            if not self._zookeeper_paused and self.mesh.zookeeper is not None:
                self.mesh.zookeeper.resume()

    def kill_consumer(self) -> str:
        """`kill -9` a consumer and return its name."""
        return self.consumers.kill_consumer() if self.consumers is not None else "no consumer"

    def restore_consumers(self) -> None:
        """Undo `kill_consumer`."""
        if self.consumers is not None:
            self.consumers.restore_consumers()

    # ------------------------------------------------------------ inside

    def _lay_wires(self) -> Wires:
        ports = {broker.broker_id: _port(broker.endpoint) for broker in self.mesh.brokers}
        arguments = list(self.mesh.brokers[0].arguments)
        zookeeper = _port(arguments[arguments.index("--zookeeper") + 1])
        return NamespaceWires(ports, zookeeper) if self._namespaces else ProxyWires(ports, zookeeper)

    def _tampered(self, number: int) -> TamperedBroker:
        plain, wires = self.mesh.brokers[number], self.wires
        name = plain.broker_id
        listen = wires.listen(name)
        disk = self._disk if self._disk is not None and self._disk.broker == name else None
        return TamperedBroker(
            name,
            f"tcp://{listen}",
            f"{listen.rpartition(':')[0]}:{_port(plain.metrics)}",
            disk.data if disk else plain.data,
            plain.log,
            arguments=(
                "--zookeeper", wires.zookeeper(name),
                "--advertise", f"tcp://{wires.advertised(name)}",
                "--log-format", "json",
            ),
            namespace=wires.namespace(name),
            variables=self._clocks[name].variables if name in self._clocks else {},
            entry="dueq_chaos.nemesis.clocked" if name in self._clocks else "dueq.cli.main",
        )  # fmt: skip


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])


def _forget(held: dict[str, set[object]], fault: object) -> Collection[str]:
    """Release the brokers that a fault holds; returns them."""
    found = [broker for broker, faults in held.items() if fault in faults]
    for broker in found:
        held[broker].discard(fault)
    return found
