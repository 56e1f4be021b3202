"""The store keeps what it was told, in the order in which it was told, through crashes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.unit.storage.ordered.disk import UID, Disk, barrier, crash_after, entries, insert

from dueq.core.ports.entry import FLAG_UPLOAD, FULL, State, widened
from dueq.core.ports.names import Borne, hashes_of
from dueq.core.ports.persistence import (
    AppendLog,
    CreatePartition,
    DropPartition,
    DropUpload,
    EntriesRead,
    IndexScanned,
    InstallBegin,
    InstallEnd,
    InstallRows,
    LogRead,
    MarkProven,
    NamesRead,
    PayloadsRead,
    PutChunk,
    ReadEntries,
    ReadLog,
    ReadNames,
    ReadPayloads,
    ReadSnapshot,
    SaveCheckpoint,
    SaveMeta,
    ScanIndex,
    SnapshotRead,
    TrimLog,
    TruncateLog,
)
from dueq.core.ports.tables import TableRow
from dueq.errors import InvalidRequest, StoreDamaged
from dueq.limits import SNAPSHOT_IDLE_MS
from dueq.storage.ordered import layout
from dueq.storage.ordered.store import OrderedStore
from dueq.storage.port import StoreFailed
from dueq_codecs.records import LogEntry


@pytest.fixture
def disk() -> Disk:
    return Disk()


def bodies(log: list[LogEntry]) -> list[tuple[int, int, bytes]]:
    return [(entry.record.sequence, entry.record.epoch, bytes(entry.body)) for entry in log]


def test_entries_of_another_layout_are_left_to_the_build_that_knows_them(disk: Disk) -> None:
    """They are no damage: nothing is set aside, and the replica says what it cannot read."""
    disk.store.commit([AppendLog(UID, [barrier(1, 1)]), SaveMeta(UID, 1, 1), SaveCheckpoint(UID, 1, 0)])
    leased = layout.message_keys(UID, b"l", np.array([1 << 16], np.uint64))[0]
    disk.timeline.write([(leased, bytes(FULL.itemsize + 8))], sync=True)
    (found,) = disk.open().recover()
    assert (found.damaged, found.applied, len(found.leased)) == ("", 1, 0)
    assert f"entries of {FULL.itemsize + 8} bytes" in found.unknown
    assert disk.timeline.get(leased) is not None


# ---------------------------------------------------------------- the log


def test_what_was_appended_is_recovered_with_its_bodies(disk: Disk) -> None:
    disk.store.commit([AppendLog(UID, [barrier(1, 1), insert(2, [b"ab", b"", b"c"])]), SaveMeta(UID, 1, 1)])
    disk.store.commit([AppendLog(UID, [barrier(3, 4)]), SaveMeta(UID, 4, 2)])
    (found,) = disk.open().recover()
    assert (found.epoch, found.commit, found.applied, found.log_start, found.log_end) == (4, 2, 0, 1, 3)
    assert found.epochs == [(0, 0), (1, 1), (4, 3)]
    assert bodies(found.tail) == [(1, 1, b""), (2, 1, b"abc"), (3, 4, b"")]


def test_records_that_take_the_place_of_cut_ones_have_their_own_payloads(disk: Disk) -> None:
    disk.store.commit([AppendLog(UID, [insert(1, [b"x" * 40_000, b"y" * 40_000]), insert(2, [b"old"])])])
    disk.store.commit([TruncateLog(UID, 1), AppendLog(UID, [insert(1, [b"new"], epoch=2)])])
    (found,) = disk.open().recover()
    assert not found.damaged
    assert bodies(found.tail) == [(1, 2, b"new")]


def test_append_cut_and_append_in_one_commit_leave_the_last(disk: Disk) -> None:
    writes = [
        AppendLog(UID, [insert(1, [b"first"])]),
        TruncateLog(UID, 1),
        AppendLog(UID, [insert(1, [b"last"], 2)]),
    ]
    disk.store.commit(writes)
    (found,) = disk.open().recover()
    assert bodies(found.tail) == [(1, 2, b"last")]


def test_with_the_end_of_a_log_go_its_payloads_alone(disk: Disk) -> None:
    disk.store.commit([CreatePartition(UID + 1, "u"), AppendLog(UID + 1, [insert(5, [b"other"])])])
    disk.store.commit(
        [AppendLog(UID, [insert(n, [b"old"]) for n in range(1, 6)]), PutChunk(UID, 77, 0, b"chunk")]
    )
    disk.store.commit([TruncateLog(UID, 3)])
    kept = [layout.block_key(UID, 1, 0), layout.block_key(UID, 2, 0), layout.chunk_key(UID, 77, 0)]
    assert list(disk.payload.keys(*layout.whole(UID))) == kept
    assert disk.payload.get(layout.block_key(UID + 1, 5, 0)) == b"other"


def test_a_crash_between_the_payloads_and_their_record_leaves_neither(disk: Disk) -> None:
    disk.store.commit([AppendLog(UID, [insert(1, [b"kept"])])])
    disk.timeline.fail_next = True
    with pytest.raises(StoreFailed):
        disk.store.commit([AppendLog(UID, [insert(2, [b"x" * 40_000, b"lost"])])])
    disk.timeline.fail_next = False
    store = disk.open()
    (found,) = store.recover()
    assert bodies(found.tail) == [(1, 1, b"kept")]
    store.commit([AppendLog(UID, [insert(2, [b"other"])])])
    (found,) = disk.open().recover()
    assert bodies(found.tail)[1] == (2, 1, b"other")


@pytest.mark.parametrize("writes", range(5))
def test_a_crash_while_a_log_is_cut_leaves_it_whole(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    disk.store.commit(
        [AppendLog(UID, [insert(n, [b"old %d" % n]) for n in range(1, 11)]), SaveMeta(UID, 1, 8)]
    )
    with monkeypatch.context() as patch:
        crash_after(disk, patch, writes)
        cut = [
            TruncateLog(UID, 9),
            AppendLog(UID, [insert(9, [b"new, and longer"], epoch=2)]),
            SaveMeta(UID, 2, 9),
        ]
        with contextlib.suppress(StoreFailed):
            disk.store.commit(cut)
    (found,) = disk.open().recover()
    assert not found.damaged
    old = [(n, 1, b"old %d" % n) for n in range(1, 11)]
    if found.epoch == 1:
        assert bodies(found.tail) == old
    else:
        assert found.commit >= 8
        assert bodies(found.tail) in (old[:8], [*old[:8], (9, 2, b"new, and longer")])


@pytest.mark.parametrize("writes", range(4))
def test_a_crash_while_a_replica_is_set_aside_never_leaves_an_empty_one_that_is_trusted(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    disk.store.commit([AppendLog(UID, [insert(n, [b"x"]) for n in range(1, 4)]), SaveMeta(UID, 5, 2)])
    key = layout.log_key(UID, 2)
    row = disk.timeline.get(key)
    assert row is not None
    disk.timeline.write([(key, row[:-1] + bytes([row[-1] ^ 1]))], sync=True)
    with monkeypatch.context() as patch:
        crash_after(disk, patch, writes)
        with contextlib.suppress(StoreFailed):
            disk.open().recover()
    (found,) = disk.open().recover()
    assert found.damaged or found.installing
    assert found.epoch == 5


def test_a_trimmed_log_knows_what_went_before_it(disk: Disk) -> None:
    disk.store.commit(
        [AppendLog(UID, [barrier(1, 1), barrier(2, 3), barrier(3, 3)]), SaveCheckpoint(UID, 2, 0)]
    )
    disk.store.commit([TrimLog(UID, 3)])
    (found,) = disk.open().recover()
    assert (found.log_start, found.log_end, found.epochs) == (3, 3, [(3, 2)])
    disk.store.commit([AppendLog(UID, [barrier(4, 5)])])
    assert not disk.open().recover()[0].damaged


def test_old_records_are_read_back_up_to_a_bound(disk: Disk) -> None:
    disk.store.commit([AppendLog(UID, [insert(n, [b"p" * 1_000]) for n in range(1, 6)])])
    found = disk.store.read(ReadLog(1, UID, 2, 3_000))
    assert isinstance(found, LogRead)
    assert [entry.record.sequence for entry in found.entries] == [2, 3]
    beyond = disk.store.read(ReadLog(1, UID, 9, 2_500))
    assert isinstance(beyond, LogRead)
    assert beyond.entries == []


@pytest.mark.parametrize("damage", ["flip", "gap", "payload"])
def test_a_damaged_replica_is_set_aside_and_the_others_are_not(disk: Disk, damage: str) -> None:
    disk.store.commit([CreatePartition(7, "t"), AppendLog(UID, [insert(n, [b"abc"]) for n in range(1, 4)])])
    key = layout.log_key(UID, 2)
    if damage == "flip":
        row = bytearray(disk.timeline.get(key) or b"")
        row[-1] ^= 1
        disk.timeline.write([(key, bytes(row))], sync=True)
    elif damage == "gap":
        disk.timeline.write([(key, None)], sync=True)
    else:
        disk.payload.write([(layout.block_key(UID, 2, 0), None)], sync=True)
    other, found = disk.open().recover()
    assert (other.uid, other.damaged) == (7, "")
    assert found.damaged
    (_, again) = disk.open().recover()
    assert again.installing
    assert not again.damaged


# ---------------------------------------------------------------- checkpoints


def test_waiting_and_moved_entries_are_found_and_scanned_in_order(disk: Disk) -> None:
    disk.store.commit([AppendLog(UID, [insert(1, [b"xy"] * 3)])])
    put = entries((1, 0, 1_000), (1, 1, 3_000), (1, 2, 2_000))
    disk.store.commit([SaveCheckpoint(UID, 1, 900, put=put)])
    found = disk.store.read(
        ReadEntries(
            1, UID, np.full(4, 1_000, np.uint64), np.ones(4, np.uint64), np.arange(4, dtype=np.uint16)
        )
    )
    assert isinstance(found, EntriesRead)
    assert sorted(found.entries["row"].tolist()) == [0, 1, 2]
    scan = disk.store.read(ScanIndex(2, UID, 1_000, 1 << 16, 2))
    assert isinstance(scan, IndexScanned)
    assert (scan.entries["row"].tolist(), scan.exhausted) == ([2, 1], True)
    scan = disk.store.read(ScanIndex(2, UID, 0, 0, 2))
    assert isinstance(scan, IndexScanned)
    assert (scan.entries["row"].tolist(), scan.exhausted) == ([0, 2], False)


def test_keys_that_messages_have_borne_since_a_checkpoint_are_found_with_their_messages(disk: Disk) -> None:
    """A key that is not found is taken once more."""
    disk.store.commit([AppendLog(UID, [insert(1, [b"xy"] * 3)])])
    high, low = (np.array(half, np.uint64) for half in ((7, 1 << 63, 7), (9, 3, 1 << 63)))
    first, key = np.full(3, 1_000, np.uint64), np.arange(3, dtype=np.uint64) | 1 << 16
    put = entries((1, 0, 1_000), (1, 1, 3_000), (1, 2, 2_000))
    disk.store.commit([SaveCheckpoint(UID, 1, 900, put=put, borne=Borne(high, low, first, key))])
    hashes = hashes_of(high, low)
    found = disk.open().read(ReadNames(1, UID, [*hashes, b"h" * 16]))
    assert isinstance(found, NamesRead)
    assert found.found == {digest: (1_000, 1 << 16 | row) for row, digest in enumerate(hashes)}
    assert sorted(found.entries["row"].tolist()) == [0, 1, 2]


def test_a_scan_passes_by_jobs_in_few_reads_and_says_how_far_it_has_looked(disk: Disk) -> None:
    disk.store.commit([AppendLog(UID, [insert(1, [b"xy"] * 50)])])
    put = entries(*((1, row, 1_000 + row) for row in range(50)))
    put["job"] = [1] * 40 + [0] * 5 + [2] * 5
    disk.store.commit([SaveCheckpoint(UID, 1, 900, put=put)])
    scan = disk.store.read(ScanIndex(1, UID, 0, 0, 3, frozenset((1, 2, 7))))
    assert isinstance(scan, IndexScanned)
    assert scan.entries["row"].tolist() == [40, 41, 42]
    assert (scan.exhausted, scan.looked_to, scan.left_out) == (False, (1_042, 1 << 16 | 42), {1})
    scan = disk.store.read(ScanIndex(1, UID, 1_042, 1 << 16 | 42, 3, frozenset((1, 2, 7))))
    assert isinstance(scan, IndexScanned)
    assert scan.entries["row"].tolist() == [43, 44]
    assert (scan.exhausted, scan.looked_to, scan.left_out) == (True, (1_049, 1 << 16 | 49), {2})
    scan = disk.store.read(ScanIndex(1, UID, 1_049, 1 << 16 | 49, 3, frozenset((1,))))
    assert isinstance(scan, IndexScanned)
    assert (len(scan.entries), scan.exhausted, scan.looked_to) == (0, True, None)


def test_a_scan_reads_the_classes_behind_its_own_only_if_it_is_to(disk: Disk) -> None:
    disk.store.commit([AppendLog(UID, [insert(1, [b"xy"] * 3)])])
    put, of = entries(*((1, row, 1_000) for row in range(3))), np.array([[0, 1], [0, 1], [0, 2]], np.uint8)
    disk.store.commit([SaveCheckpoint(UID, 1, 900, put=put, put_of=of)])
    scan = disk.store.read(ScanIndex(1, UID, 0, 0, 9, of=b"\0\1"))
    assert isinstance(scan, IndexScanned)
    assert (scan.entries["row"].tolist(), scan.beyond, scan.following) == ([0, 1], (), b"\0\2")
    scan = disk.store.read(ScanIndex(1, UID, 0, 0, 9, of=b"\0\1", onward=True))
    assert isinstance(scan, IndexScanned)
    assert scan.entries["row"].tolist() == [0, 1, 2]
    assert [looked.of for looked in scan.beyond] == [b"\0\2"]
    assert scan.following is None


def test_a_scan_says_of_each_class_that_it_has_read_how_far_it_has_looked(disk: Disk) -> None:
    """Of a class that it does not name, the partition would have to ask once more."""
    disk.store.commit([AppendLog(UID, [insert(1, [b"xy"] * 4)])])
    put, of = (
        entries(*((1, row, 1_000 + row) for row in range(4))),
        np.array([[0, at] for at in (1, 2, 3, 3)]),
    )
    disk.store.commit([SaveCheckpoint(UID, 1, 900, put=put, put_of=of.astype(np.uint8))])
    scan = disk.store.read(ScanIndex(1, UID, 0, 0, 9, of=b"\0\1", onward=True))
    assert isinstance(scan, IndexScanned)
    assert scan.entries["row"].tolist() == [0, 1, 2, 3]
    assert [(looked.of, looked.looked_to, looked.exhausted) for looked in scan.beyond] == [
        (b"\0\2", (1_001, 1 << 16 | 1), True),
        (b"\0\3", (1_003, 1 << 16 | 3), True),
    ]


def test_an_id_is_found_by_the_whole_of_it_only(disk: Disk) -> None:
    """The key alone says where a moved message waits; under another first instant there is no such message."""
    disk.store.commit([AppendLog(UID, [insert(1, [b"xy"] * 2)])])
    disk.store.commit([SaveCheckpoint(UID, 1, 900, put=entries((1, 0, 1_000), (1, 1, 3_000)))])
    first = np.array([1_000, 1_001, 1_000, 1_001, 3_000], np.uint64)
    row = np.array([0, 0, 1, 1, 1], np.uint16)
    found = disk.store.read(ReadEntries(1, UID, first, np.ones(5, np.uint64), row))
    assert isinstance(found, EntriesRead)
    assert found.entries["row"].tolist() == [0, 1]


@pytest.mark.parametrize("state", [State.WAITING, State.DEAD])
def test_a_dead_message_that_was_redriven_is_found_by_its_id(disk: Disk, state: State) -> None:
    """Dead or not, a row says where it lies; what one checkpoint takes away goes before that row comes."""
    disk.store.commit([AppendLog(UID, [insert(1, [b"xy"]), barrier(2, 1)])])
    row = np.zeros(1, FULL)
    for name in entries((1, 0, 5_000)).dtype.names or ():
        row[name] = entries((1, 0, 5_000))[name]
    row["state"], row["died_at"] = State.DEAD, 2_000
    disk.store.commit([SaveCheckpoint(UID, 1, 900, put=row)])
    undie = np.array([[2_000, 1 << 16]], np.uint64)
    row["state"], row["died_at"] = state, 6_000 if state == State.DEAD else 0
    disk.store.commit([SaveCheckpoint(UID, 2, 900, put=row, undie=undie)])
    one = ReadEntries(1, UID, np.full(1, 1_000, np.uint64), np.ones(1, np.uint64), np.zeros(1, np.uint16))
    found = disk.store.read(one)
    assert isinstance(found, EntriesRead)
    assert found.entries["state"].tolist() == [state]


def test_a_message_that_was_leased_is_no_longer_in_the_index(disk: Disk) -> None:
    disk.store.commit([AppendLog(UID, [insert(1, [b"xy"]), barrier(2, 1)])])
    put = entries((1, 0, 3_000))
    disk.store.commit([SaveCheckpoint(UID, 1, 900, put=put)])
    leased = put.copy()
    leased["state"], leased["token"] = State.LEASED, 2
    unwait = np.array([[3_000, 1 << 16, 1_000]], np.uint64)
    disk.store.commit([SaveCheckpoint(UID, 2, 900, put=leased, unwait=unwait)])
    scan = disk.store.read(ScanIndex(1, UID, 0, 0, 9))
    assert isinstance(scan, IndexScanned)
    assert len(scan.entries) == 0
    assert list(disk.timeline.keys(layout.head(UID, b"o"), layout.head(UID, b"p"))) == []
    (found,) = disk.open().recover()
    assert found.leased["token"].tolist() == [2]


def test_payloads_are_read_and_checked(disk: Disk) -> None:
    disk.store.commit([AppendLog(UID, [insert(1, [b"xy", b"xy"])])])
    good = entries((1, 0, 1_000), (1, 1, 1_000))
    wrong = good.copy()
    wrong["crc"] = 1
    missing = entries((5, 0, 1_000))
    found = disk.store.read(ReadPayloads(1, UID, np.concatenate([good, wrong, missing])))
    assert isinstance(found, PayloadsRead)
    assert found.payloads == [b"xy", b"xy", None, None, None]


def test_an_empty_payload_that_is_read_first_does_not_hide_its_block(disk: Disk) -> None:
    disk.store.commit([AppendLog(UID, [insert(1, [b"xy", b""])])])
    rows = entries((1, 1, 1_000), (1, 0, 1_000))
    rows["size"][0], rows["crc"][0], rows["place"][0] = 0, 0, 2
    found = disk.store.read(ReadPayloads(1, UID, rows))
    assert isinstance(found, PayloadsRead)
    assert found.payloads == [b"", b"xy"]


def test_uploads_that_nothing_names_are_told_as_orphans(disk: Disk) -> None:
    disk.store.commit([PutChunk(UID, 77, 0, b"chunk"), PutChunk(UID, 78, 0, b"chunk")])
    record = insert(1, [b""])
    record.record.upload = np.array([78], np.uint64)
    record.record.size = np.array([300_000], np.uint32)
    disk.store.commit([AppendLog(UID, [record])])
    (found,) = disk.open().recover()
    assert found.uploads == [77]


def test_one_chunk_of_each_upload_is_read_at_an_opening(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """LevelDB reads the 256 KiB of a chunk to get to the next one: all uploads of a broker were read at each start."""
    uploads = [1, 2, 255, 256, (1 << 64) - 1]
    disk.store.commit([PutChunk(UID, upload, n, b"chunk") for upload in uploads for n in range(30)])
    read: list[bytes] = []
    keys = disk.payload.keys

    def noted(start: bytes, stop: bytes) -> Iterator[bytes]:
        for key in keys(start, stop):
            read.append(key)
            yield key

    monkeypatch.setattr(disk.payload, "keys", noted)
    [found] = disk.open().recover()
    assert found.uploads == uploads
    assert sum(key[3:4] == b"u" for key in read) <= 2 * len(uploads)


def test_an_upload_is_dropped_only_when_neither_a_live_message_nor_the_sweep_needs_it(disk: Disk) -> None:
    """The core may order this after it forgot what a checkpoint says. A finished message's record may still be read."""
    disk.store.commit([PutChunk(UID, 77, 0, b"chunk"), AppendLog(UID, [insert(1, [b""])])])
    live = entries((1, 0, 1_000))
    live["flags"], live["place"] = FLAG_UPLOAD, 77
    disk.store.commit([SaveCheckpoint(UID, 1, 1_000, put=live), DropUpload(UID, 77)])
    assert disk.payload.get(layout.chunk_key(UID, 77, 0)) == b"chunk"
    disk.store.commit([SaveCheckpoint(UID, 1, 1_000, finished=live), DropUpload(UID, 77)])
    assert disk.payload.get(layout.chunk_key(UID, 77, 0)) == b"chunk"
    disk.store.commit([TrimLog(UID, 2), PutChunk(UID, 77, 0, b"late"), DropUpload(UID, 77)])
    assert disk.payload.get(layout.chunk_key(UID, 77, 0)) is None


