"""Choosing TCP ports of this machine.

Ports are taken from below the kernel's ephemeral range. A port inside it may be given to an outgoing connection of
another process while a broker restarts. A client that keeps dialling a closed port of that range can even connect to
itself, and so keep the port from its owner.

Several meshes of one machine never choose the same port, even while a broker is down and its port is free. For this
the range is cut into blocks, and a process chooses only from blocks that it alone holds.
"""

from __future__ import annotations

import os
import random
import socket
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Final

_LOWEST: Final = 15_000
_BLOCK: Final = 64
_BLOCKS_MAX: Final = 8
"""Most blocks of one process; after the last one it uses the first one again."""
_EPHEMERAL_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


def claim(name: str) -> socket.socket | None:
    """Hold a name on this machine (in this network namespace) until the result is closed, or the process ends.

    Returns:
        None: somebody holds it.
    """
    # An abstract Unix socket (unix(7)) has no file that could be left behind.
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        held.bind(f"\0dueq {name}")
    except OSError:
        held.close()
        return None
    return held


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Return whether a server could listen on `port` of `host` just now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As libzmq and ZooKeeper do: a port in TIME_WAIT is free, a port with a listener is not.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_ports(count: int, host: str = "127.0.0.1", avoid: Collection[int] = ()) -> list[int]:
    """Return `count` different ports that are free now, and that no other process gets from here.

    Args:
        count: how many.
        host: the address that will listen.
        avoid: ports not to choose.

    Raises:
        OSError: no free ones were found.
    """
    chosen: list[int] = []
    with _held.lock:
        for _ in range(2 * _BLOCK * _BLOCKS_MAX):
            if len(chosen) == count:
                return chosen
            port = _held.next_port()
            if port not in chosen and port not in avoid and is_free(port, host):
                chosen.append(port)
    if len(chosen) == count:
        return chosen
    raise OSError(f"no {count} free ports on {host}")


class _Held:
    """The blocks of this process."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Hold nothing: a forked child has blocks of its own."""
        self.lock = threading.Lock()
        self._claims: list[socket.socket] = []
        self._ports: list[int] = []
        self._next = 0

    def next_port(self) -> int:
        """The port that was chosen longest ago, or never."""
        if self._next == len(self._ports):
            self._next = 0
            if len(self._claims) < _BLOCKS_MAX and self._grow():
                self._next = len(self._ports) - _BLOCK
            elif not self._ports:
                raise OSError("other processes hold all ports below the ephemeral range")
        self._next += 1
        return self._ports[self._next - 1]

    def _grow(self) -> bool:
        starts = list(range(_LOWEST, _ephemeral_start() - _BLOCK + 1, _BLOCK))
        random.shuffle(starts)
        for start in starts:
            held = claim(f"ports from {start}")
            if held is not None:
                self._claims.append(held)
                self._ports += range(start, start + _BLOCK)
                return True
        return False


def _ephemeral_start() -> int:
    try:
        start = int(_EPHEMERAL_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        start = 32_768
    return start if start > _LOWEST + 1000 else 65_536


_held = _Held()
os.register_at_fork(after_in_child=_held.forget)
