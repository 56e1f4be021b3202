"""Wires made of network namespaces; skipped, with the reason, where the machine does not allow them."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from dueq.ports import free_ports
from dueq_chaos.nemesis import machine
from dueq_chaos.nemesis.network.namespaces import NamespaceWires
from dueq_chaos.nemesis.network.rules import CLIENTS, ZOOKEEPER, Rule

_REASON = machine.no_namespaces()
pytestmark = [pytest.mark.integration, pytest.mark.skipif(bool(_REASON), reason=_REASON)]
_ECHO = (
    "import socket, sys\n"
    "server = socket.create_server((sys.argv[1], int(sys.argv[2])))\n"
    "print('ready', flush=True)\n"
    "line, _ = server.accept()\n"
    "while data := line.recv(4096):\n"
    "    line.sendall(data)\n"
)
_CUT = Rule(cut=True)


@pytest.fixture
def wires() -> Iterator[NamespaceWires]:
    ports = free_ports(2)
    found = NamespaceWires({"b1": ports[0], "b2": ports[1]}, zookeeper_port=1)
    yield found
    found.close()


@pytest.fixture
def line(wires: NamespaceWires) -> Iterator[socket.socket]:
    """A client's connection to a server that echoes, in the namespace of b1."""
    host, _, port = wires.listen("b1").rpartition(":")
    command = ["ip", "netns", "exec", wires.namespace("b1"), sys.executable, "-c", _ECHO, host, port]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        with socket.create_connection((host, int(port)), timeout=30) as found:
            found.sendall(b"first ")
            assert found.recv(100) == b"first "
            yield found
        server.terminate()


def _silent(line: socket.socket) -> bool:
    """Whether nothing comes for a while."""
    line.settimeout(0.3)
    try:
        return line.recv(100) == b"never"
    except TimeoutError:
        return True
    finally:
        line.settimeout(30)


@pytest.mark.parametrize("way", [(CLIENTS, "b1"), ("b1", CLIENTS)])
def test_packets_vanish_where_a_way_is_cut_and_tcp_repeats_them_afterwards(
    wires: NamespaceWires, line: socket.socket, way: tuple[str, str]
) -> None:
    wires.add("fault", {way: _CUT})
    line.sendall(b"second ")
    assert _silent(line)
    wires.remove("fault")
    assert line.recv(100) == b"second "


def test_other_ways_are_free_while_one_is_cut(wires: NamespaceWires, line: socket.socket) -> None:
    wires.add("fault", {("b1", "b2"): _CUT, ("b2", "b1"): _CUT, ("b1", ZOOKEEPER): _CUT})
    line.sendall(b"second ")
    assert line.recv(100) == b"second "


def test_a_way_that_two_faults_cut_is_free_when_both_have_ended(
    wires: NamespaceWires, line: socket.socket
) -> None:
    wires.add("one", {(CLIENTS, "b1"): _CUT})
    wires.add("other", {(CLIENTS, "b1"): _CUT})
    wires.remove("one")
    line.sendall(b"second ")
    assert _silent(line)
    wires.remove("other")
    assert line.recv(100) == b"second "


def test_nothing_is_left_behind(wires: NamespaceWires) -> None:
    name = wires.namespace("b1")
    wires.add("fault", {(CLIENTS, "b1"): _CUT})
    wires.close()
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    links = subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
    assert name not in listed
    assert name.removesuffix("-b1") not in links
