"""How the mesh bears topics of many partitions."""

from __future__ import annotations

from dueq import Client
from dueq.bench import bare, pushing
from dueq.bench.delivering import drained
from dueq.bench.figures import Figure, percentile
from dueq.bench.growth import Cost, Sheet
from dueq.bench.scheduling import together
from dueq.bench.serving import kill, most_led
from dueq.bench.stage import Stage
from dueq.bench.tasks import Call, Consume, Produce, Produced, now_ms
from dueq.bench.workers import Crew
from dueq.local import LocalMesh

_SIZES = (1, 16, 64, 256)
_QUICK_SIZES = (1, 8)
_BATCH = 500
_PRODUCERS = 2
_THREADS = 4
_LOAD_S = 300.0
_RATE = 1_000
_REQUESTS_PER_S = 20
_AHEAD_MS = 500
_HOUR_MS = 3_600_000
_PATIENCE_S = 120.0
_COSTS = (
    Cost("partitions/bulk", f"scheduled, batches of {_BATCH}", "msg/s", bare.BULK.name, better_high=True),
    Cost("partitions/single", "one schedule call: p50", "ms", bare.ONE_MS),
    Cost("partitions/late-p50", f"lateness at {_RATE:,} msg/s: p50", "ms", pushing.SLOW[0].name),
    Cost("partitions/late-p99", f"lateness at {_RATE:,} msg/s: p99", "ms", pushing.SLOW[1].name),
    Cost("partitions/failover", "kill -9 until all it led is served", "s"),
)


def measure(stage: Stage) -> list[Figure]:
    """1, 16, 64 and 256 partitions of one topic: rate, latency, lateness, failover."""
    sheet = stage.sheet(_COSTS)
    runs = stage.runs
    for size in _QUICK_SIZES if stage.quick else _SIZES:
        for run in range(runs):
            stage.say(f"partitions, {size:,}, run {run + 1} of {runs}")
            with stage.mesh() as (mesh, client, crew):
                _once(stage, mesh, client, crew, sheet, size)
    return sheet.figures()


def _once(stage: Stage, mesh: LocalMesh, client: Client, crew: Crew, sheet: Sheet, size: int) -> None:
    topic = stage.topic(client, size, replicas=3)
    sheet.add("bulk", size, _bulk(stage, mesh, crew, topic))
    seconds = stage.pick(4, 1)
    (caller,) = crew.start(Call(mesh.endpoints, topic, 1, seconds))
    caller.go()
    durations_ms, _ = caller.result(seconds + 60.0)
    sheet.add("single", size, percentile(durations_ms, 0.5))
    late_ms = _lateness_ms(mesh, crew, stage.topic(client, size, replicas=3), stage.pick(8, 2))
    sheet.add("late-p50", size, percentile(late_ms, 0.5))
    sheet.add("late-p99", size, percentile(late_ms, 0.99))
    victim = most_led(mesh, client.topics())
    sheet.add("failover", size, kill(mesh, client, victim, _PATIENCE_S))


def _bulk(stage: Stage, mesh: LocalMesh, crew: Crew, topic: str) -> float:
    rows = stage.pick(400_000, 20_000)
    task = Produce(
        mesh.endpoints,
        topic,
        _BATCH,
        _THREADS,
        rows // _PRODUCERS,
        at_ms=now_ms() + _HOUR_MS,
        span_ms=_HOUR_MS,
    )
    producers = crew.start(*[task] * _PRODUCERS)
    for producer in producers:
        producer.go()
    return together([producer.result(_LOAD_S) for producer in producers])


def _lateness_ms(mesh: LocalMesh, crew: Crew, topic: str, seconds: float) -> list[float]:
    consumers = crew.start(*[Consume(mesh.endpoints, topic, 1_024, 256, times=True)] * 2)
    (producer,) = crew.start(
        Produce(
            mesh.endpoints, topic, _RATE // _REQUESTS_PER_S, seconds=seconds, rate=_RATE,
            ahead_ms=_AHEAD_MS, span_ms=1_000,
        )
    )  # fmt: skip
    for worker in (*consumers, producer):
        worker.go()
    produced: Produced = producer.result(seconds + 60.0)
    return list(drained(crew, consumers, produced.rows).received_ms)
