"""The machine's own limit: the same bytes to the same disks, and no queue at all.

client → leader → two followers over TCP, two LevelDB databases synced on each of the three, acknowledgements back;
in batches, a fixed number of them in flight. The payloads are stored as dueq stores them (blocks of neighbours, and one
row beside them), which is the least possible work. Only the difference to these figures is the broker's own cost.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import zmq

from dueq import limits
from dueq.bench.child import Line
from dueq.bench.figures import Figure, Row, median
from dueq.bench.stage import Stage
from dueq.bench.tasks import PAYLOAD_BYTES
from dueq.bench.workers import Crew, Worker
from dueq.ports import free_ports
from dueq.storage.ordered.leveldb import LevelDbEngine

Measured = tuple[float, float]
"""Messages per second, and the median of how long a batch took, in ms."""
_COLUMN_BYTES = 16
"""Due, size and checksum of a row."""
_POLL_MS = 50
_SETTLED = 20
"""Batches before the clock is started."""


@dataclass(frozen=True)
class Case:
    """One shape of the pipeline.

    Attributes:
        batch: messages per batch.
        in_flight: batches that may be unanswered.
        replicas: 1 for the leader alone.
    """

    batch: int
    in_flight: int = 1
    replicas: int = 3

    @property
    def name(self) -> str:
        """The name of its rate's row."""
        return f"bare/{self.batch}x{self.in_flight}" + ("" if self.replicas > 1 else "-alone")

    @property
    def words(self) -> str:
        """Return the case in words."""
        flight = "one" if self.in_flight == 1 else str(self.in_flight)
        where = "three replicas" if self.replicas > 1 else "one replica"
        return f"bare pipeline, {where}: batches of {self.batch}, {flight} in flight"


ONE, FIFTY, FIVE_HUNDRED = Case(1), Case(50), Case(500)
BULK, BULK_ALONE = Case(500, 4), Case(500, 4, replicas=1)
CASES = (ONE, FIFTY, FIVE_HUNDRED, BULK, BULK_ALONE)
ONE_MS = "bare/1x1-p50"
_RUNS = 3


def measure(stage: Stage) -> list[Figure]:
    """The rates of all cases, and how long one message takes."""
    figures = {}
    for replicas in (3, 1):
        stage.say(f"bare pipeline, replicas={replicas}, {_RUNS} runs")
        cases = [case for case in CASES if case.replicas == replicas]
        runs = _run(stage, cases, _RUNS)
        for number, case in enumerate(cases):
            rates, medians_ms = zip(*(run[number] for run in runs), strict=True)
            figures[case.name] = Figure(Row(case.name, case.words, "msg/s"), rates)
            if case is ONE:
                row = Row(ONE_MS, "bare pipeline, one message: p50", "ms")
                figures[ONE_MS] = Figure(row, medians_ms)
    return list(figures.values())


def beside(name: str, case: Case) -> Row:
    """The row of a case that is measured right before each run of the measurement compared with it."""
    return Row(name, case.words, "msg/s")


def rate(stage: Stage, case: Case) -> float:
    """Measure a case once: messages per second."""
    return _run(stage, [case], 1)[0][0][0]


def one_ms(stage: Stage) -> float:
    """Measure once how long one message takes: the median, in ms."""
    return _run(stage, [ONE], 1)[0][0][1]


def _run(stage: Stage, cases: Sequence[Case], runs: int) -> list[list[Measured]]:
    """Run cases of one number of replicas, `runs` times one after the other."""
    seconds = 0.4 if stage.quick else 3.0
    with stage.fresh_folder() as folder, Crew() as crew:
        source = start(crew, folder, cases, seconds, runs)
        source.go()
        measured: list[list[Measured]] = source.result(runs * len(cases) * (seconds + 30.0))
    return measured


def start(crew: Crew, folder: Path, cases: Sequence[Case], seconds: float, runs: int) -> Worker:
    """Start the pipeline for cases of one number of replicas, and return its source, which is ready."""
    replicas = cases[0].replicas
    endpoints = [f"tcp://127.0.0.1:{port}" for port in free_ports(replicas)]
    crew.start(*(Follower(endpoints[i], folder / f"follower-{i}") for i in range(1, replicas)))
    crew.start(Leader(endpoints[0], folder / "leader", tuple(endpoints[1:])))
    (source,) = crew.start(Source(endpoints[0], tuple(cases), seconds, runs))
    return source


