"""Names of hosts in endpoints, looked up outside of libzmq.

libzmq looks names up in the thread that serves all connections of its context. Where a name server is silent that takes
ten seconds, with every attempt to connect, and nobody else is served meanwhile. So it is told numbers only.
"""

from __future__ import annotations

import encodings.idna  # noqa: F401  # getaddrinfo would import it in its thread, and a fork break that off
import socket
from ipaddress import ip_address
from typing import Final

_TCP: Final = "tcp://"


def has_name(endpoint: str) -> bool:
    """Whether an endpoint names its host, and so has to be looked up; what is no endpoint at all has no name."""
    host, _, _ = endpoint.removeprefix(_TCP).rpartition(":")
    if not endpoint.startswith(_TCP) or not host:
        return False
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return True
    return False


def looked_up(endpoint: str) -> str:
    """Return an endpoint with a number in place of its name; may take long.

    Raises:
        OSError: the name is not known, or cannot be looked up.
    """
    host, _, port = endpoint.removeprefix(_TCP).rpartition(":")
    try:
        # IPv4 only, as libzmq does unless it is told otherwise.
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"{host!r:.80} is no name of a host: {error}") from error
    return f"{_TCP}{found[0][4][0]}:{port}"
