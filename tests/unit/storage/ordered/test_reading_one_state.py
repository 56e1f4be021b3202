"""Reads that see one state of the disk: none keeps it when it has its answer."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.storage.ordered.disk import UID, Disk, insert

from dueq.core.ports.persistence import (
    AppendLog,
    ReadEntries,
    ReadExpired,
    ReadNames,
    ScanIndex,
    StoreRead,
)
from dueq.storage.ordered.engine import Snapshot

NAMED = np.array([1_000], np.uint64), np.array([1], np.uint64), np.array([0], np.uint16)


@pytest.mark.parametrize(
    "request_of_one_state",
    [
        ReadEntries(1, UID, *NAMED),
        ReadNames(1, UID, [b"h" * 16]),
        ReadExpired(1, UID, 5, 9),
        ScanIndex(1, UID, 0, 0, 9, onward=True),
    ],
    ids=lambda read: type(read).__name__,
)
def test_a_read_lets_go_of_the_state_that_it_has_seen(
    monkeypatch: pytest.MonkeyPatch, request_of_one_state: StoreRead
) -> None:
    """The disk keeps what is deleted meanwhile for as long as somebody may still look at it."""
    disk = Disk()
    disk.store.commit([AppendLog(UID, [insert(1, [b"x"])])])
    snapshot = disk.timeline.snapshot
    begun: list[Snapshot] = []
    open_ones: list[Snapshot] = []

    def begin() -> Snapshot:
        found = snapshot()
        close = found.close

        def closed() -> None:
            open_ones.remove(found)
            close()

        monkeypatch.setattr(found, "close", closed)
        open_ones.append(found)
        begun.append(found)
        return found

    monkeypatch.setattr(disk.timeline, "snapshot", begin)
    assert disk.open().read(request_of_one_state) is not None
    assert (len(begun), open_ones) == (1, [])
