"""Many waiting messages: how fast they come in, memory, disk, and a restart."""

from __future__ import annotations

import time

from dueq import Client, DueqError
from dueq.bench import bare
from dueq.bench.figures import Figure, Target
from dueq.bench.growth import Cost, Sheet
from dueq.bench.processes import disk_bytes, rss_anon_mb
from dueq.bench.stage import Stage
from dueq.bench.tasks import Produce, Produced, now_ms
from dueq.bench.workers import Crew
from dueq.local import LocalMesh

_SIZES = (100_000, 1_000_000)
_HUGE_SIZES = (10_000_000,)
_QUICK_SIZES = (10_000, 50_000)
_REPEATED_SIZE = 100_000
"""More messages are loaded once only."""
_MILLION = 1_000_000
_BATCH = 500
_THREADS = 8
_PARTITIONS = 6
_HOUR_MS = 3_600_000
_LOAD_S = 900.0
_SERVE_S = 120.0
_SETTLE_S = 5.0
"""Time for the last checkpoints and compactions."""
_POLL_S = 0.02
_COSTS = (
    Cost("far-ahead/rate", f"scheduled, batches of {_BATCH}", "msg/s", bare.BULK.name, better_high=True),
    Cost("far-ahead/memory", "RssAnon, largest broker", "MB", targets={_MILLION: Target(at_most=150)}),
    Cost("far-ahead/disk", "disk per message and replica (payload 256)", "bytes"),
    Cost(
        "far-ahead/restart", "all restarted until all is served", "s", targets={_MILLION: Target(at_most=5)}
    ),
)


def measure(stage: Stage) -> list[Figure]:
    """100,000 and 1,000,000 messages that wait (--huge: 10,000,000): rate, memory, disk, restart."""
    sheet = stage.sheet(_COSTS)
    sizes = _QUICK_SIZES if stage.quick else (*_SIZES, *(_HUGE_SIZES if stage.huge else ()))
    for size in sizes:
        for run in range(1 if size > _REPEATED_SIZE else stage.runs):
            with stage.mesh() as (mesh, client, crew):
                stage.say(f"far-ahead, loading {size:,} messages, run {run + 1}")
                _once(stage, mesh, client, crew, sheet, size)
    return sheet.figures()


def _once(stage: Stage, mesh: LocalMesh, client: Client, crew: Crew, sheet: Sheet, size: int) -> None:
    topic = stage.topic(client, _PARTITIONS, replicas=3)
    sheet.add("rate", size, _load(mesh, crew, topic, size))
    time.sleep(_SETTLE_S)
    sheet.add("memory", size, max(rss_anon_mb(pid) for pid in mesh.pids))
    replicas = [disk_bytes(broker.data) / size for broker in mesh.brokers]
    sheet.add("disk", size, sum(replicas) / len(replicas))
    for run in range(stage.pick(3 if size > _REPEATED_SIZE else 1, 1)):
        stage.say(f"far-ahead, {size:,} messages, restart {run + 1}")
        sheet.add("restart", size, _restart(mesh, client, topic, size + run))


def _load(mesh: LocalMesh, crew: Crew, topic: str, messages: int) -> float:
    """Schedule so many messages; returns messages per second."""
    (producer,) = crew.start(
        Produce(
            mesh.endpoints,
            topic,
            _BATCH,
            _THREADS,
            messages,
            at_ms=now_ms() + _HOUR_MS,
            span_ms=23 * _HOUR_MS,
        )
    )
    producer.go()
    produced: Produced = producer.result(_LOAD_S)
    return produced.rate


def _restart(mesh: LocalMesh, client: Client, topic: str, messages: int) -> float:
    """Stop all brokers, start them, and wait until all messages are there and one more is taken."""
    for i in range(len(mesh.brokers)):
        mesh.stop_broker(i)
    begun_s = time.monotonic()
    for i in range(len(mesh.brokers)):
        mesh.start_broker(i, wait=False)
    while not _serves(client, topic, messages):
        if time.monotonic() - begun_s > _SERVE_S:
            raise DueqError(f"not all of {messages} messages were served {_SERVE_S:g} s after the restart")
        time.sleep(_POLL_S)
    with client.producer(topic) as producer:
        producer.schedule(b"", now_ms() + _HOUR_MS)
    return time.monotonic() - begun_s


def _serves(client: Client, topic: str, messages: int) -> bool:
    try:
        found = client.describe(topic, timeout=1.0)
    except DueqError:
        return False
    return (
        all(part.serving and part.scheduled is not None for part in found.placement)
        and found.scheduled == messages
    )
