"""Counters of one broker: plain numbers that the core adds to and the shell shows."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from dueq.core.turn.statistics import Statistics

LATENESS_BUCKETS_US = (
    250, 500, 1_000, 2_000, 3_000, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 5_000_000, 30_000_000,
)  # fmt: skip
COMMIT_BUCKETS_US = (250, 500, 750, 1_000, 1_500, 2_000, 3_000, 5_000, 10_000, 25_000, 100_000, 1_000_000)


class Histogram:
    """Counts by upper bound, µs; the last count is above every bound."""

    __slots__ = ("bounds", "counts", "total_us")

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total_us = 0

    def observe(self, value_us: int, count: int = 1) -> None:
        """Count `count` observations of `value_us`."""
        self.counts[bisect_left(self.bounds, value_us)] += count
        self.total_us += value_us * count

    def quantile(self, share: float) -> int:
        """Return the upper bound (µs) of the bucket in which this share of the observations lies; 0 if none."""
        wanted = share * sum(self.counts)
        seen = 0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            seen += count
            if seen >= wanted:
                return bound if seen else 0
        return self.bounds[-1]


@dataclass(slots=True)
class CoreMetrics:
    """Everything that is counted in the core; grows only, until a topic is gone."""

    messages: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(operation, topic) -> rows; operations: schedule move cancel lease push ack nack extend release expire."""
    errors: Counter[str] = field(default_factory=Counter)
    """Refusals and bad frames by code name."""
    redelivered: Counter[str] = field(default_factory=Counter)
    """topic -> pushes with attempt > 1."""
    lateness: dict[str, Histogram] = field(default_factory=dict)
    """topic -> push instant minus wait_at, first attempts."""
    commit: Histogram = field(default_factory=lambda: Histogram(COMMIT_BUCKETS_US))
    """Append to commit, per record."""
    commit_p99_us: int = 0
    """The 99th percentile of recent commits: look-ahead follows it."""
    elections: int = 0
    pauses: int = 0
    statistics: Statistics = field(default_factory=Statistics)
    """The last week by hour and topic, kept over restarts."""

    def committed(self, took_us: int) -> None:
        """Count a commit; the p99 estimate steps up by 99 parts where it is exceeded, else down by one."""
        self.commit.observe(took_us)
        step_us = max(self.commit_p99_us // 512, 8)
        self.commit_p99_us += 99 * step_us // 8 if took_us > self.commit_p99_us else -(step_us // 8)

    def forget(self, topic: str) -> None:
        """This broker has nothing of the topic any more."""
        for operation, name in list(self.messages):
            if name == topic:
                del self.messages[operation, name]
        self.redelivered.pop(topic, None)
        self.lateness.pop(topic, None)

    def lateness_of(self, topic: str) -> Histogram:
        """Return the topic's lateness histogram."""
        found = self.lateness.get(topic)
        if found is None:
            found = self.lateness[topic] = Histogram(LATENESS_BUCKETS_US)
        return found
