"""Priority and fair topics beside a timeline topic, many groups, many recurrences."""

from __future__ import annotations

import asyncio
import itertools
import time

from dueq import AsyncClient, Client
from dueq.bench.delivering import drained
from dueq.bench.figures import Figure, Row
from dueq.bench.growth import Cost, Sheet
from dueq.bench.processes import cpu_ms_per_s, disk_bytes, rss_anon_mb
from dueq.bench.stage import Stage
from dueq.bench.tasks import Consume, Produce, Produced, now_ms
from dueq.bench.turns import longest_ms, turns
from dueq.bench.workers import Crew, WorkerFailed
from dueq.local import LocalMesh

_KINDS = {
    "timeline": ("timeline", 1, 0),
    "priority": ("priority", 100, 0),
    "fair": ("fair", 1, 100),
}
"""Kind of the topic, how many ranks, how many groups."""
_BATCH = 500
_THREADS = 4
_CREDIT = 8_192
_CONSUMERS = 2
_LOAD_S = 900.0
_DRAIN_S = 900.0
_SETTLE_S = 5.0
_SLACK_MS = 5_000
_EACH = 10
"""Messages of each group."""
_AT_ONCE = 256
_CREATE_S = 120.0
_YEARLY = "0 3 1 1 *"
_GROUP_COSTS = (
    Cost(
        "groups/rate",
        f"scheduled, {_EACH} messages of each group, batches of {_BATCH}",
        "msg/s",
        better_high=True,
    ),
    Cost("groups/memory", "RssAnon, largest broker, all of them ready", "MB"),
    Cost("groups/turn", "longest turn of a loop while all are delivered, at most", "ms"),
    Cost("groups/rounds", "groups seen when so many messages had come as there are groups", "groups"),
    Cost("groups/lease", "from due to acked", "msg/s", better_high=True),
    Cost("groups/after", "RssAnon, largest broker, all delivered", "MB"),
)
_RECURRENCE_COSTS = (
    Cost("recurrences/rate", f"created, {_AT_ONCE} at a time", "a second", better_high=True),
    Cost("recurrences/memory", "RssAnon", "MB"),
    Cost("recurrences/disk", "disk per recurrence", "bytes"),
    Cost("recurrences/idle", "idle processor", "ms/s"),
    Cost("recurrences/restart", "broker started again until one is triggered", "s"),
)


def measure(stage: Stage) -> list[Figure]:
    """Lease rate and bytes at rest of a priority and a fair topic beside a timeline topic."""
    messages = stage.pick(50_000, 5_000)
    rows = [
        Row(f"kinds/{kind}-{what}", f"{messages:,} messages of a {kind} topic: {words}", unit)
        for kind in _KINDS
        for what, words, unit in (
            ("disk", "disk per message and replica (payload 256)", "bytes"),
            ("lease", f"due in one ms, from then until all are acked, {_CONSUMERS} consumers", "msg/s"),
        )
    ]

    def once() -> dict[str, float]:
        values: dict[str, float] = {}
        for name, (kind, ranks, groups) in _KINDS.items():
            with stage.mesh() as (mesh, client, crew):
                client.create_topic("t", kind=kind, partitions=1, replicas=3)
                due_ms = now_ms() + int(_SETTLE_S * 1000) + _SLACK_MS + messages // 3
                produced = _load(mesh, crew, messages, due_ms, ranks, groups)
                time.sleep(_SETTLE_S)
                values[f"kinds/{name}-disk"] = max(disk_bytes(b.data) for b in mesh.brokers) / messages
                if now_ms() >= due_ms:
                    raise WorkerFailed(
                        f"{messages} messages were loaded in {produced.rate:.0f} a second: too late"
                    )
                values[f"kinds/{name}-lease"] = _lease_rate(mesh, crew, messages, due_ms)
        return values

    return stage.repeat(rows, stage.runs, once)


def _load(mesh: LocalMesh, crew: Crew, messages: int, due_ms: int, ranks: int, groups: int) -> Produced:
    (loader,) = crew.start(
        Produce(mesh.endpoints, "t", _BATCH, _THREADS, messages, at_ms=due_ms, ranks=ranks, groups=groups)
    )
    loader.go()
    produced: Produced = loader.result(_LOAD_S)
    return produced