@pytest.mark.parametrize("state", [State.LEASED, State.DEAD])
def test_an_upload_stays_whatever_has_become_of_its_message_by_the_first_checkpoint(
    disk: Disk, state: State
) -> None:
    """A short delay is over by then: what a consumer has is named by a row, too."""
    disk.store.commit([PutChunk(UID, 77, 0, b"chunk"), AppendLog(UID, [insert(1, [b""])])])
    live = widened(entries((1, 0, 1_000)), FULL.itemsize)
    live["flags"], live["place"], live["state"] = FLAG_UPLOAD, 77, state
    disk.store.commit([SaveCheckpoint(UID, 1, 1_000, put=live), TrimLog(UID, 2)])
    [found] = disk.open().recover()
    assert found.uploads == []
    disk.store.commit([DropUpload(UID, 77)])
    assert disk.payload.get(layout.chunk_key(UID, 77, 0)) == b"chunk"


@pytest.mark.parametrize("restarts", [False, True], ids=["in one life", "after a restart"])
def test_a_log_that_was_trimmed_and_then_cut_to_its_beginning_goes_on_from_there(
    disk: Disk, restarts: bool
) -> None:
    """The first record that comes is chained to one that is not there any more."""
    disk.store.commit([AppendLog(UID, [insert(n, [b"old"]) for n in (1, 2, 3, 4)]), SaveMeta(UID, 1, 2)])
    disk.store.commit([SaveCheckpoint(UID, 2, 0), TrimLog(UID, 3)])
    if restarts:
        disk.open().recover()
    disk.store.commit([TruncateLog(UID, 3), AppendLog(UID, [insert(3, [b"new"], 2)]), SaveMeta(UID, 2, 2)])
    [found] = disk.open().recover()
    assert (found.damaged, found.log_start, found.epochs) == ("", 3, [(1, 2), (2, 3)])
    assert bodies(found.tail) == [(3, 2, b"new")]


