"""Our connections to peers: one DEALER to each.

A DEALER reconnects by itself, and the other side then sees a connection that has not said Hello: it refuses every
frame, and that refusal (nothing else is ever said on a link) makes us say Hello again. With IMMEDIATE nothing is kept
for a peer that is not there: a later life must not get frames that were meant for an earlier one.

A DEALER is told a number, never a name (see `names`). The core asks for a fresh connection to a peer that stays silent,
and its name is looked up again for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import zmq

from dueq.broker.clocks import Clocks
from dueq.broker.introductions import Identity
from dueq.broker.names import Lookup
from dueq.broker.tuning import Counts, has_input, put, tune
from dueq.broker.waiting import Waiter
from dueq_codecs.frames import FrameError, decode, encode
from dueq_codecs.messages import Code, Hello, Reply, Role

_REPLIES_PER_TURN = 64
_HELLO_AGAIN_US = 20_000


class _Link:
    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self.socket = socket
        self.descriptor = int(socket.getsockopt(zmq.FD))
        self.introduced = False
        self.said_at_us = 0
        self.unsure = True
        """There may be input that the descriptor does not tell of (see `Sockets`)."""


class Links:
    """The links to all peers; belongs to the loop's thread."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        me: Identity,
        waiter: Waiter,
        counts: Counts,
        clocks: Clocks,
    ) -> None:
        self._context, self._me, self._waiter, self._counts = context, me, waiter, counts
        self._clocks = clocks
        # Grows over all links of this life: the later of two Hellos counts, whatever the clock does.
        self._attach = count(1)
        self._links: dict[str, _Link] = {}
        # Where each peer is; without an endpoint that is none.
        self._lookups: dict[str, Lookup] = {}

    def connect(self, broker_id: str, endpoint: str) -> None:
        """Have one fresh connection to a peer; an endpoint that is none is counted, and then there is no link.

        As long as its name is being looked up, or the process may have no more descriptors, each frame for the peer
        tries again.
        """
        self._disconnect(broker_id)
        known = self._lookups.get(broker_id)
        if known is None or known.endpoint != endpoint or not known.under_way:
            self._lookups[broker_id] = Lookup(endpoint, self._clocks().mono_us)
        self._open(broker_id)

    def has(self, broker_id: str) -> bool:
        """Whether there is a link to this peer."""
        return broker_id in self._links

    def send(self, broker_id: str, frames: Sequence[bytes | memoryview]) -> None:
        """Send, after a Hello where there was none; dropped when there is no connection or it is full."""
        link = self._links.get(broker_id) or self._open(broker_id)
        if link is None or not (link.introduced or self._say_hello(link)):
            self._counts.dropped += 1
            return
        self._put(link, frames)

    def hear(self) -> None:
        """Take in what peers answer: refusals."""
        for broker_id, link in self._links.items():
            if not (link.unsure or self._waiter.may_be_ready(link.descriptor)):
                continue
            again, link.unsure = False, True
            for _ in range(_REPLIES_PER_TURN):
                if not has_input(link.socket):
                    link.unsure = False
                    break
                again |= self._heard(broker_id, link.socket.recv_multipart(zmq.NOBLOCK))
            if again and self._clocks().mono_us >= link.said_at_us + _HELLO_AGAIN_US:
                self._say_hello(link)

    def readable(self) -> bool:
        """Whether a peer has answered."""
        for link in self._links.values():
            if link.unsure:
                link.unsure = has_input(link.socket)
                if link.unsure:
                    return True
        return False

    def close(self) -> None:
        """Close every link."""
        for broker_id in list(self._links):
            self._disconnect(broker_id)

    def _open(self, broker_id: str) -> _Link | None:
        """Return a new link to a peer, if there can be one now."""
        lookup = self._lookups.get(broker_id)
        if lookup is None:
            return None
        if not lookup.address:
            if fault := lookup.go_on(self._clocks().mono_us):
                self._counts.refuse("no_address", f"the endpoint {lookup.endpoint} of {broker_id}: {fault}")
            return None
        try:
            socket = self._context.socket(zmq.DEALER)
        except zmq.ZMQError as error:
            self._counts.refuse("no_descriptors", f"a link to {broker_id} at {lookup.endpoint}: {error}")
            return None
        tune(socket, lookup.address)
        socket.setsockopt(zmq.IMMEDIATE, 1)
        try:
            socket.connect(lookup.address)
        except zmq.ZMQError as error:
            socket.close(0)
            del self._lookups[broker_id]
            self._counts.refuse("bad_endpoint", f"the endpoint {lookup.endpoint!r} of {broker_id}: {error}")
            return None
        link = self._links[broker_id] = _Link(socket)
        self._waiter.add(link.descriptor)
        return link

    def _disconnect(self, broker_id: str) -> None:
        """Close the connection to a peer, with all that has not left yet."""
        link = self._links.pop(broker_id, None)
        if link is not None:
            self._waiter.remove(link.descriptor)
            link.socket.close(0)

    def _heard(self, broker_id: str, frames: list[bytes]) -> bool:
        """Say whether a Hello can mend what a peer complains about."""
        try:
            message, _ = decode(frames)
        except FrameError as error:
            self._counts.refuse(error.code.name, f"{broker_id} answers: {error.reason}")
            return False
        if not isinstance(message, Reply):
            self._counts.refuse(Code.BAD_FRAME.name, f"{broker_id} answers with a {type(message).__name__}")
            return False
        if message.code != Code.BAD_FRAME:
            self._counts.refuse(message.code.name, f"{broker_id} refuses this broker: {message.text}")
            return False
        return True

    def _say_hello(self, link: _Link) -> bool:
        now = self._clocks()
        link.said_at_us = now.mono_us
        hello = Hello(
            Role.BROKER, self._me.broker_id, self._me.cluster_id, self._me.incarnation, next(self._attach),
            sent_wall_us=now.wall_us,
        )  # fmt: skip
        link.introduced = self._put(link, encode(hello))
        return link.introduced

    def _put(self, link: _Link, frames: Sequence[bytes | memoryview]) -> bool:
        link.unsure = True
        try:
            put(link.socket, frames)
        except zmq.Again:
            self._counts.dropped += 1
            return False
        self._counts.frames_out += 1
        return True
