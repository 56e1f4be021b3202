"""A limited topic is leased no faster than its rate: counted over each leadership, from outside."""

from __future__ import annotations

from dueq_chaos.sim.judging.shares import keys_of
from dueq_chaos.sim.reference.naive import Naive
from dueq_codecs.records import Record, RecordKind
from dueq_codecs.topic_settings import TopicSettings

_SLACK_US = 3_000_000
"""How much longer than here it may seem to a leader: commits are seen late, and clocks drift."""


class Rates:
    """Counts of the messages leased of each partition under its present leader and settings."""

    def __init__(self) -> None:
        self._since: dict[int, tuple[tuple[int, int], int]] = {}
        self._count: dict[int, int] = {}
        self._last: dict[int, int] = {}

    def is_news(self, uid: int, record: Record) -> bool:
        """Whether no other replica has shown this record, or a later one, before."""
        if record.sequence <= self._last.get(uid, 0):
            return False
        self._last[uid] = record.sequence
        return True

    def exceeded(self, naive: Naive, record: Record, settings: TopicSettings, now_us: int) -> str:
        """Count a committed record; return what is wrong with it, "" when nothing is.

        Args:
            naive: the state of the partition.
            record: committed.
            settings: in force in that partition.
            now_us: true time.
        """
        if record.kind != RecordKind.LEASE or not settings.rate:
            return ""
        uid, under = record.uid, (record.epoch, settings.version)
        if self._since.get(uid, ((0, 0), 0))[0] != under:
            self._since[uid], self._count[uid] = (under, now_us), 0
        self._count[uid] += sum(not naive.was_triggered(record.sequence, key) for key in keys_of(record))
        elapsed_us = now_us - self._since[uid][1] + _SLACK_US
        most = (settings.burst or settings.rate) + settings.rate * elapsed_us // 1_000_000
        if self._count[uid] <= most:
            return ""
        return f"{self._count[uid]} messages were leased in {elapsed_us} us, and the rate is {settings.rate}"
