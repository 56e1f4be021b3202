"""How late messages are when the mesh is not busy, when it is, and when another topic keeps it busy."""

from __future__ import annotations

import numpy as np

from dueq.bench import pushing
from dueq.bench.delivering import drained
from dueq.bench.figures import Figure, Row, Target, percentile
from dueq.bench.stage import Stage
from dueq.bench.tasks import Consume, Consumed, Produce, Produced, now_ms
from dueq.bench.workers import finish

_CONSUMERS = 2
_CREDIT = 1_024
_BATCH = 256
_REQUESTS_PER_S = 20
_AHEAD_MS = 500
_SPAN_MS = 1_000
_PARTITIONS = 6
_BULK_BATCH = 500
_BULK_THREADS = 4
_HOUR_MS = 3_600_000
_BESIDE_RATE = 1_000


def slow(stage: Stage) -> list[Figure]:
    """1,000 messages per second, each due at a random millisecond."""
    return _lateness(stage, "lateness-1000", 1_000, p50_ms=1.0, p99_ms=3.0)


def fast(stage: Stage) -> list[Figure]:
    """5,000 messages per second, each due at a random millisecond."""
    return _lateness(stage, "lateness-5000", 5_000, p50_ms=None, p99_ms=5.0)


def beside_bulk(stage: Stage) -> list[Figure]:
    """The same at 1,000 per second, while another topic is loaded as fast as it goes."""
    return _lateness(stage, "lateness-bulk", _BESIDE_RATE, p50_ms=None, p99_ms=20.0, bulk=True)


def _lateness(
    stage: Stage,
    name: str,
    rate: int,
    p50_ms: float | None,
    p99_ms: float,
    bulk: bool = False,
) -> list[Figure]:
    beside = ", another topic being bulk loaded" if bulk else ""
    none = Target(at_most=0)
    bare = pushing.rows(
        f"{name}/bare", f"{rate:,} msg/s" + (" beside a bare pipeline in bulk" if bulk else "")
    )
    rows = [
        *bare,
        Row(
            f"{name}/p50",
            f"lateness at {rate:,} msg/s{beside}, at receipt: p50",
            "ms",
            (p50_ms and Target(at_most=p50_ms)) or None,
            bare[0].name,
        ),
        Row(f"{name}/p99", "at receipt: p99", "ms", Target(at_most=p99_ms), bare[1].name),
        Row(f"{name}/max", "at receipt: max", "ms"),
        Row(f"{name}/released-p50", "at release, by mesh time: p50", "ms"),
        Row(f"{name}/released-p99", "at release, by mesh time: p99", "ms"),
        Row(f"{name}/early", "early, by mesh time", "messages", none),
        Row(f"{name}/received-early", "early, by the consumer's clock", "messages", none),
    ]

    def once() -> dict[str, float]:
        bare_ms = pushing.lateness_ms(stage, rate, bulk)
        consumed = _run(stage, rate, bulk)
        released, received = consumed.released_ms, consumed.received_ms
        values = (
            *bare_ms, percentile(received, 0.5), percentile(received, 0.99), float(received.max()),
            percentile(released, 0.5), percentile(released, 0.99),
            float(np.count_nonzero(released < 0)), float(np.count_nonzero(received < 0)),
        )  # fmt: skip
        return {row.name: value for row, value in zip(rows, values, strict=True)}

    return stage.repeat(rows, stage.pick(3, 1), once)


def _run(stage: Stage, rate: int, bulk: bool) -> Consumed:
    seconds = 4.0 if stage.quick else 20.0
    with stage.mesh() as (mesh, client, crew):
        topic = stage.topic(client, _PARTITIONS, replicas=3)
        consumers = crew.start(
            *(Consume(mesh.endpoints, topic, _CREDIT, _BATCH, times=True) for _ in range(_CONSUMERS))
        )
        (producer,) = crew.start(
            Produce(
                mesh.endpoints, topic, rate // _REQUESTS_PER_S, seconds=seconds, rate=rate,
                ahead_ms=_AHEAD_MS, span_ms=_SPAN_MS,
            )
        )  # fmt: skip
        loaders = []
        if bulk:
            other = stage.topic(client, _PARTITIONS, replicas=3)
            loaders = crew.start(
                Produce(
                    mesh.endpoints, other, _BULK_BATCH, _BULK_THREADS,
                    at_ms=now_ms() + _HOUR_MS, span_ms=_HOUR_MS,
                )
            )  # fmt: skip
        for worker in (*consumers, *loaders, producer):
            worker.go()
        produced: Produced = producer.result(seconds + 60.0)
        consumed = drained(crew, consumers, produced.rows)
        finish(loaders)
        return consumed
