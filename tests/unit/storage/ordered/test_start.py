"""What a start reads: it takes no longer for millions of waiting messages than for none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.storage.ordered.disk import UID, Disk, entries, insert

from dueq.core.ports.persistence import AppendLog, SaveCheckpoint
from dueq.storage.ordered import layout

WAITING = 500


def test_a_start_reads_no_message_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read later, the soonest first, while consumers are served."""
    disk = Disk()
    disk.store.commit([AppendLog(UID, [insert(1, [b"xy"] * WAITING)])])
    put = entries(*((1, row, 1_000 + row) for row in range(WAITING)), block_rows=WAITING)
    disk.store.commit([SaveCheckpoint(UID, 1, 0, put=put)])
    read: list[bytes] = []
    scan = disk.timeline.scan

    def noted(start: bytes, stop: bytes, limit: int | None = None) -> Iterator[tuple[bytes, bytes]]:
        for key, value in scan(start, stop, limit):
            read.append(key)
            yield key, value

    monkeypatch.setattr(disk.timeline, "scan", noted)
    [recovered] = disk.open().recover()
    assert (recovered.uid, recovered.applied) == (UID, 1)
    index = layout.head(UID, b"i")
    assert [key for key in read if key.startswith(index)] == []
    assert len(read) < WAITING
