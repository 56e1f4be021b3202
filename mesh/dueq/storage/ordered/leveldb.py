"""LevelDB through plyvel, or its fork plyvel-next on Pythons for which plyvel has no wheels.

An error of LevelDB means either damage or the machine's refusal (no space, no more files, no permission). A refusal
says nothing about the database: it is as good as before once the machine gives the missing resource.
`paranoid_checks` is on: without it LevelDB skips damaged parts of its write-ahead log in silence. Every read checks
what it reads (`verify_checksums`): otherwise LevelDB checks only what it compacts, and a changed byte would be taken
for a row. After a failed write the handle would go on taking writes behind a torn one (LevelDB's DBImpl::Write sets a
background error only for a failed sync). So this engine takes no more writes then. RepairDB is never used.
LevelDB takes a database without the file CURRENT for a new one, and deletes its tables: such a database is not opened.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from dueq.storage.ordered.engine import EngineDamaged, Operation, WriteFailed
from dueq.storage.port import StoreFailed

if sys.version_info >= (3, 13):
    import plyvel_next as plyvel
else:
    import plyvel

_BACKGROUND_NICE: Final = 10
"""Deliveries go first."""
_OF_DATA: Final = frozenset((".ldb", ".sst", ".log"))
"""Endings of files that LevelDB makes once a database exists; its own log is called LOG."""
_BEYOND_ALL: Final = b"\xff" * 16


class LevelDbEngine:
    """One LevelDB database."""

    def __init__(self, folder: Path, *, write_buffer_bytes: int) -> None:
        # LevelDB has one thread in the background, in which it writes down a full buffer (0.1 s of processor time) and
        # compacts. It begins with the first work there is, and inherits the priority of who orders that (sched(7)).
        with _trouble_told(), ThreadPoolExecutor(1, initializer=_be_nice) as opening:
            self._db = opening.submit(_open, folder, write_buffer_bytes).result()
        self._failed = ""

    def get(self, key: bytes) -> bytes | None:
        """See Engine."""
        return _get(self._db, key)

    def scan(self, start: bytes, stop: bytes, limit: int | None = None) -> Iterator[tuple[bytes, bytes]]:
        """See Engine."""
        return _scan(self._db, start, stop, limit)

    def keys(self, start: bytes, stop: bytes) -> Iterator[bytes]:
        """See Engine."""
        return _keys(self._db, start, stop)

    def write(self, operations: Iterable[Operation], *, sync: bool) -> None:
        """See Engine."""
        if self._failed:
            raise StoreFailed(f"an earlier write failed: {self._failed}")
        try:
            batch = self._db.write_batch(sync=sync)
            put, delete = batch.put, batch.delete
            for key, value in operations:
                if value is None:
                    delete(key)
                else:
                    put(key, value)
            batch.write()
        except (plyvel.Error, OSError) as error:
            self._failed = _text(error)
            raise (WriteFailed if _is_damage(error) else StoreFailed)(self._failed) from error

    def snapshot(self) -> LevelDbSnapshot:
        """See Engine."""
        return LevelDbSnapshot(self._db.snapshot())

    def level0_files(self) -> int:
        """See Engine."""
        return int(self._db.get_property(b"leveldb.num-files-at-level0") or 0)

    def close(self) -> None:
        """See Engine."""
        self._db.close()


class LevelDbSnapshot:
    """A LevelDB snapshot."""

    def __init__(self, snapshot: object) -> None:
        self._snapshot = snapshot

    def get(self, key: bytes) -> bytes | None:
        """See Reader."""
        return _get(self._snapshot, key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """See Snapshot."""
        with _trouble_told():
            return list(map(partial(self._snapshot.get, verify_checksums=True), keys))  # type: ignore[attr-defined]

    def scan(self, start: bytes, stop: bytes, limit: int | None = None) -> Iterator[tuple[bytes, bytes]]:
        """See Reader."""
        return _scan(self._snapshot, start, stop, limit)

    def keys(self, start: bytes, stop: bytes) -> Iterator[bytes]:
        """See Reader."""
        return _keys(self._snapshot, start, stop)

    def close(self) -> None:
        """See Snapshot."""
        self._snapshot.close()  # type: ignore[attr-defined]


def _be_nice() -> None:
    with suppress(OSError):  # where that is forbidden, deliveries are only a little later
        nice = max(_BACKGROUND_NICE, os.getpriority(os.PRIO_PROCESS, 0))
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice)


def _open(folder: Path, write_buffer_bytes: int) -> Any:
    if not (folder / "CURRENT").exists() and any(file.suffix in _OF_DATA for file in folder.glob("*")):
        raise EngineDamaged(f"{folder.name}/ has lost a file: CURRENT is gone")
    database = plyvel.DB(
        str(folder),
        create_if_missing=True,
        paranoid_checks=True,
        write_buffer_size=write_buffer_bytes,
        max_open_files=128,
        bloom_filter_bits=10,
        compression=None,  # it halves the index, and costs as much again as all else that compaction does
    )
    database.compact_range(start=_BEYOND_ALL, stop=_BEYOND_ALL)  # work for the thread
    return database


def _get(source: object, key: bytes) -> bytes | None:
    with _trouble_told():
        value: bytes | None = source.get(key, verify_checksums=True)  # type: ignore[attr-defined]
        return value


@contextmanager
def _trouble_told() -> Iterator[None]:
    """Raise EngineDamaged, or StoreFailed where the machine refuses; a block that cannot be read is damage."""
    try:
        yield
    except plyvel.Error as error:
        raise (EngineDamaged if _is_damage(error) else StoreFailed)(_text(error)) from error


def _is_damage(error: Exception) -> bool:
    """Whether LevelDB could not read something, of which the machine lacks nothing."""
    return not isinstance(error, OSError) or os.strerror(errno.EIO) in _text(error)


def _text(error: Exception) -> str:
    """The text of LevelDB's error, which plyvel passes on as bytes."""
    first = error.args[0] if error.args else ""
    return first.decode(errors="replace") if isinstance(first, bytes) else str(error)


def _iterator(source: object, start: bytes, stop: bytes, **options: bool) -> Any:
    return source.iterator(start=start, stop=stop, verify_checksums=True, **options)  # type: ignore[attr-defined]


def _scan(source: object, start: bytes, stop: bytes, limit: int | None) -> Iterator[tuple[bytes, bytes]]:
    with _trouble_told(), _iterator(source, start, stop) as rows:
        for count, row in enumerate(rows):
            if limit is not None and count >= limit:
                return
            yield row


def _keys(source: object, start: bytes, stop: bytes) -> Iterator[bytes]:
    with _trouble_told(), _iterator(source, start, stop, include_value=False) as keys:
        yield from keys
