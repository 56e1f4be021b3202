"""Connections to brokers: which are up, which to reopen and when.

A link is one socket's life. It is up once the broker has answered Hello; Hello goes on every two seconds as
keep-alive and clock measurement. A link without any frame for five seconds is replaced. A link that has
never been up is replaced after two seconds at first and four later, since frames that were lost while it
was opened are not sent again automatically. Links do not guarantee that frames arrive: their senders repeat
them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum
from typing import Final

from dueq import limits
from dueq.client.core.links.context import Context
from dueq.client.core.ports.effects import CloseLink, OpenLink, Send
from dueq.client.core.ports.timers import Timer
from dueq.instant import Now
from dueq_codecs.messages import BrokerInfo, ClientMessage, Code, Hello, HelloReply, Role

HELLO_US: Final = limits.CLIENT_HELLO_MS * 1000
_MEASURE_US: Final = 500_000
"""Pause between two Hellos while no broker has told the mesh's time: one that has just started does soon."""
SILENCE_US: Final = limits.CLIENT_SILENCE_MS * 1000
BACK_OFF_US_MIN: Final = 100_000
BACK_OFF_US_MAX: Final = 2_000_000


class State(Enum):
    """The life of a link to one endpoint."""

    WAITING = "waiting to be opened"
    CONNECTING = "connecting"
    GREETING = "greeting"
    UP = "up"


class Link:
    """One endpoint and its present socket.

    Attributes:
        number: of the socket's life; frames of an older life are ignored.
        broker_id: the broker that answered Hello, empty before.
        given: named by the user (never forgotten), not learned.
        heard_us: monotonic instant of the last frame.
        back_off_us: how long the next attempt waits.
        trouble: why it is not up, for error texts.
    """

    def __init__(self, endpoint: str, given: bool) -> None:
        self.endpoint = endpoint
        self.given = given
        self.state = State.WAITING
        self.number = 0
        self.broker_id = ""
        self.heard_us = 0
        self.back_off_us = 0
        self.trouble = ""
        self.timer: Timer | None = None
        self.greeted: Now | None = None

    @property
    def up(self) -> bool:
        """The broker has answered on this socket."""
        return self.state is State.UP

    @property
    def silent_at_us(self) -> int:
        """Monotonic instant at which it is given up if nothing is heard; later with each failed attempt."""
        return self.heard_us + (SILENCE_US if self.up else HELLO_US + self.back_off_us)


