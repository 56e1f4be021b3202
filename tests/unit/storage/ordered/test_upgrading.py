"""A store of an older format becomes one of the present format, whatever happens meanwhile.

`folders/format-N.tar.xz` are data folders that the last build of format N wrote (`folders/make.py`). The steps here are
made up: one renames keys and rewrites values of both databases, the other takes that back, so that the present code
can read what two steps have made of it.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from dueq.core.ports.entry import State
from dueq.errors import InvalidRequest, UnknownVersion
from dueq.storage.ordered import layout, upgrading
from dueq.storage.ordered.engine import Operation, Reader
from dueq.storage.ordered.format import FORMAT, FORMATS, Change, Formats, Step
from dueq.storage.ordered.leveldb import LevelDbEngine
from dueq.storage.ordered.memory import MemoryEngine
from dueq.storage.ordered.store import OrderedStore

FOLDERS = Path(__file__).parent / "folders"
Rows = list[tuple[bytes, bytes]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as the last build of format 1 wrote it."""
    with tarfile.open(FOLDERS / "format-1.tar.xz") as archive:
        for member in archive:
            target, source = tmp_path / "b1" / member.name, archive.extractfile(member)
            assert source is not None
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read())
    return tmp_path / "b1"


def _renamed(there: dict[bytes, bytes], turned: bool) -> Step:
    def changes(timeline: Reader, payload: Reader) -> Iterator[Change]:
        for which, database in enumerate((timeline, payload)):
            for key, value in database.scan(layout.FIRST_UID, layout.BEHIND_ALL):
                tag = there.get(key[3:4])
                if tag is not None:
                    yield which, key, None
                    yield which, key[:3] + tag + key[4:], value[::-1]
                elif not turned and key[3:4] == b"P":
                    yield which, key, value + b"!"
                elif key[3:4] == b"P":
                    yield which, key, value[:-1]

    return Step(FORMAT + turned, changes)


TAGS = {b"d": b"D", b"i": b"I", b"l": b"E", b"b": b"B", b"j": b"J"}
AWAY = _renamed(TAGS, turned=False)
BACK = _renamed({after: before for before, after in TAGS.items()}, turned=True)
NEXT = Formats(FORMAT + 1, (AWAY,))
NEXT_BUT_ONE = Formats(FORMAT + 2, (AWAY, BACK))


def rows_in(timeline: Reader, payload: Reader) -> tuple[Rows, Rows]:
    """The partitions that both databases hold."""
    first, last = layout.FIRST_UID, layout.BEHIND_ALL
    return list(timeline.scan(first, last)), list(payload.scan(first, last))


def rows_of(folder: Path) -> tuple[Rows, Rows]:
    engines = [LevelDbEngine(folder / name, write_buffer_bytes=1 << 20) for name in ("timeline", "payload")]
    try:
        return rows_in(*engines)
    finally:
        for engine in engines:
            engine.close()


def test_a_folder_of_the_first_format_has_everything(folder: Path) -> None:
    store = OrderedStore.open(folder, "b1")
    assert store.upgraded == ""
    found = store.recover()
    assert [(part.topic, part.damaged, part.unreadable, part.unknown) for part in found] == [
        ("kept", "", "", "")
    ] * 2
    assert sum(len(part.leased) for part in found) == 5
    assert {int(state) for part in found for state in part.leased["state"]} == {State.LEASED}
    tags = {key[3:4] for rows in rows_in(store._timeline, store._payload) for key, _ in rows}
    assert tags >= {b"L", b"i", b"o", b"l", b"d", b"a", b"j", b"f", b"g", b"v", b"b", b"u", b"C", b"M"}
    store.close()


def test_a_store_is_brought_through_every_format_up_to_the_newest(folder: Path) -> None:
    before = rows_of(folder)
    store = OrderedStore.open(folder, "b1", formats=NEXT_BUT_ONE)
    assert store.upgraded == "1"
    found = store.recover()
    assert [part.damaged for part in found] == ["", ""]
    assert sum(len(part.leased) for part in found) == 5
    store.close()
    assert rows_of(folder) == before
    store = OrderedStore.open(folder, "b1", formats=NEXT_BUT_ONE)
    assert store.upgraded == ""
    store.close()


def test_a_store_of_a_newer_format_is_refused_with_both_numbers_and_what_to_do(folder: Path) -> None:
    OrderedStore.open(folder, "b1", formats=NEXT_BUT_ONE).close()
    before = rows_of(folder)
    with pytest.raises(
        UnknownVersion, match=r"has format 3; this build knows 1\. A newer version.* run that version"
    ):
        OrderedStore.open(folder, "b1")
    with pytest.raises(UnknownVersion, match=r"has format 3; this build knows 1 to 2\."):
        OrderedStore.open(folder, "b1", formats=NEXT)
    assert rows_of(folder) == before
    assert not list(folder.glob("*.damaged-*"))


def test_a_store_older_than_all_that_is_supported_is_refused_with_what_to_do(folder: Path) -> None:
    with pytest.raises(
        UnknownVersion, match=r"has format 1; this build knows 2 to 3\. Start a version in between"
    ):
        OrderedStore.open(folder, "b1", formats=Formats(FORMAT + 2, (BACK,)))
    OrderedStore.open(folder, "b1").close()


