"""The machine's own limit of being on time: processes that wait for an instant and send, and others that receive.

As many senders as a mesh has brokers share the instants, and two receivers the messages. A sender sleeps until the
next instant and sends all that is due then as one ZeroMQ message per receiver. Nothing is stored, leased or
acknowledged: this is the lateness on this machine of a program that does nothing but deliver.
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
from dueq.ports import free_ports

_SENDERS = 3
_RECEIVERS = 2
_POLL_MS = 50
_LEAD_MS = 200
"""From `go` to the first instant."""
_PATIENCE_S = 60.0
_BATCH = 500
_RUNS = 3


def rows(name: str, words: str) -> tuple[Row, Row]:
    """The rows of a rate: p50 and p99."""
    return (
        Row(f"{name}-p50", f"bare senders, {words}: lateness at receipt: p50", "ms"),
        Row(f"{name}-p99", "at receipt: p99", "ms"),
    )


SLOW = rows("push/1000", "1,000 msg/s")


def measure(stage: Stage) -> list[Figure]:
    """How late bare senders are at 1,000 msg/s."""

    def once() -> dict[str, float]:
        return {row.name: value for row, value in zip(SLOW, lateness_ms(stage, 1_000), strict=True)}

    return stage.repeat(SLOW, _RUNS, once)


def lateness_ms(stage: Stage, rate: int, beside: bool = False) -> tuple[float, float]:
    """Measure once how late bare senders are: p50 and p99.

    Args:
        rate: messages per second, each due at a random millisecond.
        beside: whether a bare pipeline works in bulk meanwhile.
    """
    seconds = 1.0 if stage.quick else 8.0
    chance = np.random.default_rng(0)
    offsets_ms = np.sort(chance.integers(0, int(seconds * 1e3), int(rate * seconds))).tolist()
    if beside:
        with stage.fresh_folder() as folder, Crew() as crew:
            bare.start(crew, folder, [bare.BULK], _PATIENCE_S, 1).go()
            late_ms = push(offsets_ms)
    else:
        late_ms = push(offsets_ms)
    return percentile(late_ms, 0.5), percentile(late_ms, 0.99)


def at_once_s(messages: int) -> float:
    """Measure once how long messages that are due in the same millisecond take until all are received."""
    return float(push([0] * messages).max()) / 1e3


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
