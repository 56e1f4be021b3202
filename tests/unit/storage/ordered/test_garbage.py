"""Payloads of ended messages: their space comes back, and not before nobody can need them any more."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from tests.unit.storage.ordered.disk import UID, Disk, barrier, crash_after, entries, insert

from dueq.core.ports.entry import FLAG_UPLOAD, Entries
from dueq.core.ports.persistence import (
    AppendLog,
    CreatePartition,
    DropUpload,
    InstallBegin,
    InstallEnd,
    InstallRows,
    PutChunk,
    ReadSnapshot,
    SaveCheckpoint,
    SaveMeta,
    SnapshotRead,
    TrimLog,
)
from dueq.storage.ordered import garbage, layout
from dueq.storage.port import StoreFailed

BLOCK = layout.block_key(UID, 1, 0)


@pytest.fixture
def disk() -> Disk:
    return Disk()


def listed(disk: Disk) -> list[bytes]:
    return list(disk.timeline.keys(layout.head(UID, b"g"), layout.head(UID, b"h")))


def ending(disk: Disk, trimmed_first: bool, rows: int = 1) -> Entries:
    """One message in record 1, which the log may have lost; returns it, to be finished by a checkpoint at 3."""
    first = insert(1, [b"xy"] * rows)
    disk.store.commit([AppendLog(UID, [first, barrier(2, 1), barrier(3, 1)]), SaveMeta(UID, 1, 3)])
    live = entries(*[(1, row, 1_000) for row in range(rows)], block_rows=rows)
    disk.store.commit([SaveCheckpoint(UID, 2, 0, put=live)])
    if trimmed_first:
        disk.store.commit([TrimLog(UID, 3)])
    return live


def test_a_payload_stays_for_as_long_as_the_log_holds_its_record(disk: Disk) -> None:
    """A follower may still have to be sent both."""
    live = ending(disk, trimmed_first=False)
    disk.store.commit([SaveCheckpoint(UID, 3, 0, finished=live)])
    assert disk.payload.get(BLOCK) is not None
    disk.store.commit([TrimLog(UID, 3)])
    assert disk.payload.get(BLOCK) is None
    assert listed(disk) == []


def test_a_payload_whose_record_has_left_the_log_goes_with_the_checkpoint_that_ends_it(disk: Disk) -> None:
    """Perhaps nothing is ever written after it: the space must not wait for the log to grow and be trimmed."""
    live = ending(disk, trimmed_first=True)
    assert disk.payload.get(BLOCK) is not None
    disk.store.commit([SaveCheckpoint(UID, 3, 0, finished=live)])
    assert disk.payload.get(BLOCK) is None
    assert listed(disk) == []


def test_a_block_goes_when_its_last_message_has_ended(disk: Disk) -> None:
    live = ending(disk, trimmed_first=True, rows=3)
    disk.store.commit([SaveCheckpoint(UID, 3, 0, finished=live[:1])])
    assert disk.payload.get(BLOCK) is not None
    disk.store.commit([SaveCheckpoint(UID, 3, 0, finished=live[1:])])
    assert disk.payload.get(BLOCK) is None


@pytest.mark.parametrize("last", [0, 1])
def test_a_block_stays_for_its_last_message_alone(disk: Disk, last: int) -> None:
    """That one is to be delivered yet, and would have lost its payload."""
    live = ending(disk, trimmed_first=True, rows=2)
    disk.store.commit([SaveCheckpoint(UID, 3, 0, finished=live[1 - last : 2 - last])])
    assert disk.payload.get(BLOCK) == b"xyxy"
    disk.store.commit([SaveCheckpoint(UID, 3, 0, finished=live[last : last + 1])])
    assert disk.payload.get(BLOCK) is None


def test_the_payload_of_the_first_record_that_the_log_holds_stays(disk: Disk) -> None:
    disk.store.commit([AppendLog(UID, [insert(1, [b"xy"]), insert(2, [b"xy"]), barrier(3, 1)])])
    disk.store.commit([SaveCheckpoint(UID, 3, 0, finished=entries((1, 0, 1_000), (2, 0, 1_000)))])
    disk.store.commit([TrimLog(UID, 2)])
    disk.open().recover()
    disk.store.commit([SaveMeta(UID, 1, 3)])
    blocks = [disk.payload.get(layout.block_key(UID, sequence, 0)) for sequence in (1, 2)]
    assert blocks == [None, b"xy"]


def test_of_messages_that_have_ended_one_by_one_no_row_is_left(disk: Disk) -> None:
    live = ending(disk, trimmed_first=True, rows=3)
    live["flags"][2], live["place"][2] = FLAG_UPLOAD, 77
    live["block_rows"] = [2, 2, 1]
    disk.store.commit([PutChunk(UID, 77, 0, b"c"), SaveCheckpoint(UID, 2, 0, put=live)])
    for row in range(3):
        disk.store.commit([SaveCheckpoint(UID, 3, 0, finished=live[row : row + 1])])
    assert list(disk.payload.keys(*layout.whole(UID))) == []
    assert {key[3:4] for key in disk.timeline.keys(*layout.whole(UID))}.isdisjoint((b"g", b"n", b"v"))


def test_all_chunks_of_an_upload_go_with_it(disk: Disk) -> None:
    live = ending(disk, trimmed_first=True)
    live["flags"], live["place"] = FLAG_UPLOAD, 77
    disk.store.commit([PutChunk(UID, upload, chunk, b"c") for upload in (77, 78) for chunk in (0, 1)])
    disk.store.commit([SaveCheckpoint(UID, 3, 0, finished=live)])
    chunks = disk.payload.keys(layout.head(UID, b"u"), layout.head(UID, b"v"))
    assert list(chunks) == [layout.chunk_key(UID, 78, chunk) for chunk in (0, 1)]


def test_an_upload_that_a_sweep_will_delete_is_nobodys_orphan(disk: Disk) -> None:
    """An orphan is dropped after a while; this one may still have to be sent to a follower."""
    live = ending(disk, trimmed_first=False)
    live["flags"], live["place"] = FLAG_UPLOAD, 77
    disk.store.commit([PutChunk(UID, upload, 0, b"c") for upload in (77, 78)])
    disk.store.commit([SaveCheckpoint(UID, 3, 0, finished=live)])
    [found] = disk.open().recover()
    assert found.uploads == [78]


@pytest.mark.parametrize("writes", range(4))
def test_a_crash_around_the_sweep_leaves_a_live_message_its_payload_and_an_ended_one_no_space(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    live = ending(disk, trimmed_first=True)
    with monkeypatch.context() as patch:
        crash_after(disk, patch, writes)
        with contextlib.suppress(StoreFailed):
            disk.store.commit([SaveCheckpoint(UID, 3, 0, finished=live)])
    [found] = disk.open().recover()
    ended = found.applied == 3
    assert ended == (writes > 0)
    disk.store.commit([SaveMeta(UID, 1, 3)])
    assert (disk.payload.get(BLOCK) is None) == ended
    assert listed(disk) == []


def test_what_has_ended_is_deleted_in_commits_of_bounded_size(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "SWEEP_MAX", 2)
    disk.store.commit([AppendLog(UID, [insert(n, [b"xy"]) for n in range(1, 6)]), TrimLog(UID, 6)])
    disk.store.commit([SaveCheckpoint(UID, 5, 0, finished=entries(*[(n, 0, 1_000) for n in range(1, 6)]))])
    left = []
    for commit in range(3):
        left.append(len(listed(disk)))
        disk.store.commit([SaveMeta(UID, 1, 5 + commit)])
    assert left == [3, 1, 0]
    assert list(disk.payload.keys(*layout.whole(UID))) == []


def test_a_commit_reads_few_bytes_of_uploads_that_have_ended(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LevelDB reads a chunk to get to the next one: a hundred of 64 MiB held up every partition."""
    monkeypatch.setattr(garbage, "SWEEP_BYTES", 25_000)
    uploads = [77, 78, 79]
    disk.store.commit([PutChunk(UID, upload, n, bytes(10_000)) for upload in uploads for n in range(4)])
    ended = entries(*[(n, 0, 1_000) for n in (1, 2, 3)])
    ended["flags"], ended["place"] = FLAG_UPLOAD, uploads
    disk.store.commit([AppendLog(UID, [insert(n, [b""]) for n in (1, 2, 3)]), TrimLog(UID, 4)])
    left = []
    disk.store.commit([SaveCheckpoint(UID, 3, 0, finished=ended)])
    for commit in range(5):
        left.append((len(list(disk.payload.keys(*layout.whole(UID)))), len(listed(disk))))
        if commit == 1:
            disk.open().recover()
        disk.store.commit([SaveMeta(UID, 1, 3)])
    assert left == [(9, 3), (6, 2), (3, 1), (0, 1), (0, 0)]


