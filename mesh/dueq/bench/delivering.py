"""How fast messages get through: a steady stream, and many in one millisecond."""

from __future__ import annotations

from collections.abc import Sequence

from dueq.bench import bare, pushing
from dueq.bench.figures import Figure, Row, Target
from dueq.bench.stage import Stage
from dueq.bench.tasks import Consume, Consumed, Produce, Produced, now_ms
from dueq.bench.workers import Crew, Worker, WorkerFailed, finish
from dueq.local import LocalMesh

_BATCH = 500
_CONSUMERS = 2
_CREDIT = 8_192
_AHEAD_MS = 200
_PARTITIONS = 6
_THREADS = 4
_DRAIN_S = 120.0


def steady(stage: Stage) -> list[Figure]:
    """Schedule → push → acknowledge, everything at once, on three replicas and on one."""
    seconds = 3.0 if stage.quick else 15.0
    words = f"schedule → push → ack, due {_AHEAD_MS} ms ahead, 1 producer, {_CONSUMERS} consumers"
    bare_three = bare.beside("steady/bare-3", bare.BULK)
    bare_one = bare.beside("steady/bare-1", bare.BULK_ALONE)
    three = Row(
        "steady/replicas-3", f"{words}; replicas=3", "msg/s", Target(at_least=45_000), bare_three.name
    )
    one = Row(
        "steady/replicas-1", f"{words}; replicas=1, one broker", "msg/s",
        Target(at_least=100_000), bare_one.name,
    )  # fmt: skip

    def replicated() -> dict[str, float]:
        return {bare_three.name: bare.rate(stage, bare.BULK), three.name: _steady(stage, seconds, brokers=3)}

    def alone() -> dict[str, float]:
        return {
            bare_one.name: bare.rate(stage, bare.BULK_ALONE),
            one.name: _steady(stage, seconds, brokers=1),
        }

    runs = stage.pick(3, 1)
    return [
        *stage.repeat([bare_three, three], runs, replicated),
        *stage.repeat([bare_one, one], runs, alone),
    ]


def _steady(stage: Stage, seconds: float, brokers: int) -> float:
    with stage.mesh(brokers) as (mesh, client, crew):
        topic = stage.topic(client, _PARTITIONS, replicas=brokers)
        consumers = crew.start(*_consumers(mesh, topic))
        (producer,) = crew.start(
            Produce(mesh.endpoints, topic, _BATCH, _THREADS, seconds=seconds, ahead_ms=_AHEAD_MS)
        )
        for worker in (*consumers, producer):
            worker.go()
        produced: Produced = producer.result(seconds + _DRAIN_S)
        consumed = drained(crew, consumers, produced.rows)
        elapsed_s = (consumed.acked_at_ns - produced.begun_ns) / 1e9 - _AHEAD_MS / 1e3
        return produced.rows / elapsed_s


def instant(stage: Stage) -> list[Figure]:
    """Many messages that are due in the same millisecond: how long until all are acknowledged."""
    rows = stage.pick(50_000, 10_000)
    bare_row = Row("instant/bare", "bare senders, the same: until all are received", "s")
    row = Row(
        "instant", f"{rows:,} due in one ms: from then until all are acked, {_CONSUMERS} consumers", "s",
        Target(at_most=0.9), bare_row.name,
    )  # fmt: skip
    lead_ms = 2_000 + rows // 10

    def once() -> dict[str, float]:
        bare_s = pushing.at_once_s(rows)
        with stage.mesh() as (mesh, client, crew):
            topic = stage.topic(client, _PARTITIONS, replicas=3)
            consumers = crew.start(*_consumers(mesh, topic))
            due_ms = now_ms() + lead_ms
            (producer,) = crew.start(Produce(mesh.endpoints, topic, _BATCH, _THREADS, rows, at_ms=due_ms))
            for worker in (*consumers, producer):
                worker.go()
            produced: Produced = producer.result(_DRAIN_S)
            if produced.ended_ns >= due_ms * 1_000_000:
                raise WorkerFailed(
                    f"{rows} messages could not be scheduled in the {lead_ms} ms before their due instant"
                )
            consumed = drained(crew, consumers, rows)
            return {bare_row.name: bare_s, row.name: consumed.acked_at_ns / 1e9 - due_ms / 1e3}

    return stage.repeat([bare_row, row], 3, once)


def _consumers(mesh: LocalMesh, topic: str) -> list[Consume]:
    return [Consume(mesh.endpoints, topic, _CREDIT, _BATCH, times=False) for _ in range(_CONSUMERS)]


def drained(crew: Crew, consumers: Sequence[Worker], rows: int, timeout_s: float = _DRAIN_S) -> Consumed:
    """Wait until `rows` messages have been consumed, and return what the consumers have got.

    Raises:
        WorkerFailed: they did not come in time, or one of them is missing, or came twice.
    """
    crew.wait(
        lambda: sum(worker.done for worker in consumers) >= rows, timeout_s, f"{rows} messages to arrive"
    )
    consumed = Consumed.together(finish(consumers))
    if consumed.lost(rows) or consumed.twice:
        raise WorkerFailed(f"of {rows} messages {consumed.lost(rows)} were lost, {consumed.twice} came twice")
    return consumed