class Links:
    """All links of a client."""

    def __init__(
        self,
        context: Context,
        endpoints: Iterable[str],
        on_up: Callable[[], None],
        on_greeted: Callable[[], None],
        on_down: Callable[[int], None],
    ) -> None:
        self._context = context
        self._on_up, self._on_greeted, self._on_down = on_up, on_greeted, on_down
        self._by_endpoint = {endpoint: Link(endpoint, given=True) for endpoint in endpoints}
        self._by_number: dict[int, Link] = {}
        self._opened = 0
        self._turn = 0
        self._started = False
        self.cluster_id = ""

    def start(self) -> None:
        """Open every link (once)."""
        if not self._started:
            self._started = True
            for link in self._by_endpoint.values():
                self._open(link)

    def close(self) -> None:
        """Close every link for good."""
        for link in self._by_endpoint.values():
            self._drop(link)
        self._by_endpoint.clear()

    # -------------------------------------------------------------- who is up

    def to_broker(self, broker_id: str) -> Link | None:
        """The link to this broker, if it is up."""
        if broker_id:
            for link in self._by_endpoint.values():
                if link.up and link.broker_id == broker_id:
                    return link
        return None

    def any_up(self, avoid: Collection[int] = ()) -> Link | None:
        """Some link that is up, in turn; if possible one whose number is not to be avoided."""
        ready = [link for link in self._by_endpoint.values() if link.up]
        ready = [link for link in ready if link.number not in avoid] or ready
        if not ready:
            return None
        self._turn += 1
        return ready[self._turn % len(ready)]

    def get(self, number: int) -> Link | None:
        """The link of this number, if it is up."""
        link = self._by_number.get(number)
        return link if link is not None and link.up else None

    def route(self, broker_id: str, avoid: int = 0) -> Link | None:
        """The link to a broker, or another one whose broker relays."""
        return self.to_broker(broker_id) or self.any_up((avoid,))

    def up(self) -> dict[str, Link]:
        """One link per broker that is up, by broker id."""
        return {link.broker_id: link for link in self._by_endpoint.values() if link.up}

    @property
    def opening(self) -> bool:
        """Whether a broker may answer soon that has not yet."""
        return any(link.state in (State.CONNECTING, State.GREETING) for link in self._by_endpoint.values())

    def send(self, link: Link, message: ClientMessage, bodies: Sequence[bytes | memoryview] = ()) -> None:
        """Send on a link that is up."""
        self._context.emit(Send(link.number, message, bodies))

    def troubles(self) -> str:
        """Why links are not up, for an error text."""
        links = self._by_endpoint.values()
        return "; ".join(
            f"{link.endpoint}: {link.trouble or link.state.value}" for link in links if not link.up
        )

    def learned(self, brokers: Iterable[BrokerInfo]) -> None:
        """Open links to brokers not known yet, and forget learned ones that are registered no more."""
        named = {broker.endpoint for broker in brokers if broker.endpoint}
        if not named:
            return
        for endpoint in sorted(named - self._by_endpoint.keys()):
            link = self._by_endpoint[endpoint] = Link(endpoint, given=False)
            self._open(link)
        for endpoint in [e for e, link in self._by_endpoint.items() if not link.given and e not in named]:
            # A broker that is only cut off from ZooKeeper still serves: keep its link while it is up.
            if not self._by_endpoint[endpoint].up:
                self._drop(self._by_endpoint.pop(endpoint))

    # -------------------------------------------------------------- what happens

    def ready(self, number: int) -> None:
        """The socket is connected: greet."""
        link = self._by_number.get(number)
        if link is not None and link.state is State.CONNECTING:
            link.state = State.GREETING
            self._greet(link)

    def lost(self, number: int, reason: str) -> None:
        """The socket's connection is gone."""
        link = self._by_number.get(number)
        if link is not None:
            self._fail(link, reason or "the connection was lost")

    def heard(self, number: int) -> Link | None:
        """A frame has come on this link; None if it belongs to an older life."""
        link = self._by_number.get(number)
        if link is not None:
            link.heard_us = self._context.mono_us
        return link

    def hello_received(self, link: Link, reply: HelloReply) -> None:
        """The broker has answered Hello."""
        context = self._context
        if reply.code is not Code.OK:
            context.log(
                "warning", "link.refused", endpoint=link.endpoint, code=reply.code.name, text=reply.text
            )
            link.back_off_us = BACK_OFF_US_MAX
            self._fail(link, reply.text or reply.code.name)
            return
        sent = link.greeted
        if sent is not None and reply.echo_wall_us == sent.wall_us:
            context.clock.measured(
                sent, context.now,
                reply.received_wall_us, reply.sent_wall_us, reply.mesh_offset_us,
            )  # fmt: skip
        self.cluster_id = self.cluster_id or reply.cluster_id
        if not link.up:
            link.state, link.broker_id, link.back_off_us, link.trouble = State.UP, reply.broker_id, 0, ""
            context.log("info", "link.opened", endpoint=link.endpoint, broker=reply.broker_id)
            self._on_up()
            if context.clock.best is None:
                self._watch(link)
        self._on_greeted()

    # -------------------------------------------------------------- transitions

    def _open(self, link: Link) -> None:
        context = self._context
        self._opened += 1
        link.number, link.state, link.heard_us = self._opened, State.CONNECTING, context.mono_us
        self._by_number[link.number] = link
        context.emit(OpenLink(link.number, link.endpoint))
        self._watch(link)

    def _greet(self, link: Link) -> None:
        context = self._context
        link.greeted = context.now
        hello = Hello(
            Role.CLIENT,
            context.client_id.hex(),
            cluster_id=self.cluster_id,
            attach=link.number,
            sent_wall_us=context.now.wall_us,
            agent="dueq-python",
        )
        context.emit(Send(link.number, hello))

    def _watch(self, link: Link) -> None:
        """Look at the link again soon: greet, or give it up."""
        if link.timer is not None:
            link.timer.cancel()
        known = self._context.clock.best is not None
        if self._context.steady and link.up and known:
            return
        left_us = link.silent_at_us - self._context.mono_us
        pause_us = HELLO_US if known or not link.up else _MEASURE_US
        link.timer = self._context.after(min(pause_us, left_us), lambda: self._look(link))

    def _look(self, link: Link) -> None:
        if self._context.mono_us >= link.silent_at_us:
            silent_s = (self._context.mono_us - link.heard_us) / 1_000_000
            self._fail(link, f"no answer for {silent_s:.1f} s")
            return
        if link.state is not State.CONNECTING:
            self._greet(link)
        self._watch(link)

    def _fail(self, link: Link, reason: str) -> None:
        """Replace the socket by a new one after a while (back-off, jitter)."""
        was_up, number = link.up, link.number
        self._drop(link)
        link.trouble = reason
        delay_us = self._context.jittered(link.back_off_us or BACK_OFF_US_MIN)
        link.back_off_us = min(max(link.back_off_us * 2, BACK_OFF_US_MIN), BACK_OFF_US_MAX)
        link.timer = self._context.after(delay_us, lambda: self._open(link))
        if was_up:
            self._context.log(
                "info", "link.lost", endpoint=link.endpoint, broker=link.broker_id, reason=reason
            )
            self._on_down(number)

    def _drop(self, link: Link) -> None:
        if link.timer is not None:
            link.timer.cancel()
        if link.state is not State.WAITING:
            self._by_number.pop(link.number, None)
            self._context.emit(CloseLink(link.number))
            link.state = State.WAITING
