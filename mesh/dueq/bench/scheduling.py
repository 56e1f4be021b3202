"""How fast messages are taken in: in bulk, one at a time, by many threads."""

from __future__ import annotations

from dueq.bench import bare
from dueq.bench.figures import Figure, Row, Target, percentile
from dueq.bench.stage import Stage
from dueq.bench.tasks import Call, Produce, Produced, now_ms

_BATCH = 500
_HOUR_MS = 3_600_000
_BULK_S = 900.0
_PRODUCERS = 2
_THREADS = 4
_PARTITIONS = 6


def bulk(stage: Stage) -> list[Figure]:
    """The first messages of a fresh mesh, in batches of 500, three replicas and one."""
    rows = stage.pick(1_000_000, 200_000)
    words = f"schedule, batches of {_BATCH}, first {rows:,}, {_PRODUCERS}×{_THREADS} in flight"
    bare_three = bare.beside("bulk/bare-3", bare.BULK)
    bare_one = bare.beside("bulk/bare-1", bare.BULK_ALONE)
    three = Row(
        "bulk/replicas-3", f"{words}; replicas=3", "msg/s",
        Target(at_least=100_000, bare_share=0.5), bare_three.name,
    )  # fmt: skip
    one = Row(
        "bulk/replicas-1", f"{words}; replicas=1, one broker", "msg/s",
        Target(at_least=200_000), bare_one.name,
    )  # fmt: skip

    def replicated() -> dict[str, float]:
        return {bare_three.name: bare.rate(stage, bare.BULK), three.name: _load(stage, rows, brokers=3)}

    def alone() -> dict[str, float]:
        return {bare_one.name: bare.rate(stage, bare.BULK_ALONE), one.name: _load(stage, rows, brokers=1)}

    runs = stage.pick(3, 1)
    return [
        *stage.repeat([bare_three, three], runs, replicated),
        *stage.repeat([bare_one, one], runs, alone),
    ]


def sustained(stage: Stage) -> list[Figure]:
    """Ten million messages into one mesh."""
    rows = stage.pick(10_000_000, 1_000_000)
    bare_row = bare.beside("sustained/bare", bare.BULK)
    row = Row(
        "sustained", f"schedule, batches of {_BATCH}, {rows:,} messages; replicas=3", "msg/s",
        Target(at_least=30_000), bare_row.name,
    )  # fmt: skip

    def once() -> dict[str, float]:
        return {bare_row.name: bare.rate(stage, bare.BULK), row.name: _load(stage, rows, brokers=3)}

    return stage.repeat([bare_row, row], 1, once)


def _load(stage: Stage, rows: int, brokers: int) -> float:
    """Schedule messages that are due in an hour or later, into a fresh mesh; returns messages per second."""
    with stage.mesh(brokers) as (mesh, client, crew):
        topic = stage.topic(client, _PARTITIONS, replicas=brokers)
        task = Produce(
            mesh.endpoints, topic, _BATCH, _THREADS, rows // _PRODUCERS,
            at_ms=now_ms() + _HOUR_MS, span_ms=23 * _HOUR_MS,
        )  # fmt: skip
        producers = crew.start(*[task] * _PRODUCERS)
        for producer in producers:
            producer.go()
        return together([producer.result(_BULK_S) for producer in producers])


def together(produced: list[Produced]) -> float:
    """Messages per second of several producers that worked side by side."""
    seconds = (max(p.ended_ns for p in produced) - min(p.begun_ns for p in produced)) / 1e9
    return sum(p.rows for p in produced) / seconds


def single(stage: Stage) -> list[Figure]:
    """One `schedule` call after the other, and 50 threads that each do so."""
    seconds = 1.0 if stage.quick else 8.0
    bare_one = Row("single/bare", "bare pipeline, one message: p50", "ms")
    bare_many = bare.beside("single/bare-50", bare.FIFTY)
    p50 = Row(
        "single/p50", "one schedule call at a time, replicas=3: p50", "ms", Target(at_most=1.5), bare_one.name
    )
    p99 = Row("single/p99", "the same: p99", "ms")
    many = Row("single/50-threads", "50 threads, one call each at a time", "msg/s", None, bare_many.name)

    with stage.mesh() as (mesh, client, crew):
        topic = stage.topic(client, 3, replicas=3)

        def once() -> dict[str, float]:
            bare_ms, bare_rate = bare.one_ms(stage), bare.rate(stage, bare.FIFTY)
            alone, crowd = crew.start(
                Call(mesh.endpoints, topic, 1, seconds), Call(mesh.endpoints, topic, 50, seconds)
            )
            alone.go()
            durations_ms, _ = alone.result(seconds + 60.0)
            crowd.go()
            _, rate = crowd.result(seconds + 60.0)
            return {
                bare_one.name: bare_ms,
                bare_many.name: bare_rate,
                p50.name: percentile(durations_ms, 0.5),
                p99.name: percentile(durations_ms, 0.99),
                many.name: rate,
            }

        return stage.repeat([bare_one, p50, p99, bare_many, many], 3, once)