def _lease_rate(mesh: LocalMesh, crew: Crew, messages: int, due_ms: int) -> float:
    """Messages a second from their instant until the last one is acknowledged."""
    consumers = crew.start(
        *(Consume(mesh.endpoints, "t", _CREDIT, _BATCH, times=False) for _ in range(_CONSUMERS))
    )
    for worker in consumers:
        worker.go()
    return messages / (drained(crew, consumers, messages, _DRAIN_S).acked_at_ns / 1e9 - due_ms / 1e3)


def groups(stage: Stage) -> list[Figure]:
    """100,000 groups of a fair topic with ten messages each, all ready at once."""
    sheet = stage.sheet(_GROUP_COSTS)
    for size in (stage.pick(10_000, 200), stage.pick(100_000, 1_000)):
        stage.say(f"groups, {size:,}")
        with stage.mesh() as (mesh, client, crew):
            _groups(mesh, client, crew, sheet, size)
    return sheet.figures()


def _groups(mesh: LocalMesh, client: Client, crew: Crew, sheet: Sheet, size: int) -> None:
    client.create_topic("t", kind="fair", partitions=1, replicas=3)
    due_ms = now_ms() + 2_000 + size * _EACH // 10
    sheet.add("rate", size, _load(mesh, crew, size * _EACH, due_ms, 1, size).rate)
    time.sleep(max(due_ms - now_ms(), 0) / 1000 + 1)
    sheet.add("memory", size, max(rss_anon_mb(pid) for pid in mesh.pids))
    before = turns(mesh.metrics)
    begun_s = time.time()
    (consumer,) = crew.start(Consume(mesh.endpoints, "t", _CREDIT, _BATCH, times=False))
    consumer.go()
    consumed = drained(crew, [consumer], size * _EACH, _DRAIN_S)
    sheet.add("lease", size, size * _EACH / (consumed.acked_at_ns / 1e9 - begun_s))
    sheet.add("rounds", size, len({int(number) % size for number in consumed.numbers[:size]}))
    sheet.add("turn", size, longest_ms(before, turns(mesh.metrics)))
    sheet.add("after", size, max(rss_anon_mb(pid) for pid in mesh.pids))


def recurrences(stage: Stage) -> list[Figure]:
    """100,000 recurrences of one broker that fire once a year: memory, disk, idle processor, restart."""
    sheet = stage.sheet(_RECURRENCE_COSTS)
    with stage.mesh(brokers=1) as (mesh, client, _):
        client.create_topic("t", partitions=1, replicas=1)
        made = 0
        for size in (stage.pick(1_000, 100), stage.pick(100_000, 1_000)):
            stage.say(f"recurrences, {size:,}")
            sheet.add("rate", size, _create(mesh.endpoints, made, size))
            made = size
            time.sleep(_SETTLE_S)
            sheet.add("memory", size, rss_anon_mb(mesh.pids[0]))
            sheet.add("disk", size, disk_bytes(mesh.brokers[0].data) / size)
            sheet.add("idle", size, *cpu_ms_per_s(mesh.pids, stage.pick(30, 5)))
            sheet.add("restart", size, _restart_s(mesh, client))
    return sheet.figures()


def _create(endpoints: list[str], first: int, behind: int) -> float:
    """Create recurrences of these numbers; returns how many a second."""
    numbers = itertools.count(first)

    async def work(client: AsyncClient) -> None:
        while (number := next(numbers)) < behind:
            await client.create_recurrence(
                "t",
                f"nightly-{number:06}",
                cron=_YEARLY,
                zone="Europe/Berlin",
                payload=b"report",
                timeout=_CREATE_S,
            )

    async def create() -> float:
        async with AsyncClient(endpoints) as client:
            begun_s = time.perf_counter()
            await asyncio.gather(*(work(client) for _ in range(_AT_ONCE)))
            return (behind - first) / (time.perf_counter() - begun_s)

    return asyncio.run(create())


def _restart_s(mesh: LocalMesh, client: Client) -> float:
    """Stop the broker and start it; returns the time until a recurrence is triggered."""
    mesh.stop_broker(0)
    begun_s = time.monotonic()
    mesh.start_broker(0, wait=False)
    client.trigger_recurrence("t", "nightly-000000", timeout=60.0)
    return time.monotonic() - begun_s
