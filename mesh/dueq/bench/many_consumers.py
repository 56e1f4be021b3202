"""How the mesh bears many consumers: many of one group, and very many that are mostly idle."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from dueq import Client
from dueq.bench import bare, pushing
from dueq.bench.crowd import Crowd, Gathered
from dueq.bench.figures import Figure, percentile
from dueq.bench.growth import Cost, Sheet
from dueq.bench.processes import cpu_ms_per_s, rss_anon_mb
from dueq.bench.stage import Stage
from dueq.bench.tasks import Produce, Produced, now_ms
from dueq.bench.workers import Crew, WorkerFailed, finish
from dueq.local import LocalMesh

_PARTITIONS = 6
_PROCESSES = 4
_CREDIT_TOGETHER = 8_192
_CREDIT_MIN = 16
_BATCH = 500
_RATE = 1_000
_REQUESTS_PER_S = 20
_AHEAD_MS = 500
_IDLE_S = 8.0
_ATTACH_S = 120.0
_PATIENCE_S = 120.0
_LEAD_MS = 4_000


@dataclass(frozen=True)
class _Case:
    name: str
    sizes: tuple[int, ...]
    quick_sizes: tuple[int, ...]
    idle: bool

    def costs(self) -> tuple[Cost, ...]:
        kept = (
            Cost(f"{self.name}/memory", "RssAnon, each broker", "MB"),
            Cost(f"{self.name}/idle", "idle processor, each broker", "ms/s"),
        )
        return (
            *(kept if self.idle else ()),
            Cost(
                f"{self.name}/rate",
                "due at once → all acknowledged",
                "msg/s",
                bare.BULK.name,
                better_high=True,
            ),
            Cost(f"{self.name}/late-p50", f"lateness at {_RATE:,} msg/s: p50", "ms", pushing.SLOW[0].name),
            Cost(f"{self.name}/late-p99", f"lateness at {_RATE:,} msg/s: p99", "ms", pushing.SLOW[1].name),
            Cost(f"{self.name}/share", "fairness: largest share ÷ smallest", "×"),
        )


_CONSUMERS = _Case("consumers", (10, 100, 1_000), (4, 16), idle=True)
_GROUP = _Case("group", (1, 10, 50), (1, 4), idle=False)


def consumers(stage: Stage) -> list[Figure]:
    """10, 100 and 1,000 connected consumers: memory, idle processor, rate, lateness."""
    return _measure(stage, _CONSUMERS)


def group(stage: Stage) -> list[Figure]:
    """1, 10 and 50 consumers of one topic: rate, lateness, and how evenly the messages are shared."""
    return _measure(stage, _GROUP)


def _measure(stage: Stage, case: _Case) -> list[Figure]:
    sheet = stage.sheet(case.costs())
    runs = stage.runs
    for size in case.quick_sizes if stage.quick else case.sizes:
        for run in range(runs):
            stage.say(f"{case.name}, {size:,}, run {run + 1} of {runs}")
            with stage.mesh() as (mesh, client, crew):
                _once(stage, case, mesh, client, crew, sheet, size)
    return sheet.figures()


def _once(
    stage: Stage, case: _Case, mesh: LocalMesh, client: Client, crew: Crew, sheet: Sheet, size: int
) -> None:
    idle_topic = stage.topic(client, _PARTITIONS, replicas=3)
    if case.idle:
        # Attached and without work, but for the beats that say that they live.
        attached = crew.start(*_crowds(mesh, idle_topic, size), timeout_s=_ATTACH_S)
        for worker in attached:
            worker.go()
        time.sleep(_IDLE_S / 4)
        sheet.add("memory", size, *(rss_anon_mb(pid) for pid in mesh.pids))
        sheet.add("idle", size, *cpu_ms_per_s(mesh.pids, _IDLE_S / stage.pick(1, 4)))
        finish(attached)
    sheet.add("rate", size, _rate(stage, mesh, client, crew, size))
    gathered = _steady(stage, mesh, client, crew, size)
    late_ms = np.concatenate([part.received_ms - part.due_ms for part in gathered])
    sheet.add("late-p50", size, percentile(late_ms, 0.5))
    sheet.add("late-p99", size, percentile(late_ms, 0.99))
    shares = [count for part in gathered for count in part.each]
    sheet.add("share", size, max(shares) / max(min(shares), 1))


def _rate(stage: Stage, mesh: LocalMesh, client: Client, crew: Crew, size: int) -> float:
    """Messages per second from an instant at which very many are due until all are acknowledged."""
    rows = stage.pick(60_000, 4_000)
    due_ms = now_ms() + _LEAD_MS + rows // 10
    topic = stage.topic(client, _PARTITIONS, replicas=3)
    (producer,) = crew.start(Produce(mesh.endpoints, topic, _BATCH, 4, rows, at_ms=due_ms))
    producer.go()
    producer.result(_PATIENCE_S)
    workers = crew.start(*_crowds(mesh, topic, size), timeout_s=_ATTACH_S)
    for worker in workers:
        worker.go()
    # A consumer that came after that instant is not slow: then all begin when the last one is there.
    begun_ms = max(due_ms, now_ms())
    crew.wait(lambda: sum(worker.done for worker in workers) >= rows, _PATIENCE_S, f"{rows} messages")
    gathered: list[Gathered] = finish(workers)
    _check(gathered, rows)
    return rows / (max(part.acked_ns for part in gathered) / 1e9 - begun_ms / 1e3)


def _steady(stage: Stage, mesh: LocalMesh, client: Client, crew: Crew, size: int) -> list[Gathered]:
    """A steady stream to all of them."""
    seconds = stage.pick(10, 2)
    topic = stage.topic(client, _PARTITIONS, replicas=3)
    workers = crew.start(*_crowds(mesh, topic, size), timeout_s=_ATTACH_S)
    (producer,) = crew.start(
        Produce(
            mesh.endpoints, topic, _RATE // _REQUESTS_PER_S, seconds=seconds, rate=_RATE,
            ahead_ms=_AHEAD_MS, span_ms=1_000,
        )
    )  # fmt: skip
    for worker in (*workers, producer):
        worker.go()
    produced: Produced = producer.result(seconds + _PATIENCE_S)
    crew.wait(
        lambda: sum(worker.done for worker in workers) >= produced.rows,
        _PATIENCE_S,
        f"{produced.rows} messages",
    )
    gathered: list[Gathered] = finish(workers)
    _check(gathered, produced.rows)
    return gathered


def _crowds(mesh: LocalMesh, topic: str, size: int) -> list[Crowd]:
    """Start that many consumers, spread over a few processes."""
    processes = min(_PROCESSES, size)
    credit = max(_CREDIT_TOGETHER // size, _CREDIT_MIN)
    return [
        Crowd(mesh.endpoints, topic, size // processes + (i < size % processes), credit)
        for i in range(processes)
    ]


def _check(gathered: list[Gathered], rows: int) -> None:
    got = sum(len(part.due_ms) for part in gathered)
    if got != rows:
        raise WorkerFailed(f"of {rows} messages {got} were delivered")
