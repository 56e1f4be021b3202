"""The cost of a message for the brokers' loops: three cores in one thread, the frames between them, in virtual time.

    python -m dueq_chaos.sim.costs 5000|steady|bulk|keyed [SECONDS]

`bulk` and `keyed` load messages for later days, without and with unique keys; eight callers of two clients.

Counts processor time of this thread, so it can be read on a busy machine, if two builds are run by turns. It leaves out
sockets, system calls, the threads that write, and clients. Caches are warmer than in a mesh of processes.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple

from dueq.client import calls
from dueq.client.core.ports import effects, events
from dueq.core.ports.effects import Effect, SendClient, SendPeer
from dueq.core.ports.events import ClientFrameReceived, Event, PeerFrameReceived, Persisted, Route
from dueq_chaos.sim.environment.mesh import SimMesh
from dueq_chaos.sim.environment.node import Node
from dueq_chaos.sim.environment.sdk import SimClient
from dueq_codecs.frames import decode, encode
from dueq_codecs.messages import ClientMessage
from dueq_codecs.records import RecordKind
from dueq_codecs.topic_settings import AS_CREATED, TopicSettings

_SYNC_US: Final = 1_000
_TIMEOUT_US: Final = 30_000_000
_PAYLOAD: Final = b"." * 100
_WARM_US: Final = 2_500_000
_LOADING_US: Final = 100_000
"""Longer than callers need to fall into step with each other."""
_HOUR_MS: Final = 3_600_000
_CLIENTS: Final = 2
_CALLERS_EACH: Final = 4


class Load(NamedTuple):
    """A stream of messages."""

    rows: int
    """Of a request."""
    per_second: int
    ahead_ms: int
    span_ms: int
    """The messages of a request are due at random milliseconds of such a span."""
    credit: int
    """Of each consumer; 0: there is none, and each caller calls again when it was answered."""
    busy_us: int
    """How long a turn takes in virtual time: frames that come meanwhile are read together."""
    keys: bool = False
    """Each message has a unique key."""


LOADS: Final = {
    "5000": Load(250, 5_000, 500, 1_000, 1_024, 250),
    "steady": Load(500, 36_000, 200, 1, 8_192, 1_500),
    "bulk": Load(500, 0, _HOUR_MS, 23 * _HOUR_MS, 0, 1_500),
    "keyed": Load(500, 0, _HOUR_MS, 23 * _HOUR_MS, 0, 1_500, keys=True),
}


class _Meter:
    """Processor time by what it was spent on, ns, and how often; while `on`."""

    def __init__(self) -> None:
        self.on = False
        self.spent: Counter[str] = Counter()
        self.times: Counter[str] = Counter()

    def run(self, name: str, work: Callable[..., Any], *given: Any) -> Any:
        """Do something, and count what it costs."""
        began = time.thread_time_ns()
        done = work(*given)
        if self.on:
            self.spent[name] += time.thread_time_ns() - began
            self.times[name] += 1
        return done


METER: Final = _Meter()


class _MeteredNode(Node):
    """A broker whose frames are encoded and decoded, and whose turns take time, as those of a process do."""

    busy_us = 0
    free_at_us = 0

    def _plan(self, at_us: int) -> None:
        super()._plan(max(at_us, self.free_at_us))

    def _turn(self) -> None:
        core, now = self.core, self.now()
        assert core is not None
        pushed: list[Effect] = METER.run("push", core.push, now)
        self._carry_out(pushed)
        taken, self._inbox = self._inbox, []
        whole = bool(taken) or not pushed or core.next_deadline_us(now) <= now.mono_us
        if whole:
            first: list[Event] = [
                event for event in taken if isinstance(event, PeerFrameReceived | Persisted)
            ]
            if first:
                self._carry_out(METER.run("hear", core.hear, first, now))
            rest = [event for event in taken if not isinstance(event, PeerFrameReceived | Persisted)]
            self._carry_out(METER.run("step", core.step, rest, now))
        self.free_at_us = self._world.now_us + (self.busy_us if whole else self.busy_us // 3)
        self._plan(self._world.now_us + max(core.next_deadline_us(now) - now.mono_us, 1))

    def _carry_out(self, ordered: list[Effect]) -> None:
        for effect in ordered:
            self._execute(effect)

    def _send_client(self, effect: SendClient) -> None:
        frames = METER.run(f"encode {type(effect.message).__name__}", encode, effect.message, effect.bodies)
        message, bodies = decode(list(map(bytes, frames)))
        super()._send_client(SendClient(effect.identity, message, bodies))  # type: ignore[arg-type]

    def _send_peer(self, effect: SendPeer) -> None:
        frames = list(map(bytes, METER.run("encode to a peer", encode, effect.message, effect.bodies)))
        target = self._peers[effect.broker_id]

        def arrive() -> None:
            target.receive(PeerFrameReceived(*METER.run("decode from a peer", decode, frames)))

        self._network.send(self.name, target.name, arrive)

    def client_frame(self, client: str, message: ClientMessage, bodies: list[bytes | memoryview]) -> None:
        """A client's frame arrives."""
        frames = list(map(bytes, encode(message, bodies)))
        decoded = METER.run("decode from a client", decode, frames)
        self.receive(ClientFrameReceived(Route(client.encode()), *decoded))


