"""An engine in memory: for tests, and as the simulator's disk, which forgets what was not synced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from sortedcontainers import SortedDict

from dueq.storage.ordered.engine import Operation
from dueq.storage.port import StoreFailed


class MemoryEngine:
    """A sorted dictionary.

    Attributes:
        fail_next: the next write fails, as a full disk makes it; later ones too.
    """

    def __init__(self) -> None:
        self._rows: SortedDict[bytes, bytes] = SortedDict()
        # What undoes the batches since the last sync, oldest first.
        self._undo: list[list[tuple[bytes, bytes | None]]] = []
        self._lent: list[MemorySnapshot] = []
        """Open snapshots, which have the rows in common with it until it is written to."""
        self.fail_next = False

    def get(self, key: bytes) -> bytes | None:
        """See Engine."""
        value: bytes | None = self._rows.get(key)
        return value

    def scan(self, start: bytes, stop: bytes, limit: int | None = None) -> Iterator[tuple[bytes, bytes]]:
        """See Engine."""
        keys = self._rows.irange(start, stop, inclusive=(True, False))
        return iter([(key, self._rows[key]) for key in islice(keys, limit)])

    def keys(self, start: bytes, stop: bytes) -> Iterator[bytes]:
        """See Engine."""
        return iter(list(self._rows.irange(start, stop, inclusive=(True, False))))

    def write(self, operations: Iterable[Operation], *, sync: bool) -> None:
        """See Engine."""
        if self.fail_next:
            raise StoreFailed("no space left on device")
        self._part()
        undo: list[tuple[bytes, bytes | None]] = []
        for key, value in operations:
            undo.append((key, self._rows.get(key)))
            if value is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = bytes(value)
        if sync:
            self._undo.clear()
        else:
            self._undo.append(undo)

    def crash(self, keep: int = 0) -> None:
        """Forget every batch since the last sync but the first `keep`."""
        self._part()
        while len(self._undo) > keep:
            for key, value in reversed(self._undo.pop()):
                if value is None:
                    self._rows.pop(key, None)
                else:
                    self._rows[key] = value
        self._undo.clear()
        self.fail_next = False

    @property
    def unsynced(self) -> int:
        """How many batches a crash may lose."""
        return len(self._undo)

    def snapshot(self) -> MemorySnapshot:
        """See Engine."""
        snapshot = MemorySnapshot(self._rows, self)
        self._lent.append(snapshot)
        return snapshot

    def _part(self) -> None:
        """Leave the rows as they are to the open snapshots: what is written next is not for them."""
        if self._lent:
            kept = self._rows.copy()
            for snapshot in self._lent:
                snapshot._rows = kept
            self._lent.clear()

    def gave_back(self, snapshot: MemorySnapshot) -> bool:
        """A snapshot needs the rows no more; returns whether it had them in common until now."""
        shared = snapshot in self._lent
        if shared:
            self._lent.remove(snapshot)
        return shared

    def level0_files(self) -> int:
        """See Engine."""
        return 0

    def close(self) -> None:
        """See Engine; the rows stay, as on a disk."""


class MemorySnapshot(MemoryEngine):
    """The rows as they were: copied when its engine is written to, as most are closed before that."""

    def __init__(self, rows: SortedDict[bytes, bytes], owner: MemoryEngine) -> None:
        super().__init__()
        self._rows, self._owner = rows, owner

    def close(self) -> None:
        """See Snapshot."""
        self._owner.gave_back(self)

    def _part(self) -> None:
        """Whoever writes to a snapshot has it for his own from then on."""
        super()._part()
        if self._owner.gave_back(self):
            self._rows = self._rows.copy()
