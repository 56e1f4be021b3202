"""Which logs an opening trusts, and what it gives back of them."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest
from tests.unit.storage.ordered.disk import UID, Disk, barrier, crash_after, insert

from dueq.core.ports.entry import FULL
from dueq.core.ports.persistence import (
    AppendLog,
    CreatePartition,
    SaveCheckpoint,
    SaveMeta,
    TrimLog,
    TruncateLog,
)
from dueq.storage.ordered import layout
from dueq.storage.ordered.layout import LINK
from dueq.storage.port import StoreFailed
from dueq_codecs.frames import encode_record
from dueq_codecs.records import LogEntry


@pytest.fixture
def disk() -> Disk:
    return Disk()


def write_record(disk: Disk, sequence: int, entry: LogEntry) -> None:
    """Write a record where another one belongs, chained as it should be to the one before."""
    before = disk.timeline.get(layout.log_key(UID, sequence - 1)) or b""
    encoded = encode_record(entry.record)
    link = crc32(encoded, LINK.unpack_from(before)[0])
    disk.timeline.write([(layout.log_key(UID, sequence), LINK.pack(link) + encoded)], sync=True)


# ---------------------------------------------------------------- what is damage


def test_a_log_whose_epochs_fall_is_damaged(disk: Disk) -> None:
    """No leader appends a record of an epoch that is over."""
    disk.store.commit([AppendLog(UID, [barrier(1, 3)])])
    write_record(disk, 2, barrier(2, 2))
    [found] = disk.open().recover()
    assert "record 2 of partition 9 is out of order" in found.damaged


def test_a_record_in_the_place_of_another_one_is_damage(disk: Disk) -> None:
    disk.store.commit([AppendLog(UID, [barrier(1, 1)])])
    write_record(disk, 2, barrier(5, 1))
    [found] = disk.open().recover()
    assert "record 2 of partition 9 is out of order" in found.damaged


def test_a_record_that_is_applied_may_have_lost_its_payloads(disk: Disk) -> None:
    """Its messages may have ended. A record that is still to be applied may not."""
    disk.store.commit([AppendLog(UID, [insert(n, [b"xy"]) for n in (1, 2, 3)]), SaveCheckpoint(UID, 2, 0)])
    disk.payload.write([(layout.block_key(UID, n, 0), None) for n in (1, 2)], sync=True)
    [found] = disk.open().recover()
    assert (found.damaged, [entry.record.sequence for entry in found.tail]) == ("", [3])
    disk.payload.write([(layout.block_key(UID, 3, 0), None)], sync=True)
    [found] = disk.open().recover()
    assert "record 3 of partition 9 has lost its payloads" in found.damaged


# ---------------------------------------------------------------- what is given back


def test_no_record_counts_as_committed_that_the_log_does_not_have(disk: Disk) -> None:
    """A leader tells how far it has committed before this replica has all of that."""
    disk.store.commit([AppendLog(UID, [barrier(1, 1), barrier(2, 1)]), SaveMeta(UID, 1, 9)])
    [found] = disk.open().recover()
    assert (found.commit, found.log_end) == (2, 2)


def test_after_a_crash_in_a_cut_the_next_record_does_not_count_as_committed(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was told of the commit together with the cut was told of another record of the same sequence."""
    disk.store.commit([AppendLog(UID, [barrier(n, 1) for n in range(1, 10)]), SaveMeta(UID, 1, 8)])
    with monkeypatch.context() as patch:
        crash_after(disk, patch, 1)
        with pytest.raises(StoreFailed):
            disk.store.commit(
                [TruncateLog(UID, 9), AppendLog(UID, [insert(9, [b"new"], epoch=2)]), SaveMeta(UID, 2, 9)]
            )
    [found] = disk.open().recover()
    assert (found.epoch, found.log_end) == (2, 8), "the crash came behind the cut"
    disk.store.commit([AppendLog(UID, [barrier(9, 3)])])
    [found] = disk.open().recover()
    assert (found.commit, found.log_end) == (8, 9)


def test_the_last_partition_that_there_can_be_is_recovered(disk: Disk) -> None:
    last = 0xFFFFFF
    disk.store.commit([CreatePartition(last, "t"), AppendLog(last, [insert(1, [b"kept"])])])
    found, other = disk.open().recover()
    assert (found.uid, other.uid, bytes(other.tail[0].body)) == (UID, last, b"kept")


def test_what_was_written_since_the_opening_is_given_back_too(disk: Disk) -> None:
    store = disk.open()
    store.commit([AppendLog(UID, [barrier(1, 1)])])
    [found] = store.recover()
    assert found.log_end == 1


def test_payloads_of_a_state_that_only_a_newer_build_knows_stay(disk: Disk) -> None:
    """It may name what an earlier one has listed as garbage: nothing of this partition is swept."""
    disk.store.commit([CreatePartition(7, "t")])
    blocks = [layout.block_key(uid, 1, 0) for uid in (7, UID)]
    for uid, block in zip((7, UID), blocks, strict=True):
        disk.store.commit([AppendLog(uid, [insert(1, [b"xy"]), barrier(2, 1)]), SaveCheckpoint(uid, 2, 0)])
        disk.store.commit([TrimLog(uid, 2)])
        disk.timeline.write([(layout.garbage_key(uid, 1, block), b"")], sync=True)
    leased = layout.message_keys(UID, b"l", np.array([1 << 16], np.uint64))[0]
    disk.timeline.write([(leased, bytes(FULL.itemsize + 8))], sync=True)
    known, found = disk.open().recover()
    assert (known.unknown, bool(found.unknown)) == ("", True)
    disk.store.commit([])
    assert [disk.payload.get(block) for block in blocks] == [None, b"xy"]
