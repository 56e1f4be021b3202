"""Applying one replica's log to its timeline: committed records, in order, up to the first that waits for the disk."""

from __future__ import annotations

from typing import Protocol

from dueq.core.partition.cold_reading import ColdReading
from dueq.core.replication.replica import Replica
from dueq.core.state.applied import Applied
from dueq.core.state.timeline import Timeline
from dueq.core.turn.context import Context, EndOfTurn
from dueq.errors import UnknownVersion
from dueq.instant import Now
from dueq_codecs.records import Record

_RECORDS_MAX = 256
"""Records applied in one go; the rest follow in the next turn."""


class ApplyingPartition(EndOfTurn, Protocol):
    """The partition, as far as applying concerns it.

    Attributes:
        timeline: what records are applied to.
        broken: why nothing more is applied, "" while something is.
    """

    timeline: Timeline
    broken: str

    def stop(self, reason: str) -> None:
        """Nothing more can be applied."""
        ...

    def applied_leading(self, record: Record, applied: Applied, now: Now) -> None:
        """A record was applied at its leader."""
        ...


class Applying:
    """The way of one replica's records from its log to its timeline."""

    def __init__(
        self, ctx: Context, replica: Replica, reading: ColdReading, partition: ApplyingPartition
    ) -> None:
        self._ctx, self._replica, self._reading, self._partition = ctx, replica, reading, partition
        self._closed = False

    def appended(self, record: Record) -> None:
        """Begin to read what applying a record of the log will need."""
        timeline = self._partition.timeline
        asked = timeline.cold(record)
        if asked is not None:
            self._reading.entries(*asked)
        wanted = timeline.cold_keys(record)
        if wanted is not None:
            self._reading.names(wanted)

    def pump(self, now: Now) -> None:
        """Apply what can be applied."""
        partition, replica = self._partition, self._replica
        timeline = partition.timeline
        if self._closed:
            return
        for _ in range(_RECORDS_MAX):
            if timeline.applied >= replica.commit or partition.broken or replica.installing:
                break
            entry = replica.entry(timeline.applied + 1)
            if entry is None or not self._is_ready(entry.record):
                break
            try:
                applied = timeline.apply(entry.record)
            except UnknownVersion as error:
                partition.stop(str(error))
                replica.give_up(now, "a record of an unknown version")
                break
            if replica.is_leader:
                partition.applied_leading(entry.record, applied, now)
        else:
            self._ctx.again = True
            self._ctx.attend(partition.uid)
        self._ctx.touch(partition)

    def _is_ready(self, record: Record) -> bool:
        """Whether the next record can be applied; what is missing is read."""
        timeline = self._partition.timeline
        names, ids = timeline.prepare(record)
        if names is not None:
            self._reading.names(names)
        if ids is not None:
            self._reading.entries(*ids)
        return timeline.ready(record)

    def close(self) -> None:
        """The topic was deleted: nothing more is applied."""
        self._closed = True