def test_a_snapshot_that_is_read_now_and_then_stays_open(disk: Disk) -> None:
    """A slow follower would begin anew for ever."""
    disk.store.commit([AppendLog(UID, [insert(n, [b"xy"]) for n in range(1, 9)])])
    put = entries(*[(n, 0, 1_000 + n) for n in range(1, 9)])
    disk.store.commit([SaveCheckpoint(UID, 8, 1_000, put=put)])
    number = part = now_us = 0
    for part in range(6):
        found = disk.store.read(ReadSnapshot(1, UID, number, part, 1))
        assert isinstance(found, SnapshotRead)
        assert (found.failed, found.last) == (False, False)
        number, now_us = found.snapshot, now_us + SNAPSHOT_IDLE_MS * 1_000
        disk.store.expire_snapshots(now_us)
    disk.store.expire_snapshots(now_us + 1)
    found = disk.store.read(ReadSnapshot(1, UID, number, part + 1, 1))
    assert isinstance(found, SnapshotRead)
    assert found.failed


def test_a_snapshot_before_the_first_checkpoint_leaves_every_record_to_the_log(disk: Disk) -> None:
    """Whoever is made from it would pass by those that it is said to hold."""
    disk.store.commit([AppendLog(UID, [insert(n, [b"xy"]) for n in (1, 2)])])
    found = disk.store.read(ReadSnapshot(1, UID, 0, 0, 1 << 20))
    assert isinstance(found, SnapshotRead)
    assert (found.applied, found.applied_epoch, found.data, found.last) == (0, 0, b"", True)


