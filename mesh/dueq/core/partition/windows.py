"""The leader's choice of a due instant for messages that may be due at any instant of a window.

A window is cut into buckets, of a second if it has at most an hour. New messages go where the fewest wait: the level
rises as that of water does. Waiting messages are counted by the second near the present, and by the hour beyond.

Counts are kept for some seconds, and the choices made since are added to them. So messages that are not yet
applied count, too. Ties are broken by a number that follows from the request: many requests of one row each, at many
partitions, do not all take the first bucket. None of this is replicated; the chosen instants are in the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from dueq.core.state.forecast import HOUR_MS
from dueq_codecs.records import U32, U64

BUCKETS_MAX: Final = 3600
PLANS_MAX: Final = 8
"""Windows of one partition whose counts are kept."""
ALIKE_MAX: Final = 8
"""Different windows of one record that are looked at; where there are more, chance spreads them."""
KEPT_MS: Final = 10_000
"""Time after which messages are counted anew."""

_Loads = npt.NDArray[np.float64]


class Waiting(Protocol):
    """Counts of a partition's waiting messages, as far as they are known without reading the disk."""

    def forecast(self, from_ms: int, seconds: int) -> list[tuple[int, int]]:
        """Return (second as Unix ms, count) from the second of `from_ms` on; only counts above 0."""
        ...

    def waiting_by_hour(self) -> Mapping[int, int]:
        """Return counts by hour since 1970."""
        ...


class _Plan:
    """One window: how many wait in each bucket."""

    __slots__ = ("bucket_ms", "loads", "made_at_ms")

    def __init__(self, waiting: Waiting, due: int, width: int, now_ms: int) -> None:
        self.made_at_ms = now_ms
        self.bucket_ms = max(1000, -(-width // BUCKETS_MAX))
        count = max(-(-width // self.bucket_ms), 1)
        self.loads: _Loads = np.zeros(count, np.float64)
        if self.bucket_ms == 1000:
            for second_ms, waits in waiting.forecast(due, count):
                self.loads[min(max(second_ms - due, 0) // 1000, count - 1)] += waits
            return
        hours = waiting.waiting_by_hour()
        starts = due + np.arange(count, dtype=np.int64) * self.bucket_ms
        share = self.bucket_ms / HOUR_MS
        for hour in range(due // HOUR_MS, (due + width) // HOUR_MS + 1):
            self.loads[starts // HOUR_MS == hour] = hours.get(hour, 0) * share


class Windows:
    """The windows that are in use in one partition, while it is led here."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting
        self._plans: dict[tuple[int, int], _Plan] = {}

    def clear(self) -> None:
        """The partition is led no more."""
        self._plans.clear()

    def choose(self, due: U64, width: U32, now_ms: int, seed: int) -> U32:
        """Return how much later than `due` each row shall be due, ms.

        Args:
            due: the first instant of each row's window, Unix ms.
            width: length of each window, ms; 0: there is none.
            now_ms: mesh time; no instant that has passed is chosen while others are left.
            seed: any number; breaks ties.
        """
        chosen = np.zeros(len(due), np.uint32)
        pairs = np.stack([due.astype(np.int64), width.astype(np.int64)], axis=1)
        found, of = np.unique(pairs, axis=0, return_inverse=True)
        of = of.reshape(-1)
        chance = _chance(seed, len(due))
        if len(found) > ALIKE_MAX:
            low = np.clip(now_ms - pairs[:, 0], 0, pairs[:, 1])
            drawn: U32 = (low + (chance * (pairs[:, 1] - low + 1)).astype(np.int64)).astype(np.uint32)
            return drawn
        for number, (first, length) in enumerate(found.tolist()):
            if length:
                rows = np.flatnonzero(of == number)
                chosen[rows] = self._level(first, length, now_ms, chance[rows])
        return chosen

    def _level(self, due: int, width: int, now_ms: int, chance: _Loads) -> U32:
        plan = self._plan(due, width, now_ms)
        low = min(max(now_ms - due, 0), width)
        begin = min(low // plan.bucket_ms, len(plan.loads) - 1)
        counts = _filled(plan.loads[begin:], len(chance), float(chance[0]))
        plan.loads[begin:] += counts
        starts = (begin + np.repeat(np.arange(len(counts)), counts)) * plan.bucket_ms
        starts, ends = np.maximum(starts, low), np.minimum(starts + plan.bucket_ms, width + 1)
        later: U32 = (starts + (chance * (ends - starts)).astype(np.int64)).astype(np.uint32)
        return later

    def _plan(self, due: int, width: int, now_ms: int) -> _Plan:
        plan = self._plans.pop((due, width), None)
        if plan is None or not 0 <= now_ms - plan.made_at_ms < KEPT_MS:
            plan = _Plan(self._waiting, due, width, now_ms)
        self._plans[due, width] = plan
        if len(self._plans) > PLANS_MAX:
            del self._plans[next(iter(self._plans))]
        return plan


def _filled(loads: _Loads, rows: int, chance: float) -> npt.NDArray[np.int64]:
    """Return how many of the rows each bucket takes, so that the fullest is as low as can be."""
    ascending = np.sort(loads)
    levels = (rows + np.cumsum(ascending)) / np.arange(1, len(loads) + 1)
    level = levels[np.flatnonzero(ascending <= levels)[-1]]
    wanted = np.maximum(level - loads, 0.0)
    counts: npt.NDArray[np.int64] = np.floor(wanted).astype(np.int64)
    rest = rows - int(counts.sum())
    if rest > 0:
        turned = (np.arange(len(loads)) + int(chance * len(loads))) % len(loads)
        emptiest = np.lexsort((turned, counts - wanted))
        # Rounding can leave more than one row for each bucket that wants some.
        np.add.at(counts, np.resize(emptiest, rest), 1)
    while rest < 0:
        fullest = int(counts.argmax())
        counts[fullest] -= 1
        rest += 1
    return counts


def _chance(seed: int, rows: int) -> _Loads:
    """Return numbers from 0 to below 1 that look drawn: splitmix64 (Steele, Lea and Flood 2014)."""
    state = np.arange(1, rows + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    state += np.uint64(seed * 0xD1342543DE82EF95 & (1 << 64) - 1)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    drawn: _Loads = ((state ^ (state >> np.uint64(31))) >> np.uint64(11)) / float(1 << 53)
    return drawn
