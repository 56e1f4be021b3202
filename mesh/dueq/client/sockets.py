"""One DEALER socket per link, and what ZeroMQ reports about it.

ZeroMQ's own reconnection is off and a broken connection becomes a new socket: otherwise a DEALER would keep
frames for a dead broker, deliver them to its next life, and not report lost frames.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from socket import socketpair
from threading import Thread
from typing import Any, Final

import zmq
import zmq.utils.garbage  # zmq.Frame would import it in the I/O thread, and a fork break that off
from zmq.utils.monitor import parse_monitor_message

from dueq import limits
from dueq.client.core.ports.effects import Send
from dueq.client.core.ports.events import Event, FrameReceived, LinkLost, LinkReady
from dueq.client.logs import log
from dueq.host_names import has_name, looked_up
from dueq_codecs.frames import FrameError, decode, encode

CONNECT_MS: Final = 5000
FRAMES_PER_TURN: Final = 200
_COPY_BELOW: Final = 64 << 10
_FILES_OF_THREADS: Final = 8
"""At least the descriptors of a context, of its threads and of its first socket."""
# As plain numbers: pyzmq's are enumerations, which are slow to combine. Asking whether there is more costs half as much
# as the exception that says no.
_EVENTS, _POLLIN = int(zmq.EVENTS), int(zmq.POLLIN)

_LOST: Final[dict[int, str]] = {
    zmq.EVENT_DISCONNECTED: "the connection was lost",
    zmq.EVENT_CLOSED: "nobody listens there",
    zmq.EVENT_CLOSE_FAILED: "the connection could not be closed",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "the handshake failed",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "it does not speak ZeroMQ",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "the handshake was refused",
}
_WATCHED: Final = zmq.EVENT_HANDSHAKE_SUCCEEDED | sum(_LOST)


class _Lookup:
    """A name that is being looked up, in a thread of its own.

    Attributes:
        ended: becomes readable at the end.
        address: what was found; "" if nothing was.
        fault: why nothing was found.
    """

    def __init__(self, endpoint: str) -> None:
        """Begin.

        Raises:
            OSError, RuntimeError: the machine has no descriptor, or no thread, left for this process.
        """
        self.endpoint, self.address, self.fault = endpoint, "", ""
        self.ended, self._end = socketpair()
        try:
            Thread(target=self._look_up, name="dueq-lookup", daemon=True).start()
        except RuntimeError:
            self.ended.close()
            self._end.close()
            raise

    def _look_up(self) -> None:
        with self._end:
            try:
                self.address = looked_up(self.endpoint)
            except OSError as error:
                self.fault = error.strerror or str(error)


def check_files() -> None:
    """Make sure that libzmq may begin its threads: it aborts a process in which they find no descriptor.

    Raises:
        OSError: the process may not open as many files as they need.
    """
    spare: list[int] = []
    try:
        for _ in range(_FILES_OF_THREADS):
            spare.append(os.eventfd(0, os.EFD_CLOEXEC))
    finally:
        for descriptor in spare:
            os.close(descriptor)


def _can_share() -> bool:
    """Whether frames can be sent without a copy: for the first of a process pyzmq makes a thread and sockets."""
    try:
        check_files()
        zmq.Frame(b"any", copy=False)
    except (OSError, RuntimeError, zmq.ZMQError):  # no descriptor or no thread is left for this process
        return False
    return True


class Sockets:
    """All sockets of one client; used by its I/O thread only."""

    def __init__(self, context: zmq.Context[Any], wake_fd: int) -> None:
        self._context = context
        self._poller = zmq.Poller()
        self._poller.register(wake_fd, zmq.POLLIN)
        self._wake_fd = wake_fd
        self._by_link: dict[int, zmq.Socket[Any]] = {}
        self._links: dict[zmq.Socket[Any], int] = {}
        self._watched: dict[zmq.Socket[Any], int] = {}
        # Links that wait for their endpoint's name; several may wait for one lookup. Lookups by descriptor.
        self._unnamed: dict[int, str] = {}
        self._lookups: dict[int, _Lookup] = {}
        self._shares = False
        self.failed: list[Event] = []
        """Events that happened while sending; taken in with the next turn."""

    def open(self, link: int, endpoint: str) -> None:
        """Begin to connect."""
        socket: zmq.Socket[Any] | None = None
        try:
            socket = self._context.socket(zmq.DEALER)
            for option, value in (
                (zmq.LINGER, 0),
                (zmq.IMMEDIATE, 1),
                (zmq.RECONNECT_IVL, -1),
                (zmq.CONNECT_TIMEOUT, CONNECT_MS),
                (zmq.MAXMSGSIZE, limits.FRAME_BYTES_MAX),
                (zmq.SNDHWM, 0),  # the session machine bounds what is out, by bytes
                (zmq.RCVHWM, 0),  # credit bounds what comes in
                # A name may have both addresses, and the broker listen on one.
                (zmq.IPV6, int("[" in endpoint)),
            ):
                socket.setsockopt(option, value)
            watch = socket.get_monitor_socket(_WATCHED)
        except zmq.ZMQError as error:  # too many files are open: the machine tries again
            if socket is not None:
                socket.close(0)
            self.failed.append(LinkLost(link, str(error)))
            return
        self._by_link[link], self._links[socket], self._watched[watch] = socket, link, link
        self._poller.register(socket, zmq.POLLIN)
        self._poller.register(watch, zmq.POLLIN)
        if has_name(endpoint):
            self._look_up(link, endpoint)
        else:
            self._connect(link, endpoint)

    def _look_up(self, link: int, endpoint: str) -> None:
        """Have a link connected once its endpoint's name is known."""
        if all(lookup.endpoint != endpoint for lookup in self._lookups.values()):
            try:
                lookup = _Lookup(endpoint)
            except (OSError, RuntimeError) as error:
                self.failed.append(LinkLost(link, str(error)))
                return
            self._lookups[lookup.ended.fileno()] = lookup
            self._poller.register(lookup.ended, zmq.POLLIN)
        self._unnamed[link] = endpoint

    def _looked_up(self, descriptor: int) -> None:
        """Connect the links that have waited for this name."""
        lookup = self._lookups.pop(descriptor)
        self._poller.unregister(lookup.ended)
        lookup.ended.close()
        for link, endpoint in list(self._unnamed.items()):
            if endpoint == lookup.endpoint:
                del self._unnamed[link]
                if lookup.address:
                    self._connect(link, lookup.address)
                else:
                    self.failed.append(LinkLost(link, lookup.fault))

    def _connect(self, link: int, address: str) -> None:
        try:
            self._by_link[link].connect(address)
        except zmq.ZMQError as error:
            self.failed.append(LinkLost(link, str(error)))

    def close(self, link: int) -> None:
        """Drop a socket with all frames that it holds."""
        socket = self._by_link.pop(link, None)
        if socket is None:
            return
        del self._links[socket]
        self._unnamed.pop(link, None)
        watch = next(watch for watch, number in self._watched.items() if number == link)
        del self._watched[watch]
        self._poller.unregister(watch)
        self._poller.unregister(socket)
        socket.disable_monitor()
        watch.close(0)
        socket.close(0)

    def close_all(self) -> None:
        """Drop every socket."""
        for link in list(self._by_link):
            self.close(link)
        for descriptor in list(self._lookups):
            self._looked_up(descriptor)

    def send(self, order: Send) -> None:
        """Send, or report the link lost: the machine repeats what matters."""
        socket = self._by_link.get(order.link)
        if socket is None:
            return
        frames = encode(order.message, order.bodies)
        long = sum(map(len, frames[1:])) >= _COPY_BELOW
        self._shares = self._shares or (long and _can_share())
        try:
            socket.send_multipart(frames, zmq.DONTWAIT, copy=not (long and self._shares))
        except zmq.Again:
            self.failed.append(LinkLost(order.link, "the connection was lost"))

    def wait(self, timeout_ms: int) -> tuple[list[Event], bool]:
        """Wait for frames; return the events, and whether the thread was woken."""
        happened, self.failed = self.failed, []
        woken = False
        for ready, _ in self._poller.poll(0 if happened else timeout_ms):
            if ready == self._wake_fd:
                woken = True
            elif ready in self._lookups:
                self._looked_up(ready)
            elif ready in self._links:
                happened.extend(self._received(ready, self._links[ready]))
            elif ready in self._watched:
                happened.extend(self._reported(ready, self._watched[ready]))
        return happened, woken

    def _received(self, socket: zmq.Socket[Any], link: int) -> Iterator[Event]:
        for _ in range(FRAMES_PER_TURN):
            if not int(socket.getsockopt(_EVENTS)) & _POLLIN:
                return
            frames = socket.recv_multipart(zmq.DONTWAIT)
            try:
                message, bodies = decode(frames)
            except FrameError as error:
                log.warning("frame.refused", link=link, reason=error.reason, bytes=sum(map(len, frames)))
                continue
            yield FrameReceived(link, message, bodies)  # type: ignore[arg-type]  # others are dropped unread

    def _reported(self, watch: zmq.Socket[Any], link: int) -> Iterator[Event]:
        while True:
            try:
                report = parse_monitor_message(watch.recv_multipart(zmq.DONTWAIT))
            except zmq.Again:
                return
            if report["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                yield LinkReady(link)
            elif report["event"] in _LOST:
                yield LinkLost(link, _LOST[report["event"]])