# ---------------------------------------------------------------- whole partitions


def test_a_snapshot_makes_an_equal_replica(disk: Disk) -> None:
    disk.store.commit([AppendLog(UID, [insert(n, [b"xy"] * 2) for n in range(1, 40)]), SaveMeta(UID, 1, 39)])
    put = entries(*[(n, row, 1_000 + n) for n in range(1, 40) for row in (0, 1)], block_rows=2)
    tables = {b"f": [TableRow(b"\0\0\0\5", b"\1\0\0\0" * 24)], b"z": [TableRow(b"of a newer build", b"")]}
    disk.store.commit([SaveCheckpoint(UID, 39, 1_000, put=put, summary=b"sum", tables=tables)])
    other = Disk()
    other.store.commit([InstallBegin(UID, "t", 6)])
    number, part, last = 0, 0, False
    while not last:
        found = disk.store.read(ReadSnapshot(1, UID, number, part, 1_500))
        again = disk.store.read(ReadSnapshot(1, UID, found.snapshot, part, 1_500))  # type: ignore[union-attr]
        assert isinstance(found, SnapshotRead)
        assert isinstance(again, SnapshotRead)
        assert (found.data, found.failed) == (again.data, False)
        other.store.commit([InstallRows(UID, found.data)])
        number, part, last = found.snapshot, part + 1, found.last
    assert part > 2
    assert other.open().recover()[0].installing
    other.store.commit([InstallEnd(UID, found.applied, found.applied_epoch, 6)])
    (filled,) = other.open().recover()
    assert filled.unproven
    assert not filled.installing
    assert (filled.applied, filled.epoch, filled.log_start, filled.log_end) == (39, 6, 40, 39)
    assert (filled.summary, filled.tables, filled.epochs) == (b"sum", tables, [(1, 39)])
    scans = [store.read(ScanIndex(1, UID, 0, 0, 999)) for store in (disk.store, other.store)]
    assert scans[0].entries.tobytes() == scans[1].entries.tobytes()  # type: ignore[union-attr]
    payloads = other.store.read(ReadPayloads(1, UID, put))
    assert isinstance(payloads, PayloadsRead)
    assert set(payloads.payloads) == {b"xy"}
    other.store.commit([MarkProven(UID)])
    assert not other.open().recover()[0].unproven


