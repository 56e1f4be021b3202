"""The proxy process: all traffic of a mesh passes through it, and it knows who speaks to whom.

Every broker advertises a port of this process, so clients and peers reach it through here; and each broker reaches
ZooKeeper by a port of its own. The opener of a connection to a broker's port is found where the kernel tells it: the
socket's inode in /proc/net/tcp, and the broker process that holds it. Everybody else is a client.

A way that is cut holds bytes (and the end of a connection) back and lets them pass afterwards, as a real partition does
above TCP. Run as a process of its own, so that it is not in anybody's way:

    stdin   one JSON object a line: {"brokers": {id: pid}}, {"rules": [[from, to, rule], …]}, {"reset": id};
            its end is the end of this process
    stdout  one JSON object a line per order: {"done": true}
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dueq_chaos.nemesis.network.rules import CLIENTS, FREE, Rule, Way

_BUFFER_BYTES = 4 << 20
"""Most bytes on a way before its sender is told to wait, as a socket's buffers would."""
_RETRANSMISSION_S = 0.2
_RETRANSMISSION_S_MAX = 5.0


@dataclass(frozen=True)
class Port:
    """One listening port.

    Attributes:
        host, port: where to listen.
        to_host, to_port: where connections go on to.
        to: who that is.
        source: who connects here; empty: to be found out.
    """

    host: str
    port: int
    to_host: str
    to_port: int
    to: str
    source: str = ""


class Switchboard:
    """All connections, and the rules that they obey."""

    def __init__(self) -> None:
        self.brokers: dict[str, int] = {}
        self.rules: dict[Way, Rule] = {}
        self.lines: set[Line] = set()

    def order(self, order: dict[str, Any]) -> None:
        """Obey one line of the standard input."""
        self.brokers.update(order.get("brokers", {}))
        if "rules" in order:
            self.rules = {(one, other): Rule.from_json(rule) for one, other, rule in order["rules"]}
            for line in list(self.lines):
                line.look_again()
        if who := order.get("reset"):
            for line in list(self.lines):
                if who in (line.source, line.to):
                    line.reset()

    def rule(self, source: str, to: str) -> Rule:
        """Return the rule of a way."""
        return self.rules.get((source, to), FREE)


class Line:
    """One connection: the caller's half, the callee's half, and a pump for each direction."""

    def __init__(self, board: Switchboard, port: Port) -> None:
        self._board, self._port = board, port
        self.source, self.to = port.source, port.to
        self.caller = Half(self)
        self.callee = Half(self)
        self._connecting: asyncio.Task[None] | None = None
        self._free = asyncio.Event()

    def called(self) -> None:
        """Somebody has connected to our port."""
        if not self.source:
            self.source = owner_of(self.caller.peer_port, self._port.port, self._board.brokers)
        self.caller.pump = Pump(self._board, self.source, self.to, self.callee, self.caller)
        self.callee.pump = Pump(self._board, self.to, self.source, self.caller, self.callee)
        self._board.lines.add(self)
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        """Go on to the callee, once a handshake could pass both ways."""
        self.look_again()
        await self._free.wait()
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: self.callee, self._port.to_host, self._port.to_port
            )
        except OSError:
            self.reset()

    def look_again(self) -> None:
        """The rules have changed."""
        there, back = self._board.rule(self.source, self.to), self._board.rule(self.to, self.source)
        if there.cut or back.cut:
            self._free.clear()
        else:
            self._free.set()
        for half in (self.caller, self.callee):
            if half.pump is not None:
                half.pump.run()

    def lost(self, half: Half) -> None:
        """One half has ended: the other learns of it as soon as the way is free."""
        other = self.callee if half is self.caller else self.caller
        if half.pump is not None and not other.closed:
            half.pump.finish()
        if half.closed and (other.closed or other.transport is None):
            self.reset()

    def reset(self) -> None:
        """Break the connection at once."""
        self._board.lines.discard(self)
        if self._connecting is not None and not self._connecting.done():
            self._connecting.cancel()
        for half in (self.caller, self.callee):
            if half.pump is not None:
                half.pump.stop()
            if half.transport is not None and not half.closed:
                half.closed = True
                # Without lingering the kernel sends a RST, as for a process that has died, and no FIN.
                half.transport.get_extra_info("socket").setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
                half.transport.abort()


