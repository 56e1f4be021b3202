"""The ledger of committed records, and the reference beside it."""

from __future__ import annotations

import numpy as np

from dueq.core.ports.entry import State
from dueq.core.state.order import ORDERS
from dueq_chaos.sim.judging.ledger import Ledger
from dueq_chaos.sim.judging.recurrence_course import Course
from dueq_chaos.sim.reference.naive import Naive
from dueq_codecs.records import Record, RecordKind, RequestRef


def test_a_partition_that_was_asked_about_before_it_was_there_gets_its_place_and_its_order() -> None:
    ledger = Ledger()
    assert ledger.end(7) == 0
    ledger.opened(7, (3, 2), ORDERS["priority"])
    assert ledger.naive(7).jobs._place == (3, 2)
    assert ledger.reference(7).order.kind == "priority"


def instant(at_ms: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return np.array([at_ms], np.uint64)


def acts(sequence: int, stamp: int, request: int, action: str, following: int) -> Record:
    """A RECURRENCE of "r", whose anchor is 100."""
    record = Record(RecordKind.RECURRENCE, 1, sequence, 1, stamp, name="r")
    record.document = f'{{"action":"{action}","every_ms":1000}}'
    record.tick, record.following = instant(100), instant(following)
    record.requests = (RequestRef(b"c" * 16, request, request, 1),)
    return record


def fires(sequence: int, stamp: int, tick: int) -> Record:
    record = Record(RecordKind.FIRE, 1, sequence, 1, stamp)
    record.recurrence, record.tick = instant(1), instant(tick)
    record.following, record.due = instant(tick + 1000), instant(tick)
    record.size, record.crc = np.array([0], np.uint32), np.array([0], np.uint32)
    return record


def judged(*records: Record) -> list[str]:
    """The fault of each of these records."""
    naive, course, wrong = Naive((0, 1)), Course(), []
    for record in records:
        course.before(record, naive)
        told = naive.apply(record)
        wrong.append(course.after(record, naive, told).wrong)
    return wrong


def test_an_update_that_comes_again_takes_nothing_back() -> None:
    made = acts(1, 100, 1, "create", 1100), acts(2, 200, 2, "update", 1100), fires(3, 300, 1100)
    assert judged(*made, acts(4, 400, 2, "update", 1100)) == [""] * 4
    assert "still to come" in judged(*made, acts(4, 400, 3, "update", 1100))[-1]


def test_a_tick_that_was_skipped_does_not_come_again_by_a_clock_that_was_set_back() -> None:
    skips = fires(3, 2200, 2100)
    skips.due = instant(0)
    made = acts(1, 100, 1, "create", 1100), fires(2, 900, 1100), skips
    for one in made:
        one.document = one.document.replace("}", ',"overlap":"skip"}')
    resumed = acts(4, 150, 2, "resume", 3100)
    resumed.document = '{"action":"resume"}'
    assert judged(*made, resumed) == [""] * 4
    assert "3100 comes before" in judged(*made, acts(4, 2300, 2, "update", 4100))[-1]


def test_a_tick_may_be_logged_while_a_dead_message_is_being_redriven() -> None:
    naive, course = Naive((0, 1)), Course()
    made = acts(1, 100, 1, "create", 1100)
    made.document = '{"action":"create","every_ms":1000,"overlap":"skip"}'
    naive.apply(made)
    naive.apply(fires(2, 300, 1100))
    [message] = naive.live.values()
    late = fires(4, 2000, 2100)
    course.before(late, naive)
    assert "an unfinished one" in course.after(late, naive, naive.apply(late)).wrong
    naive.recurrences.by_name["r"].next = 3100
    del naive.live[4 << 16]
    message.state = State.DEAD
    redrive = Record(RecordKind.REDRIVE, 1, 5, 1, 2500)
    redrive.target_sequence, redrive.target_row = np.array([2], np.uint64), np.array([0], np.uint16)
    course.before(redrive, naive)
    message.state = State.WAITING
    next_one = fires(6, 3000, 3100)
    course.before(next_one, naive)
    assert course.after(next_one, naive, naive.apply(next_one)).wrong == ""
