"""A topic with priority and many ready messages: the cost of an urgent one, and of a change of one, behind them.

Changes, moves and cancels take turns with those of a small topic beside it, so that both are measured in the same hour.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dueq import Client, Producer
from dueq.bench.figures import Figure, Target, median
from dueq.bench.growth import Cost, Sheet
from dueq.bench.processes import disk_bytes, rss_anon_mb
from dueq.bench.stage import Stage
from dueq.bench.tasks import Produce, Produced, now_ms
from dueq.bench.turns import longest_ms, turns
from dueq.bench.workers import Crew
from dueq.local import LocalMesh

_SIZES = (100_000, 500_000)
_HUGE_SIZES = (5_000_000,)
_QUICK_SIZES = (1_000, 50_000)
_BATCH = 500
_THREADS = 8
_ACTS = 30
_RANK, _RANKS, _URGENT = 10, 100, 0
_LOAD_S = 1800.0
_WAIT_S = 60.0
_ROWS_A_SECOND = 10_000
"""The least that is expected of the load, so that all fall due after it."""
_HUGE = 5_000_000
_COSTS = (
    Cost("backlog/rate", f"scheduled, batches of {_BATCH}", "msg/s", better_high=True),
    Cost("backlog/disk", "disk per message and replica (payload 256)", "bytes"),
    Cost("backlog/memory", "RssAnon, largest broker", "MB", targets={_HUGE: Target(at_most=200)}),
    Cost("backlog/turn", "longest turn of a loop when all fall due in one ms, at most", "ms"),
    Cost("backlog/urgent", "urgent message, from schedule to receipt", "ms"),
    Cost("backlog/overtaken", "messages received between it and the one before", "messages"),
    *(
        Cost(f"backlog/{act}{where}", f"{act} of one {words}: median", "ms")
        for act in ("change", "move", "cancel")
        for where, words in (("", "of the backlog, drawn"), ("-beside", "in a small topic, by turns"))
    ),
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
        Produce(mesh.endpoints, topic, _BATCH, _THREADS, size, at_ms=due_ms, rank=_RANK, ranks=_RANKS),
        timeout_s=_WAIT_S,
    )
    loader.go()
    produced: Produced = loader.result(_LOAD_S)
    sheet.add("rate", size, produced.rate)
    before = turns(mesh.metrics)
    time.sleep(max(due_ms - now_ms(), 0) / 1000 + 1)
    sheet.add("turn", size, longest_ms(before, turns(mesh.metrics)))
    sheet.add("memory", size, max(rss_anon_mb(pid) for pid in mesh.pids))
    sheet.add("disk", size, max(disk_bytes(broker.data) for broker in mesh.brokers) / size)
    with client.producer(topic) as producer, client.consumer(topic, credit=1) as consumer:
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
    waiting = [name for name in produced.ids if name != held.id]
    drawn = random.Random(size).sample(waiting, min(3 * _ACTS, len(waiting)))
    with client.producer(topic) as producer, _beside(client) as (beside, ids):
        _alter(sheet, size, (producer, drawn, ""), (beside, ids, "-beside"))
    assert produced.rows == size


@contextmanager
def _beside(client: Client) -> Iterator[tuple[Producer, list[str]]]:
    """A small topic of the same kind, whose messages are as ready as those of the backlog."""
    client.create_topic("beside", kind="priority", partitions=1, replicas=3)
    with client.producer("beside") as producer:
        yield producer, producer.schedule_many([b"x"] * 3 * _ACTS, 0, ranks=_RANK)


def _alter(sheet: Sheet, size: int, *sides: tuple[Producer, list[str], str]) -> None:
    """Alter messages of each side, one of one and one of the other."""

    def place(at: int, ids: list[str]) -> slice:
        return slice(at * len(ids) // 3, (at + 1) * len(ids) // 3)

    acts: dict[str, Callable[[Producer, str], object]] = {
        "change": lambda producer, name: producer.change(name, rank=_RANK + _RANKS),
        "move": lambda producer, name: producer.move(name, now_ms() + 3_600_000),
        "cancel": lambda producer, name: producer.cancel(name),
    }
    for number, (what, act) in enumerate(acts.items()):
        took: dict[str, list[float]] = {where: [] for _, _, where in sides}
        for pair in zip(*(ids[place(number, ids)] for _, ids, _ in sides), strict=False):
            for name, (producer, _, where) in zip(pair, sides, strict=True):
                begun_s = time.perf_counter()
                act(producer, name)
                took[where].append((time.perf_counter() - begun_s) * 1000)
        for where, durations_ms in took.items():
            sheet.add(what + where, size, median(durations_ms))