def test_a_store_of_another_broker_is_not_upgraded(folder: Path) -> None:
    before = rows_of(folder)
    with pytest.raises(InvalidRequest, match="belongs to broker 'b1'"):
        OrderedStore.open(folder, "b2", formats=NEXT_BUT_ONE)
    assert rows_of(folder) == before
    store = OrderedStore.open(folder, "b1")
    store.close()


def test_a_new_store_begins_with_the_newest_format(tmp_path: Path) -> None:
    OrderedStore.open(tmp_path, "b1", formats=NEXT).close()
    with pytest.raises(UnknownVersion, match="has format 2"):
        OrderedStore.open(tmp_path, "b1")


class Dying(Exception):
    """The process is gone."""


class Fused(MemoryEngine):
    """A database whose process dies at one of its writes: before it, or right after it."""

    fuse: ClassVar[list[int]] = [0]
    """Writes until then, of both databases."""

    def write(self, operations: Iterable[Operation], *, sync: bool) -> None:
        assert sync, "what an upgrade writes is durable"
        before, Fused.fuse[0] = Fused.fuse[0] == 1, Fused.fuse[0] - 1
        if before:
            raise Dying
        super().write(operations, sync=sync)
        if Fused.fuse[0] == 0:
            Fused.fuse[0] = -1
            raise Dying


def everything_in(folder: Path) -> list[Rows]:
    """The rows of both databases, those of the store itself included."""
    found = []
    for name in ("timeline", "payload"):
        database = LevelDbEngine(folder / name, write_buffer_bytes=1 << 20)
        found.append(list(database.scan(b"", layout.BEHIND_ALL)))
        database.close()
    return found


def loaded(rows: list[Rows]) -> tuple[Fused, Fused]:
    """Databases in memory that hold these."""
    Fused.fuse[0] = 1 << 30
    engines = Fused(), Fused()
    for engine, held in zip(engines, rows, strict=True):
        engine.write(held, sync=True)
    return engines


def attempt(engines: tuple[Fused, Fused], formats: Formats, fuse: int = 1 << 30) -> bool:
    """Open the store; returns whether it came to its end."""
    Fused.fuse[0] = fuse
    try:
        OrderedStore.on(*engines, "b1", "", "", formats=formats)
    except Dying:
        return False
    finally:
        Fused.fuse[0] = 1 << 30
    return True


@pytest.mark.parametrize("again", [0, 2])
def test_killed_at_any_write_it_is_of_the_old_format_or_the_new_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch, again: int
) -> None:
    """And the next attempt comes to the same end, also if it is killed, too, and if the old build ran in between."""
    monkeypatch.setattr(upgrading, "_BATCH_ROWS", 40)
    OrderedStore.open(folder, "b1").close()  # what an opening writes anyway is written
    rows = everything_in(folder)
    whole = loaded(rows)
    old = rows_in(*whole)
    assert attempt(whole, NEXT_BUT_ONE)
    new = rows_in(*whole)
    assert new == old  # there and back
    seen = set()
    for fuse in range(1, 1000):
        engines = loaded(rows)
        if attempt(engines, NEXT_BUT_ONE, fuse):
            break
        number = engines[0].get(layout.STORE_FORMAT)
        seen.add(number)
        if number == b"1":
            assert rows_in(*engines) == old, f"killed at write {fuse}, nothing has changed yet"
            assert attempt(engines, FORMATS), "the old build goes on with it"
            assert rows_in(*engines) == old
        else:
            with pytest.raises(UnknownVersion):
                attempt(engines, FORMATS)
        for other in range(1, again + 1):
            attempt(engines, NEXT_BUT_ONE, other)
        assert attempt(engines, NEXT_BUT_ONE)
        assert rows_in(*engines) == new
        for engine in engines:
            assert not list(engine.keys(layout.JOURNAL, layout.after(layout.JOURNAL))), "nothing is left over"
            assert engine.get(layout.UPGRADING) is None
    else:
        pytest.fail("it never came to its end")
    assert seen == {b"1", b"2", b"3"}


def test_what_an_interrupted_attempt_has_left_is_not_carried_out_by_a_shorter_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old build ran in between, and has deleted much. Nothing of it may come back."""
    monkeypatch.setattr(upgrading, "_BATCH_ROWS", 40)
    OrderedStore.open(folder, "b1").close()
    rows = everything_in(folder)
    engines = left = loaded(rows)
    for fuse in range(1, 1000):
        engines = loaded(rows)
        attempt(engines, NEXT_BUT_ONE, fuse)
        if engines[0].get(layout.STORE_FORMAT) != b"1":
            break
        left = engines
    assert any(list(engine.keys(layout.JOURNAL, layout.after(layout.JOURNAL))) for engine in left)
    for engine in left:
        last = [key for key, _ in engine.scan(layout.FIRST_UID, layout.BEHIND_ALL)][-1][:3]
        gone = [(key, None) for key, _ in engine.scan(last, layout.BEHIND_ALL)]
        engine.write(gone, sync=True)
    kept = rows_in(*left)
    assert attempt(left, NEXT_BUT_ONE)
    assert rows_in(*left) == kept
