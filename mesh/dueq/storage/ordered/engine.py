"""The one small interface that a store is reached through: ordered keys, atomic batches, snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from dueq.storage.port import StoreFailed

Operation = tuple[bytes, bytes | memoryview | None]
"""(key, value) puts, (key, None) deletes."""


class Reader(Protocol):
    """A consistent view, or the present state."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value, None when there is none."""
        ...

    def scan(self, start: bytes, stop: bytes, limit: int | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield (key, value) with start ≤ key < stop, ascending, at most `limit`."""
        ...

    def keys(self, start: bytes, stop: bytes) -> Iterator[bytes]:
        """Yield the keys with start ≤ key < stop, ascending."""
        ...


class Snapshot(Reader, Protocol):
    """The state at one instant."""

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, None where there is none: much quicker than one by one."""
        ...

    def close(self) -> None:
        """Give it up."""
        ...


class Engine(Reader, Protocol):
    """An ordered key-value database. Reads are safe beside one writer."""

    def write(self, operations: Iterable[Operation], *, sync: bool) -> None:
        """Apply the operations in order, all or none of them; `sync`: durable when this returns.

        Raises:
            StoreFailed: this write, or an earlier one, has failed: the engine takes no more. WriteFailed, if that may
                be due to damage.
        """
        ...

    def snapshot(self) -> Snapshot:
        """Return a view of the present state."""
        ...

    def level0_files(self) -> int:
        """Return how many files wait for their first compaction; 0 where there is no such thing."""
        ...

    def close(self) -> None:
        """Close it; nothing may be called afterwards."""
        ...


class EngineDamaged(Exception):
    """The bytes read are not the bytes written: a file of the database is damaged."""


class WriteFailed(StoreFailed):
    """A write failed, and not for want of anything: the engine may have met damage where it moves rows by itself."""
