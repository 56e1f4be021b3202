"""A database that forgets unsynced writes, and fails when it is told to."""

from __future__ import annotations

from collections.abc import Iterable

from dueq.storage.ordered.engine import Operation
from dueq.storage.ordered.memory import MemoryEngine
from dueq.storage.port import StoreFailed


class ForgetfulEngine(MemoryEngine):
    """An engine in memory that outlives the process that uses it, as a disk does.

    Attributes:
        fail_next: the next write fails, as a full disk makes it; later ones too.
    """

    def __init__(self) -> None:
        super().__init__()
        # Undoes the batches since the last sync, oldest first.
        self._undo: list[list[tuple[bytes, bytes | None]]] = []
        self.fail_next = False

    def write(self, operations: Iterable[Operation], *, sync: bool) -> None:
        """See Engine."""
        if self.fail_next:
            raise StoreFailed("no space left on device")
        if not sync:
            operations = list(operations)
            self._undo.append([(key, self.get(key)) for key, _ in operations])
        super().write(operations, sync=sync)
        if sync:
            self._undo.clear()

    def crash(self, keep: int = 0) -> None:
        """Forget every batch since the last sync but the first `keep`."""
        while len(self._undo) > keep:
            super().write(self._undo.pop(), sync=True)
        self._undo.clear()
        self.fail_next = False

    @property
    def unsynced(self) -> int:
        """How many batches a crash may lose."""
        return len(self._undo)
