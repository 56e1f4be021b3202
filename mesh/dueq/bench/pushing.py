"""The machine's own limit of being on time: processes that wait for an instant and send, and others that receive.

As many senders as a mesh has brokers share the instants, and two receivers the messages. A sender sleeps until the
next instant and sends all that is due then as one ZeroMQ message per receiver. Nothing is stored, leased or
acknowledged: what this is late by, nobody can be on time on this machine.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import zmq

from dueq.bench import bare
from dueq.bench.child import Line
from dueq.bench.figures import Figure, Row, percentile
from dueq.bench.stage import Stage
from dueq.bench.tasks import PAYLOAD_BYTES
from dueq.bench.workers import Crew, finish
from dueq.local.ports import free_ports

_SENDERS = 3
_RECEIVERS = 2
_POLL_MS = 50
_LEAD_MS = 200
"""From `go` to the first instant."""
_PATIENCE_S = 60.0
_BATCH = 500
_BESIDE_RATE = 1_000
_RUNS = 3


def _rows(name: str, words: str) -> tuple[Row, Row]:
    return (
        Row(f"push/{name}-p50", f"bare pushing, {words}: lateness at receipt: p50", "ms"),
        Row(f"push/{name}-p99", "at receipt: p99", "ms"),
    )


SLOW = _rows("1000", "1,000 msg/s")
FAST = _rows("5000", "5,000 msg/s")
BESIDE = _rows("bulk", "1,000 msg/s beside a bare pipeline in bulk")
INSTANT = Row("push/instant", "bare pushing, as many in one ms as in `instant`: until all are received", "s")


def at_once(stage: Stage) -> int:
    """How many messages are due in one millisecond."""
    return stage.pick(50_000, 10_000)


def measure(stage: Stage) -> list[Figure]:
    """How late a bare sender is: at 1,000 and 5,000 msg/s, beside bulk, and all at once."""
    seconds = 2.0 if stage.quick else 10.0

    def lateness(rows: tuple[Row, Row], rate: int, beside: bool = False) -> list[Figure]:
        def once() -> dict[str, float]:
            late_ms = _lateness_ms(stage, rate, seconds, beside)
            values = percentile(late_ms, 0.5), percentile(late_ms, 0.99)
            return {row.name: value for row, value in zip(rows, values, strict=True)}

        return stage.repeat(rows, _RUNS, once)

    return [
        *lateness(SLOW, 1_000),
        *lateness(FAST, 5_000),
        *lateness(BESIDE, _BESIDE_RATE, beside=True),
        *stage.repeat([INSTANT], _RUNS, lambda: {INSTANT.name: push([0] * at_once(stage)).max() / 1e3}),
    ]


def _lateness_ms(stage: Stage, rate: int, seconds: float, beside: bool) -> npt.NDArray[np.float64]:
    chance = np.random.default_rng(0)
    offsets_ms = np.sort(chance.integers(0, int(seconds * 1e3), int(rate * seconds))).tolist()
    if not beside:
        return push(offsets_ms)
    with stage.fresh_folder() as folder, Crew() as crew:
        bare.start(crew, folder, bare.BULK.replicas, [bare.BULK], _PATIENCE_S).go()
        return push(offsets_ms)


def push(offsets_ms: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return how late each message was received, in ms.

    Args:
        offsets_ms: the instants, ascending.
    """
    endpoints = tuple(f"tcp://127.0.0.1:{port}" for port in free_ports(_RECEIVERS))
    with Crew() as crew:
        receivers = crew.start(*(Receiver(endpoint) for endpoint in endpoints))
        senders = crew.start(*(Sender(endpoints, tuple(offsets_ms[i::_SENDERS])) for i in range(_SENDERS)))
        for worker in (*receivers, *senders):
            worker.go()
        for sender in senders:
            sender.result(_PATIENCE_S)
        crew.wait(
            lambda: sum(receiver.done for receiver in receivers) >= len(offsets_ms), _PATIENCE_S,
            f"{len(offsets_ms)} messages to arrive",
        )  # fmt: skip
        return np.concatenate(finish(receivers))


@dataclass(frozen=True)
class Sender:
    """Sends each message at its instant.

    Attributes:
        endpoints: of the receivers.
        offsets_ms: the instants, ascending, from shortly after it begins.
    """

    endpoints: tuple[str, ...]
    offsets_ms: tuple[int, ...]

    def run(self, line: Line) -> None:
        """See Task."""
        payload = bytes(PAYLOAD_BYTES)
        context = zmq.Context()
        sockets = [context.socket(zmq.DEALER) for _ in self.endpoints]
        for socket, endpoint in zip(sockets, self.endpoints, strict=True):
            socket.connect(endpoint)
        line.ready()
        dues_ns = time.time_ns() + (np.array(self.offsets_ms, np.int64) + _LEAD_MS) * 1_000_000
        at = 0
        while at < len(dues_ns):
            wait_ns = int(dues_ns[at]) - time.time_ns()
            if wait_ns > 0:
                time.sleep(wait_ns / 1e9)
            due = min(int(np.searchsorted(dues_ns, time.time_ns(), "right")), at + _BATCH)
            for number, socket in enumerate(sockets):
                messages = dues_ns[at + number : due : len(sockets)]
                if len(messages):
                    socket.send_multipart([messages.tobytes(), *[payload] * len(messages)])
            at = due
        for socket in sockets:
            socket.close()
        context.term()


@dataclass(frozen=True)
class Receiver:
    """Notes when messages come; the result: how late each was, in ms."""

    endpoint: str

    def run(self, line: Line) -> npt.NDArray[np.float64]:
        """See Task."""
        late_ms = []
        received = 0
        with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
            socket.linger = 0
            socket.bind(self.endpoint)
            line.ready()
            while not line.stopped.is_set():
                if not socket.poll(_POLL_MS):
                    line.count(received, at_once=True)
                    continue
                _, dues_ns, *_ = socket.recv_multipart()
                late_ms.append((time.time_ns() - np.frombuffer(dues_ns, np.int64)) / 1e6)
                received += len(late_ms[-1])
                line.count(received)
        return np.concatenate(late_ms) if late_ms else np.zeros(0)
