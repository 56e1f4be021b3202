"""Wires of the kernel: each broker in a network namespace of its own, all on one bridge. Needs root.

A way is cut by a wrong neighbour entry at the sender. Its packets reach no host, as on a broken cable, and no error
is reported. TCP repeats them and gives up in its own time, connections are neither refused nor closed. ZooKeeper
stays on this machine's loopback, brokers reach it through a proxy at the bridge, which cuts the ways to it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
from collections.abc import Mapping

from dueq.ports import claim, free_ports
from dueq_chaos.nemesis.network.proxy import Port
from dueq_chaos.nemesis.network.rules import CLIENTS, ZOOKEEPER, Rule, Way, merge
from dueq_chaos.nemesis.network.wires import HOST, ProxyProcess, WiresError

_COMMAND_S = 10
_NOBODY = "02:00:00:00:00:01"
_DEVICE = "eth0"
_NETS = 50 * 250


class NamespaceWires:
    """Wires through network namespaces: packets vanish where a way is cut; they cannot be delayed here.

    Args:
        ports: each broker's listening port, by id.
        zookeeper_port: of the real ZooKeeper, on loopback.

    Raises:
        WiresError: the kernel or its user does not allow it; nothing is left behind.
    """

    def __init__(self, ports: Mapping[str, int], zookeeper_port: int) -> None:
        self._ports = dict(ports)
        self._bridge = f"dq{os.getpid() % 10**8:x}"
        self._number, self._net = _claim_net()
        self._addresses = {name: f"{self._net}.{i + 1}" for i, name in enumerate(ports)}
        # Clients and ZooKeeper have addresses of their own, so that they can be cut off one by one.
        self._addresses[CLIENTS] = f"{self._net}.254"
        self._zookeeper_address = f"{self._net}.253"
        self._tables: dict[object, Mapping[Way, Rule]] = {}
        self._cut: set[Way] = set()
        self._proxy: ProxyProcess | None = None
        try:
            self._lay(zookeeper_port)
        except BaseException:
            self.close()
            raise

    def listen(self, broker: str) -> str:
        """See Wires."""
        return f"{self._addresses[broker]}:{self._ports[broker]}"

    def advertised(self, broker: str) -> str:
        """See Wires."""
        return self.listen(broker)

    def zookeeper(self, broker: str) -> str:
        """See Wires."""
        return f"{self._zookeeper_address}:{self._to_zookeeper[broker]}"

    def namespace(self, broker: str) -> str:
        """See Wires."""
        return f"{self._bridge}-{broker}"

    def add(self, fault: object, table: Mapping[Way, Rule]) -> None:
        """See Wires."""
        self._tables[fault] = table
        self._apply()

    def remove(self, fault: object) -> None:
        """See Wires."""
        if self._tables.pop(fault, None) is not None:
            self._apply()

    def reset(self, who: str) -> None:
        """Break a process's connections to ZooKeeper; this kernel interface cannot break others."""
        assert self._proxy is not None
        self._proxy.reset(who)

    def started(self, broker: str, pid: int) -> None:
        """See Wires; a speaker is known here by its address."""

    def close(self) -> None:
        """See Wires."""
        if self._proxy is not None:
            self._proxy.close()
            self._proxy = None
        # The other ends of the cables go with the namespaces, or with the processes that still live in them.
        for broker in self._ports:
            for command in (("link", "del", self._cable(broker)), ("netns", "del", self.namespace(broker))):
                with contextlib.suppress(WiresError):
                    _ip(*command)
        with contextlib.suppress(WiresError):
            _ip("link", "del", self._bridge)
        self._number.close()

    def _lay(self, zookeeper_port: int) -> None:
        _ip("link", "add", self._bridge, "type", "bridge")
        for address in (self._addresses[CLIENTS], self._zookeeper_address):
            _ip("addr", "add", f"{address}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for broker in self._ports:
            inside, cable = self.namespace(broker), self._cable(broker)
            _ip("netns", "add", inside)
            _ip("link", "add", cable, "type", "veth", "peer", "name", _DEVICE, "netns", inside)
            _ip("link", "set", cable, "master", self._bridge, "up")
            _ip("-n", inside, "addr", "add", f"{self._addresses[broker]}/24", "dev", _DEVICE)
            for device in ("lo", _DEVICE):
                _ip("-n", inside, "link", "set", device, "up")
        chosen = free_ports(len(self._ports), avoid=[zookeeper_port])
        self._to_zookeeper = dict(zip(self._ports, chosen, strict=True))
        self._proxy = ProxyProcess(
            [
                Port(self._zookeeper_address, port, HOST, zookeeper_port, ZOOKEEPER, name)
                for name, port in self._to_zookeeper.items()
            ]
        )

    def _cable(self, broker: str) -> str:
        return f"{self._bridge}{broker}"

    def _apply(self) -> None:
        rules = merge(self._tables.values())
        assert self._proxy is not None
        self._proxy.obey({way: rule for way, rule in rules.items() if ZOOKEEPER in way})
        wanted = {way for way, rule in rules.items() if rule.cut and ZOOKEEPER not in way}
        for way in sorted(wanted - self._cut):
            self._neighbour(way, "replace", "lladdr", _NOBODY, "nud", "permanent")
            self._cut.add(way)
        for way in sorted(self._cut - wanted):
            self._neighbour(way, "del")
            self._cut.discard(way)

    def _neighbour(self, way: Way, verb: str, *more: str) -> None:
        source, to = way
        inside = () if source == CLIENTS else ("-n", self.namespace(source))
        device = self._bridge if source == CLIENTS else _DEVICE
        _ip(*inside, "neigh", verb, self._addresses[to], "dev", device, *more)


def _claim_net() -> tuple[socket.socket, str]:
    """Return a network that no other nemesis of this machine has, and what holds it."""
    for number in range(os.getpid(), os.getpid() + _NETS):
        held = claim(f"nemesis {number % _NETS}")
        if held is not None:
            return held, f"10.{200 + number % 50}.{number // 50 % 250}"
    raise WiresError("other nemeses hold all networks from 10.200.0.0 to 10.249.249.0")


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    if done.returncode:
        raise WiresError(f"`ip {' '.join(words)}`: {done.stderr.strip()}")
