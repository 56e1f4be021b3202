"""The options and counters that all sockets of a broker share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import zmq

from dueq.limits import FRAME_BYTES_MAX

_SEND_HIGH_WATER = 1_000
_UNLIMITED = 0
_HANDSHAKE_MS = 5_000
"""Whoever connects and does not speak ZeroMQ within this time is cut off: there are so many descriptors."""
_PROBE_AFTER_S, _PROBE_EVERY_S, _PROBES = 4, 2, 3
_UNANSWERED_MS = 10_000

# As plain numbers: pyzmq's are enumerations, and `|` of two takes as long as sending a short frame.
_EVENTS, _POLLIN = int(zmq.EVENTS), int(zmq.POLLIN)
_NOBLOCK = int(zmq.NOBLOCK)
_COPY_BELOW = 64 << 10
"""pyzmq copies shorter frames in any case, by way of an object for each."""
_MORE_FOLLOWS = _NOBLOCK | int(zmq.SNDMORE)


@dataclass
class Counts:
    """The counts of the sockets. They only grow, except for those that are taken for the log.

    Attributes:
        frames_in, frames_out: messages received and accepted, and sent.
        dropped: messages that could not be sent at once.
        refused: refused messages by code name, lower case.
    """

    frames_in: int = 0
    frames_out: int = 0
    dropped: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    _unsaid: int = 0
    _latest: str = ""

    def refuse(self, code: str, reason: str) -> None:
        """Count a refusal and keep its reason for the log."""
        self.refused[code.lower()] += 1
        self._unsaid += 1
        self._latest = reason

    def take_unsaid(self) -> tuple[int, str]:
        """Return how many refusals there were since the last call, and the reason of the latest."""
        taken, self._unsaid = self._unsaid, 0
        return taken, self._latest


def tune(socket: zmq.Socket[bytes], address: str) -> None:
    """Set the options of a socket whose connections promise nothing, before it gets its address."""
    # Only for the form with brackets: with it, `*` would be another address than 0.0.0.0.
    socket.setsockopt(zmq.IPV6, int("[" in address))
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, _SEND_HIGH_WATER)
    # libzmq 4.3.5 must never stop reading a connection because a pipe is full. If the connection is reset meanwhile,
    # the next thing that libzmq writes there aborts the process (stream_engine_base.cpp, out_event → zmq_assert
    # (!_io_error)). That can be the answer to a ping which it had read already, so anybody could do it to a broker.
    # So no limit bounds what is taken in ahead of us. Honest clients and brokers bound what they have under way.
    socket.setsockopt(zmq.RCVHWM, _UNLIMITED)
    socket.setsockopt(zmq.MAXMSGSIZE, FRAME_BYTES_MAX)
    socket.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
    # No heartbeats of libzmq's own, either: their timer writes without asking whether the connection is broken. The
    # kernel's probes and its limit for repetitions find connections that are dead without a word instead.
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, _PROBE_AFTER_S)
    socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, _PROBE_EVERY_S)
    socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, _PROBES)
    socket.setsockopt(zmq.TCP_MAXRT, _UNANSWERED_MS)
    socket.setsockopt(zmq.RECONNECT_IVL, 50)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1_000)


def begin_sharing() -> None:
    """Make a frame that is not copied.

    At the first one of a process pyzmq makes a thread and sockets, which free what libzmq has sent. In a broker whose
    clients have all of its descriptors by then, that would fail in the middle of a message.
    """
    zmq.Frame(b"any", copy=False)


def has_input(socket: zmq.Socket[bytes]) -> bool:
    """Whether something can be received now; to be asked before waiting: the descriptor is edge-triggered."""
    return bool(int(socket.getsockopt(_EVENTS)) & _POLLIN)


def put(socket: zmq.Socket[bytes], frames: Sequence[bytes | memoryview]) -> None:
    """Send one message, now or never.

    Raises:
        zmq.ZMQError: EAGAIN or EHOSTUNREACH: nothing was sent.
    """
    for frame in frames[:-1]:
        socket.send(frame, _MORE_FOLLOWS, copy=len(frame) < _COPY_BELOW)
    socket.send(frames[-1], _NOBLOCK, copy=len(frames[-1]) < _COPY_BELOW)
