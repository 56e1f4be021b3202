"""What is written in the short form is read as it was, beside rows that were written before there was one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.unit.storage.ordered.disk import UID, Disk, entries, insert

from dueq.core.ports.entry import (
    ENTRY,
    FULL,
    WIDE,
    Entries,
    State,
    canonical,
    from_words,
    keys_of,
    packed,
    widened,
    words_of,
)
from dueq.core.ports.persistence import (
    AppendLog,
    EntriesRead,
    IndexScanned,
    PageRead,
    ReadEntries,
    ReadPage,
    SaveCheckpoint,
    ScanIndex,
)
from dueq.storage.ordered import layout
from dueq.storage.ordered.engine import EngineDamaged
from dueq.storage.ordered.short_rows import entries_of, job_of_row, place_of_row, row_of, shortened

WIDTHS = [dtype.itemsize for dtype in (ENTRY, WIDE, FULL)]
KEPT_IN_KEYS = {"wait_at": 6, "sequence": 5}


def any_entries(width: int, share: float, count: int = 300, seed: int = 1) -> Entries:
    """Waiting entries of which each word is drawn with this chance, and as expected otherwise."""
    chance = np.random.default_rng(seed)
    words = np.zeros((count, width // 8), np.uint64)
    drawn = chance.random(words.shape) < share
    words[drawn] = chance.integers(0, 1 << 64, int(drawn.sum()), np.uint64, endpoint=False)
    found = from_words(words)
    for field, length in KEPT_IN_KEYS.items():
        found[field] = chance.integers(0, 1 << 8 * length, count, np.uint64)
    as_expected = chance.random(count) < 0.5
    for field in ("first", "due"):
        found[field] = np.where(as_expected, found["wait_at"], found[field])
    found["state"] = State.WAITING
    return found


def rows_of(found: Entries, values: Callable[[Entries], list[bytes]]) -> list[bytes]:
    keys = layout.index_keys(UID, found["wait_at"], keys_of(found))
    return [row_of(key, value) for key, value in zip(keys, values(found), strict=True)]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_whatever_an_entry_holds_it_is_read_as_it_was(width: int, share: float) -> None:
    found = any_entries(width, share)
    rows = rows_of(found, shortened)
    assert canonical(entries_of(rows)) == canonical(found)
    assert [place_of_row(row) for row in rows] == list(
        zip(found["wait_at"].tolist(), keys_of(found).tolist(), strict=True)
    )
    assert [job_of_row(row) for row in rows] == found["job"].tolist()
    assert all(len(short) <= len(long) for short, long in zip(shortened(found), packed(found), strict=True))


@pytest.mark.parametrize("width", WIDTHS)
def test_both_forms_are_read_side_by_side_in_their_order(width: int) -> None:
    found = any_entries(width, 0.2)
    forms = [rows_of(found, form) for form in (shortened, packed)]
    mixed = [forms[at % 3 == 0][at] for at in range(len(found))]
    read = entries_of(mixed)
    assert np.array_equal(keys_of(read), keys_of(found))
    assert canonical(read) == canonical(found)
    assert [job_of_row(row) for row in mixed] == found["job"].tolist()


def test_an_entry_as_it_was_scheduled_takes_28_bytes() -> None:
    found = entries(*((1, row, 2_000 + row) for row in range(1, 5)))
    found["first"] = found["due"] = found["wait_at"]
    found["place"] |= np.uint64(7 << 32)
    assert {len(value) for value in shortened(found)} == {28}


@pytest.mark.parametrize("width", WIDTHS[:-1])
def test_a_word_right_behind_a_shorter_entry_is_read(width: int) -> None:
    """An entry is as wide as its last word needs, and no narrower."""
    words = np.zeros((2, FULL.itemsize // 8), np.uint64)
    words[1, width // 8] = 5
    found = from_words(words)
    found["state"] = State.WAITING
    assert np.array_equal(
        words_of(widened(entries_of(rows_of(found, shortened)), FULL.itemsize)), words_of(found)
    )


def test_a_row_with_words_that_no_entry_has_is_damage() -> None:
    row = bytearray(rows_of(entries((1, 1, 2_000)), shortened)[0])
    row[16] |= 0x80
    with pytest.raises(EngineDamaged):
        entries_of([bytes(row)])


def test_a_row_that_is_not_as_long_as_it_says_is_damage() -> None:
    row = rows_of(entries((1, 1, 2_000)), shortened)[0]
    for damaged in (row[:-1], row + bytes(8), row[:13] + b"\xff" * 4 + row[17:], row[:15]):
        with pytest.raises(EngineDamaged):
            entries_of([damaged])


def test_what_was_written_before_and_after_is_found_by_time_by_id_and_by_page() -> None:
    """As in a partition whose level was raised meanwhile: entries of both forms, one moved, some of a hidden job."""
    disk = Disk()
    put = entries(*((1, row, 1_000 + row) for row in range(6)))
    put["first"] = put["due"] = put["wait_at"]
    put["first"][4:] = 500
    put["job"] = [0, 3, 0, 3, 0, 0]
    disk.store.commit([AppendLog(UID, [insert(1, [b"xy"] * 6)]), SaveCheckpoint(UID, 1, 900, put=put[::2])])
    disk.store.commit([SaveCheckpoint(UID, 1, 900, put=put[1::2], short=True)])
    store = disk.open()
    sizes = [len(value) for _, value in disk.timeline.scan(layout.head(UID, b"i"), layout.head(UID, b"j"))]
    assert [size == ENTRY.itemsize for size in sizes] == [True, False] * 3

    scan = store.read(ScanIndex(1, UID, 0, 0, 9))
    assert isinstance(scan, IndexScanned)
    assert np.array_equal(words_of(scan.entries), words_of(put))
    scan = store.read(ScanIndex(1, UID, 0, 0, 9, frozenset((3,))))
    assert isinstance(scan, IndexScanned)
    assert scan.entries["row"].tolist() == [0, 2, 4, 5]
    assert scan.left_out == {3}
    found = store.read(ReadEntries(1, UID, put["first"], put["sequence"], put["row"]))
    assert isinstance(found, EntriesRead)
    assert canonical(found.entries) == canonical(put)
    page = store.read(ReadPage(1, UID, 1, True, 0, 0, (1_001, 1 << 16 | 1), 2, 1 << 20, True))
    assert isinstance(page, PageRead)
    assert (page.entries["row"].tolist(), page.body, page.after) == ([2, 3], b"xy" * 2, (1_003, 1 << 16 | 3))