def test_a_replica_that_begins_anew_has_the_epoch_that_asked_for_it(disk: Disk) -> None:
    """An epoch is durable before anything of it leaves the replica, and its old state may have known none of it."""
    disk.store.commit([SaveMeta(UID, 4, 0), InstallBegin(UID, "t", 6)])
    [found] = disk.open().recover()
    assert (found.installing, found.epoch, found.commit) == (True, 6, 0)
    assert (found.log_start, found.log_end) == (1, 0), "its log is empty, and its first record is to come"


def test_a_replica_that_was_filled_has_committed_all_that_it_holds_in_the_epoch_of_that(disk: Disk) -> None:
    """It goes on in the leader's epoch, which may be a later one than that of the last record."""
    disk.store.commit([InstallBegin(UID, "t", 6), InstallEnd(UID, 9, 2, 6)])
    disk.store.commit([SaveCheckpoint(UID, 9, 0), AppendLog(UID, [barrier(10, 6)])])
    snapshot = disk.store.read(ReadSnapshot(1, UID, 0, 0, 1 << 20))
    assert isinstance(snapshot, SnapshotRead)
    assert (snapshot.applied, snapshot.applied_epoch) == (9, 2)
    [found] = disk.open().recover()
    assert (found.epoch, found.commit, found.epochs) == (6, 9, [(2, 9), (6, 10)])


