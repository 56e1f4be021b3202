"""The cost of single steps on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import zmq

from dueq.bench.child import Line
from dueq.bench.figures import Figure, Row, median
from dueq.bench.stage import Stage
from dueq.bench.tasks import PAYLOAD_BYTES, now_ms
from dueq.bench.workers import Crew
from dueq.ports import free_ports
from dueq.storage.ordered.leveldb import LevelDbEngine
from dueq_codecs.frames import encode
from dueq_codecs.messages import ChangeRequest
from dueq_codecs.records import RecordKind

_ROWS = 1_000
_PUTS = 500
_POLL_MS = 50
SYNC = Row("primitives/fdatasync", "fdatasync of 4 KiB", "µs")
PUT = Row("primitives/put", f"LevelDB, synced batch of {_PUTS} puts of {PAYLOAD_BYTES} bytes", "µs")
ROUND_TRIP = Row("primitives/round-trip", "ZeroMQ loopback round trip between two processes", "µs")
ENCODE = Row("primitives/encode", f"a request of {_ROWS:,} rows to FlatBuffers", "µs")


def measure(stage: Stage) -> list[Figure]:
    """All of them."""
    times = stage.pick(300, 100)

    def once() -> dict[str, float]:
        with stage.fresh_folder() as folder:
            return {
                SYNC.name: _fdatasync_us(folder, times),
                PUT.name: _put_us(folder, times),
                ROUND_TRIP.name: _round_trip_us(times * 5),
                ENCODE.name: _encode_us(times * 5),
            }

    return stage.repeat((SYNC, PUT, ROUND_TRIP, ENCODE), 3, once)


def _median_us(times: int, step: Callable[[], object]) -> float:
    durations = []
    for _ in range(times):
        before_s = time.perf_counter()
        step()
        durations.append((time.perf_counter() - before_s) * 1e6)
    return median(durations)


def _fdatasync_us(folder: Path, times: int) -> float:
    page = os.urandom(4096)
    with (folder / "page").open("wb", buffering=0) as file:

        def step() -> None:
            file.write(page)
            os.fdatasync(file.fileno())

        return _median_us(times, step)


def _put_us(folder: Path, times: int) -> float:
    engine = LevelDbEngine(folder / "engine", write_buffer_bytes=16 << 20)
    values = [os.urandom(PAYLOAD_BYTES) for _ in range(_PUTS)]
    keys = (number.to_bytes(16, "big") for number in range(times * _PUTS))
    try:
        return _median_us(times, lambda: engine.write(list(zip(keys, values, strict=False)), sync=True))
    finally:
        engine.close()


def _round_trip_us(times: int) -> float:
    endpoint = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    with Crew() as crew, zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        crew.start(Echo(endpoint))
        socket.linger = 0
        socket.connect(endpoint)
        frame = bytes(PAYLOAD_BYTES)

        def step() -> None:
            socket.send(frame)
            socket.recv()

        _median_us(20, step)
        return _median_us(times, step)


def _encode_us(times: int) -> float:
    request = ChangeRequest(
        1, RecordKind.INSERT, "bench", 1, bytes(16), 1, 1,
        due=np.full(_ROWS, now_ms(), np.uint64), size=np.zeros(_ROWS, np.uint32), crc=np.zeros(_ROWS, np.uint32),
    )  # fmt: skip
    return _median_us(times, lambda: encode(request))


@dataclass(frozen=True)
class Echo:
    """Sends back what comes."""

    endpoint: str

    def run(self, line: Line) -> None:
        """See Task."""
        with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
            socket.linger = 0
            socket.bind(self.endpoint)
            line.tell("ready")
            while not line.stopped.is_set():
                if socket.poll(_POLL_MS):
                    socket.send_multipart(socket.recv_multipart())
