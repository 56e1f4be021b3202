"""Numbers of waiting messages by hour: part of the replicated state, so nobody scans to know them.

Counts are by hour of `wait_at` (hours since 1970). A message that waits more than 400 days ahead of the stamp
of its record is counted in one open-ended bucket instead, and its entry says so (FLAG_FAR), which bounds the
number of hours. Checkpointed by day: 24 little-endian uint32.
"""

from __future__ import annotations

import numpy as np

from dueq.core.ports.entry import FLAG_FAR, Entries
from dueq.core.ports.tables import TableRow
from dueq.errors import invariant
from dueq.limits import CHECKPOINT_MS
from dueq_codecs.records import U64

HOUR_MS = 3_600_000
HOUR_SECONDS = 3600
DAY_HOURS = 24
FAR_MS = 400 * DAY_HOURS * HOUR_MS

_HOUR = np.uint64(HOUR_MS)
_HOURS_COUNTED = 1024
"""Up to this many consecutive hours are counted in one array. A longer span is sorted by hour instead."""
_NOT_FAR = np.uint8(0xFF ^ FLAG_FAR)


class Forecast:
    """Waiting messages by hour.

    Attributes:
        hours: hour since 1970 -> messages, only counts > 0.
        far: messages in the open-ended bucket.
        later: messages that have begun to wait since the last checkpoint, for an instant after the next one.
    """

    def __init__(self, far: int = 0) -> None:
        self.hours: dict[int, int] = {}
        self.far = far
        self.later = 0
        self._changed_days: set[int] = set()

    def recover(self, rows: list[TableRow]) -> None:
        """Begin with what the last checkpoint left."""
        for key, packed in rows:
            assert packed is not None
            day = int.from_bytes(key, "big")
            for hour, count in enumerate(np.frombuffer(packed, "<u4").tolist()):
                if count:
                    self.hours[day * DAY_HOURS + hour] = count

    def expire(self, age_ms: int, stamp: int) -> None:
        """Nothing to do: a message that stops waiting is no longer counted."""

    @property
    def total(self) -> int:
        """Waiting messages, near and far."""
        return sum(self.hours.values()) + self.far

    def begin(self, rows: Entries, stamp: int) -> None:
        """Count rows that begin to wait, and set their FLAG_FAR."""
        wait_at = rows["wait_at"]
        limit = stamp + FAR_MS
        rows["flags"] &= _NOT_FAR
        latest = int(wait_at.max())
        if latest > stamp + CHECKPOINT_MS:
            self.later += int(np.count_nonzero(wait_at > stamp + CHECKPOINT_MS))
        if latest > limit:
            far = wait_at > limit
            rows["flags"][far] |= FLAG_FAR
            self.far += int(np.count_nonzero(far))
            wait_at = wait_at[~far]
        self._count(wait_at, 1)

    def end(self, rows: Entries) -> None:
        """Count rows out that wait no more (as they were while they waited)."""
        wait_at = rows["wait_at"]
        if self.far:
            far = (rows["flags"] & FLAG_FAR) != 0
            self.far -= int(np.count_nonzero(far))
            wait_at = wait_at[~far]
        self._count(wait_at, -1)

    def begin_one(self, wait_at: int, stamp: int) -> int:
        """Count one row that begins to wait; returns its FLAG_FAR, or 0."""
        self.later += wait_at > stamp + CHECKPOINT_MS
        if wait_at > stamp + FAR_MS:
            self.far += 1
            return FLAG_FAR
        self._count_hour(wait_at // HOUR_MS, 1)
        return 0

    def end_one(self, wait_at: int, flags: int) -> None:
        """Count one row out that waits no more."""
        if flags & FLAG_FAR:
            self.far -= 1
        else:
            self._count_hour(wait_at // HOUR_MS, -1)

    def _count(self, wait_at: U64, sign: int) -> None:
        if not len(wait_at):
            return
        low, high = int(wait_at.min()) // HOUR_MS, int(wait_at.max()) // HOUR_MS
        if low == high:
            self._count_hour(low, sign * len(wait_at))
            return
        if high - low < _HOURS_COUNTED:
            counts = np.bincount((wait_at // _HOUR).astype(np.int64) - low)
            found = zip(range(low, high + 1), counts.tolist(), strict=True)
        else:
            hours, counts = np.unique(wait_at // _HOUR, return_counts=True)
            found = zip(hours.tolist(), counts.tolist(), strict=True)
        for hour, count in found:
            if count:
                self._count_hour(hour, sign * count)

    def _count_hour(self, hour: int, change: int) -> None:
        count = self.hours.get(hour, 0) + change
        if count > 0:
            self.hours[hour] = count
        else:
            invariant(count == 0, "fewer messages wait for an hour than none", hour=hour, count=count)
            del self.hours[hour]
        self._changed_days.add(hour // DAY_HOURS)

    def changed_rows(self) -> list[TableRow]:
        """Return the rows of the days that changed since the last call, oldest first; None: nothing waits then."""
        rows = []
        for day in sorted(self._changed_days):
            counts = [self.hours.get(day * DAY_HOURS + hour, 0) for hour in range(DAY_HOURS)]
            packed = np.array(counts, "<u4").tobytes() if any(counts) else None
            rows.append(TableRow(day.to_bytes(4, "big"), packed))
        self._changed_days.clear()
        self.later = 0
        return rows

    def export(self) -> list[tuple[int, int]]:
        """Return (hour since 1970, count), sorted; `far` is not in it."""
        return sorted(self.hours.items())

    def by_second(
        self, hot: Entries, known_until_ms: int | None, from_ms: int, seconds: int
    ) -> list[tuple[int, int]]:
        """Return (second as Unix ms, count) from the second of `from_ms` on, only counts > 0, ascending.

        Exact for what waits up to `known_until_ms`; what the hours count beyond it is spread evenly over
        the seconds that are left of each hour.

        Args:
            hot: all entries that wait up to `known_until_ms`.
            known_until_ms: None when `hot` is everything that waits.
            from_ms: Unix ms.
            seconds: how many.
        """
        first = from_ms // 1000
        end = first + seconds
        at = hot["wait_at"] // np.uint64(1000)
        counts = counted_by_second(hot[(at >= first) & (at < end)])
        if known_until_ms is not None:
            self._spread(hot, known_until_ms // 1000, first, end, counts)
        return [(second * 1000, counts[second]) for second in sorted(counts)]

    def _spread(self, hot: Entries, known: int, first: int, end: int, counts: dict[int, int]) -> None:
        """Add to `counts` the messages that wait after the second `known`, inside `first` … `end`."""
        near = hot["wait_at"][(hot["flags"] & FLAG_FAR) == 0] // np.uint64(HOUR_MS)
        for hour in sorted(self.hours):
            start, stop = hour * HOUR_SECONDS, (hour + 1) * HOUR_SECONDS
            if stop <= first or start >= end or stop <= known:
                continue
            rest = self.hours[hour] - int(np.count_nonzero(near == hour))
            start = max(start, known)
            length = stop - start
            if rest <= 0:
                continue
            edges = np.arange(length + 1, dtype=np.int64) * rest // length
            shares = np.diff(edges)
            for offset in np.flatnonzero(shares).tolist():
                second = start + offset
                if first <= second < end:
                    counts[second] = counts.get(second, 0) + int(shares[offset])


def counted_by_second(entries: Entries) -> dict[int, int]:
    """Return how many entries wait until each second (of 1970)."""
    seconds, counts = np.unique(entries["wait_at"] // np.uint64(1000), return_counts=True)
    return dict(zip(seconds.tolist(), counts.tolist(), strict=True))