@pytest.mark.parametrize("data", [b"\0", b"\0\0\1\0\0\0\1kv", b"\7\0\0\0\0\0\0"])
def test_a_snapshot_that_no_leader_sends_is_refused(disk: Disk, data: bytes) -> None:
    disk.store.commit([InstallBegin(UID, "t", 6)])
    with pytest.raises(StoreDamaged):
        disk.store.commit([InstallRows(UID, data)])


def test_a_dropped_partition_leaves_nothing(disk: Disk) -> None:
    disk.store.commit([AppendLog(UID, [insert(1, [b"x"])]), PutChunk(UID, 5, 0, b"c"), SaveMeta(UID, 1, 1)])
    disk.store.commit([DropPartition(UID)])
    assert list(disk.timeline.keys(*layout.whole(UID))) == []
    assert list(disk.payload.keys(*layout.whole(UID))) == []
    assert disk.open().recover() == []


# ---------------------------------------------------------------- whose folder


def test_a_folder_is_held_by_one_process_and_belongs_to_one_broker_and_cluster(tmp_path: Path) -> None:
    store = OrderedStore.open(tmp_path / "d", "b1", "one")
    with pytest.raises(InvalidRequest, match="in use"):
        OrderedStore.open(tmp_path / "d", "b1", "one")
    store.close()
    with pytest.raises(InvalidRequest, match="belongs to broker 'b1', not to 'b2'"):
        OrderedStore.open(tmp_path / "d", "b2", "one")
    with pytest.raises(InvalidRequest, match="belongs to cluster one, not to two"):
        OrderedStore.open(tmp_path / "d", "b1", "two")
    again = OrderedStore.open(tmp_path / "d", "b1")
    assert again.store_id == store.store_id
    with pytest.raises(InvalidRequest, match="belongs to cluster one"):
        again.bind_cluster("two")
    again.close()


