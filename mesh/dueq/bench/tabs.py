"""How late messages are while many pages of the dashboard are open, in turns with the same while none is."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from dueq.bench.child import Line
from dueq.bench.delivering import drained
from dueq.bench.figures import Figure, Row, Target, percentile
from dueq.bench.gateways import READY_S, gateway_of
from dueq.bench.stage import Stage
from dueq.bench.tasks import Consume, Consumed, Produce, Produced

_TABS = 50
_RATE = 1_000
_TIMES = 1.5
"""How many times as late a message may be at the 99th percentile while the pages are open."""
_PARTITIONS = 6
_CONSUMERS = 2
_AHEAD_MS = 500
_SPAN_MS = 1_000
_REQUESTS_PER_S = 20
_READ_BYTES = 1 << 16


@dataclass(frozen=True)
class Watch:
    """Hold pages of the dashboard open until told to stop; the result is how many events they got.

    Attributes:
        port: of the gateway, on the loopback.
        tabs: how many pages; half of them show the mesh, half the topic.
        topic: which.
    """

    port: int
    tabs: int
    topic: str

    def run(self, line: Line) -> int:
        """See Task."""
        return asyncio.run(self._watch(line))

    async def _watch(self, line: Line) -> int:
        streams = [await self._open(f"?topic={self.topic}" if tab % 2 else "") for tab in range(self.tabs)]
        readers = [asyncio.create_task(_events(reader)) for reader, _ in streams]
        await asyncio.to_thread(line.ready)
        await asyncio.to_thread(line.stopped.wait)
        for _, writer in streams:
            writer.close()
        return sum(await asyncio.gather(*readers))

    async def _open(self, shown: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        request = f"GET /dashboard/live{shown} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n\r\n"
        writer.write(request.encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"a page was refused: {head.splitlines()[0].decode()}")
        return reader, writer


async def _events(reader: asyncio.StreamReader) -> int:
    """Read a page's events until it is closed; return how many came."""
    found = 0
    try:
        while said := await reader.read(_READ_BYTES):
            found += said.count(b"event:")
    except ConnectionError:
        pass
    return found


def measure(stage: Stage) -> list[Figure]:
    """1,000 messages per second while fifty pages of the dashboard are open, by turns with none open."""
    name, words = "tabs", f"lateness at {_RATE:,} msg/s"
    rows = [
        Row(f"{name}/none-p50", f"{words}, a gateway beside, no page open: p50", "ms"),
        Row(f"{name}/none-p99", "no page open: p99", "ms"),
        Row(f"{name}/p50", f"{words}, {_TABS} pages open: p50", "ms"),
        Row(f"{name}/p99", f"{_TABS} pages open: p99", "ms"),
        Row(f"{name}/times", "p99 with pages, by p99 without", "", Target(at_most=_TIMES)),
        Row(f"{name}/events", "events that the pages got", ""),
    ]

    def once() -> dict[str, float]:
        none, _ = _run(stage, 0)
        some, events = _run(stage, _TABS)
        before, after = percentile(none.received_ms, 0.99), percentile(some.received_ms, 0.99)
        values = (
            percentile(none.received_ms, 0.5), before, percentile(some.received_ms, 0.5), after, after / before,
            float(events),
        )  # fmt: skip
        return {row.name: value for row, value in zip(rows, values, strict=True)}

    return stage.repeat(rows, stage.pick(5, 1), once)


def _run(stage: Stage, tabs: int) -> tuple[Consumed, int]:
    seconds = 5.0 if stage.quick else 20.0
    with stage.mesh() as (mesh, client, crew):
        topic = stage.topic(client, _PARTITIONS, replicas=3)
        with gateway_of(mesh, stage.folder) as (_, port):
            watching = crew.start(*([Watch(port, tabs, topic)] if tabs else []))
            consumers = crew.start(
                *(Consume(mesh.endpoints, topic, 1_024, 256, times=True) for _ in range(_CONSUMERS))
            )
            (producer,) = crew.start(
                Produce(
                    mesh.endpoints, topic, _RATE // _REQUESTS_PER_S, seconds=seconds, rate=_RATE,
                    ahead_ms=_AHEAD_MS, span_ms=_SPAN_MS,
                )
            )  # fmt: skip
            for worker in (*watching, *consumers, producer):
                worker.go()
            produced: Produced = producer.result(seconds + 60.0)
            consumed = drained(crew, consumers, produced.rows)
            for watcher in watching:
                watcher.stop()
            return consumed, sum(watcher.result(READY_S) for watcher in watching)
