"""Payloads in one buffer are the same requests as payloads one by one."""

from __future__ import annotations

import numpy as np
import pytest

from dueq.client.core.changing.joined import Joined
from dueq.client.payloads import joined_columns, payload_columns
from dueq.client.times import whole_ms_column
from dueq.errors import InvalidRequest
from dueq.limits import DUE_MS_MAX

ROWS = [b"a", b"", b"bcd", b"ef"]


def joined() -> Joined:
    return Joined(b"".join(ROWS), np.array(list(map(len, ROWS)), np.uint32))


def test_rows_and_runs_of_rows_are_views_of_the_buffer() -> None:
    assert list(joined()) == ROWS
    assert [bytes(joined()[row]) for row in range(4)] == ROWS
    assert list(joined()[1:3]) == ROWS[1:3]
    with pytest.raises(IndexError):
        joined()[4]


@pytest.mark.parametrize(
    ("rows", "pieces"),
    [([], [b"abcdef"]), ([2], [b"a", b"ef"]), ([0, 3], [b"bcd"]), ([0, 1, 2, 3], [])],
)
def test_what_is_left_without_some_rows_is_few_pieces(rows: list[int], pieces: list[bytes]) -> None:
    assert list(joined().without(rows)) == pieces


def test_sizes_and_checksums_are_those_of_single_payloads() -> None:
    one_by_one = payload_columns(ROWS)
    together = joined_columns(b"".join(ROWS), one_by_one.size)
    assert together.crc.tolist() == one_by_one.crc.tolist()
    with pytest.raises(InvalidRequest, match="add up to 6 bytes, not 5"):
        joined_columns(b"abcde", one_by_one.size)


def test_a_column_of_instants_is_checked() -> None:
    with pytest.raises(InvalidRequest, match="2 rows need 2"):
        whole_ms_column(np.zeros(1, np.uint64), 2)
    with pytest.raises(InvalidRequest, match="row 1: due is"):
        whole_ms_column(np.array([1, DUE_MS_MAX + 1], np.uint64), 2)
