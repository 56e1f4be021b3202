"""Gateways beside a mesh that is measured."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dueq.local import LocalMesh
from dueq.local.gateway import GatewayChild

READY_S: Final = 60.0
"""How long a gateway, or what asks it, may take to begin or to end."""


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextmanager
def gateway_of(
    mesh: LocalMesh, folder: Path, options: Sequence[str] = ()
) -> Iterator[tuple[GatewayChild, int]]:
    """Run a gateway of this mesh; gives it and its port.

    Args:
        folder: for its log.
        options: of `dueq gateway`.

    Raises:
        RuntimeError: it did not begin; with its log.
    """
    port = free_port()
    child = GatewayChild(f"127.0.0.1:{port}", folder / "gateway.log", tuple(options))
    try:
        if not child.start(mesh.endpoints, READY_S):
            raise RuntimeError(child.log.read_text())
        yield child, port
    finally:
        child.stop(READY_S)
