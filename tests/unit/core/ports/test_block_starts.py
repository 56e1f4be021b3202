"""Which rows of a record share a block."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from dueq.core.ports.entry import block_starts


def blocks(sizes: list[int], block_bytes: int) -> list[list[int]]:
    starts = block_starts(np.array(sizes, np.uint32), block_bytes).tolist()
    return [sizes[first:behind] for first, behind in pairwise([*starts, len(sizes)])]


def test_rows_of_one_length_fill_blocks_evenly() -> None:
    assert blocks([10] * 7, 30) == [[10] * 3, [10] * 3, [10]]
    assert blocks([10] * 3, 30) == [[10] * 3]


def test_rows_longer_than_a_block_are_blocks_of_their_own() -> None:
    assert blocks([40, 40], 30) == [[40], [40]]
    assert blocks([40, 5, 5, 40], 30) == [[40], [5, 5], [40]]


def test_rows_join_a_block_up_to_its_last_byte() -> None:
    assert blocks([10, 20, 1, 29, 1], 30) == [[10, 20], [1, 29], [1]]


def test_empty_payloads_need_no_block_of_their_own() -> None:
    assert blocks([0, 0, 0], 30) == [[0, 0, 0]]
    assert blocks([30, 0, 0, 1], 30) == [[30, 0, 0], [1]]


def test_no_rows_have_no_blocks() -> None:
    assert block_starts(np.zeros(0, np.uint32), 30).tolist() == []
