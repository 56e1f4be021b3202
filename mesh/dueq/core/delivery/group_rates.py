"""How fast limited groups of a fair topic are delivered: a bucket of tokens for each group that has a rate.

A message costs a token of its group and of each level above it that has a rate. A bucket belongs to one leadership and
begins full, as that of a limited topic does (`token_bucket`).
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from dueq.core.delivery.leases import NEVER_US
from dueq.core.delivery.token_bucket import TokenBucket
from dueq.core.ports.entry import Entries, is_wide
from dueq.core.state.group_table import GroupTable
from dueq.instant import Now
from dueq_codecs.groups import GroupSettings, levels_of

_BEFORE_ALL: Final = Now(0, 0)


class GroupRates:
    """The tokens of the groups of one led partition.

    Attributes:
        now: the instant of this turn.
        next_us: (mono) when the first group has a token that is without one; NEVER_US: none is, as far as was looked.
    """

    def __init__(self) -> None:
        self._buckets: dict[str, TokenBucket] = {}
        self.now = _BEFORE_ALL
        self.next_us = NEVER_US

    def begin(self, now: Now) -> None:
        """A turn begins."""
        self.now, self.next_us = now, NEVER_US

    def token_us(self, name: str, settings: GroupSettings, spoken_for: int) -> int:
        """Return when (mono) a group that has a rate may be given one more message; 0: now.

        Args:
            name: of the group.
            settings: what is set for it.
            spoken_for: messages that were chosen in this turn, and are not leased yet.
        """
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = TokenBucket()
        bucket.configure(settings.rate, settings.burst, self.now)
        return 0 if bucket.available(self.now) > spoken_for else bucket.next_us(self.now, spoken_for)

    def spend(self, entries: Entries, groups: GroupTable) -> None:
        """Take tokens for messages that are leased; groups whose rate is gone have no bucket any more."""
        if not self._buckets or not is_wide(entries):
            return
        for number, count in Counter(entries["group"].tolist()).items():
            for level in levels_of(groups.name_of(number) or ""):
                bucket = self._buckets.get(level)
                if bucket is None:
                    continue
                if _has_rate(groups, level):
                    bucket.take(count)
                else:
                    del self._buckets[level]
        if len(self._buckets) > len(groups.limited):
            self._buckets = {
                name: bucket for name, bucket in self._buckets.items() if _has_rate(groups, name)
            }


def _has_rate(groups: GroupTable, name: str) -> bool:
    group = groups.limited.get(name)
    return group is not None and group.settings is not None and group.settings.rate > 0
