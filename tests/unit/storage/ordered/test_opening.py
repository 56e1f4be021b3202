"""A store that cannot be opened, since the machine refuses, is as good as before once it does not."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.unit.storage.ordered.test_store import insert

from dueq.core.ports.persistence import AppendLog, CreatePartition, ReadPartition, SaveCheckpoint
from dueq.storage.ordered import layout
from dueq.storage.ordered.leveldb import LevelDbEngine
from dueq.storage.ordered.rows import pack_row, read_rows
from dueq.storage.ordered.space import Space
from dueq.storage.ordered.store import OrderedStore
from dueq.storage.port import StoreFailed
from dueq_codecs.envelope import seal
from dueq_codecs.layouts import Kind
from dueq_codecs.log import RECORD
from dueq_codecs.records import LogEntry, Record, RecordKind

UID = 9


@contextmanager
def limit(which: int, soft: int) -> Iterator[None]:
    """This process may have no more of something for a while."""
    before = resource.getrlimit(which)
    resource.setrlimit(which, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(which, before)


def lowest_free_descriptor() -> int:
    """The next file that is opened would have this number."""
    descriptor = os.open("/dev/null", os.O_RDONLY)
    os.close(descriptor)
    return descriptor


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store that holds something, and whose reserve has been given up."""
    folder = tmp_path / "d"
    store = OrderedStore.open(folder, "b1", "one")
    store.commit([CreatePartition(UID, "t")])
    for sequence in range(1, 40):
        store.commit([AppendLog(UID, [insert(sequence, [b"x" * 1_000] * 20)])])
    store.close()
    return folder


def test_without_room_on_the_disk_nothing_is_set_aside(folder: Path) -> None:
    """A broker that was started again on a full disk dropped all that it had."""
    # What LevelDB meets is EFBIG here, and ENOSPC on a full disk.
    with limit(resource.RLIMIT_FSIZE, 16), pytest.raises(StoreFailed, match="File too large"):
        OrderedStore.open(folder, "b1", "one")
    assert_whole(folder)


def test_without_files_to_open_nothing_is_set_aside(folder: Path) -> None:
    refused = 0
    for files in range(12):
        with limit(resource.RLIMIT_NOFILE, lowest_free_descriptor() + files):
            try:
                OrderedStore.open(folder, "b1", "one").close()
            except StoreFailed as error:
                assert "Too many open files" in str(error)  # noqa: PT017 (with many it opens)
                refused += 1
    assert refused
    assert_whole(folder)


def test_a_store_that_cannot_be_opened_gives_up_its_reserve(folder: Path) -> None:
    (folder / "ballast").write_bytes(b"reserve")
    with limit(resource.RLIMIT_FSIZE, 16), pytest.raises(StoreFailed):
        OrderedStore.open(folder, "b1", "one")
    assert not (folder / "ballast").exists()


def test_a_folder_that_cannot_be_made_is_no_refusal_of_the_settings(folder: Path) -> None:
    """A broker that could not lock its folder ended with the code of wrong settings, so nobody started it again."""
    (folder / "lock").unlink()
    (folder / "lock").mkdir()
    (folder / "ballast").write_bytes(b"reserve")
    with pytest.raises(StoreFailed, match="Is a directory"):
        OrderedStore.open(folder, "b1", "one")
    assert not (folder / "ballast").exists()


def test_a_reserve_that_cannot_be_given_up_hides_no_failure(folder: Path) -> None:
    """On a disk that has become read-only the broker ended with the code of wrong settings, and with another reason."""
    (folder / "ballast").unlink(missing_ok=True)
    (folder / "ballast").mkdir()
    with limit(resource.RLIMIT_FSIZE, 16), pytest.raises(StoreFailed, match="File too large"):
        OrderedStore.open(folder, "b1", "one")
    store = OrderedStore.open(folder, "b1", "one")
    store.release_reserve()
    store.close()


def test_a_reserve_of_which_a_crash_has_left_nothing_is_made_again(folder: Path) -> None:
    (folder / "ballast").write_bytes(b"")
    OrderedStore.open(folder, "b1", "one").close()
    assert (folder / "ballast").stat().st_size > 0


