"""What the broker's tests share: a raw client, a broker's sockets to talk to, a core that does as it is told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import structlog
import zmq

from dueq.broker.clocks import Clocks, read_clocks
from dueq.broker.inbox import Inbox
from dueq.broker.introductions import Identity
from dueq.broker.loop import Loop
from dueq.broker.sockets import Sockets
from dueq.broker.waiting import Waiter
from dueq.core.ports.effects import Effect
from dueq.core.ports.events import Event
from dueq.instant import Now
from dueq_codecs.frames import decode, encode
from dueq_codecs.messages import Hello, Message, Role

PATIENCE_MS = 20_000
CLUSTER = "c1"


class RawClient:
    """A DEALER that says anything at all."""

    def __init__(self, endpoint: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 10)
        self._socket.connect(endpoint)

    def say(self, message: Message, bodies: Sequence[bytes] = ()) -> None:
        """Send a message."""
        self._socket.send_multipart(encode(message, bodies))

    def say_frames(self, *frames: bytes) -> None:
        """Send frames that need not be a message."""
        self._socket.send_multipart(frames)

    def hear(self, patience_ms: int = PATIENCE_MS) -> Message:
        """Return the next message."""
        assert self._socket.poll(patience_ms), "nothing was answered"
        message, _ = decode(self._socket.recv_multipart())
        return message

    def close(self) -> None:
        """Hang up."""
        self._socket.close(0)
        self._context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Node:
    """The sockets of one broker, on a free port, driven by hand."""

    def __init__(
        self,
        broker_id: str,
        incarnation: int = 1,
        cluster_id: str = CLUSTER,
        listen: str = "tcp://127.0.0.1:0",
    ) -> None:
        self.waiter = Waiter()
        self.sockets = Sockets(listen, Identity(broker_id, incarnation, cluster_id), self.waiter)

    @property
    def endpoint(self) -> str:
        return self.sockets.endpoint

    def receive_until(self, holds: Callable[[list[Event]], bool]) -> list[Event]:
        """Receive until something holds of all that has come."""
        events: list[Event] = []
        for _ in range(PATIENCE_MS // 10):
            events += self.sockets.receive()
            if holds(events):
                return events
            if not self.sockets.readable():
                self.waiter.wait(0.01)
        raise AssertionError(f"it never held; {len(events)} events came: {events!r:.500}")

    def close(self) -> None:
        self.sockets.close()
        self.waiter.close()


class TellingCore:
    """A core that answers each event as a function says, and remembers its turns.

    Attributes:
        turns: what each step was given, after what was to be heard before it.
        deadlines_us: instants at which a turn is wanted, ascending.
        heard: what the next step comes after.
        due: what is to be pushed before a turn.
    """

    def __init__(self, answer: Callable[[Event], list[Effect]] = lambda event: []) -> None:
        self._answer = answer
        self.turns: list[tuple[list[Event], Now]] = []
        self.due: Callable[[Now], list[Effect]] = lambda now: []
        self.deadlines_us: list[int] = []
        self.heard: list[Event] = []

    @property
    def events(self) -> list[Event]:
        return [event for events, _ in self.turns for event in events]

    def push(self, now: Now) -> list[Effect]:
        return self.due(now)

    def hear(self, events: list[Event], now: Now) -> list[Effect]:
        self.heard = list(events)
        return [effect for event in events for effect in self._answer(event)]

    def step(self, events: list[Event], now: Now) -> list[Effect]:
        self.turns.append(([*self.heard, *events], now))
        self.heard = []
        return [effect for event in events for effect in self._answer(event)]

    def next_deadline_us(self, now: Now) -> int:
        while self.deadlines_us and self.deadlines_us[0] <= self.turns[-1][1].mono_us:
            self.deadlines_us.pop(0)
        return self.deadlines_us[0] if self.deadlines_us else now.mono_us + 60_000_000


class NoOrders:
    """Carries nothing out."""

    def persist(self, order: Any) -> None:
        raise AssertionError("nothing is to be persisted here")

    def read(self, request: Any) -> None:
        raise AssertionError("nothing is to be read here")

    def coordinate(self, order: Any) -> None:
        raise AssertionError("nothing is to be coordinated here")


class RunningLoop:
    """A loop over a core of the test's, in a thread, while this is entered.

    Attributes:
        logged: what was logged, as dictionaries.
        published: the instants at which numbers were published.
        error: what escaped from the loop.
    """

    def __init__(self, core: Any, orders: Any = None, clocks: Clocks = read_clocks) -> None:
        self.core = core
        self.node = Node("b1")
        self.inbox = Inbox()
        self.logged: list[dict[str, Any]] = []
        self.published: list[Now] = []
        self.error: Exception | None = None
        log = structlog.wrap_logger(None, processors=[self._log])
        carried_out_by = NoOrders() if orders is None else orders(self.inbox)
        self.loop = Loop(
            core,
            self.node.sockets,
            self.inbox,
            self.node.waiter,
            carried_out_by,
            log,
            self.published.append,
            clocks,
        )
        self._thread = threading.Thread(target=self._run)

    @property
    def endpoint(self) -> str:
        return self.node.endpoint

    def join(self) -> None:
        """Wait for the loop to end by itself."""
        self._thread.join(PATIENCE_MS / 1000)
        assert not self._thread.is_alive(), "the loop goes on"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.loop.stop()
        self.join()
        self.node.close()
        self.inbox.close()

    def _run(self) -> None:
        try:
            self.loop.run()
        except ValueError as error:
            self.error = error

    def _log(self, logger: Any, method: str, line: Any) -> str:
        self.logged.append({"level": method, **line})
        raise structlog.DropEvent


def broker_hello(name: str, incarnation: int = 1, attach: int = 1, **changes: Any) -> Hello:
    """A peer's Hello."""
    return Hello(
        Role.BROKER, name, **{"cluster_id": CLUSTER, **changes}, incarnation=incarnation, attach=attach
    )
