"""Loading messages with unique keys, in turns with as many without: rate, processor time, memory, disk.

Two processes load them: each from an iterator in one call, as bulk loads are made, or with four threads that make calls
of so many rows.
"""

from __future__ import annotations

import random
import time

from dueq import Client
from dueq.bench.child import Task
from dueq.bench.figures import Figure, Target, median
from dueq.bench.growth import Cost, Sheet
from dueq.bench.processes import disk_bytes, process_cpu_s, rss_anon_mb
from dueq.bench.scheduling import together
from dueq.bench.stage import Stage
from dueq.bench.tasks import PAYLOAD_BYTES, Pour, Produce, now_ms
from dueq.bench.workers import Crew
from dueq.local import LocalMesh

_SIZES = (200_000, 1_000_000)
_HUGE_SIZES = (10_000_000,)
_QUICK_SIZES = (50_000,)
_ALL = 0
"""Stands for all rows in one call, which come from an iterator."""
_BATCHES = (_ALL, 500, 4_000)
"""Rows of a call. With keys a call is divided over the partitions, so short calls make short records."""
_HUGE_BATCHES = (_ALL,)
_CALLS_LEAST = 3
"""Each caller makes at least this many calls in a quarter; else their beginning and end would be measured."""
_PRODUCERS = 2
_THREADS = 4
_PARTITIONS = 6
_HOUR_MS = 3_600_000
_LOAD_S = 3_600.0
_GETS = 200
_QUARTERS = 4
_TOPIC = "t"
_PLAIN, _KEYED = "plain", "keyed"
_WORDS = "replicas=1, one broker"


def _name(batch: int) -> str:
    """What figures with calls of so many rows are called."""
    return f"{batch}" if batch else "stream"


def _costs(batch: int) -> tuple[Cost, ...]:
    """Return the costs that are measured with calls of `batch` rows."""
    of, calls = f"keyed/{_name(batch)}", f"calls of {batch:,}" if batch else "iterators"
    words = f"{_PRODUCERS}×{_THREADS} in flight, {_WORDS}" if batch else f"{_PRODUCERS} processes, {_WORDS}"
    targets = {} if batch else {size: Target(at_least=0.6) for size in (*_SIZES, *_HUGE_SIZES)}
    return (
        Cost(f"{of}/plain-rate", f"schedule without keys, {calls}, {words}", "msg/s", better_high=True),
        Cost(f"{of}/keyed-rate", f"with unique keys, by turns with that, {calls}", "msg/s", better_high=True),
        Cost(f"{of}/share", f"the rate with keys by that without, {calls}", "", better_high=True, targets=targets),
        Cost(f"{of}/plain-cpu", f"processor time of the broker a message, without keys, {calls}", "µs"),
        Cost(f"{of}/keyed-cpu", f"with unique keys, {calls}", "µs"),
        *(Cost(f"{of}/memory-{quarter}", f"RssAnon with keys after {quarter} of {_QUARTERS} quarters, {calls}", "MB")
          for quarter in range(1, _QUARTERS + 1)),
        Cost(f"{of}/plain-memory", f"RssAnon without keys, {calls}", "MB"),
        Cost(f"{of}/plain-disk", f"disk per message without keys (payload {PAYLOAD_BYTES}), {calls}", "bytes"),
        Cost(f"{of}/keyed-disk", f"disk per message with keys, {calls}", "bytes"),
        Cost(f"{of}/get", f"get by key, drawn from all, {calls}: median", "ms"),
        Cost(f"{of}/get-again", "the same after a restart: no key is in memory then", "ms"),
        Cost(f"{of}/memory-again", "RssAnon after that restart and these look-ups", "MB"),
    )  # fmt: skip


_COSTS = tuple(cost for batch in _BATCHES for cost in _costs(batch))


def measure(stage: Stage) -> list[Figure]:
    """200,000 and a million messages with unique keys, and as many without (--huge: ten million)."""
    sheet = stage.sheet(_COSTS)
    for size in _QUICK_SIZES if stage.quick else (_HUGE_SIZES if stage.huge else _SIZES):
        for run in range(1 if stage.huge else stage.runs):
            for batch in _HUGE_BATCHES if stage.huge else _BATCHES:
                if batch * _CALLS_LEAST > size // _QUARTERS // _PRODUCERS // _THREADS:
                    continue
                stage.say(f"keyed, {size:,}, {_name(batch)}, run {run + 1}")
                rates = {}
                for kind in (_PLAIN, _KEYED):
                    with stage.mesh(brokers=1) as (mesh, client, crew):
                        rates[kind] = _load(mesh, client, crew, sheet, size, kind, batch)
                        if kind == _KEYED:
                            _get(mesh, client, sheet, size, batch)
                sheet.add(f"{_name(batch)}/share", size, rates[_KEYED] / rates[_PLAIN])
    return sheet.figures()


def _load(
    mesh: LocalMesh, client: Client, crew: Crew, sheet: Sheet, size: int, kind: str, batch: int
) -> float:
    """Load a fresh mesh; returns messages per second."""
    client.create_topic(_TOPIC, partitions=_PARTITIONS, replicas=1, keys="unique" if kind == _KEYED else None)
    [broker], [pid] = mesh.brokers, mesh.pids
    before_s, rows, seconds = process_cpu_s(pid), 0, 0.0
    for quarter in range(1, _QUARTERS + 1):
        each, at_ms, span_ms = size // _QUARTERS // _PRODUCERS, now_ms() + _HOUR_MS, 23 * _HOUR_MS
        keys = [f"order-{producer}-{quarter}-" if kind == _KEYED else "" for producer in range(_PRODUCERS)]
        tasks: list[Task] = [
            Produce(mesh.endpoints, _TOPIC, batch, _THREADS, each, at_ms=at_ms, span_ms=span_ms, keys=key)
            if batch
            else Pour(mesh.endpoints, _TOPIC, each, at_ms, span_ms, key)
            for key in keys
        ]
        producers = crew.start(*tasks)
        for worker in producers:
            worker.go()
        produced = [worker.result(_LOAD_S) for worker in producers]
        rows += sum(each.rows for each in produced)
        seconds += sum(each.rows for each in produced) / together(produced)
        if kind == _KEYED:
            sheet.add(f"{_name(batch)}/memory-{quarter}", size, rss_anon_mb(pid))
    sheet.add(f"{_name(batch)}/{kind}-cpu", size, (process_cpu_s(pid) - before_s) / rows * 1e6)
    sheet.add(f"{_name(batch)}/{kind}-disk", size, disk_bytes(broker.data) / rows)
    if kind == _PLAIN:
        sheet.add(f"{_name(batch)}/plain-memory", size, rss_anon_mb(pid))
    sheet.add(f"{_name(batch)}/{kind}-rate", size, rows / seconds)
    return rows / seconds


def _get(mesh: LocalMesh, client: Client, sheet: Sheet, size: int, batch: int) -> None:
    """Look messages up by keys that are drawn, before the broker starts again and after it."""
    sheet.add(f"{_name(batch)}/get", size, _get_ms(client, size))
    mesh.stop_broker(0)
    mesh.start_broker(0)
    sheet.add(f"{_name(batch)}/get-again", size, _get_ms(client, size))
    [pid] = mesh.pids
    sheet.add(f"{_name(batch)}/memory-again", size, rss_anon_mb(pid))


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
