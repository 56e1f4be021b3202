"""Whose folder is this? The lock, the store's id, and what happens to a folder that cannot be trusted.

A damaged LevelDB is never repaired in place and never deleted, nor are two databases of which one has lost something:
both are renamed together (`timeline.damaged-1`, …) and a fresh store with a new id is begun. To the mesh that is a
stranger, which catches up from the others. One that cannot be opened for want of space or files is not damaged, and
stays what it is.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

from dueq.errors import InvalidRequest
from dueq.storage.ordered import layout
from dueq.storage.ordered.aside import go_on_putting_aside, put_aside
from dueq.storage.ordered.engine import Engine, EngineDamaged, Operation
from dueq.storage.ordered.format import check_format, format_row
from dueq.storage.ordered.leveldb import LevelDbEngine
from dueq.storage.ordered.pair import Half, claim, paired
from dueq.storage.ordered.space import Buffers


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
        """Lock the folder, open both databases, check whose they are and that they belong together.

        Args:
            folder, broker_id, cluster_id: see OrderedStore.open.
            verify: reads what a start needs; raises what it has met.

        Raises:
            InvalidRequest, UnknownVersion, StoreFailed: see OrderedStore.open.
        """
        folder.mkdir(parents=True, exist_ok=True)
        lock = _lock(folder)
        try:
            set_aside = go_on_putting_aside(folder)
            try:
                halves = _open_halves(folder, broker_id, cluster_id, verify)
            except EngineDamaged as error:
                set_aside = f"{error}; kept as {put_aside(folder)}"
                halves = _open_halves(folder, broker_id, cluster_id, verify)
            identity = cls(
                _claim(*halves, broker_id, cluster_id, os.urandom(8).hex()), folder, lock, set_aside
            )
        except BaseException:
            lock.close()
            raise
        return identity, *halves

    @classmethod
    def on(
        cls,
        timeline: Engine,
        payload: Engine,
        broker_id: str,
        cluster_id: str,
        store_id: str,
        verify: Callable[[Engine, Engine], None],
    ) -> tuple[Identity, Engine, Engine]:
        """The same on engines that are there already.

        Raises:
            EngineDamaged: they do not belong together.
        """
        halves = _trusted(timeline, payload, broker_id, cluster_id, verify)
        return cls(_claim(*halves, broker_id, cluster_id, store_id), None, None), *halves

    def bind_cluster(self, timeline: Engine, cluster_id: str) -> None:
        """See OrderedStore.bind_cluster."""
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


def _open_halves(
    folder: Path, broker_id: str, cluster_id: str, verify: Callable[[Engine, Engine], None]
) -> tuple[Half, Half]:
    timeline, payload = _open_engines(folder, broker_id)
    try:
        return _trusted(timeline, payload, broker_id, cluster_id, verify)
    except BaseException:
        timeline.close()
        payload.close()
        raise


def _trusted(
    timeline: Engine,
    payload: Engine,
    broker_id: str,
    cluster_id: str,
    verify: Callable[[Engine, Engine], None],
) -> tuple[Half, Half]:
    """Look at whose they are before anything is swept or set aside."""
    _check_owner(timeline, broker_id, cluster_id)
    halves = paired(timeline, payload)
    verify(*halves)
    return halves


def _check_owner(timeline: Engine, broker_id: str, cluster_id: str) -> None:
    if timeline.get(layout.STORE_ID) is None:
        return
    check_format(timeline)
    owner = (timeline.get(layout.BROKER_ID) or b"").decode()
    if owner != broker_id:
        raise InvalidRequest(f"the data folder belongs to broker {owner!r}, not to {broker_id!r}")
    if cluster_id:
        _refuse_other_cluster(timeline, cluster_id)


def _claim(timeline: Half, payload: Half, broker_id: str, cluster_id: str, fresh_id: str) -> str:
    """Write format, broker and cluster into an empty store, and its name into both; returns the store id."""
    store_id = timeline.get(layout.STORE_ID)
    rows: list[Operation] = []
    if store_id is None:
        rows = [
            format_row(),
            (layout.BROKER_ID, broker_id.encode()),
        ]
    if cluster_id and timeline.get(layout.CLUSTER_ID) is None:
        rows.append((layout.CLUSTER_ID, cluster_id.encode()))
    name = fresh_id if store_id is None else store_id.decode()
    claim(timeline, payload, rows, name)
    return name


def _check_cluster(timeline: Engine, cluster_id: str) -> None:
    if timeline.get(layout.CLUSTER_ID) is None:
        timeline.write([(layout.CLUSTER_ID, cluster_id.encode())], sync=True)
    _refuse_other_cluster(timeline, cluster_id)


def _refuse_other_cluster(timeline: Engine, cluster_id: str) -> None:
    found = timeline.get(layout.CLUSTER_ID)
    if found is not None and found.decode() != cluster_id:
        raise InvalidRequest(f"the data folder belongs to cluster {found.decode()}, not to {cluster_id}")
