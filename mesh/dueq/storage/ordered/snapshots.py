"""A partition at one applied sequence, read out part by part for a follower that must begin anew.

Snapshots of both databases are taken under the commit lock, so they fit each other. The checkpoint travels: index,
leases, answers, forecast, counters, garbage, and the payloads of records up to it. The log never does: the follower
gets it from the leader. Positions are raw keys, so no state is converted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any

from dueq.core.ports.persistence import CloseSnapshot, ReadSnapshot, SnapshotRead, StoreRead
from dueq.errors import StoreDamaged
from dueq.limits import SNAPSHOT_IDLE_MS
from dueq.storage.ordered import layout
from dueq.storage.ordered.engine import Engine, EngineDamaged, Operation, Snapshot
from dueq.storage.ordered.rows import pack_row, read_rows


class _Open:
    """One snapshot that is being read."""

    def __init__(self, uid: int, timeline: Snapshot, payload: Snapshot, without_lost: bool) -> None:
        self.uid, self._timeline, self._payload = uid, timeline, payload
        self._passed_over = (EngineDamaged,) if without_lost else ()
        checkpoint = timeline.get(layout.head(uid, b"C"))
        self.applied, self.applied_epoch = (
            layout.CHECKPOINT.unpack_from(checkpoint)[:2] if checkpoint else (0, 0)
        )
        self._rows = self._all_rows()
        self._next: tuple[int, bytes, bytes] | None = next(self._rows, None)
        self.part = -1
        self.data = b""
        self.last = False
        self.used_us = 0

    def _all_rows(self) -> Iterator[tuple[int, bytes, bytes]]:
        checkpoint = layout.head(self.uid, b"C")
        for bounds in ((checkpoint, layout.after(checkpoint)), layout.state_range(self.uid)):
            for key, value in self._timeline.scan(*bounds):
                yield 0, key, value
        first = layout.block_key(self.uid, 0, 0)
        behind = layout.block_key(self.uid, self.applied + 1, 0)
        for key, value in self._payload.scan(first, behind):
            yield 1, key, value
        named = layout.head(self.uid, b"v")
        for key in self._timeline.keys(named, layout.after(named)):
            prefix = layout.chunk_key(self.uid, int.from_bytes(key[4:], "big"), 0)[:-2]
            with suppress(*self._passed_over):
                for chunk, value in self._payload.scan(prefix, layout.after(prefix)):
                    yield 1, chunk, value

    def advance(self, bytes_max: int) -> None:
        """Read the next part."""
        rows: list[bytes] = []
        weight = 0
        while self._next is not None:
            row = pack_row(*self._next)
            if rows and weight + len(row) > bytes_max:
                break
            rows.append(row)
            weight += len(row)
            self._next = next(self._rows, None)
        self.part += 1
        self.data = b"".join(rows)
        self.last = self._next is None

    def close(self) -> None:
        """Give both snapshots up."""
        self._rows = iter(())
        self._timeline.close()
        self._payload.close()


class Snapshots:
    """All snapshots that are being read; the last part of each can be read again."""

    def __init__(self, timeline: Engine, payload: Engine, lock: AbstractContextManager[Any]) -> None:
        self._timeline, self._payload, self._lock = timeline, payload, lock
        self._open: dict[int, _Open] = {}
        self._number = 0
        self._now_us = 0

    @staticmethod
    def serves(request: StoreRead) -> bool:
        """Whether a read is one of snapshots."""
        return isinstance(request, ReadSnapshot | CloseSnapshot)

    def read(self, request: StoreRead) -> SnapshotRead | None:
        """Read a part, or close."""
        if isinstance(request, CloseSnapshot):
            self._close(request.snapshot)
            return None
        assert isinstance(request, ReadSnapshot)
        number = request.snapshot or self._begin(request.uid, request.without_lost)
        found = self._open.get(number)
        if found is not None and request.part == found.part + 1 and not found.last:
            found.advance(request.bytes_max)
        if found is None or found.part != request.part or found.uid != request.uid:
            return SnapshotRead(
                request.token, request.uid, number, request.part, 0, 0, b"", False, failed=True
            )
        found.used_us = self._now_us
        return SnapshotRead(
            request.token,
            request.uid,
            number,
            found.part,
            found.applied,
            found.applied_epoch,
            found.data,
            found.last,
        )

    def _begin(self, uid: int, without_lost: bool) -> int:
        self._number += 1
        with self._lock:
            self._open[self._number] = _Open(
                uid, self._timeline.snapshot(), self._payload.snapshot(), without_lost
            )
        self._open[self._number].used_us = self._now_us
        return self._number

    def _close(self, number: int) -> None:
        found = self._open.pop(number, None)
        if found is not None:
            found.close()

    def expire(self, mono_us: int) -> None:
        """Close what nobody has read from for a while."""
        self._now_us = mono_us
        for number, found in list(self._open.items()):
            if mono_us - found.used_us > SNAPSHOT_IDLE_MS * 1000:
                self._close(number)

    def close(self) -> None:
        """Close all."""
        for number in list(self._open):
            self._close(number)


def unpack_rows(uid: int, data: bytes | memoryview) -> tuple[list[Operation], list[Operation]]:
    """Take a part apart into puts of both databases.

    Raises:
        StoreDamaged: it is not what a leader sends: cut short, or rows of another partition.
    """
    puts: tuple[list[Operation], list[Operation]] = ([], [])
    checkpoint, (first, behind) = layout.head(uid, b"C"), layout.state_range(uid)
    bodies = layout.head(uid, b"b"), layout.head(uid, b"u")
    try:
        for database, key, value in read_rows(data):
            known = first <= key < behind or key == checkpoint if database == 0 else key[:4] in bodies
            if not known:
                raise StoreDamaged(f"a snapshot of partition {uid} holds the key {key.hex()}")
            puts[database].append((key, value))
    except ValueError as error:
        raise StoreDamaged(f"a snapshot of partition {uid}: {error}") from error
    return puts
