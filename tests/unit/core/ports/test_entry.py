"""Rows of different widths: in memory all of one array are alike, on the disk each is as short as it can be."""

from __future__ import annotations

import numpy as np
import pytest

from dueq.core.ports.entry import ENTRY, FULL, WIDE, Entries, is_known, joined, packed, unpacked, widened
from dueq.core.state.entry_rows import EntryRows


def _row(dtype: np.dtype[np.void], **fields: int) -> Entries:
    row = np.zeros(1, dtype)
    row["sequence"] = 7
    for name, value in fields.items():
        row[name] = value
    return row


@pytest.mark.parametrize(
    ("row", "size"),
    [
        (_row(ENTRY), 88),
        (_row(WIDE), 88),
        (_row(WIDE, rank=1), 96),
        (_row(FULL), 88),
        (_row(FULL, version=1), 104),
        (_row(FULL, key_low=1), 128),
        (_row(FULL, attempts_max=1), 168),
    ],
)
def test_a_row_on_the_disk_ends_with_its_last_word_that_is_not_zero(row: Entries, size: int) -> None:
    [data] = packed(row)
    assert len(data) == size
    assert is_known(size)
    assert widened(unpacked([data]), FULL.itemsize).tobytes() == widened(row, FULL.itemsize).tobytes()


def test_rows_of_the_disk_are_as_wide_as_the_longest_needs() -> None:
    rows = [_row(ENTRY), _row(WIDE, group=2), _row(FULL, body=3)]
    data = [packed(row)[0] for row in rows]
    assert [unpacked(data[:count]).itemsize for count in (1, 2, 3)] == [88, 112, 168]
    assert unpacked(data)["body"].tolist() == [0, 0, 3]


def test_batches_are_joined_at_the_width_of_the_widest() -> None:
    found = joined([_row(ENTRY), _row(FULL, expires=5), _row(WIDE, rank=4)])
    assert found.dtype == FULL
    assert (found["rank"].tolist(), found["expires"].tolist()) == ([0, 0, 4], [0, 5, 0])


def test_a_table_becomes_as_wide_as_its_widest_row_and_keeps_the_others() -> None:
    rows = EntryRows()
    rows.resize(4)
    for slot, row in enumerate(
        [_row(ENTRY, due=1), _row(WIDE, rank=2), _row(FULL, remark=3), _row(ENTRY, due=4)]
    ):
        rows.put(np.array([slot]), row)
    assert rows.rows.dtype == FULL
    assert rows.rows["due"].tolist() == [1, 0, 0, 4]
    assert rows.rows["rank"].tolist() == [0, 2, 0, 0]
    assert rows.rows["remark"].tolist() == [0, 0, 3, 0]
