"""An engine in memory: a sorted dictionary, with snapshots that cost nothing until something changes.

A snapshot copies no rows. While one is open, each write first hands it the values that the write replaces; it reads
the present rows, and those instead where it has them. A reader takes the present value before it looks for an older
one: the writer does it the other way round, so no lock is needed for a single row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from threading import Lock
from typing import Final
from weakref import WeakSet

from sortedcontainers import SortedDict

from dueq.storage.ordered.engine import Operation
from dueq.storage.ordered.room import MemoryRoom
from dueq.storage.port import StoreFailed

_CHUNK: Final = 256
"""Rows that are read at a time, while no write may come in between."""
_ROW_BYTES: Final = 144
"""Bytes of a row besides its key and value: two objects, their places in a dictionary and in a sorted list
(104 to 127 bytes by tracemalloc, with 20,000 and 200,000 rows)."""


class MemoryEngine:
    """A sorted dictionary. One thread writes, any may read.

    Args:
        room: how much it may hold, shared with other engines; None: there is no bound.
    """

    def __init__(self, room: MemoryRoom | None = None) -> None:
        self._rows: SortedDict[bytes, bytes] = SortedDict()
        self._lock = Lock()
        self._room = room or MemoryRoom()
        self._snapshots: WeakSet[MemorySnapshot] = WeakSet()

    def get(self, key: bytes) -> bytes | None:
        """See Engine."""
        value: bytes | None = self._rows.get(key)
        return value

    def scan(self, start: bytes, stop: bytes, limit: int | None = None) -> Iterator[tuple[bytes, bytes]]:
        """See Engine."""
        count = _CHUNK if limit is None else min(limit, _CHUNK)
        with self._lock:
            keys = list(islice(self._rows.irange(start, stop, inclusive=(True, False)), count))
            rows = [(key, self._rows[key]) for key in keys]
            if len(rows) < _CHUNK or count == limit:
                return iter(rows)
            rest = self._begin()
        left = None if limit is None else limit - count
        return chain(rows, rest.scan(keys[-1] + b"\0", stop, left))

    def keys(self, start: bytes, stop: bytes) -> Iterator[bytes]:
        """See Engine."""
        return (key for key, _ in self.scan(start, stop))

    def write(self, operations: Iterable[Operation], *, sync: bool) -> None:
        """See Engine; `sync` is nothing here, as nothing survives the process.

        Raises:
            StoreFailed: there is no room for it; nothing has changed.
        """
        batch = operations if isinstance(operations, list) else list(operations)
        with self._lock:
            self._admit(batch)
            if self._snapshots:
                for snapshot in self._snapshots:
                    snapshot.keep(batch)
            rows, grown = self._rows, 0
            for key, value in batch:
                if value is None:
                    old = rows.pop(key, None)
                else:
                    old = rows.get(key)
                    rows[key] = value if type(value) is bytes else bytes(value)
                    grown += _ROW_BYTES + len(key) + len(value)
                if old is not None:
                    grown -= _ROW_BYTES + len(key) + len(old)
            self._room.used += grown

    def _admit(self, batch: list[Operation]) -> None:
        room = self._room
        if room.bytes_max is None:
            return
        wanted = sum(_ROW_BYTES + len(key) + len(value) for key, value in batch if value is not None)
        if wanted and room.used + wanted > room.bytes_max:
            raise StoreFailed(
                f"the store in memory is full: it holds {room.used} bytes and may hold {room.bytes_max}"
            )

    def snapshot(self) -> MemorySnapshot:
        """See Engine."""
        with self._lock:
            return self._begin()

    def _begin(self) -> MemorySnapshot:
        found = MemorySnapshot(self._rows, self._lock)
        self._snapshots.add(found)
        return found

    def level0_files(self) -> int:
        """See Engine."""
        return 0

    def close(self) -> None:
        """See Engine; the rows stay, for an engine that a test opens again."""


class MemorySnapshot:
    """The rows at one instant: the present ones, and the older values of those that have changed since.

    The engine knows it by a weak reference: a scan that nobody reads to its end gives its snapshot up by itself.
    """

    def __init__(self, rows: SortedDict[bytes, bytes], lock: Lock) -> None:
        self._rows, self._lock = rows, lock
        self._before: SortedDict[bytes, bytes | None] = SortedDict()
        self._closed = False

    def keep(self, batch: list[Operation]) -> None:
        """Take what a batch replaces; called before it does, under the lock."""
        if self._closed:
            return
        before, rows = self._before, self._rows
        for key, _ in batch:
            if key not in before:
                before[key] = rows.get(key)

    def get(self, key: bytes) -> bytes | None:
        """See Reader."""
        present: bytes | None = self._rows.get(key)
        older: bytes | None = self._before.get(key, present)
        return older

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """See Snapshot."""
        return list(map(self.get, keys))

    def scan(self, start: bytes, stop: bytes, limit: int | None = None) -> Iterator[tuple[bytes, bytes]]:
        """See Reader."""
        return islice(self._scan(start, stop), limit)

    def _scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        while True:
            with self._lock:
                keys = list(islice(self._rows.irange(start, stop, inclusive=(True, False)), _CHUNK))
                end = keys[-1] + b"\0" if len(keys) == _CHUNK else stop
                rows = self._as_before(keys, start, end)
            yield from rows
            if end == stop:
                return
            start = end

    def _as_before(self, keys: list[bytes], start: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        """The rows of a range, of which `keys` are there now."""
        changed = list(self._before.irange(start, end, inclusive=(True, False)))
        if not changed:
            return [(key, self._rows[key]) for key in keys]
        values: dict[bytes, bytes | None] = {key: self._rows[key] for key in keys}
        values.update((key, self._before[key]) for key in changed)
        return [(key, value) for key in sorted(values) if (value := values[key]) is not None]

    def keys(self, start: bytes, stop: bytes) -> Iterator[bytes]:
        """See Reader."""
        return (key for key, _ in self._scan(start, stop))

    def close(self) -> None:
        """See Snapshot."""
        with self._lock:
            self._closed = True
            self._before.clear()
