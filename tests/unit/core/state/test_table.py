"""The table of live messages: its slots, and under which instants the disk has its rows."""

from __future__ import annotations

import numpy as np

from dueq.core.ports.entry import ENTRY, FULL, Entries, State, keys_of
from dueq.core.state.table import CAPACITY_MIN, OnDisk, Table, places_of


def entry(sequence: int) -> Entries:
    found = np.zeros(1, ENTRY)
    found["sequence"], found["state"] = sequence, State.WAITING
    return found


def test_as_it_grows_each_slot_is_given_once_and_the_first_to_nobody() -> None:
    """Of two messages in one slot one would be lost."""
    table, room = Table(), 4 * CAPACITY_MIN
    slots = [int(table.add(entry(sequence), OnDisk.NOTHING)[0]) for sequence in range(1, room)]
    assert sorted(slots) == list(range(1, room))
    assert len(table.rows) == room
    assert table.rows["sequence"][slots].tolist() == list(range(1, room))
    assert table.find(keys_of(table.rows[slots])).tolist() == slots


def test_the_disk_has_the_dead_under_the_instant_of_their_death_and_what_waits_under_that_of_its_end() -> (
    None
):
    """A row that is deleted under another instant stays, and comes back with the next start."""
    rows = np.zeros(3, FULL)
    rows["state"] = State.WAITING, State.DEAD, State.WAITING
    rows["wait_at"], rows["died_at"] = (5, 6, 7), (0, 9, 0)
    assert places_of(rows).tolist() == [5, 9, 7]
