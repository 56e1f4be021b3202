"""The rows of a partition that is dropped or begins anew go little by little, and no new row goes with them."""

from __future__ import annotations

import contextlib
from random import Random
from typing import Final

import pytest
from tests.unit.storage.ordered.disk import UID, Disk, barrier, crash_after, insert

from dueq.core.ports.persistence import (
    AppendLog,
    CreatePartition,
    DropPartition,
    InstallBegin,
    InstallEnd,
    InstallRows,
    PartitionRead,
    PutChunk,
    ReadPartition,
    SaveMeta,
    StoreWrite,
    TrimLog,
)
from dueq.storage.ordered import layout, wiping
from dueq.storage.ordered.rows import pack_row
from dueq.storage.ordered.space import LEVEL0_BUSY
from dueq.storage.port import StoreFailed

OTHER: Final = UID + 1
STEP: Final = 7


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """Partition UID has 100 rows in each database, and a commit deletes seven."""
    monkeypatch.setattr(wiping, "WIPE_ROWS", STEP)
    disk = Disk()
    disk.store.commit([CreatePartition(OTHER, "u"), AppendLog(OTHER, [insert(1, [b"kept"])])])
    disk.store.commit([AppendLog(UID, [insert(n, [b"x"]) for n in range(1, 101)]), SaveMeta(UID, 3, 2)])
    return disk


def rows(disk: Disk, uid: int = UID) -> list[bytes]:
    """The keys of a partition, those of payload/ behind the others."""
    return [key for engine in (disk.timeline, disk.payload) for key in engine.keys(*layout.whole(uid))]


def drain(disk: Disk) -> None:
    """Commit nothing until no wipe is under way."""
    for _ in range(200):
        if not disk.store.wiping():
            return
        disk.store.commit([])
    pytest.fail("the wipe does not end")


def of(uid: int, *keys: bytes) -> list[bytes]:
    return [layout.head(uid, key) for key in keys]


# ---------------------------------------------------------------- a bounded number of rows a commit


def test_a_commit_deletes_some_rows_of_a_dropped_partition_and_the_next_ones_the_rest(disk: Disk) -> None:
    """With ten million rows every partition of the broker stood still for eighteen seconds."""
    before = len(rows(disk))
    disk.store.commit([DropPartition(UID)])
    assert before - len(rows(disk)) == STEP + 1, "the row P besides"
    assert disk.store.wiping() == {UID}
    left = len(rows(disk))
    disk.store.commit([AppendLog(OTHER, [insert(2, [b"new"])])])
    assert left - len(rows(disk)) == STEP
    drain(disk)
    assert rows(disk) == []
    [other] = disk.open().recover()
    assert [bytes(entry.body) for entry in other.tail] == [b"kept", b"new"]


