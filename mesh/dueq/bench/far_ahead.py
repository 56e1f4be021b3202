"""A million messages that wait: memory, disk, and a restart."""

from __future__ import annotations

import os
import time
from pathlib import Path

from dueq import Client, DueqError
from dueq.bench.figures import Figure, Row, Target
from dueq.bench.stage import Stage
from dueq.bench.tasks import Produce, now_ms
from dueq.bench.workers import Crew
from dueq.local import LocalMesh

_BATCH = 500
_THREADS = 8
_PARTITIONS = 6
_HOUR_MS = 3_600_000
_LOAD_S = 900.0
_SERVE_S = 120.0
_SETTLE_S = 5.0
"""Time for the last checkpoints and compactions."""
_POLL_S = 0.02


def measure(stage: Stage) -> list[Figure]:
    """Load once; look at memory and disk; restart all brokers three times."""
    messages = stage.pick(1_000_000, 100_000)
    memory = Row(
        "far-ahead/memory", f"{messages:,} messages far ahead: RssAnon of the largest broker", "MB",
        Target(at_most=150),
    )  # fmt: skip
    disk = Row("far-ahead/disk", "disk per message and replica (payload 256)", "bytes")
    restart = Row(
        "far-ahead/restart", "all brokers restarted: until every partition serves", "s", Target(at_most=5)
    )
    with stage.mesh() as (mesh, client, crew):
        topic = stage.topic(client, _PARTITIONS, replicas=3)
        stage.say(f"far-ahead, loading {messages:,} messages")
        _load(mesh, crew, topic, messages)
        time.sleep(_SETTLE_S)
        sizes = [rss_anon_bytes(Path(f"/proc/{pid}/status").read_text(encoding="ascii")) for pid in mesh.pids]
        replicas = [disk_bytes(broker.data) / messages for broker in mesh.brokers]
        restarts = []
        for run in range(3):
            stage.say(f"far-ahead, restart {run + 1} of 3")
            restarts.append(_restart(mesh, client, topic, messages + run))
    return [
        Figure(memory, (max(sizes) / 1e6,)),
        Figure(disk, (sum(replicas) / len(replicas),)),
        Figure(restart, tuple(restarts)),
    ]


def _load(mesh: LocalMesh, crew: Crew, topic: str, messages: int) -> None:
    (producer,) = crew.start(
        Produce(
            mesh.endpoints,
            topic,
            _BATCH,
            _THREADS,
            messages,
            at_ms=now_ms() + _HOUR_MS,
            span_ms=23 * _HOUR_MS,
        )
    )
    producer.go()
    producer.result(_LOAD_S)


def _restart(mesh: LocalMesh, client: Client, topic: str, messages: int) -> float:
    """Stop all brokers, start them, and wait until all messages are there and one more is taken."""
    for i in range(len(mesh.brokers)):
        mesh.stop_broker(i)
    begun_s = time.monotonic()
    for i in range(len(mesh.brokers)):
        mesh.start_broker(i, wait=False)
    while not _serves(client, topic, messages):
        if time.monotonic() - begun_s > _SERVE_S:
            raise DueqError(f"not all of {messages} messages were served {_SERVE_S:g} s after the restart")
        time.sleep(_POLL_S)
    with client.producer(topic) as producer:
        producer.schedule(b"", now_ms() + _HOUR_MS)
    return time.monotonic() - begun_s


def _serves(client: Client, topic: str, messages: int) -> bool:
    try:
        found = client.describe(topic, timeout=1.0)
    except DueqError:
        return False
    return (
        all(part.serving and part.scheduled is not None for part in found.placement)
        and found.scheduled == messages
    )


def rss_anon_bytes(status: str) -> int:
    """The private memory of a process, from the text of its `/proc/PID/status`.

    Raises:
        ValueError: the text does not say.
    """
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name == "RssAnon":
            return int(value.split()[0]) * 1024
    raise ValueError("no RssAnon in the status of the process")


def disk_bytes(folder: Path) -> int:
    """What the files below a folder take on the disk, without the ballast that is kept for a full disk."""
    files = (Path(place) / name for place, _, names in os.walk(folder) for name in names if name != "ballast")
    return sum(path.stat().st_blocks * 512 for path in files)
