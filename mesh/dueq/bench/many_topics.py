"""How the mesh bears many topics: making them, keeping them, showing them, losing a broker, starting again."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

from kazoo.client import KazooClient

from dueq import Client
from dueq.bench.figures import Figure, Row, median
from dueq.bench.growth import Cost, Sheet
from dueq.bench.processes import cpu_ms_per_s, rss_anon_mb
from dueq.bench.serving import kill, most_led, restart, served
from dueq.bench.stage import Stage
from dueq.bench.tasks import in_threads
from dueq.lifeline import child_environment
from dueq.local import LocalMesh

_SIZES = (100, 1_000, 10_000)
_QUICK_SIZES = (10, 40)
_REPEATED_SIZE = 1_000
"""Larger meshes are made once only."""
_ONE_BY_ONE = 10
_THREADS = 16
_TIMEOUT_S = 60.0
_PATIENCE_S = 600.0
_SETTLE_S = 4.0
_IDLE_S = 8.0
_COMMANDS_S = 120.0
_ZNODE = Row("topics/znode", "bare: one znode made in ZooKeeper: p50", "ms")
_COSTS = (
    Cost("topics/create", "one topic made, by itself", "ms", _ZNODE.name),
    Cost("topics/create-many", f"one topic made, {_THREADS} at once", "ms", _ZNODE.name),
    Cost("topics/memory", "RssAnon, each broker", "MB"),
    Cost("topics/idle", "idle processor, each broker", "ms/s"),
    Cost("topics/status", "dueq status", "s"),
    Cost("topics/list", "dueq topic list", "s"),
    Cost("topics/failover", "kill -9 until all it led is served", "s"),
    Cost("topics/restart", "all restarted until all is served", "s"),
)


def measure(stage: Stage) -> list[Figure]:
    """100, 1,000 and 10,000 topics of one partition on three brokers; up to 1,000 three times."""
    runs = stage.runs
    sheet = stage.sheet(_COSTS)
    znode_ms = []
    for run in range(runs):
        sizes = _QUICK_SIZES if stage.quick else _SIZES
        with stage.mesh() as (mesh, client, _):
            znode_ms.append(_znode_ms(mesh))
            growing = _Growing(stage, mesh, client, sheet)
            for size in sizes:
                if run == 0 or size <= _REPEATED_SIZE:
                    stage.say(f"topics, run {run + 1} of {runs}: {size:,}")
                    growing.grow_to(size)
    return [Figure(_ZNODE, tuple(znode_ms)), *sheet.figures()]


@dataclass
class _Growing:
    """One mesh that gets more and more topics."""

    stage: Stage
    mesh: LocalMesh
    client: Client
    sheet: Sheet
    names: set[str] = field(default_factory=set)

    def grow_to(self, size: int) -> None:
        """Have this many topics, then measure."""
        self._create(size)
        time.sleep(_SETTLE_S)
        self.sheet.add("memory", size, *(rss_anon_mb(pid) for pid in self.mesh.pids))
        self.sheet.add("idle", size, *cpu_ms_per_s(self.mesh.pids, _IDLE_S / self.stage.pick(1, 4)))
        for _ in range(self.stage.pick(3, 1)):
            self.sheet.add("status", size, self._command("status"))
            self.sheet.add("list", size, self._command("topic", "list"))
        topics = self.client.topics(timeout=_TIMEOUT_S)
        victim = most_led(self.mesh, topics)
        self.sheet.add("failover", size, kill(self.mesh, self.client, victim, _PATIENCE_S))
        self.mesh.start_broker(victim)
        for _ in range(self.stage.pick(2, 1)):
            seconds = restart(
                self.mesh, self.client, lambda topics: served(topics, len(self.names)), _PATIENCE_S
            )
            self.sheet.add("restart", size, seconds)

    def _create(self, size: int) -> None:
        """Make most of them at once, the last ones one by one."""
        new = [f"topic-{number:05}" for number in range(len(self.names), size)]
        alone = new[-_ONE_BY_ONE:]
        crowd = new[:-_ONE_BY_ONE]
        if crowd:
            self.sheet.add("create-many", size, self._create_at_once(crowd) * 1e3)
        durations_ms = []
        for name in alone:
            begun_s = time.monotonic()
            self._make(name)
            durations_ms.append((time.monotonic() - begun_s) * 1e3)
        self.sheet.add("create", size, median(durations_ms))
        self.names |= set(new)

    def _create_at_once(self, names: list[str]) -> float:
        """Make topics side by side; returns seconds per topic, over the last half of them."""
        numbers, lock = itertools.count(), threading.Lock()
        ended_s = []

        def work() -> None:
            while True:
                with lock:
                    number = next(numbers)
                if number >= len(names):
                    return
                self._make(names[number])
                ended_s.append(time.monotonic())

        begun_s = time.monotonic()
        in_threads(min(_THREADS, len(names)), work)
        ended_s.sort()
        half = len(ended_s) // 2
        since_s = ended_s[half - 1] if half else begun_s
        return (ended_s[-1] - since_s) / (len(ended_s) - half)

    def _make(self, name: str) -> None:
        self.client.create_topic(name, partitions=1, replicas=3, exist_ok=True, timeout=_TIMEOUT_S)

    def _command(self, *words: str) -> float:
        """Run a command line; returns the seconds that it took."""
        begun_s = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "dueq.cli.main", *words, "--endpoint", self.mesh.endpoints[0]],
            env=child_environment(), stdout=subprocess.DEVNULL, check=True, timeout=_COMMANDS_S,
        )  # fmt: skip
        return time.monotonic() - begun_s


def _znode_ms(mesh: LocalMesh) -> float:
    """The time of one change in ZooKeeper by itself: the median of some."""
    assert mesh.zookeeper is not None
    client = KazooClient(mesh.zookeeper.address)
    client.start()
    durations_ms = []
    try:
        client.ensure_path("/bench")
        for number in range(50):
            begun_s = time.perf_counter()
            client.create(f"/bench/{number}", bytes(100))
            durations_ms.append((time.perf_counter() - begun_s) * 1e3)
    finally:
        client.stop()
        client.close()
    return median(durations_ms)
