"""Whose folder is this? The lock, the store's id, and what happens to a folder that cannot be trusted.

A damaged LevelDB is never repaired in place and never deleted: both databases are renamed together
(`timeline.damaged-1`, …) and a fresh store with a new id is begun. To the mesh that is a stranger, which catches
up from the others. One that cannot be opened for want of space or files is not damaged, and stays what it is.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

from dueq.errors import InvalidRequest, UnknownVersion
from dueq.storage import layout
from dueq.storage.engine import Engine, EngineDamaged
from dueq.storage.leveldb import LevelDbEngine
from dueq.storage.space import Buffers


class Identity:
    """Whose store it is, and the lock on its folder.

    Attributes:
        store_id: drawn with the store.
        set_aside: why an older store was put aside; "" if none was.
        folder: None for a store that is not in a folder.
    """

    def __init__(self, store_id: str, folder: Path | None, lock: IO[str] | None, set_aside: str = "") -> None:
        self.store_id, self.folder, self.set_aside = store_id, folder, set_aside
        self._lock = lock

    @classmethod
    def open(
        cls, folder: Path, broker_id: str, cluster_id: str, verify: Callable[[Engine, Engine], None]
    ) -> tuple[Identity, Engine, Engine]:
        """Lock the folder, open both databases, check whose they are.

        Args:
            folder, broker_id, cluster_id: see Store.open.
            verify: reads what a start needs; closes both and raises what it has met.

        Raises:
            InvalidRequest, UnknownVersion, StoreFailed: see Store.open.
        """
        folder.mkdir(parents=True, exist_ok=True)
        lock = _lock(folder)
        set_aside = ""
        try:
            try:
                engines = _open_engines(folder, broker_id)
                verify(*engines)
            except EngineDamaged as error:
                set_aside = f"{error}; kept as {_put_aside(folder)}"
                engines = _open_engines(folder, broker_id)
                verify(*engines)
            identity = cls(
                _claim(engines[0], broker_id, cluster_id, os.urandom(8).hex()), folder, lock, set_aside
            )
        except BaseException:
            lock.close()
            raise
        return identity, *engines

    @classmethod
    def on(cls, timeline: Engine, broker_id: str, cluster_id: str, store_id: str) -> Identity:
        """The same on engines that are there already."""
        return cls(_claim(timeline, broker_id, cluster_id, store_id), None, None)

    def bind_cluster(self, timeline: Engine, cluster_id: str) -> None:
        """See Store.bind_cluster."""
        _check_cluster(timeline, cluster_id)

    def close(self) -> None:
        """Let the folder go."""
        if self._lock is not None:
            self._lock.close()


def _lock(folder: Path) -> IO[str]:
    lock = (folder / "lock").open("a+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise InvalidRequest(f"the data folder {folder} is in use by another process") from error
    return lock


def _open_engines(folder: Path, broker_id: str) -> tuple[Engine, Engine]:
    buffers = Buffers.on(folder).of(broker_id)
    timeline = LevelDbEngine(folder / "timeline", write_buffer_bytes=buffers.timeline)
    try:
        payload = LevelDbEngine(folder / "payload", write_buffer_bytes=buffers.payload)
    except BaseException:
        timeline.close()
        raise
    return timeline, payload


def _put_aside(folder: Path) -> str:
    number = 1
    while any((folder / f"{name}.damaged-{number}").exists() for name in ("timeline", "payload")):
        number += 1
    for name in ("timeline", "payload"):
        if (folder / name).exists():
            (folder / name).rename(folder / f"{name}.damaged-{number}")
    return f"{folder}/{{timeline,payload}}.damaged-{number}"


def _claim(timeline: Engine, broker_id: str, cluster_id: str, fresh_id: str) -> str:
    """Check format, broker and cluster of a store, or write them into an empty one; returns the store id."""
    store_id = timeline.get(layout.STORE_ID)
    if store_id is None:
        rows = [
            (layout.STORE_FORMAT, str(layout.FORMAT).encode()),
            (layout.STORE_ID, fresh_id.encode()),
            (layout.BROKER_ID, broker_id.encode()),
        ]
        if cluster_id:
            rows.append((layout.CLUSTER_ID, cluster_id.encode()))
        timeline.write(rows, sync=True)
        return fresh_id
    found = timeline.get(layout.STORE_FORMAT) or b"?"
    if found != str(layout.FORMAT).encode():
        raise UnknownVersion(f"the store has format {found.decode()!r}; this build knows {layout.FORMAT}")
    owner = (timeline.get(layout.BROKER_ID) or b"").decode()
    if owner != broker_id:
        raise InvalidRequest(f"the data folder belongs to broker {owner!r}, not to {broker_id!r}")
    if cluster_id:
        _check_cluster(timeline, cluster_id)
    return store_id.decode()


def _check_cluster(timeline: Engine, cluster_id: str) -> None:
    found = timeline.get(layout.CLUSTER_ID)
    if found is None:
        timeline.write([(layout.CLUSTER_ID, cluster_id.encode())], sync=True)
    elif found.decode() != cluster_id:
        raise InvalidRequest(f"the data folder belongs to cluster {found.decode()}, not to {cluster_id}")
