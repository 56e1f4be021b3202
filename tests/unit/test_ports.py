"""The choice of ports."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dueq.local import LocalMesh, LocalMeshError
from dueq.ports import claim, free_ports, is_free

_CHOOSE = (
    "import sys; from dueq.ports import free_ports; print(*free_ports(100), flush=True); sys.stdin.read()"
)


def test_free_ports_differ_are_free_and_lie_below_the_ephemeral_range() -> None:
    ports = free_ports(8)
    assert len(set(ports)) == 8
    assert all(map(is_free, ports))
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(ports) < lowest


def test_two_processes_never_choose_the_same_port() -> None:
    """No process listens on any of these, so it is not being taken that keeps them apart."""
    chosen = free_ports(300)
    others = [
        subprocess.Popen(
            [sys.executable, "-c", _CHOOSE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    for other in others:
        assert other.stdout is not None
        chosen += map(int, other.stdout.readline().split())
    for other in others:
        other.communicate(timeout=60)
    assert len(set(chosen)) == len(chosen) == 600


def test_a_name_is_held_until_it_is_let_go() -> None:
    first = claim("test of claims")
    assert first is not None
    assert claim("test of claims") is None
    first.close()
    again = claim("test of claims")
    assert again is not None
    again.close()


def test_a_port_with_a_listener_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not is_free(server.getsockname()[1])


def test_a_mesh_on_a_taken_port_is_refused_and_the_port_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", free_ports(1)[0])) as server:
        port = server.getsockname()[1]
        with pytest.raises(LocalMeshError, match=f"port {port} .*in use"):
            LocalMesh(tmp_path, brokers=1, port=port)


def test_impossible_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalMeshError, match="at least one"):
        LocalMesh(tmp_path, brokers=0)
    with pytest.raises(LocalMeshError, match="without ZooKeeper"):
        LocalMesh(tmp_path, brokers=3, zookeeper=False)
    with pytest.raises(LocalMeshError, match="do not fit"):
        LocalMesh(tmp_path, brokers=3, port=65_534)
