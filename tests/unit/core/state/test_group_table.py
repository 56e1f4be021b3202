"""The numbers of groups, after more of them than a number can count."""

from __future__ import annotations

import numpy as np

from dueq.core.ports.entry import WIDE
from dueq.core.ports.tables import TableRow
from dueq.core.state.group_table import GroupTable

LAST = (1 << 32) - 1


def begun(groups: GroupTable, *names: str) -> list[int]:
    """Let a message of each group wait; returns their numbers."""
    numbers = groups.numbers(names, range(len(names)))
    rows = np.zeros(len(names), WIDE)
    rows["group"] = numbers
    groups.count(rows, 1, 0)
    return list(map(int, numbers))


def test_a_group_gets_a_number_when_all_have_been_given() -> None:
    groups = GroupTable()
    assert begun(groups, "a", "b") == [1, 2]
    groups.recover([TableRow(b"", (LAST - 1).to_bytes(4, "big"))])
    assert begun(groups, "c", "d", "e") == [LAST, 3, 4]
    assert [groups.name_of(number) for number in (1, 2, LAST, 3)] == ["a", "b", "c", "d"]

    again = GroupTable()
    again.recover(groups.changed_rows())
    assert again.export() == groups.export()
    assert begun(again, "f") == begun(groups, "f") == [5]