def test_what_cannot_be_read_fails_the_store_and_is_found_at_the_next_opening(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    store = OrderedStore.open(folder, "b1", "one")
    store.commit([CreatePartition(UID, "t"), AppendLog(UID, [barrier(1, 1)])])
    for base in range(0, 40_000, 4_000):
        put = entries(*[(1, 0, 1_000 + base + at) for at in range(4_000)])
        put["sequence"] = np.arange(4_000) + base + 1
        store.commit([SaveCheckpoint(UID, 1, 0, put=put)])
    store.close()
    OrderedStore.open(folder, "b1", "one").close()
    table = max((folder / "timeline").glob("*.ldb"), key=lambda file: file.stat().st_size)
    data = bytearray(table.read_bytes())
    for at in range(len(data) // 3, len(data) // 2, 500):
        data[at] ^= 0xFF
    table.write_bytes(data)
    again = OrderedStore.open(folder, "b1", "one")
    assert not again.set_aside
    with pytest.raises(StoreFailed):
        again.read(ScanIndex(1, UID, 0, 0, 40_000))
    again.close()
    fresh = OrderedStore.open(folder, "b1", "one")
    assert fresh.set_aside
    fresh.close()


@pytest.mark.parametrize("suffix", ["log", "ldb"])
def test_a_store_with_a_damaged_file_is_set_aside_and_begun_anew(tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "d"
    store = OrderedStore.open(folder, "b1", "one")
    store.commit([CreatePartition(UID, "t")])
    for sequence in range(1, 400):
        store.commit([AppendLog(UID, [insert(sequence, [b"x" * 100] * 20)])])
    first_id = store.store_id
    store.close()
    if suffix == "ldb":
        # Opening moves the log into a table.
        OrderedStore.open(folder, "b1", "one").close()
    files = sorted((folder / "timeline").glob(f"*.{suffix}"), key=lambda file: file.stat().st_size)
    data = bytearray(files[-1].read_bytes())
    for at in range(200, len(data) - 200, 211):
        data[at] ^= 0xFF
    files[-1].write_bytes(data)
    again = OrderedStore.open(folder, "b1", "one")
    assert again.set_aside
    assert again.store_id != first_id
    assert again.recover() == []
    assert (folder / "timeline.damaged-1").exists()
    again.close()


def test_a_damaged_payload_block_costs_its_own_messages_only(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    store = OrderedStore.open(folder, "b1", "one")
    store.commit([CreatePartition(UID, "t")])
    for sequence in range(1, 40):
        store.commit([AppendLog(UID, [insert(sequence, [b"%05d" % sequence * 2_000])])])
    store.commit([SaveCheckpoint(UID, 39, 0)])
    store.close()
    OrderedStore.open(folder, "b1", "one").close()
    (table,) = (folder / "payload").glob("*.ldb")
    data = bytearray(table.read_bytes())
    data[len(data) // 2] ^= 0xFF
    table.write_bytes(data)
    again = OrderedStore.open(folder, "b1", "one")
    wanted = np.concatenate([entries((n, 0, 1_000), payload=b"%05d" % n * 2_000) for n in range(1, 40)])
    found = again.read(ReadPayloads(1, UID, wanted))
    assert isinstance(found, PayloadsRead)
    assert 0 < sum(payload is None for payload in found.payloads) <= 3
    again.close()
