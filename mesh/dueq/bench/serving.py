"""Waiting until a mesh serves (again), without taking the processor time that it needs for that."""

from __future__ import annotations

import time
from collections.abc import Callable

from dueq import Client, DueqError
from dueq.client.topics import TopicInfo
from dueq.local import LocalMesh

_ASK_S = 10.0
_POLL_S = 0.05
_SHARE = 4
"""Between two questions about all topics this many times as long is waited as the answer took."""


def seconds_until(client: Client, settled: Callable[[list[TopicInfo]], bool], patience_s: float) -> float:
    """Ask about all topics until they are as they should be; returns how long that took.

    Args:
        client: of the mesh; no answer, or a refusal, means that it is not there yet.
        settled: whether all is as it should be.
        patience_s: how long to ask.

    Raises:
        DueqError: it never was.
    """
    begun_s = time.monotonic()
    while True:
        asked_s = time.monotonic()
        try:
            if settled(client.topics(timeout=_ASK_S)):
                return time.monotonic() - begun_s
        except DueqError as error:
            reason = str(error)
        else:
            reason = "not every partition is served"
        now_s = time.monotonic()
        if now_s - begun_s > patience_s:
            raise DueqError(f"after {patience_s:g} s: {reason}")
        time.sleep(max(_POLL_S, _SHARE * (now_s - asked_s)))


def served(topics: list[TopicInfo], count: int = 0, without: str = "") -> bool:
    """Whether every partition of every topic is served.

    Args:
        topics: as the mesh says.
        count: there shall be at least so many topics.
        without: and none of them led by this broker.
    """
    return len(topics) >= count and all(
        part.serving and part.leader != without for topic in topics for part in topic.placement
    )


def restart(
    mesh: LocalMesh, client: Client, settled: Callable[[list[TopicInfo]], bool], patience_s: float
) -> float:
    """Stop all brokers, start them all; returns the seconds from the start until all is served."""
    for i in range(len(mesh.brokers)):
        mesh.stop_broker(i)
    begun_s = time.monotonic()
    for i in range(len(mesh.brokers)):
        mesh.start_broker(i, wait=False)
    seconds_until(client, settled, patience_s)
    return time.monotonic() - begun_s


def kill(mesh: LocalMesh, client: Client, victim: int, patience_s: float) -> float:
    """Kill a broker with SIGKILL; returns the seconds until others serve everything that it led."""
    broker_id = mesh.brokers[victim].broker_id
    mesh.kill(victim)
    return seconds_until(client, lambda topics: served(topics, without=broker_id), patience_s)


def most_led(mesh: LocalMesh, topics: list[TopicInfo]) -> int:
    """The number of the broker that leads most partitions."""
    led = [part.leader for topic in topics for part in topic.placement]
    return max(range(len(mesh.brokers)), key=lambda i: led.count(mesh.brokers[i].broker_id))