class Half(asyncio.Protocol):
    """One socket of a line."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self.transport: asyncio.Transport | None = None
        self.pump: Pump | None = None
        self.closed = False

    @property
    def peer_port(self) -> int:
        """The port at the other end of this socket."""
        return int(self.transport.get_extra_info("peername")[1]) if self.transport is not None else 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self is self._line.caller:
            self._line.called()
        else:
            self._line.look_again()

    def data_received(self, data: bytes) -> None:
        """Bytes have come: they go to the other half."""
        if self.pump is not None:
            self.pump.put(data)

    def pause_writing(self) -> None:
        """The socket takes no more for now."""
        other = self._other()
        if other.transport is not None and not other.closed:
            other.transport.pause_reading()

    def resume_writing(self) -> None:
        """The socket takes more."""
        other = self._other()
        if other.transport is not None and not other.closed:
            other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket has ended."""
        self.closed = True
        self._line.lost(self)

    def _other(self) -> Half:
        return self._line.callee if self is self._line.caller else self._line.caller


class Pump:
    """One direction of a line: bytes wait here until the rule lets them pass, in order."""

    def __init__(self, board: Switchboard, source: str, to: str, out: Half, inlet: Half) -> None:
        self._board, self._source, self._to = board, source, to
        self._out, self._inlet = out, inlet
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._bytes = 0
        self._last_at = 0.0
        self._finished = False
        self._timer: asyncio.TimerHandle | None = None

    def put(self, data: bytes) -> None:
        """Take bytes in."""
        rule = self._board.rule(self._source, self._to)
        if rule is FREE and not self._waiting and self._out.transport is not None and not self._out.closed:
            self._out.transport.write(data)
            return
        now = asyncio.get_running_loop().time()
        self._last_at = max(self._last_at, now + _seconds_late(rule))
        self._waiting.append((self._last_at, data))
        self._bytes += len(data)
        if self._bytes > _BUFFER_BYTES and self._inlet.transport is not None:
            self._inlet.transport.pause_reading()
        self.run()

    def finish(self) -> None:
        """The sender has ended; so will the receiver's socket after all that waits."""
        self._finished = True
        self.run()

    def stop(self) -> None:
        """Forget everything."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def run(self) -> None:
        """Let the bytes pass that may pass now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        transport = self._out.transport
        if transport is None or self._out.closed or self._board.rule(self._source, self._to).cut:
            return
        loop = asyncio.get_running_loop()
        while self._waiting and self._waiting[0][0] <= loop.time():
            data = self._waiting.popleft()[1]
            self._bytes -= len(data)
            transport.write(data)
        if self._waiting:
            self._timer = loop.call_at(self._waiting[0][0], self.run)
        elif self._finished:
            transport.close()
        if self._bytes <= _BUFFER_BYTES // 2 and self._inlet.transport is not None and not self._inlet.closed:
            self._inlet.transport.resume_reading()


def _seconds_late(rule: Rule) -> float:
    late = (rule.delay_ms + random.random() * rule.jitter_ms) / 1000
    again = _RETRANSMISSION_S
    while rule.loss and random.random() < rule.loss and again <= _RETRANSMISSION_S_MAX:
        late += again
        again *= 2
    return late


def owner_of(caller_port: int, our_port: int, brokers: dict[str, int]) -> str:
    """Find out which broker holds the other end of a loopback connection.

    Args:
        caller_port: the caller's own port.
        our_port: the port that it called.
        brokers: process ids by broker id.

    Returns:
        A broker id, or `CLIENTS` where it is none of theirs.
    """
    inode = _inode(caller_port, our_port)
    wanted = f"socket:[{inode}]"
    for broker, pid in brokers.items():
        try:
            with os.scandir(f"/proc/{pid}/fd") as files:
                if any(_points_to(file.path) == wanted for file in files):
                    return broker
        except OSError:
            continue
    return CLIENTS


def _inode(local_port: int, remote_port: int) -> str:
    ours, theirs = f":{local_port:04X}", f":{remote_port:04X}"
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in table:
            fields = line.split()
            if fields[1].endswith(ours) and fields[2].endswith(theirs):
                return fields[9]
    return ""


def _points_to(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


async def serve(ports: Sequence[Port]) -> None:
    """Listen on all ports and obey the standard input until it ends."""
    board, loop = Switchboard(), asyncio.get_running_loop()
    servers = [await loop.create_server(_answering(board, port), port.host, port.port) for port in ports]
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    _answer()
    while line := await orders.readline():
        board.order(json.loads(line))
        _answer()
    for server in servers:
        server.close()


def _answering(board: Switchboard, port: Port) -> Callable[[], Half]:
    return lambda: Line(board, port).caller


def _answer() -> None:
    print(json.dumps({"done": True}), flush=True)


def main() -> None:
    """Run the process; the one argument is the list of ports as JSON."""
    asyncio.run(serve([Port(**port) for port in json.loads(sys.argv[1])]))


if __name__ == "__main__":
    main()
