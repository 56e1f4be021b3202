"""Loading messages with unique keys, and by turns as many without: rate, processor time, memory, disk."""

from __future__ import annotations

import random
import time

from dueq import Client
from dueq.bench.figures import Figure, Target, median
from dueq.bench.growth import Cost, Sheet
from dueq.bench.processes import disk_bytes, process_cpu_s, rss_anon_mb
from dueq.bench.scheduling import together
from dueq.bench.stage import Stage
from dueq.bench.tasks import Produce, now_ms
from dueq.bench.workers import Crew
from dueq.local import LocalMesh

_SIZES = (200_000, 1_000_000)
_HUGE_SIZES = (10_000_000,)
_QUICK_SIZES = (50_000,)
_BATCH = 500
_PRODUCERS = 2
_THREADS = 4
_PARTITIONS = 6
_PAYLOAD_BYTES = 100
_HOUR_MS = 3_600_000
_LOAD_S = 3_600.0
_GETS = 200
_QUARTERS = 4
_TOPIC = "t"
_PLAIN, _KEYED = "plain", "keyed"
_WORDS = f"batches of {_BATCH}, {_PRODUCERS}×{_THREADS} in flight, replicas=1, one broker"
_COSTS = (
    Cost("keyed/plain-rate", f"schedule without keys, {_WORDS}", "msg/s", better_high=True),
    Cost("keyed/keyed-rate", "with unique keys, by turns with that", "msg/s", better_high=True),
    Cost("keyed/share", "the rate with keys by that without", "", better_high=True,
         targets={size: Target(at_least=0.6) for size in (*_SIZES, *_HUGE_SIZES)}),
    Cost("keyed/plain-cpu", "processor time of the broker a message, without keys", "µs"),
    Cost("keyed/keyed-cpu", "with unique keys", "µs"),
    *(Cost(f"keyed/memory-{quarter}", f"RssAnon with keys after {quarter} of {_QUARTERS} quarters", "MB")
      for quarter in range(1, _QUARTERS + 1)),
    Cost("keyed/plain-memory", "RssAnon without keys", "MB"),
    Cost("keyed/plain-disk", f"disk per message without keys (payload {_PAYLOAD_BYTES})", "bytes"),
    Cost("keyed/keyed-disk", "disk per message with keys", "bytes"),
    Cost("keyed/get", "get by key, drawn from all: median", "ms"),
    Cost("keyed/get-again", "the same after a restart: no key is in memory then", "ms"),
    Cost("keyed/memory-again", "RssAnon after that restart and these look-ups", "MB"),
)  # fmt: skip


def measure(stage: Stage) -> list[Figure]:
    """200,000 and a million messages with unique keys, and as many without (--huge: ten million)."""
    sheet = stage.sheet(_COSTS)
    for size in _QUICK_SIZES if stage.quick else (_HUGE_SIZES if stage.huge else _SIZES):
        for run in range(1 if stage.huge else stage.runs):
            stage.say(f"keyed, {size:,}, run {run + 1}")
            rates = {}
            for kind in (_PLAIN, _KEYED):
                with stage.mesh(brokers=1) as (mesh, client, crew):
                    rates[kind] = _load(mesh, client, crew, sheet, size, kind)
                    if kind == _KEYED:
                        _get(mesh, client, sheet, size)
            sheet.add("share", size, rates[_KEYED] / rates[_PLAIN])
    return sheet.figures()


def _load(mesh: LocalMesh, client: Client, crew: Crew, sheet: Sheet, size: int, kind: str) -> float:
    """Load a fresh mesh; returns messages per second."""
    client.create_topic(_TOPIC, partitions=_PARTITIONS, replicas=1, keys="unique" if kind == _KEYED else None)
    [broker], [pid] = mesh.brokers, mesh.pids
    before_s, rows, seconds = process_cpu_s(pid), 0, 0.0
    for quarter in range(1, _QUARTERS + 1):
        tasks = [
            Produce(
                mesh.endpoints, _TOPIC, _BATCH, _THREADS, size // _QUARTERS // _PRODUCERS,
                at_ms=now_ms() + _HOUR_MS, span_ms=23 * _HOUR_MS, payload_bytes=_PAYLOAD_BYTES,
                keys=f"order-{producer}-{quarter}-" if kind == _KEYED else "",
            )
            for producer in range(_PRODUCERS)
        ]  # fmt: skip
        producers = crew.start(*tasks)
        for worker in producers:
            worker.go()
        produced = [worker.result(_LOAD_S) for worker in producers]
        rows += sum(each.rows for each in produced)
        seconds += sum(each.rows for each in produced) / together(produced)
        if kind == _KEYED:
            sheet.add(f"memory-{quarter}", size, rss_anon_mb(pid))
    sheet.add(f"{kind}-cpu", size, (process_cpu_s(pid) - before_s) / rows * 1e6)
    sheet.add(f"{kind}-disk", size, disk_bytes(broker.data) / rows)
    if kind == _PLAIN:
        sheet.add("plain-memory", size, rss_anon_mb(pid))
    sheet.add(f"{kind}-rate", size, rows / seconds)
    return rows / seconds


def _get(mesh: LocalMesh, client: Client, sheet: Sheet, size: int) -> None:
    """Look messages up by keys that are drawn, before the broker starts again and after it."""
    sheet.add("get", size, _get_ms(client, size))
    mesh.stop_broker(0)
    mesh.start_broker(0)
    sheet.add("get-again", size, _get_ms(client, size))
    [pid] = mesh.pids
    sheet.add("memory-again", size, rss_anon_mb(pid))


def _get_ms(client: Client, size: int) -> float:
    chance, each = random.Random(size), size // _QUARTERS // _PRODUCERS
    taken_ms = []
    for _ in range(_GETS):
        key = (
            f"order-{chance.randrange(_PRODUCERS)}-{chance.randrange(_QUARTERS) + 1}-{chance.randrange(each)}"
        )
        begun_s = time.perf_counter()
        state = client.get(_TOPIC, key=key, timeout=60.0)
        taken_ms.append((time.perf_counter() - begun_s) * 1e3)
        assert state is not None, key
    return median(taken_ms)