class Disk:
    """Both databases of a replica, with the broker's settings."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._timeline = LevelDbEngine(folder / "timeline", write_buffer_bytes=8 << 20)
        self._payload = LevelDbEngine(folder / "payload", write_buffer_bytes=16 << 20)

    def write(self, sequence: bytes, columns: bytes, body: bytes) -> None:
        """Sync a batch: payloads first."""
        starts = range(0, len(body), limits.BLOCK_BYTES)
        blocks = [
            (sequence + start.to_bytes(4, "big"), body[start : start + limits.BLOCK_BYTES])
            for start in starts
        ]
        self._payload.write(blocks, sync=True)
        self._timeline.write([(sequence, columns)], sync=True)

    def close(self) -> None:
        """Close both."""
        self._timeline.close()
        self._payload.close()


@dataclass(frozen=True)
class Follower:
    """Syncs what the leader sends, and says so."""

    endpoint: str
    folder: Path

    def run(self, line: Line) -> None:
        """See Task."""
        disk = Disk(self.folder)
        with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.linger = 0
            socket.bind(self.endpoint)
            line.tell("ready")
            while not line.stopped.is_set():
                if socket.poll(_POLL_MS):
                    sequence, columns, body = socket.recv_multipart()
                    disk.write(sequence, columns, body)
                    socket.send(sequence)
        disk.close()


@dataclass(frozen=True)
class Leader:
    """Passes batches on, syncs them, and answers once all replicas have them."""

    endpoint: str
    folder: Path
    followers: tuple[str, ...]

    def run(self, line: Line) -> None:
        """See Task."""
        disk = Disk(self.folder)
        with zmq.Context() as context:
            clients = context.socket(zmq.ROUTER)
            clients.bind(self.endpoint)
            followers = [context.socket(zmq.DEALER) for _ in self.followers]
            for socket, endpoint in zip(followers, self.followers, strict=True):
                socket.connect(endpoint)
            line.tell("ready")
            self._serve(line, disk, clients, followers)
            for socket in (clients, *followers):
                socket.close(linger=0)
        disk.close()

    def _serve(
        self, line: Line, disk: Disk, clients: zmq.Socket[bytes], followers: list[zmq.Socket[bytes]]
    ) -> None:
        poller = zmq.Poller()
        for socket in (clients, *followers):
            poller.register(socket, zmq.POLLIN)
        synced = [0] * len(followers)
        waiting: deque[tuple[int, bytes, bytes]] = deque()
        while not line.stopped.is_set():
            ready = dict(poller.poll(_POLL_MS))
            if clients in ready:
                client, sequence, columns, body = clients.recv_multipart()
                for socket in followers:
                    socket.send_multipart([sequence, columns, body], copy=False)
                disk.write(sequence, columns, body)
                waiting.append((int.from_bytes(sequence, "big"), client, sequence))
            for i, socket in enumerate(followers):
                if socket in ready:
                    synced[i] = int.from_bytes(socket.recv(), "big")
            while waiting and waiting[0][0] <= min(synced, default=waiting[0][0]):
                _, client, sequence = waiting.popleft()
                clients.send_multipart([client, sequence])


@dataclass(frozen=True)
class Source:
    """The client; the result: per run and case, messages per second and the median of the batches' ms."""

    endpoint: str
    cases: tuple[Case, ...]
    seconds: float
    runs: int

    def run(self, line: Line) -> list[list[Measured]]:
        """See Task."""
        with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.linger = 0
            socket.connect(self.endpoint)
            line.ready()
            sequences = itertools.count(1)
            return [[self._measure(socket, case, sequences) for case in self.cases] for _ in range(self.runs)]

    def _measure(self, socket: zmq.Socket[bytes], case: Case, sequences: Iterator[int]) -> Measured:
        columns = np.random.default_rng(0).bytes(_COLUMN_BYTES * case.batch)
        body = np.random.default_rng(1).bytes(PAYLOAD_BYTES * case.batch)
        durations_ms: list[float] = []
        sent_s: deque[float] = deque()
        begun_s, end_s = time.perf_counter(), float("inf")
        for sequence in sequences:
            sent_s.append(time.perf_counter())
            socket.send_multipart([sequence.to_bytes(8, "big"), columns, body])
            if len(sent_s) < case.in_flight:
                continue
            socket.recv()
            durations_ms.append((time.perf_counter() - sent_s.popleft()) * 1e3)
            if len(durations_ms) == _SETTLED:
                begun_s = time.perf_counter()
                end_s = begun_s + self.seconds
            if time.perf_counter() >= end_s:
                break
        elapsed_s = time.perf_counter() - begun_s
        for _ in sent_s:
            socket.recv()
        settled = durations_ms[_SETTLED:]
        return len(settled) * case.batch / elapsed_s, median(settled)