def test_a_disk_without_locks_is_not_in_use(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(lock: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StoreFailed, match="No locks available"):
        OrderedStore.open(folder, "b1", "one")


def test_a_store_is_opened_without_a_reserve_where_there_may_be_none(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, offset: int, length: int) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    (folder / "ballast").unlink(missing_ok=True)
    monkeypatch.setattr(os, "posix_fallocate", refuse)
    assert_whole(folder)
    assert not (folder / "ballast").exists()


@pytest.mark.parametrize("databases", [("timeline",), ("payload",), ("timeline", "payload")])
def test_a_database_whose_first_file_is_gone_is_set_aside_with_all_others(
    folder: Path, databases: tuple[str, ...]
) -> None:
    """LevelDB takes it for a new one, and deletes the files that a new one does not have: all data."""
    before = {}
    for name in databases:
        (folder / name / "CURRENT").unlink()
        before[name] = {file.name: file.read_bytes() for file in (folder / name).glob("[0-9]*")}
        assert sum(map(len, before[name].values())) > 10_000
    store = OrderedStore.open(folder, "b1", "one")
    assert "CURRENT is gone" in store.set_aside
    assert store.recover() == []
    store.close()
    for name in databases:
        aside = folder / f"{name}.damaged-1"
        assert {file.name: file.read_bytes() for file in aside.glob("[0-9]*")} == before[name]


def test_a_database_whose_beginning_a_crash_has_interrupted_is_begun_anew(tmp_path: Path) -> None:
    """LevelDB names the first file last."""
    for name in ("timeline", "payload"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "MANIFEST-000001").touch()
        (tmp_path / name / "000001.dbtmp").touch()
    store = OrderedStore.open(tmp_path, "b1", "one")
    assert store.set_aside == ""
    store.close()


def damage(folder: Path, tag: bytes, value: bytes | None) -> None:
    """A row of partition UID is another one, or gone; partition 10 is whole."""
    store = OrderedStore.open(folder, "b1", "one")
    store.commit([CreatePartition(UID + 1, "other"), AppendLog(UID + 1, [insert(1, [b"kept"])])])
    store.close()
    OrderedStore.open(folder, "b1", "one").close()  # what is in LevelDB's log is in a table from now on
    timeline = LevelDbEngine(folder / "timeline", write_buffer_bytes=1 << 20)
    timeline.write([(layout.head(UID, tag), value)], sync=True)
    timeline.close()


SECOND_RECORD = b"L" + (2).to_bytes(5, "big")


def rows_of(folder: Path) -> list[tuple[int, bytes, bytes]]:
    """Everything of partition UID that is in the databases."""
    found = []
    for which, name in enumerate(("timeline", "payload")):
        engine = LevelDbEngine(folder / name, write_buffer_bytes=1 << 20)
        found += [(which, key, value) for key, value in engine.scan(*layout.whole(UID))]
        engine.close()
    return found


def assert_stays_as_it_is(folder: Path, before: list[tuple[int, bytes, bytes]]) -> str:
    """The broker has its other partition; returns why it has not this one."""
    store = OrderedStore.open(folder, "b1", "one")
    found, other = store.recover()
    store.commit([AppendLog(UID + 1, [insert(other.log_end + 1, [b"new"])])])
    store.close()
    assert (found.damaged, other.damaged, other.unreadable) == ("", "", "")
    assert rows_of(folder) == before
    assert not list(folder.glob("partition-*"))
    return found.unreadable


def test_a_damaged_replica_that_is_larger_than_the_free_space_is_left_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its broker never came up again."""
    damage(folder, SECOND_RECORD, None)
    before = rows_of(folder)
    with monkeypatch.context() as patch:
        patch.setattr(Space, "spare_bytes", lambda space: 300_000)
        reason = assert_stays_as_it_is(folder, before)
    assert "the log of partition 9 has 3 after 1. Its rows stay as they are" in reason
    missing = sum(len(pack_row(*row)) for row in before) - 300_000
    assert f"free {missing} bytes there, and start the broker again" in reason
    store = OrderedStore.open(folder, "b1", "one")
    assert store.recover()[0].damaged
    store.close()
    assert list(read_rows((folder / "partition-9.damaged-1").read_bytes())) == before


def test_half_a_copy_of_a_damaged_replica_does_not_stay(folder: Path) -> None:
    damage(folder, SECOND_RECORD, None)
    before = rows_of(folder)
    with limit(resource.RLIMIT_FSIZE, 100_000):
        reason = assert_stays_as_it_is(folder, before)
    assert "cannot be copied" in reason
    assert "File too large. Mend that, and start the broker again" in reason


def test_half_a_copy_that_a_crash_has_left_is_no_copy(folder: Path) -> None:
    """It looked like one, and each further crash left one more."""
    (folder / "partition-9.copying").write_bytes(b"half")
    assert_whole(folder)
    assert not (folder / "partition-9.copying").exists()


def test_a_replica_that_is_read_back_damaged_and_cannot_be_kept_ends_the_broker(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start leaves it out; nobody may take it for an empty one until then."""
    store = OrderedStore.open(folder, "b1", "one")
    store._timeline.write([(layout.log_key(UID, 2), None)], sync=True)
    monkeypatch.setattr(Space, "spare_bytes", lambda space: 0)
    with pytest.raises(StoreFailed, match="has 3 after 1"):
        store.read(ReadPartition(1, UID))
    store.close()


def test_a_log_that_has_lost_its_end_is_kept_with_all_its_payloads(folder: Path) -> None:
    """Blocks behind the end of a log are deleted, but not before the log counts as whole."""
    store = OrderedStore.open(folder, "b1", "one")
    store.commit([SaveCheckpoint(UID, 39, 0)])
    store.close()
    damage(folder, b"L" + (39).to_bytes(5, "big"), None)
    before = rows_of(folder)
    store = OrderedStore.open(folder, "b1", "one")
    assert "ends at 38, before the checkpoint at 39" in store.recover()[0].damaged
    store.close()
    assert list(read_rows((folder / "partition-9.damaged-1").read_bytes())) == before


@pytest.mark.parametrize("tag", [b"C", b"T", SECOND_RECORD])
def test_a_row_that_is_cut_short_costs_one_replica_and_not_the_broker(folder: Path, tag: bytes) -> None:
    damage(folder, tag, b"\xff")
    store = OrderedStore.open(folder, "b1", "one")
    found, other = store.recover()
    assert found.damaged
    assert (other.damaged, other.log_end) == ("", 1)
    store.close()


def assert_whole(folder: Path) -> None:
    """Everything is there, and nothing was put aside."""
    store = OrderedStore.open(folder, "b1", "one")
    [found] = store.recover()
    assert (store.set_aside, found.damaged, found.log_end) == ("", "", 39)
    assert not list(folder.glob("*.damaged-*"))
    store.close()


def test_a_record_that_only_a_newer_build_can_read_is_no_damage(folder: Path) -> None:
    """One replica is left as it is; a broker that was taken back to an older build opens all the others."""
    store = OrderedStore.open(folder, "b1", "one")
    kind = max(RecordKind) + 1
    record = Record(kind, UID, 40, 1, 500)  # type: ignore[arg-type]
    record.encoded = seal(Kind.RECORD, RECORD.write(record))
    store.commit([AppendLog(UID, [LogEntry(record)]), CreatePartition(UID + 1, "other")])
    store.close()
    store = OrderedStore.open(folder, "b1", "one")
    found, other = store.recover()
    assert f"kind {kind}, which is not known" in found.unreadable
    assert (found.damaged, other.uid, other.unreadable) == ("", UID + 1, "")
    store.close()
    assert not list(folder.glob("*.damaged-*"))
    timeline = LevelDbEngine(folder / "timeline", write_buffer_bytes=1 << 20)
    assert timeline.get(layout.log_key(UID, 40)) is not None
    assert timeline.get(layout.head(UID, b"X")) is None
    timeline.close()
