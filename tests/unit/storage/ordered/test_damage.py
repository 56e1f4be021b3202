"""Bytes that a disk has changed are noticed when they are read, wherever that is."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.storage.ordered.disk import UID, insert

from dueq import limits
from dueq.core.ports.persistence import (
    AppendLog,
    CreatePartition,
    LogRead,
    PutChunk,
    ReadLog,
    ReadSnapshot,
    SaveCheckpoint,
    SnapshotRead,
)
from dueq.storage.ordered import layout
from dueq.storage.ordered.engine import EngineDamaged
from dueq.storage.ordered.leveldb import LevelDbEngine
from dueq.storage.ordered.snapshots import unpack_rows
from dueq.storage.ordered.store import OrderedStore
from dueq.storage.port import StoreFailed

ROWS = 6_000


def key(number: int) -> bytes:
    return b"%08d" % number


def flip(folder: Path) -> None:
    """Change one byte in the middle of the largest table."""
    table = max(folder.glob("*.ldb"), key=lambda file: file.stat().st_size)
    data = bytearray(table.read_bytes())
    data[len(data) // 2] ^= 1
    table.write_bytes(data)


@pytest.fixture
def damaged(tmp_path: Path) -> LevelDbEngine:
    """A database of which one byte of one value is not what was written."""
    engine = LevelDbEngine(tmp_path, write_buffer_bytes=4 << 20)
    engine.write([(key(number), bytes(400)) for number in range(ROWS)], sync=True)
    engine.close()
    LevelDbEngine(tmp_path, write_buffer_bytes=4 << 20).close()  # moves LevelDB's log into a table
    flip(tmp_path)
    return LevelDbEngine(tmp_path, write_buffer_bytes=4 << 20)


@pytest.mark.parametrize("of", ["engine", "snapshot"])
def test_a_changed_byte_is_damage_to_every_way_of_reading(damaged: LevelDbEngine, of: str) -> None:
    """LevelDB checks blocks in compactions only, unless it is told to; a row was taken for what it had never been."""
    reader = damaged if of == "engine" else damaged.snapshot()
    lost = 0
    for number in range(ROWS):
        try:
            assert reader.get(key(number)) == bytes(400)
        except EngineDamaged:
            lost += 1
    assert 0 < lost < 20, "the rows of one block"
    with pytest.raises(EngineDamaged, match="checksum"):
        list(reader.scan(b"", b"\xff"))
    with pytest.raises(EngineDamaged, match="checksum"):
        list(reader.keys(b"", b"\xff"))
    if of == "snapshot":
        with pytest.raises(EngineDamaged, match="checksum"):
            damaged.snapshot().get_many([key(number) for number in range(ROWS)])
    damaged.close()


def filled(folder: Path) -> None:
    """A store with some payloads, and a few thousand rows that the next commit looks at."""
    store = OrderedStore.open(folder, "b1", "one")
    log = [insert(sequence, [b"%05d" % sequence * 2_000]) for sequence in range(1, 40)]
    store.commit([CreatePartition(UID, "t"), AppendLog(UID, log), SaveCheckpoint(UID, 39, 0)])
    store.close()
    timeline = LevelDbEngine(folder / "timeline", write_buffer_bytes=4 << 20)
    gone = [layout.block_key(UID, 0, row) for row in range(5_000)]
    timeline.write([(layout.garbage_key(UID, 0, key), b"") for key in gone], sync=True)
    timeline.close()
    OrderedStore.open(folder, "b1", "one").close()  # moves LevelDB's logs into tables


def assert_begins_anew(folder: Path) -> None:
    """What cannot be used is put aside, so that the broker can catch up from the others."""
    fresh = OrderedStore.open(folder, "b1", "one")
    assert "checksum" in fresh.set_aside
    assert fresh.recover() == [], "of what was put aside nothing is known"
    fresh.commit([CreatePartition(UID, "t")])
    fresh.close()


def test_damage_that_a_commit_meets_is_found_at_the_next_opening(tmp_path: Path) -> None:
    """The broker ended with every start, as each of them met it again."""
    filled(tmp_path)
    flip(tmp_path / "timeline")
    store = OrderedStore.open(tmp_path, "b1", "one")
    store.recover()
    with pytest.raises(StoreFailed, match="checksum"):
        store.commit([])
    store.close()
    assert_begins_anew(tmp_path)


@pytest.mark.parametrize("database", ["timeline", "payload"])
def test_damage_that_a_compaction_meets_is_found_at_the_next_opening(tmp_path: Path, database: str) -> None:
    """LevelDB refuses every write from then on, and compacts the same tables again after each start."""
    filled(tmp_path)
    flip(tmp_path / database)
    store = OrderedStore.open(tmp_path, "b1", "one")
    leveldb = getattr(store, f"_{database}")._engine._db
    for edge in (b"\0", b"\xff"):
        leveldb.put(edge, b"")  # otherwise nothing is merged with the table
    leveldb.compact_range(start=b"\0", stop=b"\xff" * 4)
    with pytest.raises(StoreFailed, match="checksum"):
        store.commit([AppendLog(UID, [insert(40, [b"x"])])])
    store.close()
    assert_begins_anew(tmp_path)


def test_damage_to_a_payload_that_a_snapshot_meets_is_found_at_the_next_opening(tmp_path: Path) -> None:
    filled(tmp_path)
    flip(tmp_path / "payload")
    store = OrderedStore.open(tmp_path, "b1", "one")
    with pytest.raises(StoreFailed, match="checksum"):
        store.read(ReadSnapshot(1, UID, 0, 0, 10 << 20))
    store.close()
    assert_begins_anew(tmp_path)


def read_log(store: OrderedStore, sequence: int) -> int:
    """Read the log from a record on; returns the first one that is not among what was read."""
    found = store.read(ReadLog(1, UID, sequence, 10 << 20))
    assert isinstance(found, LogRead)
    return sequence + len(found.entries)


def test_a_read_of_the_log_ends_before_a_record_whose_payload_is_damaged(tmp_path: Path) -> None:
    """The follower that wants it gets a snapshot. The broker goes on."""
    filled(tmp_path)
    flip(tmp_path / "payload")
    store = OrderedStore.open(tmp_path, "b1", "one")
    ends = [read_log(store, sequence) for sequence in range(1, 40)]
    damaged = next(sequence for sequence, end in enumerate(ends, 1) if end == sequence)
    assert ends[:damaged] == [damaged] * damaged
    assert ends[-1] == 40
    store.close()


def test_a_snapshot_may_leave_out_an_upload_of_which_a_chunk_is_damaged(tmp_path: Path) -> None:
    """For a follower that waits for the chunk in vain: its leader's disk is not to be given up for one payload."""
    store = OrderedStore.open(tmp_path, "b1", "one")
    log = [insert(1, [b"short"]), insert(2, [b""])]
    store.commit([CreatePartition(UID, "t"), AppendLog(UID, log), SaveCheckpoint(UID, 2, 0)])
    chunks = [(5, 0), (5, 1), (5, 2), (5, 3), (6, 0)]
    store.commit([PutChunk(UID, *chunk, bytes(limits.CHUNK_BYTES)) for chunk in chunks])
    store.close()
    timeline = LevelDbEngine(tmp_path / "timeline", write_buffer_bytes=4 << 20)
    timeline.write([(layout.named_key(UID, upload), b"") for upload in (5, 6)], sync=True)
    timeline.close()
    OrderedStore.open(tmp_path, "b1", "one").close()  # moves LevelDB's logs into tables
    flip(tmp_path / "payload")
    store = OrderedStore.open(tmp_path, "b1", "one")
    with pytest.raises(StoreFailed, match="checksum"):
        store.read(ReadSnapshot(1, UID, 0, 0, 10 << 20))
    part = store.read(ReadSnapshot(1, UID, 0, 0, 10 << 20, without_lost=True))
    assert isinstance(part, SnapshotRead)
    assert part.last
    _, payload = unpack_rows(UID, part.data)
    found = [key for key, _ in payload if key[3:4] == b"u"]
    assert found == [layout.chunk_key(UID, *chunk) for chunk in ((5, 0), (5, 1), (6, 0))]
    store.close()
