"""Choosing TCP ports of this machine.

Ports are taken from below the kernel's ephemeral range: a port inside it may be given to somebody's outgoing
connection while a broker restarts, and a client that keeps dialling a closed port of that range can even
connect to itself and so keep the port from its owner.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Collection
from pathlib import Path

_LOWEST = 15_000
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Return whether a server could listen on `port` of `host` just now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As libzmq does: a port in TIME_WAIT is free, a port with a listener is not.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_ports(count: int, host: str = "127.0.0.1", avoid: Collection[int] = ()) -> list[int]:
    """Return `count` different ports that are free now.

    Args:
        count: how many.
        host: the address that will listen.
        avoid: ports not to choose.

    Raises:
        OSError: no free ones were found.
    """
    highest = _ephemeral_start() - 1
    chosen: list[int] = []
    for _ in range(1000 * count):
        if len(chosen) == count:
            return chosen
        port = random.randint(_LOWEST, highest)
        if port not in chosen and port not in avoid and is_free(port, host):
            chosen.append(port)
    if len(chosen) == count:
        return chosen
    raise OSError(f"no {count} free ports between {_LOWEST} and {highest} on {host}")


def _ephemeral_start() -> int:
    try:
        start = int(_EPHEMERAL_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        start = 32_768
    return start if start > _LOWEST + 1000 else 65_536
