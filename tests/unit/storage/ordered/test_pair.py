"""Two databases of one store are trusted together: what has lost something is put aside, and never swept."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.storage.ordered.test_store import UID, Disk, barrier, bodies, insert

from dueq.core.ports.persistence import (
    AppendLog,
    CreatePartition,
    DropUpload,
    PutChunk,
    SaveCheckpoint,
    SaveMeta,
)
from dueq.errors import InvalidRequest
from dueq.storage.ordered import aside, layout
from dueq.storage.ordered.engine import EngineDamaged, Operation
from dueq.storage.ordered.leveldb import LevelDbEngine
from dueq.storage.ordered.store import OrderedStore
from dueq.storage.port import StoreFailed

Loss = Callable[[Path, Path, Path], None]
"""(the folder, a backup of it from before, another store's folder)."""


def fill(store: OrderedStore, first: int = 1, count: int = 3) -> None:
    """Some group commits with payloads."""
    for sequence in range(first, first + count):
        store.commit([AppendLog(UID, [insert(sequence, [b"%d" % sequence])]), SaveMeta(UID, 1, sequence)])


def filled(folder: Path) -> str:
    """A folder with a store in it; returns its id."""
    store = OrderedStore.open(folder, "b1", "one")
    store.commit([CreatePartition(UID, "t")])
    fill(store)
    store.close()
    return store.store_id


def _gone(name: str) -> Loss:
    def lose(folder: Path, backup: Path, other: Path) -> None:
        shutil.rmtree(folder / name)

    return lose


def _emptied(name: str) -> Loss:
    def lose(folder: Path, backup: Path, other: Path) -> None:
        shutil.rmtree(folder / name)
        LevelDbEngine(folder / name, write_buffer_bytes=1 << 20).close()

    return lose


def _replaced(name: str, *, by_backup: bool) -> Loss:
    def lose(folder: Path, backup: Path, other: Path) -> None:
        shutil.rmtree(folder / name)
        shutil.copytree((backup if by_backup else other) / name, folder / name)

    return lose


LOSSES = {
    f"{name} {what}": loss
    for name in ("timeline", "payload")
    for what, loss in {
        "is gone": _gone(name),
        "is empty": _emptied(name),
        "is another store's": _replaced(name, by_backup=False),
        "is older": _replaced(name, by_backup=True),
    }.items()
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_store_that_has_lost_one_of_both_is_put_aside(tmp_path: Path, loss: Loss) -> None:
    """The broker is a stranger then, and catches up; what was there is all kept."""
    folder, backup, other = (tmp_path / name for name in ("d", "backup", "other"))
    first_id = filled(folder)
    filled(other)
    shutil.copytree(folder, backup)
    store = OrderedStore.open(folder, "b1", "one")
    fill(store, 4, 2)
    store.close()
    loss(folder, backup, other)
    before = {name: _rows(folder / name) for name in ("timeline", "payload")}
    again = OrderedStore.open(folder, "b1", "one")
    assert again.set_aside
    assert again.store_id != first_id
    assert again.recover() == []
    again.close()
    for name, rows in before.items():
        assert _rows(folder / f"{name}.damaged-1") == rows, f"{name} was swept"


def _rows(folder: Path) -> list[tuple[bytes, bytes]]:
    if not folder.exists():
        return []
    engine = LevelDbEngine(folder, write_buffer_bytes=1 << 20)
    rows = list(engine.scan(b"", layout.BEHIND_ALL))
    engine.close()
    return rows


def test_an_older_timeline_is_noticed_although_no_payload_was_written_since(tmp_path: Path) -> None:
    """The start has told `payload/` where `timeline/` was."""
    folder, backup = tmp_path / "d", tmp_path / "backup"
    filled(folder)
    shutil.copytree(folder, backup)
    for sequence in (4, 5):
        store = OrderedStore.open(folder, "b1", "one")
        store.commit([AppendLog(UID, [barrier(sequence, 1)])])
        store.close()
    shutil.rmtree(folder / "timeline")
    shutil.copytree(backup / "timeline", folder / "timeline")
    again = OrderedStore.open(folder, "b1", "one")
    assert "timeline/ is older" in again.set_aside
    again.close()


def test_both_restored_together_are_one_store(tmp_path: Path) -> None:
    """A machine's snapshot: it holds less than it had acked, which the mesh sees."""
    folder, backup = tmp_path / "d", tmp_path / "backup"
    filled(folder)
    shutil.copytree(folder, backup)
    store = OrderedStore.open(folder, "b1", "one")
    fill(store, 4, 2)
    store.close()
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)
    again = OrderedStore.open(folder, "b1", "one")
    assert not again.set_aside
    assert again.recover()[0].log_end == 3
    again.close()


def test_a_store_of_before_there_were_stamps_opens_and_is_stamped(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    first_id = filled(folder)
    for name, rows in {"timeline": [layout.STAMP], "payload": [layout.STAMP, layout.STORE_ID]}.items():
        engine = LevelDbEngine(folder / name, write_buffer_bytes=1 << 20)
        engine.write([(key, None) for key in rows], sync=True)
        engine.close()
    again = OrderedStore.open(folder, "b1", "one")
    assert (again.store_id, again.set_aside) == (first_id, "")
    assert bodies(again.recover()[0].tail)[2] == (3, 1, b"3")
    again.close()
    shutil.rmtree(folder / "payload")
    once_more = OrderedStore.open(folder, "b1", "one")
    assert "payload/ of the store" in once_more.set_aside
    once_more.close()


def test_another_brokers_folder_is_refused_whatever_it_has_lost(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    filled(folder)
    shutil.rmtree(folder / "payload")
    with pytest.raises(InvalidRequest, match="belongs to broker 'b1'"):
        OrderedStore.open(folder, "b2", "one")
    assert not list(folder.glob("*.damaged-*"))


# ---------------------------------------------------------------- crashes of one's own are no losses


def test_a_crash_before_any_write_leaves_one_store() -> None:
    """Any number of a life's first writes may have reached the disk."""
    writes = 1
    while True:
        disk, left = Disk.__new__(Disk), [writes]
        timeline, payload = _Fused(left), _Fused(left)
        disk.timeline, disk.payload = timeline, payload
        try:
            disk.open().commit([CreatePartition(UID, "t")])
            fill(disk.store)
            disk.store.commit([PutChunk(UID, 7, 0, b"chunk")])
            disk.store.commit([SaveCheckpoint(UID, 3, 0), DropUpload(UID, 7)])
            disk.open()
            fill(disk.store, 4)
        except StoreFailed:
            for engine in (timeline, payload):
                engine.crash()
            left[0] = 1_000
            fill(_opened(disk), _next(disk))
            writes += 1
            continue
        break
    assert writes > 15


def _opened(disk: Disk) -> OrderedStore:
    store = disk.open()
    if UID not in {found.uid for found in store.recover()}:
        store.commit([CreatePartition(UID, "t")])
    return store


def _next(disk: Disk) -> int:
    found = disk.open().recover()
    return found[0].log_end + 1 if found else 1


class _Fused(type(Disk().timeline)):  # type: ignore[misc]
    """An engine in memory that takes so many writes, of both together."""

    def __init__(self, left: list[int]) -> None:
        super().__init__()
        self._left = left

    def write(self, operations: list[Operation], *, sync: bool) -> None:
        if not self._left[0]:
            raise StoreFailed("no more")
        self._left[0] -= 1
        super().write(operations, sync=sync)


@pytest.mark.parametrize("name", ["timeline", "payload"])
def test_an_unsynced_write_is_noticed_when_it_is_lost(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were one of the two not synced, a crash would leave them apart."""
    disk = Disk()
    engine = getattr(disk, name)
    plain = engine.write
    monkeypatch.setattr(engine, "write", lambda operations, *, sync: plain(operations, sync=False))
    fill(disk.store)
    engine.crash()
    with pytest.raises(EngineDamaged, match=f"{name}/ is older"):
        disk.open()


# ---------------------------------------------------------------- putting aside


@pytest.mark.parametrize("renames", [0, 1, 2])
def test_a_crash_while_a_store_is_put_aside_loses_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    """One database was renamed, the other not yet: it stays with the one that it belongs to."""
    folder = tmp_path / "d"
    filled(folder)
    payloads = _rows(folder / "payload")
    _damage(folder / "timeline")
    left, plain = [renames], Path.rename

    def rename(path: Path, target: Path) -> Path:
        if not left[0]:
            raise KeyboardInterrupt  # as good as a crash: nothing catches it
        left[0] -= 1
        return plain(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", rename)
        if renames < 2:
            with pytest.raises(KeyboardInterrupt):
                OrderedStore.open(folder, "b1", "one")
        else:
            patched.setattr(aside, "_sync", lambda folder: None)
            OrderedStore.open(folder, "b1", "one").close()
    again = OrderedStore.open(folder, "b1", "one")
    assert renames == 2 or "kept as" in again.set_aside
    assert again.recover() == []
    again.close()
    assert _rows(folder / "payload.damaged-1") == payloads
    assert (folder / "timeline.damaged-1").exists()
    assert not list(folder.glob("*.damaged-2"))
    assert not (folder / "putting-aside").exists()


def _damage(folder: Path) -> None:
    for table in [*folder.glob("*.ldb"), *folder.glob("*.log")]:
        data = bytearray(table.read_bytes())
        for at in range(50, len(data), 97):
            data[at] ^= 0xFF
        table.write_bytes(data)
