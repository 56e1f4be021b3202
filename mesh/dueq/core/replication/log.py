"""One replica's log as the core sees it: its ends, its epochs, and the recent entries in memory.

Entries older than the cache are read back from the store. The epochs answer the two questions of log matching: which
epoch has this sequence, and where does an epoch end (Raft §5.3; KIP-101, KIP-279).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from typing import Final

import numpy as np

from dueq.core.replication.log_weight import LogWeight
from dueq.errors import invariant
from dueq_codecs.records import LogEntry, Record

_WORDS_BYTES: Final = 1024
"""Texts of a record that the other numbers stand for: most records have shorter ones, or none."""


def _long_texts(record: Record) -> int:
    """Return roughly how many bytes of texts a record has beyond a few: a recurrence has its payload there."""
    words = len(record.document) + sum(map(len, record.groups)) + sum(map(len, record.reasons))
    return max(words - _WORDS_BYTES, 0)


def entry_bytes(entry: LogEntry) -> int:
    """Return roughly what an entry weighs on the wire and on disk."""
    record = entry.record
    return len(entry.body) + 24 * record.rows + 48 * len(record.requests) + _long_texts(record) + 128


def kept_bytes(entry: LogEntry) -> int:
    """Return roughly what the disk keeps for as long as the log holds an entry: its uploads, too."""
    record = entry.record
    uploaded = int(record.size[record.upload != 0].sum(dtype=np.int64)) if len(record.upload) else 0
    return entry_bytes(entry) + uploaded


def resident_bytes(entry: LogEntry) -> int:
    """Return roughly what an entry weighs in memory, with its objects, its columns and its encoded form.

    Measured: 1.2 to 2.4 KB for one row of one request, mostly objects; 200 bytes for each request more, 35 to 50
    for each row. A barrier weighs less.
    """
    record = entry.record
    texts = 2 * _long_texts(record)  # encoded, too
    return len(entry.body) + 48 * record.rows + 256 * len(record.requests) + texts + 2048


class ReplicaLog:
    """Sequences `start … end` are in the store (or on their way); the last ones are in memory as well.

    Args:
        start, end: as the store has them.
        epochs: of these records.
        weights: of these records: (last sequence, bytes) of neighbours.

    Attributes:
        start: first sequence that is held; `end + 1` when there is none.
        end: last sequence.
        cached_bytes: what the entries in memory weigh there.
    """

    def __init__(
        self,
        start: int = 1,
        end: int = 0,
        epochs: list[tuple[int, int]] | None = None,
        weights: Iterable[tuple[int, int]] = (),
    ) -> None:
        self.start = start
        self.end = end
        # (epoch, its first sequence), both growing; the first is the epoch of record start - 1.
        self._epochs = list(epochs) if epochs else [(0, start - 1)]
        self._cache: deque[LogEntry] = deque()
        self.cached_bytes = 0
        self._weight = LogWeight()
        for last, weight in weights:
            self._weight.append(last, weight)

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record (of record `start - 1` when the log is empty)."""
        return self._epochs[-1][0]

    @property
    def cached_from(self) -> int:
        """First sequence in memory; `end + 1` when nothing is."""
        return self.end + 1 - len(self._cache)

    def epoch_at(self, sequence: int) -> int | None:
        """Return the epoch of a record, None when it is not known (before `start - 1`, or after the end)."""
        if sequence > self.end or sequence < self.start - 1:
            return None
        at = bisect_right(self._epochs, sequence, key=lambda pair: pair[1]) - 1
        return self._epochs[max(at, 0)][0]

    def epoch_not_above(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch ≤ `epoch` in the log and its last sequence (KIP-279).

        When even the first is larger: (0, 0).
        """
        for at in range(len(self._epochs) - 1, -1, -1):
            held, _ = self._epochs[at]
            if held <= epoch:
                last = self._epochs[at + 1][1] - 1 if at + 1 < len(self._epochs) else self.end
                return held, last
        return 0, 0

    def append(self, entry: LogEntry) -> None:
        """Add the next record."""
        record = entry.record
        invariant(record.sequence == self.end + 1, "a log has no gaps", at=record.sequence, end=self.end)
        invariant(record.epoch >= self.last_epoch, "epochs never fall", record=record.epoch)
        if record.epoch > self.last_epoch:
            self._epochs.append((record.epoch, record.sequence))
        self.end = record.sequence
        self._cache.append(entry)
        self.cached_bytes += resident_bytes(entry)
        self._weight.append(record.sequence, kept_bytes(entry))

    def truncate(self, from_sequence: int) -> list[LogEntry]:
        """Forget records at or after `from_sequence`; returns those that were in memory."""
        cut: list[LogEntry] = []
        while self._cache and self._cache[-1].record.sequence >= from_sequence:
            entry = self._cache.pop()
            self.cached_bytes -= resident_bytes(entry)
            cut.append(entry)
        self._weight.truncate(from_sequence)
        while len(self._epochs) > 1 and self._epochs[-1][1] >= from_sequence:
            self._epochs.pop()
        self.end = from_sequence - 1
        cut.reverse()
        return cut

    def trim(self, below: int) -> None:
        """Forget that records before `below` are in the store."""
        if below <= self.start:
            return
        epoch = self.epoch_at(below - 1)
        invariant(epoch is not None, "only what is held can be trimmed", below=below, end=self.end)
        while len(self._epochs) > 1 and self._epochs[1][1] < below:
            self._epochs.pop(0)
        if self._epochs[0][1] < below:
            self._epochs[0] = (epoch or 0, below - 1)
        self._weight.trim(below)
        self.start = below

    def shrink_cache(self, keep_from: int, bytes_max: int) -> None:
        """Drop the oldest entries from memory down to `bytes_max`, but none from `keep_from` on."""
        while self._cache and self.cached_bytes > bytes_max and self._cache[0].record.sequence < keep_from:
            self.cached_bytes -= resident_bytes(self._cache.popleft())

    def get(self, sequence: int) -> LogEntry | None:
        """Return one entry if it is in memory."""
        at = sequence - self.cached_from
        return self._cache[at] if 0 <= at < len(self._cache) else None

    def read(self, from_sequence: int, bytes_max: int, rows_max: int = 256) -> list[LogEntry]:
        """Return entries from memory, at least one when `from_sequence` is there, up to about `bytes_max`."""
        entries: list[LogEntry] = []
        weight = 0
        sequence = from_sequence
        while len(entries) < rows_max and (entry := self.get(sequence)) is not None:
            weight += entry_bytes(entry)
            if entries and weight > bytes_max:
                break
            entries.append(entry)
            sequence += 1
        return entries

    def trimmable(self, limit: int, retain_bytes: int) -> int:
        """Return the sequence below which the log may go so that about `retain_bytes` stay, at most `limit`."""
        return min(max(self._weight.trimmable(retain_bytes) + 1, self.start), limit)
