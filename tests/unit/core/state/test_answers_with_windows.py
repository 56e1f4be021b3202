"""The instants chosen in the windows of an INSERT are remembered with its answer, and survive a restart."""

from __future__ import annotations

import numpy as np

from dueq.core.state.answers import Answer, Answers
from dueq.core.state.applied import PRESENT
from dueq.core.state.dedup import Deduplication
from dueq_codecs.records import Outcome, Record, RecordKind, RequestRef

FIRST, SECOND = RequestRef(b"c" * 16, 1, 11, 2), RequestRef(b"d" * 16, 1, 12, 1)


def record() -> Record:
    found = Record(RecordKind.INSERT, 1, 5, 1, 1000, 2, (FIRST, SECOND))
    found.due = np.array([1, 2, 3], np.uint64)
    found.window = np.array([7, 0, 600_000], np.uint32)
    return found


def test_each_request_of_a_record_gets_its_own_part_also_after_a_restart() -> None:
    memory = Deduplication()
    memory.judge(FIRST, record(), 0, 0, 0)
    memory.judge(SECOND, record(), 1, 2, 0)
    restarted = Deduplication()
    restarted.recover(memory.changed_rows())
    assert restarted.bytes == memory.bytes
    for found in (memory, restarted):
        verdicts = [found.recall(FIRST), found.recall(SECOND)]
        windows = [v.answer.window.tolist() for v in verdicts if v is not None and v.answer is not None]
        assert windows == [[7, 0], [600_000]]
        assert all(v is not None and v.answer is not None and not len(v.answer.outcomes) for v in verdicts)


def test_what_is_forgotten_weighs_nothing() -> None:
    memory = Deduplication()
    before = memory.bytes
    memory.judge(FIRST, record(), 0, 0, 0)
    memory.judge(SECOND, record(), 1, 2, 0)
    assert memory.bytes > before + 3 * 4
    memory.expire(1 << 50)
    memory.expire(1 << 51)
    assert memory.bytes == before


def test_an_answer_has_nothing_of_the_one_whose_place_it_takes() -> None:
    """Else a repeated request would be told of instants, or of a message, that another one has met."""
    answers = Answers()
    windowed, met, plain = (Answer(7, sequence, 0, 0, 1000, 0, 0) for sequence in (1, 2, 3))
    windowed.window = np.array([9], np.uint32)
    met.outcomes, met.present = np.array([Outcome.TAKEN], np.uint8), np.ones(1, PRESENT)
    answers.add(0, 1, Answer(7, 1, 0, 0, 1000, 0, 0))
    for before in (windowed, met):
        answers.remove(answers.add(0, 2, before))
        slot = answers.add(0, 3, plain)
        found = answers.get(slot)
        assert (found.window.tolist(), found.present.tolist(), found.outcomes.tolist()) == ([], [], [])
        assert (answers.extra_bytes(slot), Answer.unpack(answers.row(slot)).sequence) == (0, 3)
        answers.remove(slot)
