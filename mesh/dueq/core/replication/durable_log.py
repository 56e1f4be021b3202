"""A replica's log, its epoch and its commit position, and how much of them is on the disk.

This is Raft's persistent state (figure 2: currentTerm and log), with its rule: an action that depends on an epoch or
a record waits until that is synced. So all changes are sent to the store at the end of the turn, in order. `synced`
and `durable_epoch` say how far the disk has come.
"""

from __future__ import annotations

from collections.abc import Callable

from dueq.core.ports.persistence import AppendLog, RecoveredPartition, SaveMeta, TrimLog, TruncateLog
from dueq.core.replication.log import ReplicaLog
from dueq.core.turn.context import Context
from dueq.errors import invariant
from dueq.instant import Now
from dueq.limits import TRIM_RECORDS_MAX
from dueq_codecs.records import LogEntry


class DurableLog(ReplicaLog):
    """A log whose changes reach the disk at the end of the turn.

    Attributes:
        epoch: the largest epoch led or followed in; never falls; synced with whatever depends on it.
        commit: records up to here are committed; never falls while the process lives.
        synced: records up to here are on this disk.
        durable_epoch: the epoch on this disk.
    """

    def __init__(self, ctx: Context, uid: int, recovered: RecoveredPartition | None) -> None:
        self._ctx, self._uid = ctx, uid
        self._new_entries: list[LogEntry] = []
        # Ends of the log whose writes are under way, each lowered where the log is cut meanwhile.
        self._pending: list[list[int]] = []
        self.dirty = False
        if recovered is None or recovered.damaged:
            super().__init__()
            self.epoch = 0 if recovered is None else recovered.epoch
            self.commit = 0
        else:
            held_from = recovered.tail[0].record.sequence if recovered.tail else recovered.log_end + 1
            epochs = recovered.epochs[:1] + [pair for pair in recovered.epochs[1:] if pair[1] < held_from]
            super().__init__(recovered.log_start, held_from - 1, epochs, recovered.weights)
            for entry in recovered.tail:
                super().append(entry)
            self.epoch = max(recovered.epoch, self.last_epoch)
            self.commit = max(recovered.commit, recovered.applied)
        self.durable_epoch = self.epoch
        self.synced = self.end

    # -------------------------------------------------------------- changes

    def raise_epoch(self, epoch: int) -> None:
        """Lead or follow in a newer epoch; it must be saved."""
        if epoch > self.epoch:
            self.epoch = epoch
            self.dirty = True

    def append(self, entry: LogEntry) -> None:
        """Add the next record."""
        super().append(entry)
        self._new_entries.append(entry)
        self.dirty = True

    def truncate(self, from_sequence: int) -> list[LogEntry]:
        """Cut the log from `from_sequence` on; returns the records that were in memory."""
        invariant(
            from_sequence > self.commit, "a committed record is never cut",
            uid=self._uid, at=from_sequence, commit=self.commit, epoch=self.epoch,
        )  # fmt: skip
        invariant(
            self.epoch_at(from_sequence) != self.epoch, "a record of the current epoch is never cut",
            uid=self._uid, at=from_sequence, epoch=self.epoch,
        )  # fmt: skip
        self.flush()
        cut = super().truncate(from_sequence)
        self.synced = min(self.synced, from_sequence - 1)
        for pending in self._pending:
            pending[0] = min(pending[0], from_sequence - 1)
        self._ctx.persist(TruncateLog(self._uid, from_sequence))
        self.dirty = True
        return cut

    def trim_to(self, limit: int) -> int:
        """Give up the log before `limit`, but for a bounded reserve; of a log that was held back for long, a part.

        Returns:
            The first sequence that is still held; 0 when nothing was given up.
        """
        wanted = self.trimmable(limit, self._ctx.settings.log_retain_bytes)
        below = min(wanted, self.start + TRIM_RECORDS_MAX)
        if below <= self.start:
            return 0
        self._ctx.persist(TrimLog(self._uid, below))
        self.trim(below)
        return below

    def wiped(self) -> None:
        """The replica's data goes: records appended in this turn must not be written after that."""
        self._new_entries = []

    # -------------------------------------------------------------- the disk

    def flush(self) -> None:
        """Order the new records now: something else that is about to be ordered must come after them."""
        if self._new_entries:
            self._ctx.persist(AppendLog(self._uid, self._new_entries))
            self._new_entries = []

    def save(self, then: Callable[[Now], None]) -> None:
        """Order this turn's writes; `then` is called when they are synced."""
        self.dirty = False
        self.flush()
        self._ctx.persist(SaveMeta(self._uid, self.epoch, self.commit))
        pending, epoch = [self.end], self.epoch
        self._pending.append(pending)

        def synced(now: Now) -> None:
            self._pending.remove(pending)
            self.synced = max(self.synced, pending[0])
            self.durable_epoch = max(self.durable_epoch, epoch)
            then(now)

        self._ctx.when_persisted(synced)
