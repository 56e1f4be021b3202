"""Groups: their numbers, after more of them than a number can count, and when they are forgotten."""

from __future__ import annotations

import numpy as np

from dueq.core.ports.entry import NO_ENTRIES, WIDE, Entries
from dueq.core.ports.tables import TableRow
from dueq.core.state.applied import Applied
from dueq.core.state.group_table import GroupTable
from dueq.core.state.job import Job
from dueq_codecs.records import Outcome, Record, RecordKind

LAST = (1 << 32) - 1


class NoMessages:
    """Of which a group's settings need to know nothing."""

    waiting = dead = 0

    def decided(self, job: Job) -> Entries:
        return NO_ENTRIES


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


def ended(groups: GroupTable, number: int) -> None:
    """Let the only message of a group end."""
    rows = np.zeros(1, WIDE)
    rows["group"] = number
    groups.count(rows, -1, 0)


def set_for(groups: GroupTable, name: str, document: str) -> None:
    record = Record(RecordKind.GROUP, 1, 1, 1, 1_000, name=name, document=document)
    assert groups.apply(record, 0, NoMessages(), Applied()).tolist() == [Outcome.DONE]


def test_a_group_that_has_nothing_at_a_restart_is_forgotten_by_the_next_record_as_without_one() -> None:
    groups, again = GroupTable(), GroupTable()
    [number] = begun(groups, "a")
    ended(groups, number)
    again.recover(groups.changed_rows())
    for table in (groups, again):
        table.expire(0, 0)
        assert (table.forgotten, list(table.by_name)) == ([number], [])
    assert again.export() == groups.export()


def test_a_group_that_was_forgotten_is_no_more_on_the_disk_and_one_that_was_never_there_is_not_deleted() -> (
    None
):
    """A second row of the name would come when the group begins anew, with another number."""
    groups = GroupTable()
    [number] = begun(groups, "a")
    saved = [row for row in groups.changed_rows() if row.key]
    ended(groups, number)
    ended(groups, *begun(groups, "b"))
    groups.expire(0, 0)
    assert [row for row in groups.changed_rows() if row.key] == [TableRow(saved[0].key, None)]


def test_a_group_stays_for_as_long_as_something_is_set_for_it() -> None:
    groups = GroupTable()
    set_for(groups, "a", '{"paused":true}')
    groups.expire(0, 0)
    again = GroupTable()
    again.recover(groups.changed_rows())
    for table in (groups, again):
        table.expire(0, 0)
        assert (list(table.by_name), list(table.limited)) == (["a"], ["a"])
        set_for(table, "a", '{"paused":false}')
        assert (list(table.by_name), list(table.limited)) == (["a"], [])
        table.expire(0, 0)
        assert table.export() == (1, [])
        assert (table.forgotten, table.by_number) == ([1], {})


def test_a_group_is_forgotten_when_its_last_message_ends_however_long_it_has_lasted() -> None:
    """A topic may have millions of groups a day: each would stay in memory and on the disk."""
    groups = GroupTable()
    [number] = begun(groups, "a")
    groups.expire(0, 0)
    assert groups.name_of(number) == "a"
    ended(groups, number)
    groups.expire(0, 0)
    assert (groups.forgotten, groups.name_of(number), groups.has_idle) == ([number], None, False)


def test_after_all_numbers_have_been_given_the_next_one_that_none_has_comes() -> None:
    """All replicas must find the same one, whichever build they run."""
    groups = GroupTable()
    _, second, third = begun(groups, "a", "b", "c")
    ended(groups, second)
    groups.expire(0, 0)
    groups.recover([TableRow(b"", LAST.to_bytes(4, "big"))])
    assert begun(groups, "d", "e") == [second, third + 1]


def test_a_group_keeps_what_a_change_does_not_name() -> None:
    groups = GroupTable()
    set_for(groups, "a", '{"rate":2}')
    set_for(groups, "a", '{"paused":true}')
    settings = groups.limited["a"].settings
    assert settings is not None
    assert (settings.rate, settings.paused) == (2, True)


def test_what_an_older_build_has_set_for_no_group_limits_nothing() -> None:
    groups = GroupTable()
    record = Record(RecordKind.GROUP, 1, 1, 1, 0)
    record.name, record.document = "", '{"max_unacked":1,"paused":true}'
    groups.apply(record, 0, NoMessages(), Applied())
    again = GroupTable()
    again.recover(groups.changed_rows())
    assert (groups.limited, groups.paused, again.limited, again.paused) == ({}, set(), {}, set())
    assert again.export() == groups.export()
