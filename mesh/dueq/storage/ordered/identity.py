"""Whose folder is this? The lock, the store's id, and the fate of a folder that cannot be trusted.

A damaged LevelDB is never repaired in place and never deleted. Nor is a pair of databases of which one has lost
something. Both databases are renamed together (`timeline.damaged-1`, …) and a fresh store with a new id is begun. To
the mesh that is a stranger, which catches up from the others. A store that cannot be opened for want of space or files
is not damaged, and stays as it is.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple

from dueq.errors import InvalidRequest
from dueq.storage.ordered import layout
from dueq.storage.ordered.aside import go_on_putting_aside, put_aside
from dueq.storage.ordered.engine import Engine, EngineDamaged, Operation
from dueq.storage.ordered.format import FORMATS, Formats, check_format, format_row
from dueq.storage.ordered.leveldb import LevelDbEngine
from dueq.storage.ordered.pair import Half, claim, paired
from dueq.storage.ordered.space import Buffers
from dueq.storage.ordered.upgrading import upgrade


class Opener(NamedTuple):
    """The opener of a store: broker, cluster ("" while that is not known), and the formats that the build can open."""

    broker_id: str
    cluster_id: str
    formats: Formats = FORMATS


class Identity:
    """Whose store it is, and the lock on its folder.

    Attributes:
        store_id: drawn with the store.
        set_aside: why an older store was put aside; "" if none was.
        upgraded: which format it had before this start; "" if that was the present one.
        folder: None for a store that is not in a folder.
    """

    def __init__(
        self,
        store_id: str,
        folder: Path | None,
        lock: IO[str] | None,
        set_aside: str = "",
        upgraded: str = "",
    ) -> None:
        self.store_id, self.folder = store_id, folder
        self.set_aside, self.upgraded = set_aside, upgraded
        self._lock = lock

    @classmethod
    def open(
        cls, folder: Path, opener: Opener, verify: Callable[[Engine, Engine], None]
    ) -> tuple[Identity, Engine, Engine]:
        """Lock the folder, open both databases, check whose they are and that they belong together, and upgrade them.

        Args:
            folder, opener: see OrderedStore.open.
            verify: reads the rows that a start needs; raises the error that it has met.

        Raises:
            InvalidRequest, UnknownVersion, StoreFailed: see OrderedStore.open.
        """
        folder.mkdir(parents=True, exist_ok=True)
        lock = _lock(folder)
        try:
            set_aside = go_on_putting_aside(folder)
            try:
                found = _open_halves(folder, opener, verify)
            except EngineDamaged as error:
                set_aside = f"{error}; kept as {put_aside(folder)}"
                found = _open_halves(folder, opener, verify)
            timeline, payload, upgraded = found
            store_id = _claim(timeline, payload, opener, os.urandom(8).hex())
        except BaseException:
            lock.close()
            raise
        return cls(store_id, folder, lock, set_aside, upgraded), timeline, payload

    @classmethod
    def on(
        cls,
        timeline: Engine,
        payload: Engine,
        opener: Opener,
        store_id: str,
        verify: Callable[[Engine, Engine], None],
    ) -> tuple[Identity, Engine, Engine]:
        """The same on engines that are there already.

        Raises:
            EngineDamaged: they do not belong together.
        """
        first, second, upgraded = _trusted(timeline, payload, opener, verify)
        store_id = _claim(first, second, opener, store_id)
        return cls(store_id, None, None, upgraded=upgraded), first, second

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
    except BlockingIOError as error:
        lock.close()
        raise InvalidRequest(f"the data folder {folder} is in use by another process") from error
    except OSError:  # a file system that has no locks, say
        lock.close()
        raise
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
    folder: Path, opener: Opener, verify: Callable[[Engine, Engine], None]
) -> tuple[Half, Half, str]:
    timeline, payload = _open_engines(folder, opener.broker_id)
    try:
        return _trusted(timeline, payload, opener, verify)
    except BaseException:
        timeline.close()
        payload.close()
        raise


def _trusted(
    timeline: Engine, payload: Engine, opener: Opener, verify: Callable[[Engine, Engine], None]
) -> tuple[Half, Half, str]:
    """Look at whose they are, and that they are whole, before anything is upgraded, swept or set aside."""
    found = _check_owner(timeline, opener)
    halves = paired(timeline, payload)
    if found:
        upgrade(*halves, opener.formats)
    verify(*halves)
    return *halves, str(found) if found not in (0, opener.formats.newest) else ""


def _check_owner(timeline: Engine, opener: Opener) -> int:
    """Return the format of a store that may be opened; 0: it is empty."""
    if timeline.get(layout.STORE_ID) is None:
        return 0
    found = check_format(timeline, opener.formats)
    owner = (timeline.get(layout.BROKER_ID) or b"").decode()
    if owner != opener.broker_id:
        raise InvalidRequest(f"the data folder belongs to broker {owner!r}, not to {opener.broker_id!r}")
    if opener.cluster_id:
        _refuse_other_cluster(timeline, opener.cluster_id)
    return found


def _claim(timeline: Half, payload: Half, opener: Opener, fresh_id: str) -> str:
    """Write format, broker and cluster into an empty store, and its name into both; returns the store id."""
    store_id = timeline.get(layout.STORE_ID)
    rows: list[Operation] = []
    if store_id is None:
        rows = [
            format_row(opener.formats.newest),
            (layout.BROKER_ID, opener.broker_id.encode()),
        ]
    if opener.cluster_id and timeline.get(layout.CLUSTER_ID) is None:
        rows.append((layout.CLUSTER_ID, opener.cluster_id.encode()))
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
