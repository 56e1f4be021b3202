"""A leader is killed under traffic: how long the next delivery takes, and which messages were lost."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass

from kazoo.client import KazooClient

from dueq import Client, limits
from dueq.bench.child import Line
from dueq.bench.figures import Figure, Row, Target
from dueq.bench.stage import Stage
from dueq.bench.tasks import Consume, Consumed, Produce, Produced
from dueq.bench.workers import Crew, Worker, WorkerFailed, finish
from dueq.local import LocalMesh

_SESSION = Row("failover/session", "bare: kill -9 of a process until ZooKeeper ends its session of 3 s", "s")
_NODE = "/bench/failover"
_RATE = 500
_BATCH = 10
_AHEAD_MS = 200
_TARGET_S = 4.0
"""The session time-out of ZooKeeper, 3 s, and one."""
_BEFORE_S = 1.5
_AFTER_S = 3.0
_PATIENCE_S = 60.0
_LINGER_S = 1.0
"""How long to look for duplicates after the last message."""


def measure(stage: Stage) -> list[Figure]:
    """One partition on three brokers, 500 messages per second, its leader killed with SIGKILL."""
    rows = [
        _SESSION,
        Row(
            "failover/seconds",
            "kill -9 of a leader until the next delivery",
            "s",
            Target(at_most=_TARGET_S),
            _SESSION.name,
        ),
        Row("failover/lost", "acknowledged and never delivered", "messages", Target(at_most=0)),
        Row("failover/twice", "delivered twice within one lease", "messages", Target(at_most=0)),
    ]

    def once() -> dict[str, float]:
        with stage.mesh() as (mesh, client, crew):
            topic = stage.topic(client, 1, replicas=3)
            values = (_session_s(mesh), *_kill(mesh, client, crew, topic))
            return {row.name: value for row, value in zip(rows, values, strict=True)}

    return stage.repeat(rows, stage.pick(3, 1), once)


@dataclass(frozen=True)
class Hold:
    """Holds an ephemeral node of ZooKeeper, until its process is killed."""

    address: str

    def run(self, line: Line) -> None:
        """See Task."""
        client = KazooClient(hosts=self.address, timeout=limits.ZOOKEEPER_SESSION_MS / 1e3)
        client.start()
        client.create(_NODE, ephemeral=True, makepath=True)
        line.tell("ready")
        line.stopped.wait()
        client.stop()


def _session_s(mesh: LocalMesh) -> float:
    """Return how long ZooKeeper needs to notice a death by the session that ends."""
    address = mesh.description()["zookeeper"]["address"]
    gone = threading.Event()
    client = KazooClient(hosts=address)
    client.start()
    try:
        with Crew() as crew:
            crew.start(Hold(address))
            client.exists(_NODE, watch=lambda event: gone.set())
            killed_s = time.monotonic()
        if not gone.wait(_PATIENCE_S):
            raise WorkerFailed(f"ZooKeeper has not ended a dead process's session within {_PATIENCE_S:g} s")
        return time.monotonic() - killed_s
    finally:
        client.stop()
        client.close()


def _kill(mesh: LocalMesh, client: Client, crew: Crew, topic: str) -> tuple[float, float, float]:
    """Return seconds to the next delivery, lost and repeated messages."""
    consumers = crew.start(
        *(Consume(mesh.endpoints, topic, credit=512, batch=100, times=True) for _ in range(2))
    )
    (producer,) = crew.start(Produce(mesh.endpoints, topic, _BATCH, rate=_RATE, ahead_ms=_AHEAD_MS))
    for worker in (*consumers, producer):
        worker.go()
    wanted = int(_RATE * _BEFORE_S)
    crew.wait(
        lambda: sum(worker.done for worker in consumers) >= wanted, _PATIENCE_S, "traffic before the kill"
    )
    leader = client.describe(topic).placement[0].leader
    victim = next(i for i, broker in enumerate(mesh.brokers) if broker.broker_id == leader)
    killed_ms = time.time_ns() / 1e6
    mesh.kill(victim)
    wanted = sum(worker.done for worker in consumers) + int(_RATE * _AFTER_S)
    crew.wait(
        lambda: sum(worker.done for worker in consumers) >= wanted, _PATIENCE_S, "traffic after the kill"
    )
    (produced,) = finish([producer])
    return _judge(crew, consumers, produced, killed_ms)


def _judge(
    crew: Crew, consumers: list[Worker], produced: Produced, killed_ms: float
) -> tuple[float, float, float]:
    with suppress(WorkerFailed):  # messages that are still missing then are lost, and counted below
        crew.wait(lambda: sum(worker.done for worker in consumers) >= produced.rows, _PATIENCE_S, "the last")
    time.sleep(_LINGER_S)
    consumed = Consumed.together(finish(consumers))
    released_at_ms = consumed.received_at_ms - consumed.received_ms + consumed.released_ms
    after = consumed.received_at_ms[released_at_ms > killed_ms]
    return (
        (float(after.min()) - killed_ms) / 1e3,
        float(consumed.lost(produced.rows)),
        float(consumed.twice),
    )
