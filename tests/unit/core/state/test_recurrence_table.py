"""One message a tick, whatever leaders propose: what a FIRE does to the recurrence that it names."""

from __future__ import annotations

import numpy as np
import pytest

from dueq.core.ports.entry import WIDE
from dueq.core.ports.tables import TableRow
from dueq.core.state.body_table import BodyTable, SharedBody
from dueq.core.state.recurrence_table import (
    ACTION,
    CREATE,
    DELETE,
    PAUSE,
    RESUME,
    UPDATE,
    RecurrenceTable,
)
from dueq.recurring.terms import packed
from dueq_codecs.records import NO_U8, U8, Outcome, Record, RecordKind

NOON = 1_800_000_000_000
SECOND = 1_000
NUMBER = 7


def fire(tick: int, following: int, due: int | None = None, *, sequence: int = 20, stamp: int = 0) -> Record:
    """A FIRE of the recurrence for a tick; `due` 0: without a message."""
    record = Record(RecordKind.FIRE, 1, sequence, 1, stamp or tick - 5 * SECOND)
    record.recurrence = np.array([NUMBER], np.uint64)
    record.tick, record.following = np.array([tick], np.uint64), np.array([following], np.uint64)
    record.due = np.array([tick if due is None else due], np.uint64)
    record.size = record.crc = np.zeros(1, np.uint32)
    return record


def act(action: str, following: int, *named: tuple[int, int], stamp: int = NOON - 20 * SECOND) -> Record:
    """A RECURRENCE record that names messages as (sequence, row)."""
    record = Record(RecordKind.RECURRENCE, 1, NUMBER if action == CREATE else 30, 1, stamp)
    record.name, record.document = (
        "r",
        packed({ACTION: action} | ({"every_ms": SECOND} if action == CREATE else {})),
    )
    record.tick, record.following = np.array([NOON], np.uint64), np.array([following], np.uint64)
    record.target_sequence = np.array([sequence for sequence, _ in named], np.uint64)
    record.target_row = np.array([row for _, row in named], np.uint16)
    return record


def outcomes(*each: Outcome) -> U8:
    return np.array(each, np.uint8) if each else NO_U8


@pytest.fixture
def table() -> RecurrenceTable:
    """One recurrence of every second that waits for noon."""
    found = RecurrenceTable(BodyTable())
    assert found.act(act(CREATE, NOON), NO_U8) is Outcome.DONE
    return found


def brings(table: RecurrenceTable, record: Record) -> bool:
    """Whether the FIRE brings a message."""
    return bool(len(table.fire(record, None)[1]))


def test_a_tick_has_one_message_however_often_it_is_fired(table: RecurrenceTable) -> None:
    assert brings(table, fire(NOON, NOON + SECOND))
    assert not brings(table, fire(NOON, NOON + SECOND, sequence=21))
    assert table.by_number[NUMBER].next == NOON + SECOND


def test_only_the_tick_that_is_waited_for_is_fired(table: RecurrenceTable) -> None:
    assert not brings(table, fire(NOON + SECOND, NOON + 2 * SECOND))
    assert not brings(table, fire(NOON - SECOND, NOON))
    assert table.by_number[NUMBER].next == NOON


def test_a_tick_that_has_a_message_gets_no_second_one_though_it_is_waited_for_again(
    table: RecurrenceTable,
) -> None:
    """A pause could not take the message back, since a consumer has it; the leader that resumes goes back too far."""
    assert brings(table, fire(NOON, NOON + SECOND))
    assert table.act(act(PAUSE, NOON, (20, 0)), outcomes(Outcome.LEASED)) is Outcome.DONE
    recurrence = table.by_number[NUMBER]
    assert (recurrence.next, [fired.tick for fired in recurrence.fired]) == (NOON, [NOON])
    assert not brings(table, fire(NOON, NOON + SECOND, sequence=40))
    assert not brings(table, fire(NOON, NOON + SECOND, 0, sequence=41)), "it is skipped"
    assert recurrence.next == NOON + SECOND
    assert brings(table, fire(NOON + SECOND, NOON + 2 * SECOND, sequence=42))
    assert recurrence.messages == 2


