"""The instants chosen in the windows of an INSERT are remembered with its answer, and survive a restart."""

from __future__ import annotations

import numpy as np

from dueq.core.state.dedup import Deduplication
from dueq_codecs.records import Record, RecordKind, RequestRef

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