def test_a_commit_reads_few_bytes_of_a_dropped_partition(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """LevelDB reads long payloads only to get to the next key."""
    disk.store.commit([PutChunk(UID, 5, chunk, bytes(10_000)) for chunk in range(20)])
    monkeypatch.setattr(wiping, "WIPE_ROWS", 1_000)
    monkeypatch.setattr(wiping, "WIPE_BYTES", 35_000)
    disk.store.commit([DropPartition(UID)])
    assert len(list(disk.payload.keys(layout.head(UID, b"u"), layout.head(UID, b"v")))) == 16
    drain(disk)
    assert rows(disk) == []


def test_wipes_of_small_partitions_share_a_commit(disk: Disk) -> None:
    disk.store.commit([CreatePartition(uid, "small") for uid in range(20, 25)])
    disk.store.commit([DropPartition(uid) for uid in range(20, 25)])
    assert disk.store.wiping() == frozenset()


def test_a_wipe_rests_while_leveldb_has_not_merged_what_was_written(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deletions are rows too: they must not be the reason why inserts are refused."""
    files = [LEVEL0_BUSY]
    monkeypatch.setattr(disk.payload, "level0_files", lambda: files[0])
    disk.open().commit([DropPartition(UID)])
    left = rows(disk)
    disk.store.commit([])
    assert rows(disk) == left
    files[0] -= 1
    drain(disk)
    assert rows(disk) == []


def test_a_partition_may_be_dropped_in_the_commit_that_trims_its_log(disk: Disk) -> None:
    """The payloads that its log has given up are not swept one by one any more."""
    disk.store.commit([TrimLog(UID, 50), DropPartition(UID)])
    drain(disk)
    assert rows(disk) == []


def test_what_comes_in_the_commit_that_drops_a_partition_goes_too(disk: Disk) -> None:
    """Otherwise it would be written behind the wipe, and nobody would ever delete it."""
    disk.store.commit([CreatePartition(30, "small")])
    disk.store.commit([AppendLog(30, [insert(1, [b"late"])]), DropPartition(30)])
    drain(disk)
    assert rows(disk, 30) == []


# ---------------------------------------------------------------- crashes, and the next opening


@pytest.mark.parametrize("writes", range(12))
def test_a_crash_in_a_drop_leaves_a_whole_replica_or_none(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    with monkeypatch.context() as patch:
        crash_after(disk, patch, writes)
        with contextlib.suppress(StoreFailed):
            disk.store.commit([DropPartition(UID)])
            for _ in range(3):
                disk.store.commit([])
    *found, other = disk.open().recover()
    assert [len(replica.tail) for replica in found] in ([], [100])
    assert not any(replica.damaged for replica in found)
    assert [bytes(entry.body) for entry in other.tail] == [b"kept"]
    if not found:
        drain(disk)
        assert rows(disk) == []


def test_an_opening_leaves_what_a_crash_has_left_to_the_commits_after_it(disk: Disk) -> None:
    """A broker with ten million rows to wipe would not have come up for half a minute."""
    disk.store.commit([DropPartition(UID)])
    left = rows(disk)
    [other] = disk.open().recover()
    assert (other.uid, rows(disk), disk.store.wiping()) == (OTHER, left, {UID})
    drain(disk)
    assert rows(disk) == []


def test_a_replica_that_is_set_aside_is_wiped_by_the_commits_after_it(disk: Disk) -> None:
    disk.timeline.write([(layout.log_key(UID, 2), None)], sync=True)
    left = rows(disk)
    found, _ = disk.open().recover()
    assert found.damaged
    disk.timeline.crash()
    assert set(rows(disk)) - set(left) == set(of(UID, b"X")), "it is marked before anything goes"
    drain(disk)
    assert rows(disk) == of(UID, b"M", b"P", b"X")
    assert disk.open().recover()[0].installing


# ---------------------------------------------------------------- new rows of the same partition


def test_a_partition_that_is_created_while_its_old_rows_go_is_empty(disk: Disk) -> None:
    disk.store.commit([DropPartition(UID)])
    disk.store.commit([CreatePartition(UID, "again"), AppendLog(UID, [insert(1, [b"new"])])])
    assert disk.store.wiping() == frozenset()
    found, _ = disk.open().recover()
    assert (found.topic, found.epoch, [bytes(entry.body) for entry in found.tail]) == ("again", 0, [b"new"])


def test_a_partition_that_a_crash_has_kept_from_being_created_is_created_anew(disk: Disk) -> None:
    """Payloads are synced first, so they may be there without their partition."""
    disk.timeline.fail_next = True
    with pytest.raises(StoreFailed):
        disk.store.commit(
            [CreatePartition(30, "new"), AppendLog(30, [insert(n, [b"old"]) for n in range(1, 21)])]
        )
    disk.timeline.fail_next = False
    assert disk.open().wiping() == {30}
    disk.store.commit([CreatePartition(30, "new"), AppendLog(30, [insert(1, [b"new"])])])
    drain(disk)
    assert rows(disk, 30) == [*of(30, b"L\0\0\0\0\1", b"P"), layout.block_key(30, 1, 0)]


def test_creating_a_partition_does_not_wait_for_the_wipes_of_others(disk: Disk) -> None:
    disk.store.commit([CreatePartition(30, "t"), PutChunk(30, 1, 0, b"old"), PutChunk(30, 2, 0, b"old")])
    disk.store.commit([DropPartition(UID), DropPartition(30)])
    left = len(rows(disk))
    disk.store.commit([CreatePartition(30, "t")])
    assert (rows(disk, 30), disk.store.wiping()) == (of(30, b"P"), {UID})
    assert left - len(rows(disk)) == STEP


def test_what_comes_while_the_old_rows_of_a_replica_go_stays(disk: Disk) -> None:
    """The leader may send chunks and epochs at any time: this disk says that it has them."""
    disk.store.commit([PutChunk(UID, upload, 0, b"old") for upload in (1, 2, 3)])
    disk.store.commit([InstallBegin(UID, "t", 6), PutChunk(UID, 4, 0, b"new"), SaveMeta(UID, 7, 0)])
    disk.store.commit([PutChunk(UID, 2, 0, b"new"), SaveMeta(UID, 8, 0)])
    assert disk.store.wiping() == {UID}
    drain(disk)
    chunks = [layout.chunk_key(UID, upload, 0) for upload in (2, 4)]
    assert rows(disk) == [*of(UID, b"M", b"P", b"X"), *chunks]
    assert [disk.payload.get(key) for key in chunks] == [b"new", b"new"]
    assert disk.open().recover()[0].epoch == 8


def test_no_row_of_a_snapshot_goes_with_the_old_ones(disk: Disk) -> None:
    disk.store.commit([InstallBegin(UID, "t", 6)])
    checkpoint = layout.CHECKPOINT.pack(9, 2, 0)
    data = pack_row(0, layout.head(UID, b"C"), checkpoint) + pack_row(1, layout.block_key(UID, 50, 0), b"new")
    disk.store.commit([InstallRows(UID, data), InstallEnd(UID, 9, 2, 6)])
    drain(disk)
    assert rows(disk) == [*of(UID, b"C", b"M", b"P", b"T", b"X"), layout.block_key(UID, 50, 0)]
    assert disk.payload.get(layout.block_key(UID, 50, 0)) == b"new"


def test_a_replica_that_was_dropped_is_read_back_as_an_empty_one(disk: Disk) -> None:
    """What is left of its log looks like damage: it was set aside, and the replica was there again."""
    disk.store.commit([InstallBegin(UID, "t", 6)])
    disk.store.commit([InstallEnd(UID, 0, 0, 6), AppendLog(UID, [barrier(n, 6) for n in range(1, 30)])])
    disk.store.commit([DropPartition(UID)])
    disk.store.commit([])
    found = disk.store.read(ReadPartition(1, UID))
    assert isinstance(found, PartitionRead)
    assert (found.recovered.damaged, found.recovered.installing) == ("", False)
    assert (found.recovered.log_start, found.recovered.log_end) == (1, 0)
    drain(disk)
    assert rows(disk) == []


# ---------------------------------------------------------------- against a store that wipes at once


class History:
    """Random writes that a broker could order, of a few partitions."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._ends: dict[int, int] = {}
        self._filling: dict[int, int] = {}
        self.there: set[int] = set()

    def group(self) -> list[StoreWrite]:
        return [write for _ in range(self._random.randint(1, 3)) for write in self._some()]

    def _some(self) -> list[StoreWrite]:
        random = self._random
        uid = random.randrange(1, 4)
        if uid not in self.there:
            self.there.add(uid)
            self._ends[uid] = 0
            return [CreatePartition(uid, "t")]
        kind = random.random()
        if kind < 0.1:
            self.there.discard(uid)
            self._filling.pop(uid, None)
            return [DropPartition(uid)]
        if kind < 0.25:
            self._filling[uid] = 1
            return [InstallBegin(uid, "t", random.randrange(9))]
        if kind < 0.4:
            upload = random.randrange(12)
            return [PutChunk(uid, upload, 0, random.randbytes(3)), SaveMeta(uid, random.randrange(9), 0)]
        if uid not in self._filling:
            first, self._ends[uid] = self._ends[uid] + 1, self._ends[uid] + random.randint(1, 20)
            return [AppendLog(uid, [insert(n, [b"x"], epoch=9) for n in range(first, self._ends[uid] + 1)])]
        part = self._filling[uid]
        if part < 3:
            self._filling[uid] += 1
            key = bytes([random.randrange(97, 123), part])
            data = pack_row(0, layout.head(uid, key), b"1") + pack_row(
                1, layout.block_key(uid, part, 0), b"2"
            )
            return [InstallRows(uid, data)]
        del self._filling[uid]
        self._ends[uid] = 9
        return [InstallEnd(uid, 9, 1, 2)]


@pytest.mark.parametrize("seed", range(60))
def test_a_store_holds_in_the_end_what_it_would_if_it_wiped_at_once(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiping, "WIPE_ROWS", 1 << 30)
    slow, twin, history, random = Disk(), Disk(), History(seed), Random(seed)
    for disk in (slow, twin):
        disk.store.commit([DropPartition(UID)])
    for _ in range(40):
        group = history.group()
        twin.store.commit(group)
        monkeypatch.setattr(wiping, "WIPE_ROWS", 2)
        slow.store.commit(group)
        for uid in history.there - slow.store.wiping():
            assert rows(slow, uid) == rows(twin, uid)
        monkeypatch.setattr(wiping, "WIPE_ROWS", 1 << 30)
    monkeypatch.setattr(wiping, "WIPE_ROWS", random.randint(1, 5))
    drain(slow)
    for uid in range(1, 4):
        assert rows(slow, uid) == rows(twin, uid)
        for engine, other in ((slow.timeline, twin.timeline), (slow.payload, twin.payload)):
            assert list(engine.scan(*layout.whole(uid))) == list(other.scan(*layout.whole(uid)))


@pytest.mark.parametrize("seed", range(10))
def test_all_that_a_commit_has_written_is_synced_when_it_returns(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are told that a replica is gone, or that it has begun anew: after a power cut it must not be there."""
    monkeypatch.setattr(wiping, "WIPE_ROWS", 2)
    disk, history = Disk(), History(seed)
    for _ in range(40):
        disk.store.commit(history.group())
        assert (disk.timeline.unsynced, disk.payload.unsynced) == (0, 0)
