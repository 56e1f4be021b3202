"""Care for dead messages: the leader discards those that have been dead for as long as the topic keeps them.

    the first deaths on the disk ──old enough──► DISCARD ──applied──► checkpoint ──► the first deaths on the disk …

Nothing here is replicated: a new leader looks at the first deaths anew. Dead messages lie on the disk in order of their
deaths, so a look reads few rows however many there are.
"""

from __future__ import annotations

import numpy as np

from dueq.core.partition.care import CaredPartition
from dueq.core.ports.entry import Entries, versions_of
from dueq.core.ports.persistence import IndexScanned, ScanIndex
from dueq.core.state.applied import Applied
from dueq.core.turn.context import Context
from dueq.instant import Now
from dueq.limits import DEAD_LOOK_MS, DISCARD_ROWS_MAX
from dueq_codecs.records import Record, RecordKind

_RETRY_MS = 1000


class DeadLetters:
    """The dead messages of one partition, while it is led here."""

    def __init__(self, ctx: Context, partition: CaredPartition) -> None:
        self._ctx, self._partition = ctx, partition
        self._look_at_us: int | None = None
        self._life = 0
        self._busy = False
        self._last = 0  # sequence of the last record proposed

    def begin(self, now: Now) -> None:
        """The partition is served from now on."""
        self.end()
        if self._partition.timeline.dead_count:
            self._look_at_us = 0
            self._ctx.attend(self._partition.uid)

    def end(self) -> None:
        """The partition is led no more."""
        self._life += 1
        self._busy, self._look_at_us, self._last = False, None, 0
        self._ctx.retention.set(self._partition.uid, None)

    def applied(self, record: Record, applied: Applied, now: Now) -> None:
        """A record was applied: messages may be dead, or be kept for less long."""
        if record.sequence == self._last:
            self._busy = False
            self._ctx.attend(self._partition.uid)  # it may have been time again meanwhile
            self._wait(0, now)
        elif applied.settings is not None:
            # What is dead, or dies next, may be kept for less long: a look that was planned would come too late.
            self._wait(0, now)
        elif applied.died and self._look_at_us is None:
            self._wait(self._partition.timeline.settings.dead_retention_ms, now)

    def tick(self, now: Now) -> bool:
        """Look at the first deaths if it is time; the work that this begins goes on by itself."""
        due = self._look_at_us is not None and self._look_at_us <= now.mono_us
        if due and not self._busy and self._partition.serving:
            self._look_at_us = None
            self._ctx.retention.set(self._partition.uid, None)
            if self._partition.timeline.dead_count:
                self._look(now)
        return False

    def _wait(self, wait_ms: int, now: Now) -> None:
        """Look again after this long, or sooner: the topic may be changed, and clocks go wrong."""
        at_us = now.mono_us + min(max(wait_ms, 0), DEAD_LOOK_MS) * 1000
        if self._look_at_us is None or at_us < self._look_at_us:
            self._look_at_us = at_us
            self._ctx.retention.set(self._partition.uid, at_us)

    def _look(self, now: Now) -> None:
        """Read the first deaths, once the disk has all that is applied."""
        self._busy, life, uid = True, self._life, self._partition.uid

        def read(answer: object, then: Now) -> None:
            assert isinstance(answer, IndexScanned)
            if life == self._life:
                self._busy = False
                self._ctx.attend(uid)  # it may have been time again meanwhile
                self._discard(answer.entries, then)

        def durable(hidden: frozenset[int], then: Now) -> None:
            if life == self._life:
                self._ctx.read(lambda token: ScanIndex(token, uid, 0, -1, DISCARD_ROWS_MAX, dead=True), read)

        self._partition.checkpoints.after(durable, now)

    def _discard(self, entries: Entries, now: Now) -> None:
        """Discard the messages that are old enough; look again when the next one is."""
        if not len(entries):
            return
        if self._ctx.clock.hold:  # it may have stepped ahead
            self._wait(_RETRY_MS, now)
            return
        retention_ms = self._partition.timeline.settings.dead_retention_ms
        mesh_ms = self._ctx.clock.mesh_now_us(now) // 1000
        over = entries["died_at"].astype(np.int64) + retention_ms <= mesh_ms
        old = entries.take(np.flatnonzero(over))
        if not len(old):
            first_ms = int(entries["died_at"][0])
            # By a clock that is behind it has yet to die: when that is set, the time is another one.
            self._wait(first_ms + retention_ms - mesh_ms if first_ms <= mesh_ms else _RETRY_MS, now)
            return
        record = Record(RecordKind.DISCARD, self._partition.uid, 0, 0, 0)
        record.first = np.ascontiguousarray(old["first"])
        record.target_sequence = np.ascontiguousarray(old["sequence"])
        record.target_row = np.ascontiguousarray(old["row"])
        # One that was redriven meanwhile may be dead again: its time begins anew.
        record.expected = versions_of(old)
        self._last = self._partition.propose(record, now)
        self._busy = self._last > 0
        if not self._busy:
            self._wait(_RETRY_MS, now)
