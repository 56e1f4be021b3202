"""The table of triggered messages: it has those that wait, and so has its disk; it counts those that are leased."""

from __future__ import annotations

import numpy as np

from dueq.core.ports.entry import ENTRY, FLAG_TRIGGERED, Entries
from dueq.core.ports.tables import TableRow
from dueq.core.state.triggered_table import TriggeredTable


def triggered(*sequences: int) -> Entries:
    rows = np.zeros(len(sequences), ENTRY)
    rows["sequence"], rows["first"], rows["flags"] = sequences, 1_000, FLAG_TRIGGERED
    return rows


def key_of(sequence: int) -> bytes:
    return (sequence << 16).to_bytes(7, "big")


def test_its_disk_has_those_that_wait() -> None:
    table = TriggeredTable()
    table.count(triggered(7, 8), 1, 0)
    saved = table.changed_rows()
    table.count(triggered(7), -1, 1)
    assert table.changed_rows() == [TableRow(key_of(7), None)]
    again = TriggeredTable()
    again.recover([row for row in saved if row.key != key_of(7)])
    assert again.export() == table.export() == [(8 << 16, 1_000)]
    again.count(triggered(8), -1, 1)
    assert again.changed_rows() == [TableRow(key_of(8), None)]


def test_what_comes_and_goes_between_two_checkpoints_is_not_written() -> None:
    table = TriggeredTable()
    table.count(triggered(7), 1, 0)
    table.count(triggered(7), -1, 1)
    assert table.changed_rows() == []


def test_what_is_leased_is_counted_until_it_is_no_more() -> None:
    table = TriggeredTable()
    table.count(triggered(7, 8, 9), 1, 0)
    for sequences, waiting, leased, expected in [
        ((7, 8), -1, 0, 0), ((7, 8), 0, 1, 2), ((7,), 0, -1, 1), ((7,), 1, 0, 1), ((8,), 0, -1, 0),
    ]:  # fmt: skip
        table.count(triggered(*sequences), waiting, leased)
        assert table.leased == expected
    others = triggered(5)
    others["flags"] = 0
    table.count(others, 0, 1)
    assert (table.leased, len(table.export())) == (0, 2)  # type: ignore[arg-type]


def test_what_is_leased_or_ends_counts_no_more_than_once() -> None:
    table = TriggeredTable()
    table.count(triggered(7), 0, 1)
    table.count(triggered(7), -1, 0)
    assert table.export() == []
