"""The wires of a mesh, as the faults that cut them see them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from dueq.errors import DueqError
from dueq.ports import free_ports
from dueq_chaos.nemesis.network.proxy import Port
from dueq_chaos.nemesis.network.rules import ZOOKEEPER, Rule, Way, merge

HOST = "127.0.0.1"


class WiresError(DueqError):
    """The wires cannot be laid or do not obey."""


class Wires(Protocol):
    """The network of a mesh: where everybody is, and what faults do to it."""

    def listen(self, broker: str) -> str:
        """`host:port` where a broker listens."""

    def advertised(self, broker: str) -> str:
        """`host:port` where peers and clients reach it, through a wire that can be cut."""

    def zookeeper(self, broker: str) -> str:
        """`host:port` where a broker reaches ZooKeeper, through a wire that can be cut."""

    def namespace(self, broker: str) -> str:
        """The network namespace in which a broker runs; empty for this process's."""

    def add(self, fault: object, table: Mapping[Way, Rule]) -> None:
        """Let a fault's rules hold until `remove`."""

    def remove(self, fault: object) -> None:
        """Undo what a fault has added; nothing when it has added nothing."""

    def reset(self, who: str) -> None:
        """Break all connections of somebody at once."""

    def started(self, broker: str, pid: int) -> None:
        """A broker process is there."""

    def close(self) -> None:
        """Take the wires away."""


class ProxyWires:
    """Wires through a proxy process on loopback; works everywhere, needs no rights.

    Args:
        ports: each broker's listening port, by id.
        zookeeper_port: of the real ZooKeeper, on loopback.

    Raises:
        WiresError: the proxy does not start.
    """

    def __init__(self, ports: Mapping[str, int], zookeeper_port: int) -> None:
        self._ports = dict(ports)
        chosen = free_ports(2 * len(ports), avoid=[*ports.values(), zookeeper_port])
        self._in_front = dict(zip(ports, chosen, strict=False))
        self._to_zookeeper = dict(zip(ports, chosen[len(ports) :], strict=True))
        self._proxy = ProxyProcess(
            [
                *(Port(HOST, self._in_front[name], HOST, port, name) for name, port in ports.items()),
                *(
                    Port(HOST, port, HOST, zookeeper_port, ZOOKEEPER, name)
                    for name, port in self._to_zookeeper.items()
                ),
            ]
        )
        self._tables: dict[object, Mapping[Way, Rule]] = {}

    def listen(self, broker: str) -> str:
        """See Wires."""
        return f"{HOST}:{self._ports[broker]}"

    def advertised(self, broker: str) -> str:
        """See Wires."""
        return f"{HOST}:{self._in_front[broker]}"

    def zookeeper(self, broker: str) -> str:
        """See Wires."""
        return f"{HOST}:{self._to_zookeeper[broker]}"

    def namespace(self, broker: str) -> str:
        """See Wires."""
        return ""

    def add(self, fault: object, table: Mapping[Way, Rule]) -> None:
        """See Wires."""
        self._tables[fault] = table
        self._proxy.obey(merge(self._tables.values()))

    def remove(self, fault: object) -> None:
        """See Wires."""
        if self._tables.pop(fault, None) is not None:
            self._proxy.obey(merge(self._tables.values()))

    def reset(self, who: str) -> None:
        """See Wires."""
        self._proxy.reset(who)

    def started(self, broker: str, pid: int) -> None:
        """See Wires."""
        self._proxy.started(broker, pid)

    def close(self) -> None:
        """See Wires."""
        self._proxy.close()


class ProxyProcess:
    """The proxy process and the way to it.

    Args:
        ports: what it listens on.

    Raises:
        WiresError: it does not start.
    """

    def __init__(self, ports: Sequence[Port]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dueq_chaos.nemesis.network.proxy", json.dumps([asdict(p) for p in ports])],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        self._await_answer()

    def obey(self, rules: Mapping[Way, Rule]) -> None:
        """Let exactly these rules hold."""
        self._order({"rules": [[one, other, rule.as_json()] for (one, other), rule in rules.items()]})

    def reset(self, who: str) -> None:
        """Break all connections of somebody."""
        self._order({"reset": who})

    def started(self, broker: str, pid: int) -> None:
        """Say which process a broker is."""
        self._order({"brokers": {broker: pid}})

    def close(self) -> None:
        """End it; may be called again."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _order(self, order: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise WiresError(f"the proxy process has ended with {self._process.poll()}") from error
        self._await_answer()

    def _await_answer(self) -> None:
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise WiresError(f"the proxy process has ended with {self._process.wait()}")