def test_a_tick_whose_message_was_taken_back_may_have_another(table: RecurrenceTable) -> None:
    assert brings(table, fire(NOON, NOON + SECOND))
    table.act(act(PAUSE, NOON, (20, 0)), outcomes(Outcome.DONE))
    recurrence = table.by_number[NUMBER]
    assert (recurrence.past, recurrence.messages, recurrence.fired) == (0, 0, ())
    assert brings(table, fire(NOON, NOON + SECOND, sequence=40))


def test_ticks_that_were_taken_back_have_messages_again_though_a_later_one_has_kept_its_own(
    table: RecurrenceTable,
) -> None:
    """A user has cancelled it, or a consumer has it."""
    ticks = [NOON + at * SECOND for at in range(4)]
    for at, tick in enumerate(ticks):
        assert brings(table, fire(tick, tick + SECOND, sequence=20 + at, stamp=NOON - SECOND))
    named = [(20 + at, 0) for at in range(4)]
    found = outcomes(Outcome.DONE, Outcome.DONE, Outcome.NOT_FOUND, Outcome.DONE)
    table.act(act(RESUME, NOON, *named, stamp=NOON - SECOND), found)
    recurrence = table.by_number[NUMBER]
    brought = [
        brings(table, fire(tick, tick + SECOND, sequence=40, stamp=NOON - SECOND)) for tick in ticks[:2]
    ]
    assert not brings(table, fire(ticks[2], ticks[3], sequence=41, stamp=NOON - SECOND))
    assert brings(table, fire(ticks[2], ticks[3], 0, sequence=42, stamp=NOON - SECOND)) is False
    brought.append(brings(table, fire(ticks[3], ticks[3] + SECOND, sequence=43, stamp=NOON - SECOND)))
    assert brought == [True, True, True]
    assert [fired.tick for fired in recurrence.fired] == ticks
    assert (recurrence.next, recurrence.messages) == (ticks[3] + SECOND, 4)
    recurrence.come(ticks[1])
    assert (recurrence.past, [fired.tick for fired in recurrence.fired]) == (ticks[1], ticks[2:])


def test_ticks_that_were_taken_back_come_though_the_instant_of_a_later_message_has_come(
    table: RecurrenceTable,
) -> None:
    """Nobody led for a while: what is made up for is not lost for the one message that could not be taken back."""
    ticks = [NOON + at * SECOND for at in range(4)]
    for at, tick in enumerate(ticks):
        assert brings(table, fire(tick, tick + SECOND, sequence=20 + at, stamp=NOON - SECOND))
    named = [(20 + at, 0) for at in range(4)]
    found = outcomes(*[Outcome.DONE] * 3, Outcome.NOT_FOUND)
    table.act(act(RESUME, NOON, *named, stamp=NOON - SECOND), found)
    late = NOON + 60 * SECOND
    for at, tick in enumerate(ticks[:3]):
        assert brings(table, fire(tick, tick + SECOND, sequence=40 + at, stamp=late))
    assert not brings(table, fire(ticks[3], ticks[3] + SECOND, sequence=44, stamp=late))
    table.fire(fire(ticks[3], ticks[3] + SECOND, 0, sequence=45, stamp=late), None)
    assert brings(table, fire(ticks[3] + SECOND, ticks[3] + 2 * SECOND, sequence=46, stamp=late))
    recurrence = table.by_number[NUMBER]
    assert (recurrence.past, recurrence.messages) == (ticks[3], 5)


def test_what_was_deleted_fires_no_more_and_what_is_made_again_is_another(table: RecurrenceTable) -> None:
    table.changed_rows()
    table.act(act(DELETE, 0), NO_U8)
    assert not brings(table, fire(NOON, NOON + SECOND))
    again = act(CREATE, NOON)
    again.sequence = NUMBER + 1
    table.act(again, NO_U8)
    assert not brings(table, fire(NOON, NOON + SECOND))
    assert [row.value is None for row in table.changed_rows()] == [False, False], "its rows are written over"


def test_what_was_made_again_and_deleted_again_between_two_checkpoints_leaves_the_disk(
    table: RecurrenceTable,
) -> None:
    """Else it would fire once more after a restart."""
    saved = {row.key for row in table.changed_rows()}
    table.act(act(DELETE, 0), NO_U8)
    again = act(CREATE, NOON)
    again.sequence = NUMBER + 1
    table.act(again, NO_U8)
    table.act(act(DELETE, 0), NO_U8)
    assert {row.key for row in table.changed_rows() if row.value is None} == saved


