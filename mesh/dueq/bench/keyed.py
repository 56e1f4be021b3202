"""Loading messages with unique keys, in turns with as many without: rate, processor time, memory, disk.

Two processes load them: each from an iterator in one call, as bulk loads are made, or with four threads that make calls
of so many rows. Ten million go to three replicas, too, there also with payloads of 1 KiB.
"""

from __future__ import annotations

import random
import time
from typing import NamedTuple

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


class _Way(NamedTuple):
    """How messages are loaded.

    Attributes:
        batch: rows of a call, 0 for all in one call from an iterator.
        brokers: each has a replica.
        payload_bytes: of a message.
    """

    batch: int
    brokers: int
    payload_bytes: int = PAYLOAD_BYTES

    @property
    def name(self) -> str:
        """What its figures are called."""
        size = f"-{self.payload_bytes}" if self.payload_bytes != PAYLOAD_BYTES else ""
        return (
            (f"{self.batch}" if self.batch else "stream") + ("-replicated" if self.brokers > 1 else "") + size
        )


_WAYS = (_Way(0, 1), _Way(500, 1), _Way(4_000, 1))
"""With keys a call is divided over the partitions, so short calls make short records."""
_HUGE_WAYS = (_Way(0, 1), _Way(0, 3), _Way(0, 3, 1024))
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


def _costs(way: _Way) -> tuple[Cost, ...]:
    """Return the costs of one way."""
    of, rows = f"keyed/{way.name}", f"calls of {way.batch:,}" if way.batch else "iterators"
    place = f"replicas={way.brokers}, " + ("one broker" if way.brokers == 1 else f"{way.brokers} brokers")
    words = f"{_PRODUCERS}×{_THREADS} in flight, {place}" if way.batch else f"{_PRODUCERS} processes, {place}"
    targets = {} if way.batch else {size: Target(at_least=0.6) for size in (*_SIZES, *_HUGE_SIZES)}
    calls = rows if way.brokers == 1 else f"{rows}, {place}"
    calls += "" if way.payload_bytes == PAYLOAD_BYTES else f", payload {way.payload_bytes}"
    return (
        Cost(f"{of}/plain-rate", f"schedule without keys, {rows}, {words}, payload {way.payload_bytes}", "msg/s",
             better_high=True),
        Cost(f"{of}/keyed-rate", f"with unique keys, by turns with that, {calls}", "msg/s", better_high=True),
        Cost(f"{of}/share", f"the rate with keys by that without, {calls}", "", better_high=True, targets=targets),
        Cost(f"{of}/plain-cpu", f"processor time of the brokers a message, without keys, {calls}", "µs"),
        Cost(f"{of}/keyed-cpu", f"with unique keys, {calls}", "µs"),
        *(Cost(f"{of}/memory-{quarter}", f"RssAnon with keys after {quarter} of {_QUARTERS} quarters, {calls}", "MB")
          for quarter in range(1, _QUARTERS + 1)),
        Cost(f"{of}/plain-memory", f"RssAnon without keys, {calls}", "MB"),
        Cost(f"{of}/plain-disk", f"disk per message without keys (payload {way.payload_bytes}), {calls}", "bytes"),
        Cost(f"{of}/keyed-disk", f"disk per message with keys, {calls}", "bytes"),
        *(_costs_of_looking(of, calls) if way.brokers == 1 else ()),
    )  # fmt: skip


def _costs_of_looking(of: str, calls: str) -> tuple[Cost, ...]:
    return (
        Cost(f"{of}/get", f"get by key, drawn from all, {calls}: median", "ms"),
        Cost(f"{of}/get-again", "the same after a restart: no key is in memory then", "ms"),
        Cost(f"{of}/memory-again", "RssAnon after that restart and these look-ups", "MB"),
    )


_COSTS = tuple(cost for way in dict.fromkeys((*_WAYS, *_HUGE_WAYS)) for cost in _costs(way))


