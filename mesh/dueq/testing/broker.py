"""One broker without a process: the real core and store; each order is carried out at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from dueq.cluster.standalone import StandaloneCoordinator
from dueq.core.broker import BrokerCore
from dueq.core.ports.effects import Coordinate, Effect, Exit, Persist, Read, SendClient
from dueq.core.ports.events import ClientFrameReceived, Event, Persisted, Route, RouteLost
from dueq.core.ports.membership import Registration
from dueq.core.turn.settings import CoreSettings
from dueq.errors import Broken
from dueq.instant import Now
from dueq.storage.kinds import Opening, kind_of, open_store
from dueq_codecs.frames import decode, encode
from dueq_codecs.messages import BrokerMessage

ENDPOINT: Final = "tcp://127.0.0.1:1"
"""Nobody listens there, and nobody connects."""
_NAME: Final = "b1"
_MEMORY_BYTES: Final = 1 << 30
_COMMIT_US: Final = 100
_ALONE_US: Final = 10_000_000

Receive = Callable[[BrokerMessage, list[bytes | memoryview]], None]
"""Takes a frame for one connection."""


class Broker:
    """A mesh of one, whose store is in memory. Not thread-safe.

    Args:
        now: the instant at which it starts.
    """

    def __init__(self, now: Now) -> None:
        self._events: list[Event] = []
        self._receivers: dict[bytes, Receive] = {}
        self._store = open_store(kind_of("memory"), Opening(_NAME, None, _MEMORY_BYTES))
        recovered = self._store.recover()
        self._coordinator = StandaloneCoordinator(None)
        self._coordinator.open(Registration(_NAME, 1, self._store.store_id, ENDPOINT), self._events.append)
        cluster = self._coordinator.cluster_id
        self._store.bind_cluster(cluster)
        settings = CoreSettings(
            _NAME, 1, self._store.store_id, cluster, ENDPOINT, log_retain_bytes=0, alone_us=_ALONE_US
        )
        self._core = BrokerCore(settings, recovered, now)

    def next_us(self, now: Now) -> int:
        """Return when it must have a turn, monotonic µs."""
        return now.mono_us if self._events else self._core.next_deadline_us(now)

    def next_ms(self, now: Now) -> int | None:
        """Return the next instant at which a message is due, a lease ends or a recurrence ticks, Unix ms."""
        return self._core.next_change_ms(now)

    def turn(self, now: Now) -> None:
        """Have a turn."""
        events, self._events = self._events, []
        self._store.expire_snapshots(now.mono_us)
        for effect in self._core.step(events, now):
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Persist):
            self._store.commit(effect.writes)
            self._events.append(Persisted(effect.token, _COMMIT_US, self._store.wiping()))
        elif isinstance(effect, Read):
            answer = self._store.read(effect.request)
            if answer is not None:
                self._events.append(answer)
        elif isinstance(effect, Coordinate):
            self._events += self._coordinator.carry_out([effect.order])
        elif isinstance(effect, SendClient):
            receive = self._receivers.get(effect.identity)
            if receive is None:
                self._events.append(RouteLost(Route(effect.identity), effect.message))
            else:
                message, bodies = decode(_copied(encode(effect.message, effect.bodies)))
                receive(message, bodies)  # type: ignore[arg-type]
        elif isinstance(effect, Exit):
            raise Broken(f"the broker inside the test has ended: {effect.reason}")

    # -------------------------------------------------------------- connections

    def connect(self, identity: bytes, receive: Receive) -> None:
        """Let frames for this connection go there."""
        self._receivers[identity] = receive

    def disconnect(self, identity: bytes) -> None:
        """Drop a connection."""
        self._receivers.pop(identity, None)

    def take(self, identity: bytes, frames: Sequence[bytes | memoryview]) -> None:
        """Take in a client's frame."""
        message, bodies = decode(_copied(frames))
        self._events.append(ClientFrameReceived(Route(identity), message, bodies))  # type: ignore[arg-type]

    def close(self) -> None:
        """End it, with all that it holds."""
        self._store.close()


def _copied(frames: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """Copies, as a socket makes them."""
    return [bytes(frame) for frame in frames]
