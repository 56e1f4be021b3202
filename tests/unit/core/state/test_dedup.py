"""The memory of past requests: what it takes, and what it leaves on disk."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from dueq.core.ports.tables import TableRow
from dueq.core.state.applied import PRESENT, Met
from dueq.core.state.dedup import ANSWER_BYTES, CLIENT_BYTES, Deduplication, DedupLimits
from dueq_codecs.messages import Code
from dueq_codecs.records import Outcome, Record, RecordKind, RequestRef


def insert(dedup: Deduplication, client: int, number: int, sequence: int, age_ms: int = 0) -> None:
    record = Record(RecordKind.INSERT, 1, sequence, 1, 1000)
    request = RequestRef(client.to_bytes(16, "big"), number, sequence * 7919, 1)
    assert dedup.judge(request, record, 0, 0, age_ms).fresh


@pytest.mark.parametrize("each", [256, 1], ids=["busy clients", "one request each"])
def test_what_is_remembered_takes_no_more_memory_than_it_is_counted_with(each: int) -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        dedup = Deduplication(DedupLimits(bytes_max=1 << 20))
        for number in range(12_000):
            insert(dedup, number // each, number % each + 1, number + 1)
            if number % 500 == 0:
                dedup.changed_rows()
        dedup.changed_rows()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert dedup.bytes <= 1 << 20
    assert taken <= 1.1 * (1 << 20)


def test_what_has_been_forgotten_takes_nothing() -> None:
    dedup = Deduplication(DedupLimits(age_ms=1000))
    for number in range(1000):
        insert(dedup, number, 1, number + 1)
    dedup.expire(1001)
    dedup.expire(2002)
    assert (dedup.bytes, len(dedup._answers), len(dedup._answers._data)) == (0, 0, 0)
    assert dedup.changed_rows() == []


def test_what_the_rows_of_an_insert_met_counts_until_its_answer_is_forgotten() -> None:
    """Else the sum sinks with each such answer that goes, and bounds nothing after some time."""
    dedup = Deduplication(DedupLimits(age_ms=1000))
    record = Record(RecordKind.INSERT, 1, 1, 1, 1000)
    request = RequestRef(b"c" * 16, 1, 7, 3)
    verdict = dedup.judge(request, record, 0, 0, 0)
    assert verdict.answer is not None
    before = dedup.bytes
    outcomes = np.array([Outcome.KEPT, Outcome.DONE, Outcome.KEPT], np.uint8)
    dedup.fill_in_met(request, verdict.answer, Met(outcomes, np.zeros(2, PRESENT)))
    assert dedup.bytes == before + len(outcomes) + 2 * PRESENT.itemsize
    dedup.expire(1001)
    dedup.expire(2002)
    assert dedup.bytes == 0


def test_what_the_rows_of_an_insert_met_takes_the_room_of_the_oldest_answers_at_once() -> None:
    """The next request may be long in coming."""
    dedup = Deduplication(DedupLimits(bytes_max=2 * (CLIENT_BYTES + ANSWER_BYTES)))
    insert(dedup, 1, 1, 1)
    request = RequestRef((2).to_bytes(16, "big"), 1, 7, 3)
    verdict = dedup.judge(request, Record(RecordKind.INSERT, 1, 2, 1, 1000), 0, 0, 0)
    assert verdict.answer is not None
    assert told(dedup, 1, 1) == Code.OK
    dedup.fill_in_met(request, verdict.answer, Met(np.full(3, Outcome.KEPT, np.uint8), np.zeros(3, PRESENT)))
    assert dedup.bytes <= dedup.limits.bytes_max
    assert told(dedup, 1, 1) == Code.OUTCOME_UNKNOWN
    assert told(dedup, 2, 1, 7) == Code.OK


def test_a_row_is_deleted_though_its_client_came_back_and_went_within_one_checkpoint() -> None:
    """With little room: forgotten, remembered anew and forgotten again, before the disk knew of the first."""
    dedup = Deduplication(DedupLimits(age_ms=1000))
    insert(dedup, 1, 7, 1)
    [row] = dedup.changed_rows()
    assert row.value is not None
    dedup.expire(1001)
    dedup.expire(2002)
    insert(dedup, 1, 7, 2, age_ms=2002)
    dedup.expire(3003)
    dedup.expire(4004)
    assert dedup.changed_rows() == [(row.key, None)]


def test_a_client_whose_answers_leave_time_and_again_is_noted_a_bounded_number_of_times() -> None:
    dedup = Deduplication(DedupLimits(bytes_max=0))
    for number in range(2_000):
        record = Record(RecordKind.INSERT, 1, number + 1, 1, 1000)
        dedup.judge(RequestRef(b"c" * 16, number + 1, number, 1), record, 0, 0, number)
    assert len(dedup._empty) <= 2 + 64
    dedup = Deduplication(DedupLimits(age_ms=1))
    for number in range(2_000):
        insert(dedup, 1, number + 1, number + 1, age_ms=2 * number)
        insert(dedup, 2, number + 1, number + 1, age_ms=2 * number)
        dedup.expire(2 * number + 2)
    assert len(dedup._empty) <= 2 * 2 + 64


def test_a_client_without_answers_is_forgotten_in_its_time_though_others_have_younger_ones() -> None:
    """Replicas that began at other instants would differ: one still knows it, and one does not."""
    dedup = Deduplication(DedupLimits(age_ms=1000, bytes_max=2 * CLIENT_BYTES + ANSWER_BYTES))
    ended = RequestRef((1).to_bytes(16, "big"), 1, 7919, 1)
    insert(dedup, 1, 1, 1, age_ms=100)
    insert(dedup, 2, 1, 2, age_ms=900)
    dedup.expire(1000)
    verdict = dedup.recall(ended)
    assert verdict is not None
    assert verdict.code == Code.OUTCOME_UNKNOWN
    dedup.expire(1200)
    assert dedup.recall(ended) is None


def recovered(disk: dict[bytes, TableRow], dedup: Deduplication, limits: DedupLimits) -> Deduplication:
    """What a restart finds once a checkpoint has written what has changed; the disk has its rows by key."""
    disk |= {row.key: row for row in dedup.changed_rows()}
    found = Deduplication(limits)
    found.recover([row for _, row in sorted(disk.items()) if row.value is not None])
    assert found.export() == dedup.export()
    return found


def test_the_age_of_the_youngest_answer_that_has_left_is_known_after_a_restart() -> None:
    """Else a restarted replica forgets the client before the others do, and does a request of it again."""
    limits = DedupLimits(age_ms=1000, bytes_max=2 * (CLIENT_BYTES + ANSWER_BYTES))
    dedup, disk = Deduplication(limits), dict[bytes, TableRow]()
    insert(dedup, 1, 5, 1)
    insert(dedup, 1, 3, 2, age_ms=500)
    insert(dedup, 2, 1, 3, age_ms=500)
    recovered(disk, dedup, limits)
    insert(dedup, 2, 2, 4, age_ms=500)
    again = recovered(disk, dedup, limits)
    for each in (dedup, again):
        each.expire(1400)
        verdict = each.recall(RequestRef((1).to_bytes(16, "big"), 5, 7919, 1))
        assert verdict is not None
        assert verdict.code == Code.OUTCOME_UNKNOWN


def test_a_floor_that_was_recovered_leaves_the_disk_when_it_rises() -> None:
    limits = DedupLimits(window=1)
    dedup, disk = Deduplication(limits), dict[bytes, TableRow]()
    insert(dedup, 1, 1, 1)
    insert(dedup, 1, 2, 2)
    again = recovered(disk, dedup, limits)
    insert(again, 1, 3, 3)
    recovered(disk, again, limits)
    assert [row.value is None for _, row in sorted(disk.items())] == [True, False, False]


def test_of_the_answers_of_one_record_the_first_one_leaves_first_after_a_restart_too() -> None:
    limits = DedupLimits(bytes_max=2 * (CLIENT_BYTES + ANSWER_BYTES))
    dedup = Deduplication(limits)
    record = Record(RecordKind.INSERT, 1, 1, 1, 1000)
    for position, client in enumerate((2, 1)):
        dedup.judge(RequestRef(client.to_bytes(16, "big"), 1, 7, 1), record, position, position, 0)
    again = recovered({}, dedup, limits)
    for each in (dedup, again):
        insert(each, 1, 2, 2)
    assert again.export() == dedup.export()


# -------------------------------------------------------------- what a request is told that comes again


def asked(client: int, number: int, digest: int | None = None) -> RequestRef:
    return RequestRef(client.to_bytes(16, "big"), number, number * 7919 if digest is None else digest, 1)


def take(dedup: Deduplication, client: int, number: int, sequence: int, age_ms: int = 0) -> None:
    """A request that is fresh, under a digest that follows from its number."""
    record = Record(RecordKind.INSERT, 1, sequence, 1, 1000)
    assert dedup.judge(asked(client, number), record, 0, 0, age_ms).fresh


def told(dedup: Deduplication, client: int, number: int, digest: int | None = None) -> Code | None:
    """What it hears if it comes again; None: it would be done."""
    verdict = dedup.recall(asked(client, number, digest))
    assert verdict is None or (verdict.answer is not None) == (verdict.code == Code.OK)
    return None if verdict is None else verdict.code


def test_a_request_that_comes_again_gets_its_own_answer_and_another_of_its_number_none() -> None:
    dedup = Deduplication()
    for sequence, number in enumerate((5, 2, 9), start=100):
        take(dedup, 1, number, sequence)
    for sequence, number in enumerate((5, 2, 9), start=100):
        verdict = dedup.recall(asked(1, number))
        assert verdict is not None
        assert verdict.answer is not None
        assert (verdict.code, verdict.fresh, verdict.answer.sequence) == (Code.OK, False, sequence)
        assert told(dedup, 1, number, digest=1) == Code.SEQUENCE_REUSED
    assert [told(dedup, 1, number) for number in (1, 3, 10)] == [None, None, None]
    assert told(dedup, 2, 5) is None, "a number of another client is another request"


def test_a_request_that_comes_again_in_the_log_changes_nothing() -> None:
    dedup = Deduplication()
    take(dedup, 1, 5, 100)
    dedup.changed_rows()
    before = dedup.export(), dedup.bytes
    verdict = dedup.judge(asked(1, 5), Record(RecordKind.INSERT, 1, 101, 1, 1000), 0, 0, 50)
    assert (verdict.code, verdict.fresh) == (Code.OK, False)
    assert ((dedup.export(), dedup.bytes), dedup.changed) == (before, False)


def test_with_one_answer_too_many_that_of_the_least_number_leaves_however_late_it_came() -> None:
    """Then nobody knows what became of any number up to it: such a request is never done."""
    dedup = Deduplication(DedupLimits(window=3))
    for sequence, number in enumerate((20, 30, 10), start=100):
        take(dedup, 1, number, sequence)
    assert [told(dedup, 1, number) for number in (9, 10, 20, 30)] == [None, Code.OK, Code.OK, Code.OK]
    take(dedup, 1, 40, 103)
    assert [told(dedup, 1, number) for number in (1, 10)] == [Code.OUTCOME_UNKNOWN] * 2
    assert [told(dedup, 1, number) for number in (11, 20, 30, 40)] == [None, Code.OK, Code.OK, Code.OK]
    take(dedup, 1, 15, 104)
    assert [told(dedup, 1, number) for number in (15, 16, 20)] == [Code.OUTCOME_UNKNOWN, None, Code.OK]


def test_without_room_the_oldest_answer_of_all_clients_leaves() -> None:
    dedup = Deduplication(DedupLimits(bytes_max=2 * CLIENT_BYTES + 3 * ANSWER_BYTES))
    for sequence, (client, number) in enumerate(((2, 9), (1, 5), (1, 4)), start=100):
        take(dedup, client, number, sequence)
    assert told(dedup, 2, 9) == Code.OK
    take(dedup, 1, 6, 103)
    assert [told(dedup, 2, 9), told(dedup, 1, 5)] == [Code.OUTCOME_UNKNOWN, Code.OK]
    take(dedup, 1, 7, 104)
    assert [told(dedup, 1, number) for number in (3, 5)] == [Code.OUTCOME_UNKNOWN] * 2
    assert [told(dedup, 1, number) for number in (4, 6, 7)] == [Code.OK] * 3, "4 has come later than 5"


def test_an_answer_stays_to_the_end_of_its_age_and_its_client_too() -> None:
    dedup = Deduplication(DedupLimits(age_ms=1000))
    take(dedup, 1, 5, 100, age_ms=200)
    take(dedup, 1, 6, 101, age_ms=700)
    dedup.expire(1200)
    assert (told(dedup, 1, 5), dedup.oldest_age_ms) == (Code.OK, 200)
    dedup.expire(1201)
    assert (told(dedup, 1, 5), told(dedup, 1, 6)) == (Code.OUTCOME_UNKNOWN, Code.OK)
    dedup.expire(1700)
    assert (told(dedup, 1, 6), dedup.oldest_age_ms) == (Code.OK, 700)
    dedup.expire(1701)
    assert dedup.oldest_age_ms is None
    assert (told(dedup, 1, 6), dedup.bytes) == (None, 0), "nothing is known of it, and it is done anew"


def test_a_client_that_came_back_is_not_forgotten_for_its_earlier_silence() -> None:
    dedup = Deduplication(DedupLimits(age_ms=1000, window=0))
    take(dedup, 1, 5, 100, age_ms=0)
    take(dedup, 1, 6, 101, age_ms=800)
    dedup.expire(1500)
    assert told(dedup, 1, 6) == Code.OUTCOME_UNKNOWN
    dedup.expire(1801)
    assert told(dedup, 1, 6) is None


def test_what_is_on_the_disk_follows_what_is_remembered() -> None:
    """Answers that came, left and rose to floors, with a restart after each."""
    limits = DedupLimits(window=2, age_ms=1000)
    dedup, disk = Deduplication(limits), dict[bytes, TableRow]()
    for sequence, (client, number, age_ms) in enumerate(
        ((1, 5, 0), (1, 3, 10), (2, 8, 20), (1, 9, 30), (1, 4, 40), (2, 9, 50), (2, 10, 60)), start=100
    ):
        take(dedup, client, number, sequence, age_ms)
        dedup = recovered(disk, dedup, limits)
    assert told(dedup, 1, 4) == Code.OUTCOME_UNKNOWN
    for age_ms in (1031, 1051, 1061, 2000, 3000):
        dedup.expire(age_ms)
        dedup = recovered(disk, dedup, limits)
    assert dedup.export() == []
    assert [row.value for row in disk.values()] == [None] * len(disk)
    assert dedup.bytes == 0


def test_outcomes_that_are_filled_in_are_those_of_the_answer() -> None:
    dedup = Deduplication()
    record = Record(RecordKind.CANCEL, 1, 100, 1, 1000)
    request = RequestRef(bytes(16), 5, 7, 3)
    verdict = dedup.judge(request, record, 0, 0, 0)
    assert verdict.answer is not None
    dedup.fill_in(request, verdict.answer, np.array([0, 2, 1], np.uint8))
    again = recovered({}, dedup, DedupLimits()).recall(request)
    for each in (dedup.recall(request), again):
        assert each is not None
        assert each.answer is not None
        assert each.answer.outcomes.tolist() == [0, 2, 1]


def test_outcomes_of_a_request_whose_answer_has_left_again_are_nobodys() -> None:
    """It left for one behind it in the same record."""
    dedup = Deduplication(DedupLimits(window=1))
    record = Record(RecordKind.CANCEL, 1, 100, 1, 1000)
    verdicts = [dedup.judge(RequestRef(bytes(16), number, 7, 1), record, 0, 0, 0) for number in (5, 6)]
    for number, verdict, outcome in zip((5, 6), verdicts, (1, 2), strict=True):
        assert verdict.answer is not None
        dedup.fill_in(RequestRef(bytes(16), number, 7, 1), verdict.answer, np.array([outcome], np.uint8))
    kept = dedup.recall(RequestRef(bytes(16), 6, 7, 1))
    assert kept is not None
    assert kept.answer is not None
    assert kept.answer.outcomes.tolist() == [2]


def test_a_floor_whose_answer_never_was_on_the_disk_leaves_the_disk_when_it_rises() -> None:
    dedup = Deduplication(DedupLimits(window=1))
    disk: dict[bytes, bytes] = {}
    for numbers in ((1, 2), (3,), (4, 5, 6)):
        for number in numbers:
            insert(dedup, 1, number, number)
        for row in dedup.changed_rows():
            if row.value is None:
                disk.pop(row.key, None)
            else:
                disk[row.key] = row.value
        assert len(disk) == 2, "the answer, and the floor"


def test_a_client_is_remembered_for_as_long_as_its_youngest_answer_whichever_left_last() -> None:
    """Its late request has a smaller number, and so left first. Forgotten sooner, it would be done again."""
    dedup = Deduplication(DedupLimits(window=1, age_ms=1000))
    insert(dedup, 1, 5, 1, age_ms=0)
    insert(dedup, 1, 3, 2, age_ms=900)
    dedup.expire(1001)
    dedup.expire(1900)
    for number in (3, 5):
        assert told(dedup, 1, number) == Code.OUTCOME_UNKNOWN
