"""Care for triggered messages: a new leader brings those that are only on its disk to memory.

Messages that are triggered while it leads are in memory, and stay there (`state/residency`). Nothing here is
replicated.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from dueq.core.partition.care import CaredPartition
from dueq.core.partition.lookups import Then
from dueq.core.ports.entry import Entries
from dueq.core.state.applied import Applied
from dueq.core.state.cold import ColdIds
from dueq.instant import Now
from dueq_codecs.records import Record


class TriggeringPartition(CaredPartition, Protocol):
    """A partition whose messages may be triggered."""

    def look_up(self, ids: ColdIds, then: Then, now: Now) -> None:
        """Call `then` with messages as they are, by their ids, once they are in memory."""
        ...


class TriggerCare:
    """The triggered messages of one partition, while it is led here."""

    def __init__(self, partition: TriggeringPartition) -> None:
        self._partition = partition

    def begin(self, now: Now) -> None:
        """The partition is served from now on."""
        waiting = self._partition.timeline.triggered
        if not waiting:
            return
        keys = np.fromiter(waiting, np.uint64, len(waiting))
        first = np.fromiter(waiting.values(), np.uint64, len(waiting))
        ids = ColdIds(first, keys >> np.uint64(16), (keys & np.uint64(0xFFFF)).astype(np.uint16))

        def read(rows: Entries | None, then: Now) -> None:
            self._partition.dispatcher.wake()

        self._partition.look_up(ids, read, now)

    def end(self) -> None:
        """The partition is led no more."""

    def applied(self, record: Record, applied: Applied, now: Now) -> None:
        """Nothing to do: the messages that a record triggers are in memory."""

    def tick(self, now: Now) -> bool:
        """Nothing has to be done at any time."""
        return False