def test_what_was_there_before_a_restart_and_is_deleted_then_leaves_the_disk(table: RecurrenceTable) -> None:
    saved = table.changed_rows()
    recovered = RecurrenceTable(BodyTable())
    recovered.recover(saved)
    assert recovered.act(act(DELETE, 0), NO_U8) is Outcome.DONE
    gone = recovered.changed_rows()
    assert {(row.key, row.value) for row in gone} == {(row.key, None) for row in saved}


def test_a_trigger_brings_a_message_and_moves_nothing(table: RecurrenceTable) -> None:
    assert brings(table, fire(0, 0, NOON - 10 * SECOND, stamp=NOON - 10 * SECOND))
    assert (table.by_number[NUMBER].next, table.by_number[NUMBER].fired) == (NOON, ())


def test_a_new_payload_takes_the_place_of_the_shared_body_before() -> None:
    """A body that no recurrence has any more goes; one that a recurrence has is there at each tick."""
    bodies = BodyTable()
    bodies.recover([TableRow((1).to_bytes(8, "big"), SharedBody(b"s" * 32, 1, 9, 7).pack())])
    table, update = RecurrenceTable(bodies), act(UPDATE, NOON)
    table.act(act(CREATE, NOON), NO_U8)
    update.shared = b"s" * 32
    for _ in range(2):
        assert table.act(update, NO_U8) is Outcome.DONE
        assert table.by_number[NUMBER].body == b"s" * 32
        assert bodies.by_name[b"s" * 32].messages == 1
    plain = act(UPDATE, NOON)
    plain.document = packed({ACTION: UPDATE, "payload": "YWJj"})
    assert table.act(plain, NO_U8) is Outcome.DONE
    assert (table.by_number[NUMBER].body, table.by_number[NUMBER].payload) == (b"", b"abc")
    assert bodies.by_name[b"s" * 32].messages == 0


def test_what_recurrences_weigh_follows_their_terms_and_is_given_back(table: RecurrenceTable) -> None:
    """A topic takes no more of them beyond a limit: what is counted for ever would make it full."""
    weight = table.bytes
    longer = act(UPDATE, NOON)
    longer.document = packed({ACTION: UPDATE, "payload": "YWJj"})
    for _ in range(2):
        assert table.act(longer, NO_U8) is Outcome.DONE
        assert table.bytes == table.by_number[NUMBER].weight > weight
    again = RecurrenceTable(BodyTable())
    again.recover(table.changed_rows())
    assert again.bytes == table.bytes
    table.act(act(DELETE, 0), NO_U8)
    assert (table.bytes, len(table)) == (0, 0)


def test_what_was_paused_stays_so_until_it_is_resumed_whatever_else_changes(table: RecurrenceTable) -> None:
    recurrence = table.by_number[NUMBER]
    for action, paused in [(PAUSE, True), (UPDATE, True), (RESUME, False), (UPDATE, False)]:
        assert table.act(act(action, NOON), NO_U8) is Outcome.DONE
        assert recurrence.paused is paused, action


def test_messages_on_their_way_are_counted_for_their_own_recurrence(table: RecurrenceTable) -> None:
    """With overlap "skip" no tick brings a message while the one before is unfinished, and each does after it."""
    recurrence = table.by_number[NUMBER]
    rows = np.zeros(3, WIDE)
    rows["recurrence"] = [NUMBER, 0, NUMBER]
    for waiting, leased, unfinished in [(1, 0, 2), (-1, 1, 2), (0, 1, 4), (1, 0, 6), (0, -1, 4), (-1, 0, 2)]:
        table.count(rows, waiting, leased)
        assert recurrence.unfinished == unfinished
    table.count(rows, 0, -1, 1)
    assert recurrence.unfinished == 0


def test_a_recurrence_is_after_a_restart_what_a_request_has_made_of_it(table: RecurrenceTable) -> None:
    """Whatever it was before: what was paused fires no more, though there is no record of that in the log any more."""
    saved = {row.key: row for row in table.changed_rows()}
    for action, following in [(PAUSE, 0), (RESUME, NOON), (UPDATE, NOON + SECOND)]:
        assert table.act(act(action, following), NO_U8) is Outcome.DONE
        saved |= {row.key: row for row in table.changed_rows()}
        again = RecurrenceTable(BodyTable())
        again.recover(list(saved.values()))
        assert again.export() == table.export(), action
