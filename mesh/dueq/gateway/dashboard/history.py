"""Deliveries of the last minutes, second by second, and their lateness: differences of the brokers' counts."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from dueq import limits
from dueq.client.statistics import StatisticsRow

_GAP_MS: Final = 30_000
"""Counts that are further apart than this say nothing about single seconds."""
_LATE_OVER_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Lateness:
    """How late first deliveries were, of the last minute.

    Attributes:
        count: deliveries that were looked at.
        half_ms, most_ms, worst_ms: so late at most were half of them, 99 % of them, and all of them; None: there was
            none, or later than every bound.
    """

    count: int = 0
    half_ms: float | None = None
    most_ms: float | None = None
    worst_ms: float | None = None


@dataclass(frozen=True, slots=True)
class _Sample:
    """The deliveries between two looks.

    Attributes:
        begin_ms, end_ms: the two, Unix ms.
        delivered: by topic.
        lateness: counts by topic, one per bound and one beyond.
    """

    begin_ms: int
    end_ms: int
    delivered: dict[str, int]
    lateness: dict[str, tuple[int, ...]]


class History:
    """The last five minutes, as far as somebody looked."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()
        self._known: dict[tuple[str, str, int], tuple[int, tuple[int, ...]]] = {}
        self._brokers: set[str] = set()
        self._at_ms = 0
        self._bounds: tuple[float, ...] = ()

    @property
    def since_ms(self) -> int:
        """Since when deliveries are known, without a gap; Unix ms."""
        since = self._at_ms
        for sample in reversed(self._samples):
            if sample.end_ms != since:
                break
            since = sample.begin_ms
        return since

    def take(self, at_ms: int, rows: Iterable[StatisticsRow]) -> None:
        """Take the brokers' counts of the present hour, and of the one before if that has just ended."""
        delivered: Counter[str] = Counter()
        lateness: dict[str, list[int]] = {}
        known: dict[tuple[str, str, int], tuple[int, tuple[int, ...]]] = {}
        brokers: set[str] = set()
        for row in rows:
            key = (row.broker, row.topic, row.hour)
            known[key] = (row.delivered, row.lateness_counts)
            brokers.add(row.broker)
            self._bounds = row.lateness_bounds_ms
            if row.broker not in self._brokers:
                continue
            before, before_late = self._known.get(key, (0, (0,) * len(row.lateness_counts)))
            # A broker that was killed has lost its last counts.
            delivered[row.topic] += max(row.delivered - before, 0)
            late = lateness.setdefault(row.topic, [0] * len(row.lateness_counts))
            for place, (new, old) in enumerate(zip(row.lateness_counts, before_late, strict=True)):
                late[place] += max(new - old, 0)
        if self._samples or self._at_ms:
            self._add(at_ms, delivered, lateness)
        self._known = {**{key: value for key, value in self._known.items() if key[0] not in brokers}, **known}
        self._brokers |= brokers
        self._at_ms = at_ms

    def seconds(self, topic: str | None = None) -> list[tuple[int, float]]:
        """Return (Unix s, messages delivered in it), ascending, empty ones left out.

        Args:
            topic: of this one; None: of all.
        """
        totals: dict[int, float] = {}
        for sample in self._samples:
            count = sum(sample.delivered.values()) if topic is None else sample.delivered.get(topic, 0)
            if count:
                for second, share in _shares(sample.begin_ms, sample.end_ms):
                    totals[second] = totals.get(second, 0.0) + count * share
        return sorted((second, round(count, 2)) for second, count in totals.items())

    def lateness(self, topic: str | None = None) -> Lateness:
        """Return how late deliveries of the last minute were, of one topic or of all."""
        counts = [0] * (len(self._bounds) + 1)
        for sample in self._samples:
            if sample.end_ms > self._at_ms - _LATE_OVER_MS:
                for name, late in sample.lateness.items():
                    if topic is None or name == topic:
                        counts = [sum(pair) for pair in zip(counts, late, strict=True)]
        total = sum(counts)
        if not total:
            return Lateness()
        return Lateness(total, self._bound(counts, 0.5), self._bound(counts, 0.99), self._bound(counts, 1.0))

    def delivered(self) -> Counter[str]:
        """Return how many messages of each topic were delivered in the last minute."""
        found: Counter[str] = Counter()
        for sample in self._samples:
            if sample.end_ms > self._at_ms - _LATE_OVER_MS:
                found.update(sample.delivered)
        return found

    def _add(self, at_ms: int, delivered: Counter[str], lateness: dict[str, list[int]]) -> None:
        if 0 < at_ms - self._at_ms <= _GAP_MS:
            some = {topic: count for topic, count in delivered.items() if count}
            late = {topic: tuple(counts) for topic, counts in lateness.items() if any(counts)}
            self._samples.append(_Sample(self._at_ms, at_ms, some, late))
        oldest_ms = at_ms - limits.DASHBOARD_PAST_S * 1000
        while self._samples and self._samples[0].end_ms < oldest_ms:
            self._samples.popleft()

    def _bound(self, counts: list[int], share: float) -> float | None:
        """The bound that so large a share does not exceed; None: beyond all of them."""
        wanted, seen = sum(counts) * share, 0
        for bound, count in zip(self._bounds, counts, strict=False):
            seen += count
            if seen >= wanted:
                return bound
        return None


def _shares(begin_ms: int, end_ms: int) -> list[tuple[int, float]]:
    """Return (second, share of the interval) for each second that it touches."""
    found, at_ms = [], begin_ms
    while at_ms < end_ms:
        until_ms = min((at_ms // 1000 + 1) * 1000, end_ms)
        found.append((at_ms // 1000, (until_ms - at_ms) / (end_ms - begin_ms)))
        at_ms = until_ms
    return found
