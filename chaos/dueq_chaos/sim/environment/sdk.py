"""A simulated client process around the SDK's real session machine.

The machine is stepped as the SDK's own I/O thread does it: events in, orders out. Its links are connections of the
simulated network: in order, once, and silent when they break.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from dueq.client.core import ClientCore
from dueq.client.core.ports import effects
from dueq.client.core.ports.events import Event, FrameReceived, LinkLost, LinkReady
from dueq.errors import InvalidRequest
from dueq.instant import Now
from dueq_chaos.sim.environment.network import Line, Network
from dueq_chaos.sim.environment.node import Node
from dueq_chaos.sim.environment.world import World
from dueq_chaos.sim.judging.history import History
from dueq_codecs import frames
from dueq_codecs.messages import BrokerMessage, ClientMessage, ConsumerAction, ConsumerFrame

ANYTHING: Final = ("",)
"""Every text has this one."""
Answer = Callable[[Any, effects.Failed | None], None]
"""Called once: with the value of Completed and None, or with None and the failure."""
Bodies = Sequence[bytes | memoryview]
ConsumerEffect = effects.Deliver | effects.Reclaim | effects.LeaseLost | effects.ConsumerFailed


class _Socket:
    __slots__ = ("broker", "identity", "life", "line", "link")

    def __init__(self, link: int, broker: str, life: int, identity: str) -> None:
        self.link, self.broker, self.life, self.identity = link, broker, life, identity
        self.line = Line()


class SimClient:
    """One process with one client.

    Attributes:
        core: the session machine; None while the process is dead.
        reach: brokers that it can connect to; the others must relay.
        wire: whether frames go through the codecs (slower, and nothing is shared by reference).
        consumers: who takes what comes for a consumer id.
        calls: those that wait for their answer.
        attaches: the last ATTACH of each consumer to each broker by a link of its own, with the link's identity.
        waiting: calls that will be repeated soon.
        idles: some of its calls wait until something comes, however long.
        failures: what its core has raised, answers that were none, and requests that were refused as none.
        asks_nonsense: texts with which its user's requests may be refused; any other refusal is a finding.
    """

    def __init__(
        self,
        name: str,
        world: World,
        nodes: Mapping[str, Node],
        network: Network,
        history: History,
        reach: Sequence[str],
    ) -> None:
        self.name, self.world, self.history = name, world, history
        self._nodes, self._network = nodes, network
        self.reach = list(reach)
        self.wire = False
        self.core: ClientCore | None = None
        self.client_id = b""
        self.life = 0
        self.consumers: dict[bytes, Callable[[ConsumerEffect], None]] = {}
        self.failures: list[Exception] = []
        self.asks_nonsense: tuple[str, ...] = ()
        self._queue: list[Event] = []
        self.calls: dict[int, Answer] = {}
        self.waiting = 0
        self.idles = False
        self._numbers = 0
        self._sockets: dict[int, _Socket] = {}
        self._planned_us: int | None = None
        self._due = partial(self._turn_if_due, self.life)
        """Takes the turn of this life that is planned for the present instant."""
        self.attaches: dict[bytes, dict[str, tuple[str, ConsumerFrame]]] = {}
        self.start()

    # -------------------------------------------------------------- life

    def start(self, client_id: bytes = b"") -> None:
        """Begin a process: a new client id (or, of a copied process, this one), nothing remembered."""
        self.life += 1
        self._due = partial(self._turn_if_due, self.life)
        self.client_id = client_id or self.draw_id()
        self.core = ClientCore(
            self.client_id, [f"sim://{broker}" for broker in self.reach], self.world.random
        )
        self._queue, self.calls, self._sockets, self.consumers = [], {}, {}, {}
        self.waiting = 0
        self._planned_us = None
        self.wake()

    def crash(self) -> None:
        """The process is gone; brokers learn it when they hear that its connections are closed."""
        if self.core is None:
            return
        self.core = None
        self.calls, self.waiting = {}, 0
        for socket in list(self._sockets.values()):
            self._close(socket.link)
        self.world.tell(self.name, "crashed")

    @property
    def linked(self) -> bool:
        """Whether it is connected to every broker that it can reach; a dead process waits for none."""
        up = {socket.broker for socket in self._sockets.values() if socket.life and not socket.line.broken}
        return self.core is None or up.issuperset(self.reach)

    def draw_id(self) -> bytes:
        """16 bytes by chance."""
        return self.world.random.getrandbits(128).to_bytes(16, "big")

    def now(self) -> Now:
        """Return the time of its clocks."""
        return Now(self.world.wall_us, self.world.now_us)

    # -------------------------------------------------------------- what its user does

    def submit(self, event: Event) -> None:
        """Hand in an event without an answer."""
        self._queue.append(event)
        self.wake()

    def call(self, build: Callable[[int, int], Event], timeout_us: int, answer: Answer) -> None:
        """Hand in an event that is answered once.

        Args:
            build: the event, from call number and deadline.
            timeout_us: until the call fails.
            answer: what to do then.
        """
        self._numbers += 1
        self.calls[self._numbers] = answer
        self.submit(build(self._numbers, self.world.now_us + timeout_us))

    # -------------------------------------------------------------- turns

    def wake(self) -> None:
        """Have a turn soon."""
        self._plan(self.world.now_us + 5 + int(self.world.random.random() * 56))

    def _plan(self, at_us: int) -> None:
        if self.core is None or (self._planned_us is not None and self._planned_us <= at_us):
            return
        self._planned_us = at_us
        self.world.at(at_us, self._due)

    def _turn_if_due(self, life: int) -> None:
        if self._planned_us == self.world.now_us and life == self.life:
            self._planned_us = None
            self._turn()

    def _turn(self) -> None:
        core = self.core
        if core is None:
            return
        queue, self._queue = self._queue, []
        try:
            orders = core.step(queue, self.now())
        except Exception as error:  # whatever it raises is a finding, and must not end the world
            self.failures.append(error)
            self.world.tell(self.name, f"FAILED: {error!r}")
            self.crash()
            return
        for order in orders:
            self._perform(order)
        if self.core is core and core.next_deadline_us is not None:
            self._plan(max(core.next_deadline_us, self.world.now_us + 1))

    def _perform(self, order: effects.Effect) -> None:
        if isinstance(order, effects.Send):
            self._send(order)
        elif isinstance(order, effects.Completed):
            answer = self.calls.pop(order.call, None)
            if answer is not None:
                answer(order.value, None)
        elif isinstance(order, effects.Failed):
            answer = self.calls.pop(order.call, None)
            self.world.tell(self.name, f"call {order.call} failed: {order.error!r}")
            text = str(order.error)
            if isinstance(order.error, InvalidRequest) and not any(
                said in text for said in self.asks_nonsense
            ):
                self.failures.append(order.error)
            if answer is not None:
                answer(None, order)
        elif isinstance(order, effects.OpenLink):
            self._open(order.link, order.endpoint.removeprefix("sim://"))
        elif isinstance(order, effects.CloseLink):
            self._close(order.link)
        elif isinstance(order, effects.Log):
            if order.level != "debug":
                self.world.tell(self.name, f"{order.event} {order.fields}")
            if order.event == "answer.refused":
                self.failures.append(AssertionError(f"a broker sends what is no answer: {order.fields}"))
        else:
            take = self.consumers.get(order.consumer_id)
            if take is not None:
                take(order)

    # -------------------------------------------------------------- links

    def _open(self, link: int, broker: str) -> None:
        identity = f"{self.name}/{self.life}/{link}"
        node = self._nodes.get(broker)
        socket = self._sockets[link] = _Socket(link, broker, 0, identity)

        def answered() -> None:
            if self._sockets.get(link) is not socket or self.core is None:
                return
            network = self._network
            if not (network.connected(self.name, broker) and network.connected(broker, self.name)):
                return  # silence: the session machine gives up by itself
            if node is None or node.core is None or broker not in self.reach:
                del self._sockets[link]
                self.submit(LinkLost(link, "connection refused"))
                return
            socket.life = node.incarnation
            network.lines[identity] = socket.line
            self.submit(LinkReady(link))

        self.world.after(self.world.random.randint(200, 1_500), answered)

    def _close(self, link: int) -> None:
        socket = self._sockets.pop(link, None)
        if socket is None:
            return
        line = socket.line

        def heard() -> None:
            line.hung_up = True

        if self._network.connected(self.name, socket.broker):
            self.world.after(self.world.random.randint(100, 1_000), heard)

    def _send(self, order: effects.Send) -> None:
        socket = self._sockets.get(order.link)
        if socket is None:
            return
        broker, life, identity = socket.broker, socket.life, socket.identity
        node = self._nodes[broker]
        message, bodies = self._carried(order.message, order.bodies)
        if isinstance(message, ConsumerFrame) and message.action is ConsumerAction.ATTACH:
            self._note_attach(identity, broker, message)

        def arrive() -> None:
            if node.core is None or node.incarnation != life:
                self._reset(socket)
            else:
                node.client_frame(identity, message, bodies)

        self._network.stream(socket.line.up, self.name, broker, arrive)

    def _note_attach(self, identity: str, broker: str, frame: ConsumerFrame) -> None:
        if frame.leader == broker:
            self.attaches.setdefault(frame.consumer_id, {})[broker] = identity, frame

    def _reset(self, socket: _Socket) -> None:
        """The broker's life to which this connection belonged is over: its machine says so."""
        socket.line.broken = socket.line.hung_up = True

        def told() -> None:
            if self._sockets.pop(socket.link, None) is not None:
                self.submit(LinkLost(socket.link, "connection reset"))

        self.world.after(self.world.random.randint(100, 1_000), told)

    def hang_up(self) -> None:
        """Something on the way ends all of its connections."""
        for socket in list(self._sockets.values()):
            self._reset(socket)

    def broker_died(self, broker: str) -> None:
        """A broker's process is gone; its machine closes its connections."""
        for socket in list(self._sockets.values()):
            if socket.broker == broker and self._network.connected(broker, self.name):
                self._reset(socket)

    def received(self, identity: str, message: BrokerMessage, bodies: Bodies) -> None:
        """A frame has come on one of its connections."""
        socket = self._sockets.get(int(identity.rpartition("/")[2]))
        if self.core is None or socket is None or socket.identity != identity:
            return
        if self.wire:
            decoded, bodies = frames.decode(_owned(frames.encode(message, bodies)))
            message = decoded  # type: ignore[assignment]
        self.submit(FrameReceived(socket.link, message, bodies))

    def _carried(
        self, message: ClientMessage, bodies: Bodies
    ) -> tuple[ClientMessage, list[bytes | memoryview]]:
        if not self.wire:
            return message, list(bodies)
        decoded, carried = frames.decode(_owned(frames.encode(message, bodies)))
        return decoded, carried  # type: ignore[return-value]


def _owned(parts: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """Copies, as a socket makes them."""
    return [bytes(part) for part in parts]