class _Loaders:
    """Clients that load as fast as they are answered; what they have loaded counts as delivered."""

    def __init__(self, mesh: SimMesh, load: Load) -> None:
        self._world, self._load = mesh.world, load
        self._random = Random(5)
        self._named = 0
        self.delivered = 0
        for client in [mesh.sdk(f"p{number}") for number in range(_CLIENTS)]:
            for _ in range(_CALLERS_EACH):
                self._produce(client)

    def _produce(self, client: SimClient) -> None:
        load = self._load
        from_ms = self._world.wall_us // 1000 + load.ahead_ms
        dues = [from_ms + self._random.randrange(load.span_ms) for _ in range(load.rows)]
        keys = [f"order-{self._named + at}" for at in range(load.rows)] if load.keys else None
        self._named += load.rows
        call = calls.schedule_many("t", [_PAYLOAD] * load.rows, dues, lambda: self._world.wall_us, keys=keys)

        def answered(value: object, failed: effects.Failed | None) -> None:
            assert failed is None, failed
            self.delivered += load.rows
            self._produce(client)

        client.call(call.build, _TIMEOUT_US, answered)


class _Stream:
    """The clients: a producer, and two consumers that ack what they get without waiting."""

    def __init__(self, mesh: SimMesh, load: Load) -> None:
        self._mesh, self._load = mesh, load
        self._random = Random(5)
        self.delivered = 0
        for name in ("c1", "c2"):
            self._consume(mesh.sdk(name))
        self._producer = mesh.sdk("p1")
        mesh.world.run(1_000_000)
        self._produce()

    def _consume(self, client: SimClient) -> None:
        consumer_id = client.draw_id()

        def take(effect: object) -> None:
            if isinstance(effect, effects.Deliver):
                self.delivered += len(effect.deliveries)
                for delivery in effect.deliveries:
                    delivery.handed = True
                    client.submit(events.Settle(consumer_id, RecordKind.ACK, [delivery]))

        client.consumers[consumer_id] = take
        opening = calls.open_consumer(consumer_id, "t", self._load.credit, 64 << 20, 60_000)
        self._mesh.world.run(500_000)
        client.call(opening.build, _TIMEOUT_US, lambda value, failed: None)
        self._mesh.world.run(500_000)

    def _produce(self) -> None:
        world, load = self._mesh.world, self._load
        from_ms = world.wall_us // 1000 + load.ahead_ms
        dues = [from_ms + self._random.randrange(load.span_ms) for _ in range(load.rows)]
        call = calls.schedule_many("t", [_PAYLOAD] * load.rows, dues, lambda: world.wall_us)
        self._producer.call(call.build, _TIMEOUT_US, lambda value, failed: None)
        world.after(load.rows * 1_000_000 // load.per_second, self._produce)


def measure(load: Load, seconds: float) -> int:
    """Run a load for so many virtual seconds, counting in `METER`; returns how many messages were delivered."""
    _MeteredNode.busy_us = load.busy_us
    mesh = SimMesh(1, make_node=_MeteredNode)
    for node in mesh.nodes.values():
        node.disk.slow_us = _SYNC_US
    settings = TopicSettings(1, keys="unique") if load.keys else AS_CREATED
    mesh.create_topic("t", partitions=6, settings=settings)
    mesh.world.run(3_000_000)
    stream = _Stream(mesh, load) if load.credit else _Loaders(mesh, load)
    mesh.world.run(_WARM_US if load.credit else _LOADING_US)
    METER.on, before = True, stream.delivered
    mesh.world.run(int(seconds * 1_000_000))
    METER.on = False
    assert not mesh.failures()
    return stream.delivered - before


def main(name: str, seconds: float = 2.0) -> None:
    """Print what a message costs."""
    count = measure(LOADS[name], seconds)
    each = sum(METER.spent.values()) / 1e3 / count
    print(f"{name}: {count} messages, {each:.2f} µs each, of the three brokers together")
    for what, spent in METER.spent.most_common():
        times = METER.times[what]
        print(f"{spent / 1e3 / count:8.2f} µs  {what}: {times} times, {spent / 1e3 / times:.1f} µs each")


if __name__ == "__main__":
    main(sys.argv[1], *map(float, sys.argv[2:]))
