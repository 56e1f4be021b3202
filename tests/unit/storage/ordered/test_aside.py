"""What cannot be trusted is put aside beside what was put aside before, and a crash in the middle stops no start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dueq.storage.ordered.aside import drop_halves, go_on_putting_aside, keep_rows, put_aside
from dueq.storage.port import StoreFailed


def database(folder: Path, name: str, content: str) -> None:
    (folder / name).mkdir()
    (folder / name / "file").write_text(content)


def contents(folder: Path) -> dict[str, str]:
    """What there is in a folder, by name."""
    return {
        found.name: (found / "file").read_text() if found.is_dir() else found.read_text()
        for found in sorted(folder.iterdir())
    }


@pytest.mark.parametrize("before", ["timeline", "payload"])
def test_a_store_is_put_aside_beside_half_of_one_that_was_put_aside_before(
    tmp_path: Path, before: str
) -> None:
    """Of the earlier one only one database was left. Both databases of this one get the same number."""
    database(tmp_path, f"{before}.damaged-1", "old")
    for name in ("timeline", "payload"):
        database(tmp_path, name, f"new {name}")
    assert put_aside(tmp_path) == f"{tmp_path}/{{timeline,payload}}.damaged-2"
    assert contents(tmp_path) == {
        f"{before}.damaged-1": "old",
        "timeline.damaged-2": "new timeline",
        "payload.damaged-2": "new payload",
    }


def test_a_store_of_which_half_is_gone_is_put_aside(tmp_path: Path) -> None:
    database(tmp_path, "payload", "kept")
    put_aside(tmp_path)
    assert contents(tmp_path) == {"payload.damaged-1": "kept"}


def test_a_folder_that_cannot_be_written_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="cannot be put aside: No such file or directory"):
        put_aside(tmp_path / "none")


def test_a_crash_before_the_number_was_written_leaves_the_store_where_it_is(tmp_path: Path) -> None:
    """The file of the number was there, and empty: every further start would have met it."""
    database(tmp_path, "timeline", "whole")
    (tmp_path / "putting-aside").touch()
    assert go_on_putting_aside(tmp_path) == ""
    assert contents(tmp_path) == {"timeline": "whole"}


def test_a_start_renames_what_the_one_before_has_left_under_the_same_number(tmp_path: Path) -> None:
    database(tmp_path, "timeline.damaged-3", "renamed")
    database(tmp_path, "payload", "left")
    (tmp_path / "putting-aside").write_text("3")
    assert go_on_putting_aside(tmp_path).endswith("damaged-3")
    assert contents(tmp_path) == {"timeline.damaged-3": "renamed", "payload.damaged-3": "left"}
    assert go_on_putting_aside(tmp_path) == ""


def test_a_store_that_was_begun_since_is_not_put_aside_with_the_one_before(tmp_path: Path) -> None:
    """The power was cut before the disk had forgotten the number."""
    for name in ("timeline", "payload"):
        database(tmp_path, f"{name}.damaged-1", "old")
        database(tmp_path, name, "new")
    (tmp_path / "putting-aside").write_text("1")
    go_on_putting_aside(tmp_path)
    assert contents(tmp_path) == {
        "timeline": "new", "timeline.damaged-1": "old", "payload": "new", "payload.damaged-1": "old",
    }  # fmt: skip


def test_a_replica_that_is_damaged_again_is_kept_beside_its_earlier_copy(tmp_path: Path) -> None:
    kept = [keep_rows(tmp_path, uid, rows) for uid, rows in [(9, [b"a", b"b"]), (9, [b"c"]), (8, [b"d"])]]
    assert [path.name for path in kept] == [
        "partition-9.damaged-1",
        "partition-9.damaged-2",
        "partition-8.damaged-1",
    ]
    assert [path.read_bytes() for path in kept] == [b"ab", b"c", b"d"]


def test_only_copies_that_are_not_whole_are_deleted(tmp_path: Path) -> None:
    kept = keep_rows(tmp_path, 9, [b"whole"])
    (tmp_path / "partition-9.copying").write_bytes(b"half")
    drop_halves(tmp_path)
    assert list(tmp_path.iterdir()) == [kept]


def next_descriptor(folder: Path) -> int:
    """The number that the next file to be opened gets: the least one that is free."""
    descriptor = os.open(folder, os.O_RDONLY)
    os.close(descriptor)
    return descriptor


def test_what_is_put_aside_keeps_no_folder_open(tmp_path: Path) -> None:
    """Each damaged replica would cost the broker a descriptor, until it cannot take a connection any more."""
    before = next_descriptor(tmp_path)
    for uid in range(3):
        keep_rows(tmp_path, uid, [b"a"])
    database(tmp_path, "payload", "kept")
    put_aside(tmp_path)
    assert next_descriptor(tmp_path) == before
