"""Keys of one INSERT that nobody bore before: as one, until something happens to one of them."""

from __future__ import annotations

import numpy as np

from dueq.core.ports.entry import FULL, Entries
from dueq.core.ports.names import hashes_of, pack_name
from dueq.core.state.names import Names
from dueq_codecs.rules import key_hashes

FIRSTS = np.array([10, 20, 30], np.uint64)
HIGH, LOW = key_hashes([b"a", b"b", b"c"])
A, B, C = hashes_of(HIGH, LOW)
ROWS = {A: pack_name((10, 7 << 16)), B: pack_name((20, 7 << 16 | 1)), C: pack_name((30, 7 << 16 | 2))}


def held(names: Names, sequence: int = 7) -> None:
    assert names.hold_fresh(sequence, [A, B, C], HIGH, LOW) is not None


def borne() -> Names:
    names = Names(0)
    held(names)
    names.bear(names.fresh[7], 7, FIRSTS)
    names.let_fresh_go(7)
    names.forget()
    return names


def rows_of_b() -> Entries:
    row = np.zeros(1, FULL)
    row["key_high"], row["key_low"] = HIGH[1], LOW[1]
    return row


def written(names: Names) -> dict[bytes, bytes | None]:
    changed = names.changed_rows()
    return dict([*changed.names, *changed.borne.rows()])


def test_their_rows_are_written_once_and_leave_memory() -> None:
    names = borne()
    assert (names.count, names.changed_count, names.get(B)) == (3, 3, (20, 7 << 16 | 1))
    assert written(names) == ROWS
    names.saved()
    names.forget()
    assert len(names.known) == 1
    assert sorted(names.perhaps_stored([A, B, C])) == sorted([A, B, C])


def test_one_that_is_looked_at_stays_when_the_others_leave_memory() -> None:
    names = borne()
    names.pin([B])
    names.changed_rows()
    names.saved()
    names.forget()
    assert (set(names.known), names.get(B)) == ({bytes(16), B}, (20, 7 << 16 | 1))
    names.unpin([B])
    names.forget()
    assert len(names.known) == 1


def test_one_that_was_looked_at_before_the_checkpoint_stays_until_it_is_saved() -> None:
    names = borne()
    names.pin([B])
    names.unpin([B])
    names.forget()
    assert names.get(B) == (20, 7 << 16 | 1)
    assert written(names) == ROWS


def test_one_that_ends_before_the_checkpoint_is_not_written() -> None:
    names = borne()
    names.end(rows_of_b(), 0)
    names.forget()
    assert written(names) == {A: ROWS[A], C: ROWS[C]}
    assert names.count == 2


def test_the_disk_is_asked_for_the_others_when_one_has_ended_before_the_checkpoint() -> None:
    """Else somebody else could bear such a key, too."""
    names = borne()
    names.end(rows_of_b(), 0)
    names.changed_rows()
    names.saved()
    names.forget()
    assert {A, C} <= set(names.perhaps_stored([A, B, C]))


def test_one_that_ends_while_the_checkpoint_is_made_is_deleted_by_the_next() -> None:
    names = borne()
    names.changed_rows()
    names.end(rows_of_b(), 0)
    names.saved()
    names.forget()
    assert set(names.known) == {bytes(16), B}
    assert written(names) == {B: None}


def test_one_that_another_takes_first_divides_them() -> None:
    """A REDRIVE looks its keys up when it is the next record, though others were appended before that."""
    names = Names(0)
    held(names)
    names.pin([B])
    names.take(B, (5, 3 << 16))
    names.unpin([B])
    fresh = names.fresh[7]
    assert fresh.touched
    names.changed_rows()
    names.saved()
    names.forget()
    assert (names.get(A), names.get(B)) == (None, (5, 3 << 16))
    names.let_fresh_go(7)
    names.forget()
    assert len(names.known) == 1


def test_those_of_a_record_that_is_cut_off_the_log_are_forgotten() -> None:
    names = Names(0)
    held(names)
    names.let_fresh_go(7)
    names.forget()
    assert (len(names.known), names.count) == (1, 0)


def test_keys_that_come_twice_or_are_in_memory_are_held_one_by_one() -> None:
    names = borne()
    assert names.hold_fresh(8, [A], HIGH[:1], LOW[:1]) is None
    high, low = key_hashes([b"d", b"d"])
    assert names.hold_fresh(8, hashes_of(high, low), high, low) is None


def test_after_a_start_the_keys_of_the_disk_are_looked_at_piece_by_piece() -> None:
    """A hash says nothing before the look has come to it; what a checkpoint has written meanwhile is not forgotten."""
    high = np.array([1 << 60, 2 << 60, 3 << 60, 4 << 60], np.uint64)
    low = np.arange(4, dtype=np.uint64)
    stored, new, beyond, last = hashes_of(high, low)
    names = Names(2)
    assert names.wants_hashes() is None  # nobody has asked for a key yet
    assert names.perhaps_stored([new]) == [new]
    assert names.wants_hashes() == b""
    assert names.wants_hashes() is None
    assert names.hold_fresh(7, [beyond], high[2:3], low[2:3]) is None
    names.pin([beyond])
    names.learn([beyond], {})
    names.take(beyond, (10, 7 << 16))
    names.changed_rows()
    names.saved()
    names.unpin([beyond])
    names.forget()
    names.hashes_read(stored, ended=False)
    assert names.perhaps_stored([stored, new, beyond, last]) == [stored, new, beyond, last]
    assert names.wants_hashes() == stored
    names.hashes_read(last, ended=True)
    assert names.perhaps_stored([stored, new, beyond, last]) == [stored, beyond, last]
    assert names.wants_hashes() is None
    fresh = names.hold_fresh(8, [new], high[1:2], low[1:2])
    assert fresh is not None
    assert (fresh.hashes, fresh.others) == ([new], [])
