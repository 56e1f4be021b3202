"""ZeroMQ's own pings, on connections that are reset while the broker is busy.

libzmq stops reading a connection whose pipe is full. If the connection is reset meanwhile, and libzmq goes on with what
it had read, the answer to a ping aborts the process (libzmq 4.3.5, stream_engine_base.cpp: `!_io_error`). So the
broker's sockets are in a child process here.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
from typing import Final

_MESSAGES: Final = 600
_CHILD: Final = f"""
from tests.unit.broker.stage import Node

node = Node("b1")
print(node.endpoint, flush=True)
input()
node.receive_until(lambda events: node.sockets.counts.refused["bad_frame"] == {_MESSAGES})
node.close()
"""
_RESETS: Final = struct.pack("ii", 1, 0)
_GREETING: Final = b"\xff" + bytes(8) + b"\x7f\x03\x01NULL" + bytes(16 + 1 + 31)
_READY: Final = (
    b"\x05READY" + b"\x0bSocket-Type" + struct.pack(">I6s", 6, b"DEALER") + b"\x08Identity" + bytes(4)
)
_PING: Final = b"\x04PING" + bytes(2)
_PONG: Final = b"\x04\x05\x04PONG"
_MESSAGE: Final = b"\x00\x01x"


def _command(body: bytes) -> bytes:
    return bytes([4, len(body)]) + body


def _shake_hands(endpoint: str) -> socket.socket:
    """Return a connection that speaks ZMTP 3.1, after the broker's I/O thread has answered it."""
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    connection.sendall(_GREETING + _command(_READY))
    _hear(connection, b"READY")
    return connection


def _hear(connection: socket.socket, what: bytes) -> None:
    heard = b""
    while what not in heard:
        more = connection.recv(1024)
        assert more, f"the connection was closed before {what!r}"
        heard += more


def test_a_connection_that_pings_and_is_reset_while_the_broker_is_busy_harms_nobody() -> None:
    command = [sys.executable, "-c", _CHILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        endpoint = child.stdout.readline().strip()
        with _shake_hands(endpoint) as connection:
            # In one piece that libzmq reads at once: it has read all when it answers the first ping.
            connection.sendall((_MESSAGE + _command(_PING)) * _MESSAGES)
            _hear(connection, _PONG)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESETS)
        # Events come in order: whoever is answered now is answered after the end of the other was seen.
        _shake_hands(endpoint).close()
        child.communicate("go on\n", timeout=60)
    assert child.returncode == 0
