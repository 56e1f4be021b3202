"""The cost of many clients of a gateway that wait and get nothing."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

from dueq.bench.child import Line
from dueq.bench.figures import Figure, Row, Target
from dueq.bench.gateways import READY_S, gateway_of
from dueq.bench.processes import cpu_ms_per_s, rss_anon_mb
from dueq.bench.stage import Stage

_POLLS, _STREAMS = 1_000, 500
_GATEWAY_MB = 300.0
_BROKERS_MS_PER_S = 10.0
_PARTITIONS = 6
_OPENING = 64
"""Clients that connect at the same time."""
_POLL = b'{"wait":"60s","max":10}'


@dataclass(frozen=True)
class Wait:
    """Hold long polls, and streams with names, open until told to stop; the result is how many ended by themselves.

    Attributes:
        port: of the gateway, on the loopback.
        topic: whose messages are waited for.
        polls, streams: how many.
    """

    port: int
    topic: str
    polls: int
    streams: int

    def run(self, line: Line) -> int:
        """See Task."""
        return asyncio.run(self._wait(line))

    async def _wait(self, line: Line) -> int:
        opening = asyncio.Semaphore(_OPENING)
        begun = [asyncio.Event() for _ in range(self.polls + self.streams)]
        tasks = [
            asyncio.create_task(
                self._poll(opening, each) if i < self.polls else self._stream(opening, each, i)
            )
            for i, each in enumerate(begun)
        ]
        for each in begun:
            await each.wait()
        await asyncio.to_thread(line.ready)
        await asyncio.to_thread(line.stopped.wait)
        ended = sum(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return ended

    async def _poll(self, opening: asyncio.Semaphore, begun: asyncio.Event) -> None:
        request = (
            f"POST /v1/topics/{self.topic}/receive HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(_POLL)}\r\n\r\n"
        )
        async with opening:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(request.encode() + _POLL)
        begun.set()
        while await reader.readline():
            length = 0
            while (field := await reader.readline()) != b"\r\n":
                name, _, value = field.lower().partition(b":")
                length = int(value) if name == b"content-length" else length
            await reader.readexactly(length)
            writer.write(request.encode() + _POLL)

    async def _stream(self, opening: asyncio.Semaphore, begun: asyncio.Event, number: int) -> None:
        path = f"/v1/topics/{self.topic}/stream?consumer=stream-{number}"
        async with opening:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
        begun.set()
        while await reader.read(1 << 16):
            pass


def measure(stage: Stage) -> list[Figure]:
    """1,000 idle long polls and 500 idle streams with names, at one gateway of three brokers."""
    words = f"{_POLLS:,} long polls and {_STREAMS} named streams wait"
    rows = [
        Row("waiting/gateway-mb", f"{words}: memory of the gateway", "MB", Target(at_most=_GATEWAY_MB)),
        Row("waiting/gateway", "processor time of the gateway, beyond that without them", "ms/s"),
        Row(
            "waiting/brokers", "processor time of all brokers, beyond that without them", "ms/s",
            Target(at_most=_BROKERS_MS_PER_S),
        ),
        Row("waiting/ended", "of them, those that ended by themselves", "", Target(at_most=0)),
    ]  # fmt: skip
    return stage.repeat(rows, stage.pick(3, 1), lambda: _once(stage, [row.name for row in rows]))


def _once(stage: Stage, names: list[str]) -> dict[str, float]:
    seconds = 20.0 if stage.quick else 60.0
    with stage.mesh() as (mesh, client, crew):
        topic = stage.topic(client, _PARTITIONS, replicas=3)
        with gateway_of(mesh, stage.folder) as (child, port):
            assert child.pid
            watched = [child.pid, *(broker.pid for broker in mesh.brokers if broker.pid is not None)]
            before = cpu_ms_per_s(watched, seconds)
            (waiting,) = crew.start(Wait(port, topic, _POLLS, _STREAMS), timeout_s=READY_S)
            waiting.go()
            cpu_ms_per_s([os.getpid()], seconds / 2)  # until all has settled
            after = cpu_ms_per_s(watched, seconds)
            memory_mb = rss_anon_mb(child.pid)
            waiting.stop()
            ended = waiting.result(READY_S)
    values = (memory_mb, after[0] - before[0], sum(after[1:]) - sum(before[1:]), float(ended))
    return dict(zip(names, values, strict=True))
