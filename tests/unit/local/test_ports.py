"""The choice of ports."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from dueq.local import LocalMesh, LocalMeshError
from dueq.local.ports import free_ports, is_free


def test_free_ports_differ_are_free_and_lie_below_the_ephemeral_range() -> None:
    ports = free_ports(8)
    assert len(set(ports)) == 8
    assert all(map(is_free, ports))
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(ports) < lowest


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
