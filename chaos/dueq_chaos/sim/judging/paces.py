"""No group of a fair topic is leased faster than its rate: counted over each leadership, from outside.

The settings of `a` hold for `a.b`, too. The count has the messages that LEASE records name as their leader proposes
them. It begins with the first record that is proposed while the same rate is set: then the group had no more than its
burst.
"""

from __future__ import annotations

from collections import Counter

from dueq_chaos.sim.judging.shares import keys_of, levels_of
from dueq_chaos.sim.reference.naive import Naive
from dueq_codecs.records import Record

_SLACK_US = 1_000
_DRIFT = 100
"""The leader's clock may run faster than the truth, by less than one part in this many."""


class Paces:
    """Counts of the messages leased of each group since the same leader has had the same rate for it."""

    def __init__(self) -> None:
        self._since: dict[tuple[int, str], tuple[tuple[str, int, int, int], int]] = {}
        self._counts: Counter[tuple[int, str]] = Counter()

    def exceeded(self, broker: str, naive: Naive, record: Record, now_us: int) -> str:
        """Count a LEASE that is proposed; return what is wrong with it, "" when nothing is.

        Args:
            broker: the leader.
            naive: the state that is applied.
            record: a LEASE.
            now_us: true time.
        """
        for at in [at for at in self._since if at[0] == record.uid]:
            if not naive.groups.settings.get(at[1], {}).get("rate", 0):
                del self._since[at]  # set again, it begins with its burst
        if not naive.groups.settings:
            return ""
        names = naive.groups.names
        given = Counter(level for key in _counted(naive, record) for level in levels_of(naive, names, key))
        for level, count in sorted(given.items()):
            settings, at = naive.groups.settings.get(level, {}), (record.uid, level)
            rate = settings.get("rate", 0)
            if not rate:
                continue
            burst = settings.get("burst", 0) or rate
            under = broker, record.epoch, rate, burst
            if self._since.get(at, (None, 0))[0] != under:
                self._since[at], self._counts[at] = (under, now_us), 0
            self._counts[at] += count
            elapsed_us = now_us - self._since[at][1]
            most = burst + rate * (elapsed_us + elapsed_us // _DRIFT + _SLACK_US) // 1_000_000
            if self._counts[at] > most:
                return (
                    f"the LEASE {record.sequence} makes {self._counts[at]} messages of {level!r} in {elapsed_us} us,"
                    f" and its rate is {rate}, its burst {burst}"
                )
        return ""


def _counted(naive: Naive, record: Record) -> list[int]:
    """Return the messages that cost a token: all but those that were triggered."""
    return [key for key in keys_of(record) if not naive.is_triggered(key)]