def measure(stage: Stage) -> list[Figure]:
    """200,000 and a million messages with unique keys, and without (--huge: ten million, with three replicas, too)."""
    sheet = stage.sheet(_COSTS)
    for size in _QUICK_SIZES if stage.quick else (_HUGE_SIZES if stage.huge else _SIZES):
        for run in range(1 if stage.huge else stage.runs):
            for way in _HUGE_WAYS if stage.huge else _WAYS:
                if way.batch * _CALLS_LEAST > size // _QUARTERS // _PRODUCERS // _THREADS:
                    continue
                stage.say(f"keyed, {size:,}, {way.name}, run {run + 1}")
                rates = {}
                for kind in (_PLAIN, _KEYED):
                    with stage.mesh(brokers=way.brokers) as (mesh, client, crew):
                        rates[kind] = _load(mesh, client, crew, sheet, size, kind, way)
                        if kind == _KEYED and way.brokers == 1:
                            _get(mesh, client, sheet, size, way)
                sheet.add(f"{way.name}/share", size, rates[_KEYED] / rates[_PLAIN])
    return sheet.figures()


def _load(
    mesh: LocalMesh, client: Client, crew: Crew, sheet: Sheet, size: int, kind: str, way: _Way
) -> float:
    """Load a fresh mesh; returns messages per second."""
    client.create_topic(
        _TOPIC, partitions=_PARTITIONS, replicas=way.brokers, keys="unique" if kind == _KEYED else None
    )
    pids = mesh.pids
    before_s, rows, seconds = sum(map(process_cpu_s, pids)), 0, 0.0
    for quarter in range(1, _QUARTERS + 1):
        each, at_ms, span_ms = size // _QUARTERS // _PRODUCERS, now_ms() + _HOUR_MS, 23 * _HOUR_MS
        keys = [f"order-{producer}-{quarter}-" if kind == _KEYED else "" for producer in range(_PRODUCERS)]
        tasks: list[Task] = [
            Produce(
                mesh.endpoints,
                _TOPIC,
                way.batch,
                _THREADS,
                each,
                at_ms=at_ms,
                span_ms=span_ms,
                keys=key,
                payload_bytes=way.payload_bytes,
            )
            if way.batch
            else Pour(mesh.endpoints, _TOPIC, each, at_ms, span_ms, key, way.payload_bytes)
            for key in keys
        ]
        producers = crew.start(*tasks)
        for worker in producers:
            worker.go()
        produced = [worker.result(_LOAD_S) for worker in producers]
        rows += sum(each.rows for each in produced)
        seconds += sum(each.rows for each in produced) / together(produced)
        if kind == _KEYED:
            sheet.add(f"{way.name}/memory-{quarter}", size, max(map(rss_anon_mb, pids)))
    used_s = sum(map(process_cpu_s, pids)) - before_s
    sheet.add(f"{way.name}/{kind}-cpu", size, used_s / rows * 1e6)
    sheet.add(f"{way.name}/{kind}-disk", size, sum(disk_bytes(broker.data) for broker in mesh.brokers) / rows)
    if kind == _PLAIN:
        sheet.add(f"{way.name}/plain-memory", size, max(map(rss_anon_mb, pids)))
    sheet.add(f"{way.name}/{kind}-rate", size, rows / seconds)
    return rows / seconds


def _get(mesh: LocalMesh, client: Client, sheet: Sheet, size: int, way: _Way) -> None:
    """Look messages up by keys that are drawn, before the broker starts again and after it."""
    sheet.add(f"{way.name}/get", size, _get_ms(client, size))
    mesh.stop_broker(0)
    mesh.start_broker(0)
    sheet.add(f"{way.name}/get-again", size, _get_ms(client, size))
    [pid] = mesh.pids
    sheet.add(f"{way.name}/memory-again", size, rss_anon_mb(pid))


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
