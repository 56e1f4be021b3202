"""How long before their instant messages are leased: three times as long as all but one in a hundred commits take."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq.testing import mesh


def leased_ahead(commit_p99_us: int, ahead_ms: int) -> bool:
    """Whether a message is leased so long before its instant, where commits take that long."""
    with mesh() as inside, inside.client() as client:
        client.create_topic("t", partitions=1)
        with client.consumer("t") as consumer:
            assert consumer.receive(1, timeout=0) == []
            due_ms = inside.now_ms + 2_000
            client.producer("t").schedule(b"soon", due_ms)
            core = inside._world.broker._core
            core.metrics.commit_p99_us = commit_p99_us
            inside.run_until(due_ms - ahead_ms)
            return any(partition.timeline.leased_count for partition in core._partitions.values())


@pytest.mark.parametrize(
    ("commit_p99_us", "look_ahead_ms"),
    [(0, limits.LOOK_AHEAD_MS_MIN), (60_000, 180), (400_000, limits.LOOK_AHEAD_MS_MAX)],
)
def test_it_follows_what_commits_take_within_its_bounds(commit_p99_us: int, look_ahead_ms: int) -> None:
    assert not leased_ahead(commit_p99_us, look_ahead_ms + 5)
    assert leased_ahead(commit_p99_us, look_ahead_ms - 5)