def test_uploads_that_are_dropped_together_are_looked_up_once(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a follower holds the log back, a million pieces may be listed: each drop took a second."""
    ended = entries(*[(n, 0, 1_000) for n in range(1, 41)])
    disk.store.commit([AppendLog(UID, [insert(n, [b"xy"]) for n in range(1, 41)])])
    disk.store.commit([SaveCheckpoint(UID, 40, 0, finished=ended)])
    disk.store.commit([PutChunk(UID, upload, 0, b"chunk") for upload in range(20)])
    disk.open().recover()
    read: list[bytes] = []
    keys = disk.store._timeline.keys

    def noted(start: bytes, stop: bytes) -> Iterator[bytes]:
        for key in keys(start, stop):
            read.append(key)
            yield key

    monkeypatch.setattr(disk.store._timeline, "keys", noted)
    disk.store.commit([DropUpload(UID, upload) for upload in range(20)])
    assert list(disk.payload.keys(layout.head(UID, b"u"), layout.head(UID, b"v"))) == []
    assert len(read) <= 50


def test_an_upload_whose_message_ends_between_two_drops_stays_for_the_log(disk: Disk) -> None:
    disk.store.commit([PutChunk(UID, upload, 0, b"chunk") for upload in (1, 2)])
    ended = entries((1, 0, 1_000))
    ended["flags"], ended["place"] = FLAG_UPLOAD, 2
    disk.store.commit([AppendLog(UID, [insert(1, [b""])])])
    disk.store.commit([DropUpload(UID, 1), SaveCheckpoint(UID, 1, 0, finished=ended), DropUpload(UID, 2)])
    assert [disk.payload.get(layout.chunk_key(UID, upload, 0)) for upload in (1, 2)] == [None, b"chunk"]


def test_what_one_partition_still_has_to_send_is_no_matter_of_another_that_drops_uploads(disk: Disk) -> None:
    live = ending(disk, trimmed_first=False)
    live["flags"], live["place"] = FLAG_UPLOAD, 77
    other = UID + 1
    disk.store.commit([CreatePartition(other, "u"), PutChunk(other, 5, 0, b"c"), PutChunk(UID, 77, 0, b"c")])
    disk.store.commit([SaveCheckpoint(UID, 3, 0, finished=live)])
    disk.store.commit([DropUpload(other, 5), DropUpload(UID, 77)])
    chunks = [disk.payload.get(layout.chunk_key(*upload, 0)) for upload in ((other, 5), (UID, 77))]
    assert chunks == [None, b"c"]


def test_a_replica_that_was_filled_keeps_nothing_of_what_had_ended_at_its_leader(disk: Disk) -> None:
    """The leader kept it for its log, which does not travel with a snapshot."""
    live = ending(disk, trimmed_first=False)
    disk.store.commit([SaveCheckpoint(UID, 3, 0, finished=live)])
    found = disk.store.read(ReadSnapshot(1, UID, 0, 0, 1 << 20))
    assert isinstance(found, SnapshotRead)
    other = Disk()
    other.store.commit([InstallBegin(UID, "t", 1)])
    other.store.commit([InstallRows(UID, found.data), InstallEnd(UID, found.applied, found.applied_epoch, 1)])
    assert listed(other) == []
    assert list(other.payload.keys(*layout.whole(UID))) == []
