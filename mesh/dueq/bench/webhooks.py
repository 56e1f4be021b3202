"""The lateness of messages that a gateway sends to a local receiver, beside the same consumed by the SDK."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from dueq import Client
from dueq.bench.child import Line
from dueq.bench.delivering import drained
from dueq.bench.figures import Figure, Row, Target, percentile
from dueq.bench.gateways import READY_S, free_port, gateway_of
from dueq.bench.stage import Stage
from dueq.bench.tasks import Consume, Consumed, Produce, Produced
from dueq.bench.workers import Crew, Worker
from dueq.local import LocalMesh

_RATES = (200, 1_000)
_TIMES = 3.0
"""How many times as late as at the SDK a message may be at 200 a second."""
_PARTITIONS = 6
_AHEAD_MS = 500
_SPAN_MS = 1_000
_REQUESTS_PER_S = 20
_LOOK_S = 0.05
_NUMBER_BYTES = 8
_ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"


class Receive:
    """Answer every request with 204 until told to stop; counts them.

    Args:
        port: of the loopback, where to listen.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._numbers: list[bytes] = []
        self._attempts: list[int] = []
        self._released: list[float] = []
        self._received: list[float] = []
        self._at: list[float] = []

    def run(self, line: Line) -> Consumed:
        """See Task."""
        asyncio.run(self._serve(line))
        return Consumed(
            np.frombuffer(b"".join(self._numbers), ">u8").astype(np.uint64),
            np.array(self._attempts, np.uint32),
            np.array(self._released, np.float64),
            np.array(self._received, np.float64),
            np.array(self._at, np.float64),
            time.time_ns(),
        )

    async def _serve(self, line: Line) -> None:
        server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(self, line), "127.0.0.1", self._port
        )
        await asyncio.to_thread(line.ready)
        await asyncio.to_thread(line.stopped.wait)
        server.close()

    def take(self, head: bytes, body: bytes, line: Line) -> None:
        """Keep when a request came."""
        at_ms = time.time_ns() / 1e6
        said = dict(text.split(b": ", 1) for text in head.split(b"\r\n")[1:])
        due_ms = int(said[b"dueq-due"])
        self._numbers.append(body[:_NUMBER_BYTES])
        self._attempts.append(int(said[b"dueq-attempt"]))
        self._released.append(int(said[b"dueq-released-at"]) - due_ms)
        self._received.append(at_ms - due_ms)
        self._at.append(at_ms)
        line.count(len(self._at), at_once=True)


class _Connection(asyncio.Protocol):
    """Reads requests that have a length, as a gateway's have."""

    _transport: asyncio.Transport

    def __init__(self, receiver: Receive, line: Line) -> None:
        self._receiver, self._line, self._read = receiver, line, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, end, rest = self._read.partition(b"\r\n\r\n")
        if not end:
            return
        head = head.replace(b"Content-Length", b"content-length")
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(rest) >= length:
            self._transport.write(_ANSWER)
            self._read = rest[length:]
            self._receiver.take(head, rest[:length], self._line)


def measure(stage: Stage) -> list[Figure]:
    """200 and 1,000 messages per second, sent by one gateway to a local receiver, and consumed by the SDK."""
    figures = []
    for rate in _RATES:
        name = f"webhooks-{rate}"
        words = f"at {rate:,} msg/s"
        target = Target(at_most=_TIMES) if rate == _RATES[0] else None
        rows = [
            Row(f"{name}/sdk-p50", f"lateness {words}, at one consumer of the SDK: p50", "ms"),
            Row(f"{name}/sdk-p99", "at the consumer: p99", "ms"),
            Row(f"{name}/p50", f"lateness {words}, at the receiver of one gateway: p50", "ms"),
            Row(f"{name}/p99", "at the receiver: p99", "ms"),
            Row(f"{name}/max", "at the receiver: max", "ms"),
            Row(f"{name}/times", "p99 at the receiver, by p99 at the consumer", "", target),
        ]

        def once(rate: int = rate, rows: list[Row] = rows) -> dict[str, float]:
            sdk, sent = _run(stage, rate, False).received_ms, _run(stage, rate, True).received_ms
            values = (
                percentile(sdk, 0.5), percentile(sdk, 0.99), percentile(sent, 0.5), percentile(sent, 0.99),
                float(sent.max()), percentile(sent, 0.99) / percentile(sdk, 0.99),
            )  # fmt: skip
            return {row.name: value for row, value in zip(rows, values, strict=True)}

        figures += stage.repeat(rows, stage.pick(3, 1), once)
    return figures


def _run(stage: Stage, rate: int, gateway: bool) -> Consumed:
    seconds = 5.0 if stage.quick else 20.0
    with stage.mesh() as (mesh, client, crew):
        topic = stage.topic(client, _PARTITIONS, replicas=3)
        with ExitStack() as running:
            if gateway:
                consumer = _receiver(mesh, client, crew, topic, stage.folder, running)
            else:
                (consumer,) = crew.start(Consume(mesh.endpoints, topic, 96, 256, times=True))
            (producer,) = crew.start(
                Produce(
                    mesh.endpoints, topic, max(rate // _REQUESTS_PER_S, 1), seconds=seconds, rate=rate,
                    ahead_ms=_AHEAD_MS, span_ms=_SPAN_MS,
                )
            )  # fmt: skip
            for worker in (consumer, producer):
                worker.go()
            produced: Produced = producer.result(seconds + 60.0)
            return drained(crew, [consumer], produced.rows)


def _receiver(
    mesh: LocalMesh, client: Client, crew: Crew, topic: str, folder: Path, running: ExitStack
) -> Worker:
    """Start a receiver, and a gateway that serves it for as long as `running` lasts."""
    port = free_port()
    (receiver,) = crew.start(Receive(port))
    client.set_endpoint(topic, topic, f"http://127.0.0.1:{port}/")
    running.enter_context(gateway_of(mesh, folder, ("--webhook-allow", "127.0.0.1/32")))
    patience_s = time.monotonic() + READY_S
    while not client.status()["consumers"]:
        if time.monotonic() > patience_s:
            raise RuntimeError(f"the gateway consumes nothing of {topic!r} within {READY_S:g} s")
        time.sleep(_LOOK_S)
    return receiver
