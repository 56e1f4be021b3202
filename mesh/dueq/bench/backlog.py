"""A topic with priority and many ready messages: what an urgent one, and a change of one, cost behind them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from itertools import islice
from urllib.request import urlopen

from dueq import Client, Producer
from dueq.bench.figures import Figure, Target, median
from dueq.bench.growth import Cost, Sheet
from dueq.bench.processes import rss_anon_mb
from dueq.bench.stage import Stage
from dueq.bench.tasks import Produce, Produced, now_ms
from dueq.bench.workers import Crew
from dueq.local import LocalMesh

_SIZES = (100_000, 500_000)
_HUGE_SIZES = (5_000_000,)
_QUICK_SIZES = (1_000, 50_000)
_BATCH = 500
_THREADS = 8
_ACTS = 30
_RANK, _URGENT = 10, 0
_LOAD_S = 900.0
_WAIT_S = 60.0
_ROWS_A_SECOND = 15_000
"""The least that is expected of the load, so that all fall due after it."""
_TURN = re.compile(r'dueq_loop_turn_seconds_bucket\{le="([^"]+)"\} (\d+)')
_HUGE = 5_000_000
_COSTS = (
    Cost("backlog/memory", "RssAnon, largest broker", "MB", targets={_HUGE: Target(at_most=200)}),
    Cost("backlog/turn", "longest turn of a loop when all fall due in one ms, at most", "ms"),
    Cost("backlog/urgent", "urgent message, from schedule to receipt", "ms"),
    Cost("backlog/overtaken", "messages received between it and the one before", "messages"),
    Cost("backlog/change", "change of a rank: median", "ms"),
    Cost("backlog/move", "move: median", "ms"),
    Cost("backlog/cancel", "cancel: median", "ms"),
)


def measure(stage: Stage) -> list[Figure]:
    """100,000 and 500,000 messages that fall due in one millisecond (--huge: 5,000,000), and an urgent one."""
    sheet = stage.sheet(_COSTS)
    for size in _QUICK_SIZES if stage.quick else (*_SIZES, *(_HUGE_SIZES if stage.huge else ())):
        with stage.mesh() as (mesh, client, crew):
            stage.say(f"backlog, loading {size:,} messages")
            _once(mesh, client, crew, sheet, size)
    return sheet.figures()


def _once(mesh: LocalMesh, client: Client, crew: Crew, sheet: Sheet, size: int) -> None:
    topic = "backlog"
    client.create_topic(topic, kind="priority", partitions=1, replicas=3)
    due_ms = now_ms() + 2_000 + size * 1_000 // _ROWS_A_SECOND
    (loader,) = crew.start(
        Produce(mesh.endpoints, topic, _BATCH, _THREADS, size, at_ms=due_ms, rank=_RANK), timeout_s=_WAIT_S
    )
    loader.go()
    produced: Produced = loader.result(_LOAD_S)
    before = _turns(mesh)
    time.sleep(max(due_ms - now_ms(), 0) / 1000 + 1)
    sheet.add("turn", size, _longest_ms(before, _turns(mesh)))
    sheet.add("memory", size, max(rss_anon_mb(pid) for pid in mesh.pids))
    with client.producer(topic) as producer, client.consumer(topic, credit=1) as consumer:
        ready = [found.id for found in islice(client.browse(topic), 4 * _ACTS)]
        [held] = consumer.receive(1, timeout=_WAIT_S)
        begun_s = time.perf_counter()
        urgent = producer.schedule(b"urgent", 0, rank=_URGENT)
        held.ack()
        overtaken = 0
        while (found := consumer.receive(1, timeout=_WAIT_S)[0]).id != urgent:
            overtaken += 1
            found.ack()
        sheet.add("urgent", size, (time.perf_counter() - begun_s) * 1000)
        sheet.add("overtaken", size, overtaken)
        _alter(producer, sheet, size, ready[2:])
    assert produced.rows == size


def _alter(producer: Producer, sheet: Sheet, size: int, ids: list[str]) -> None:
    acts: dict[str, Callable[[str], object]] = {
        "change": lambda name: producer.change(name, rank=_RANK + 1),
        "move": lambda name: producer.move(name, now_ms() + 3_600_000),
        "cancel": producer.cancel,
    }
    for number, (what, act) in enumerate(acts.items()):
        took = []
        for name in ids[number * _ACTS : (number + 1) * _ACTS]:
            begun_s = time.perf_counter()
            act(name)
            took.append((time.perf_counter() - begun_s) * 1000)
        sheet.add(what, size, median(took))


def _turns(mesh: LocalMesh) -> dict[float, int]:
    """How many turns all brokers took, by the longest that they may have taken in seconds."""
    found: dict[float, int] = {}
    for address in mesh.metrics:
        with urlopen(f"http://{address}/metrics", timeout=_WAIT_S) as page:
            for bound, count in _TURN.findall(page.read().decode()):
                found[float(bound)] = found.get(float(bound), 0) + int(count)
    return found


def _longest_ms(before: dict[float, int], after: dict[float, int]) -> float:
    """The least bound of all turns between two looks, in ms."""
    all_turns = after[float("inf")] - before[float("inf")]
    return min(bound for bound in after if after[bound] - before[bound] == all_turns) * 1000
