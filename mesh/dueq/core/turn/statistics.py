"""Counts of deliveries and inserts, hour by hour and topic by topic, for people, for a week.

Nothing here is state of a partition: each broker counts its own work as a leader, and readers add up the counts. It
counts per batch, so a push of a thousand messages costs as much as a push of one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from dueq import limits
from dueq.core.ports.entry import Entries

HOUR_MS: Final = 3_600_000
OTHER_TOPICS: Final = "*"
"""Stands for all other topics: no topic can have this name."""
OTHER_SENDERS: Final = "other"
ANSWER_ROWS: Final = 50
"""About the number of rows in one answer; an hour is never cut."""

BOUNDS_US: Final = tuple(250 << step for step in range(25))
"""Upper bounds of the lateness histogram: a quarter of a millisecond, doubled up to 70 minutes."""
BOUNDS_MS: Final = [bound / 1000 for bound in BOUNDS_US]
_BOUNDS: Final = np.array(BOUNDS_US, np.int64)
_FEW: Final = 24
"""Up to this number, rows are counted faster one by one than as columns."""


class HourCounts:
    """One hour of one topic at one broker.

    Attributes:
        delivered: pushes, those after the first included.
        redelivered: pushes of messages that had been pushed before.
        lateness: first pushes by lateness (from when they became ready): one count per bound, then all beyond.
        senders: rows scheduled by client id (hex); `other` by those that are not listed.
        changes: grows with every change.
    """

    __slots__ = ("changes", "delivered", "lateness", "other", "redelivered", "senders")

    def __init__(self) -> None:
        self.delivered = self.redelivered = self.other = self.changes = 0
        self.lateness = [0] * (len(BOUNDS_US) + 1)
        self.senders: Counter[str] = Counter()

    def add_sender(self, sender: str, rows: int) -> None:
        """Count scheduled rows; when there are too many senders, only the greatest stay."""
        self.changes += 1
        self.senders[sender] += rows
        if len(self.senders) > limits.STATISTICS_SENDERS_KEPT:
            kept = Counter(dict(self.senders.most_common(limits.STATISTICS_SENDERS_SHOWN)))
            self.other += self.senders.total() - kept.total()
            self.senders = kept

    def document(self) -> dict[str, Any]:
        """Return the counts as JSON has them."""
        senders = Counter(dict(self.senders))
        shown = dict(senders.most_common(limits.STATISTICS_SENDERS_SHOWN))
        other = self.other + senders.total() - sum(shown.values())
        return {
            "delivered": self.delivered,
            "redelivered": self.redelivered,
            "lateness": list(self.lateness),
            "senders": shown | ({OTHER_SENDERS: other} if other else {}),
        }

    def restore(self, document: dict[str, Any]) -> None:
        """Take over what `document` returned.

        Raises:
            ValueError, KeyError, TypeError: it is something else.
        """
        lateness = [int(count) for count in document["lateness"]]
        if len(lateness) != len(self.lateness):
            raise ValueError(f"a histogram has {len(self.lateness)} counts, not {len(lateness)}")
        senders = {str(sender): int(rows) for sender, rows in dict(document["senders"]).items()}
        self.delivered, self.redelivered = int(document["delivered"]), int(document["redelivered"])
        self.lateness, self.other = lateness, senders.pop(OTHER_SENDERS, 0)
        self.senders = Counter(senders)


class Statistics:
    """The last week of one broker. One caller changes it; `items` may be read from another thread."""

    def __init__(self) -> None:
        self._hours: dict[tuple[int, str], HourCounts] = {}
        self._latest: dict[str, tuple[int, HourCounts]] = {}
        self._topics: Counter[int] = Counter()  # rows of each hour

    # -------------------------------------------------------------- counting

    def pushed(self, topic: str, entries: Entries, mesh_us: int) -> None:
        """Count a push: `entries` as they left at `mesh_us` (mesh time, Unix µs)."""
        counts = self._at(topic, mesh_us // 1000)
        counts.changes += 1
        rows = len(entries)
        counts.delivered += rows
        if rows <= _FEW:
            lateness = counts.lateness
            for wait_at, attempt in zip(
                entries["wait_at"].tolist(), entries["attempt"].tolist(), strict=True
            ):
                if attempt > 1:
                    counts.redelivered += 1
                else:
                    lateness[bisect_left(BOUNDS_US, mesh_us - wait_at * 1000)] += 1
            return
        waits = entries["wait_at"]
        first = entries["attempt"] <= 1
        count = int(np.count_nonzero(first))
        if count < rows:
            counts.redelivered += rows - count
            waits = waits[first]
        late = np.searchsorted(_BOUNDS, mesh_us - waits.astype(np.int64) * 1000)
        more = np.bincount(late, minlength=len(counts.lateness)).tolist()
        counts.lateness = [have + new for have, new in zip(counts.lateness, more, strict=True)]

    def pushed_together(self, topic: str, wait_ms: int, rows: int, first: int, mesh_us: int) -> None:
        """Count rows of a push that became ready in one millisecond, `first` of them pushed for the first time."""
        counts = self._at(topic, mesh_us // 1000)
        counts.changes += 1
        counts.delivered += rows
        counts.redelivered += rows - first
        counts.lateness[bisect_left(BOUNDS_US, mesh_us - wait_ms * 1000)] += first

    def scheduled(self, topic: str, client_id: bytes, rows: int, at_ms: int) -> None:
        """Count a request that took effect at `at_ms` (its record's stamp, Unix ms)."""
        self._at(topic, at_ms).add_sender(client_id.hex(), rows)

    def _at(self, topic: str, at_ms: int) -> HourCounts:
        hour = at_ms // HOUR_MS
        latest = self._latest.get(topic)
        if latest is not None and latest[0] == hour:
            return latest[1]
        counts = self._row(hour, topic)
        self._latest[topic] = hour, counts
        return counts

    def _row(self, hour: int, topic: str) -> HourCounts:
        if hour not in self._topics:
            self._latest.clear()
            for key in [key for key in self._hours if key[0] <= hour - limits.STATISTICS_HOURS]:
                del self._hours[key]
                self._topics.pop(key[0], None)
        counts = self._hours.get((hour, topic))
        if counts is not None:
            return counts
        if self._topics[hour] >= limits.STATISTICS_TOPICS_MAX:
            return self._hours.setdefault((hour, OTHER_TOPICS), HourCounts())
        self._topics[hour] += 1
        return self._hours.setdefault((hour, topic), HourCounts())

    # -------------------------------------------------------------- reading

    def items(self) -> list[tuple[tuple[int, str], HourCounts]]:
        """Return ((hours since 1970, topic), counts), in no order."""
        return list(self._hours.items())

    def document(self, from_hour: int, topic: str = "") -> dict[str, Any]:
        """Return some hours, oldest first.

        Args:
            from_hour: hours since 1970; the first wanted.
            topic: of this topic only; "" for all.

        Returns:
            {"bounds_ms": […], "rows": [{"topic", "hour" (Unix ms), "delivered", "redelivered", "lateness": […],
            "senders": {…}}], "next": the hour with which to go on, 0 when there are no more}.
        """
        rows: list[dict[str, Any]] = []
        following = 0
        for hour, name, counts in self._from(from_hour, topic):
            if len(rows) >= ANSWER_ROWS and hour * HOUR_MS != rows[-1]["hour"]:
                following = hour
                break
            rows.append({"topic": name, "hour": hour * HOUR_MS, **counts.document()})
        return {"bounds_ms": BOUNDS_MS, "rows": rows, "next": following}

    def _from(self, from_hour: int, topic: str) -> Iterator[tuple[int, str, HourCounts]]:
        wanted = [key for key in self._hours if key[0] >= from_hour and topic in ("", key[1])]
        for key in sorted(wanted):
            yield *key, self._hours[key]

    def restore(self, hour: int, topic: str, document: dict[str, Any]) -> None:
        """Take over counts of an earlier life of this broker.

        Raises:
            ValueError, KeyError, TypeError: they are none.
        """
        counts = HourCounts()
        counts.restore(document)
        self._hours[hour, topic] = counts
        self._topics[hour] += topic != OTHER_TOPICS
