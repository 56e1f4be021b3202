"""Operations of one write: in their order, whether they came one by one or as columns."""

from __future__ import annotations

import gc

import pytest

from dueq.storage.ordered.batch import Batch


def test_operations_come_in_the_order_in_which_they_were_added() -> None:
    batch = Batch()
    assert not batch
    batch.append((b"a", b"1"))
    batch.put([b"b", b"a"], [b"2", None])
    batch.put([], [])
    batch.extend([(b"b", None), (b"c", b"3")])
    assert batch
    assert list(batch) == [(b"a", b"1"), (b"b", b"2"), (b"a", None), (b"b", None), (b"c", b"3")]


def test_it_is_not_empty_with_columns_alone() -> None:
    batch = Batch()
    batch.put([b"a"], [b"1"])
    assert batch


def test_columns_of_different_lengths_are_refused() -> None:
    batch = Batch()
    batch.put([b"a", b"b"], [b"1"])
    with pytest.raises(ValueError, match="shorter"):
        list(batch)


def test_the_collector_has_nothing_to_look_at_for_the_rows_of_columns() -> None:
    keys = values = [b"%d" % number for number in range(1_000)]
    batch = Batch()
    before = len(gc.get_objects())
    batch.put(keys, values)
    assert len(gc.get_objects()) - before < 10
