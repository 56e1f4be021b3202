"""ReplicaLog against a list of epochs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dueq.core.ports.effects import Persist
from dueq.core.ports.entry import NO_ENTRIES
from dueq.core.ports.persistence import RecoveredPartition, TrimLog
from dueq.core.replication import durable_log
from dueq.core.replication.durable_log import DurableLog
from dueq.core.replication.log import ReplicaLog
from dueq.core.turn.context import Context
from dueq.core.turn.settings import CoreSettings
from dueq.instant import Now
from dueq_codecs.records import LogEntry, Record, RecordKind


def entry(sequence: int, epoch: int) -> LogEntry:
    return LogEntry(Record(RecordKind.BARRIER, 1, sequence, epoch, 0))


def filled(*epochs: int) -> ReplicaLog:
    log = ReplicaLog()
    for sequence, epoch in enumerate(epochs, start=1):
        log.append(entry(sequence, epoch))
    return log


def test_a_log_knows_the_epoch_of_every_record_and_of_what_went_before() -> None:
    log = filled(1, 1, 4, 4, 6)
    assert [log.epoch_at(sequence) for sequence in range(7)] == [0, 1, 1, 4, 4, 6, None]


def test_the_largest_epoch_not_above_another_is_found_with_its_end() -> None:
    log = filled(1, 1, 4, 4, 6)
    assert log.epoch_not_above(5) == (4, 4)
    assert log.epoch_not_above(6) == (6, 5)
    assert log.epoch_not_above(0) == (0, 0)


def test_a_log_that_was_long_held_back_is_trimmed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader keeps its log while a follower is filled, and a commit that deletes a million records takes a second."""
    monkeypatch.setattr(durable_log, "TRIM_RECORDS_MAX", 10)
    ctx = Context(CoreSettings("b1", 11, "s1", "cluster", "tcp://b1", log_retain_bytes=0))
    log = durable_log.DurableLog(ctx, 1, None)
    for sequence in range(1, 41):
        log.append(entry(sequence, 1))
    assert [log.trim_to(36) for _ in range(5)] == [11, 21, 31, 36, 0]
    ctx.close_writes()
    [order] = ctx.take()
    assert isinstance(order, Persist)
    assert [write.below for write in order.writes if isinstance(write, TrimLog)] == [11, 21, 31, 36]


def test_a_trimmed_log_still_knows_the_epoch_before_its_start() -> None:
    log = filled(1, 1, 4, 4, 6)
    log.trim(4)
    for below in (4, 2):  # what is gone already
        log.trim(below)
        assert (log.start, log.epoch_at(3), log.epoch_at(4), log.epoch_at(2)) == (4, 4, 4, None)


def test_uploads_count_in_what_a_log_keeps_on_the_disk() -> None:
    """Their records are small: by those alone the log would keep the chunks of a hundred thousand ended messages."""
    log = ReplicaLog()
    for sequence in range(1, 11):
        record = Record(RecordKind.INSERT, 1, sequence, 1, 0)
        record.due = np.zeros(2, np.uint64)
        record.size = np.array([1_000_000, 100], np.uint32)
        record.upload = np.array([sequence, 0], np.uint64)
        log.append(LogEntry(record, b"p" * 100))
    assert log.trimmable(100, retain_bytes=3_500_000) == 8
    assert log.cached_bytes < 100_000, "they are not in memory"


@pytest.mark.parametrize(
    "words",
    [{"document": "d" * 80_000}, {"groups": ("g" * 250,) * 320}, {"reasons": ("r" * 1_000,) * 80}],
    ids=list,
)
def test_texts_count_in_what_a_log_keeps(words: dict[str, Any]) -> None:
    """The payload of a recurrence, groups and reasons: by the rest alone a log would keep gigabytes of them."""
    log = ReplicaLog()
    for sequence in range(1, 11):
        record = Record(RecordKind.RECURRENCE, 1, sequence, 1, 0, **words)
        log.append(LogEntry(record))
    assert log.trimmable(100, retain_bytes=250_000) == 8
    assert log.cached_bytes > 10 * 80_000
    assert len(log.read(1, 250_000)) == 3
    log.shrink_cache(keep_from=11, bytes_max=0)
    assert log.cached_bytes == 0


def test_only_the_oldest_entries_leave_memory_and_none_that_is_still_needed() -> None:
    log = filled(*[1] * 10)
    log.shrink_cache(keep_from=6, bytes_max=0)
    assert log.get(5) is None
    assert [found.record.sequence for found in log.read(6, 1 << 20)] == [6, 7, 8, 9, 10]


def opened(recovered: RecoveredPartition | None = None) -> DurableLog:
    return DurableLog(Context(CoreSettings("b1", 11, "s", "c", "")), 1, recovered)


def test_a_log_is_trimmed_though_most_of_it_is_of_earlier_lives() -> None:
    recovered = RecoveredPartition(
        1, "t", 1, 80, 80, 1, 81, [(0, 0), (1, 1)], [entry(81, 1)], 0, NO_ENTRIES, {}, b"", [],
        weights=[(20, 4_000_000), (40, 4_000_000), (60, 4_000_000), (80, 2_000_000)],
    )  # fmt: skip
    log = opened(recovered)
    assert log.trimmable(82, retain_bytes=16 << 20) == 1
    log.append(LogEntry(Record(RecordKind.BARRIER, 1, 82, 1, 0), bytes(4_000_000)))
    assert log.trimmable(82, retain_bytes=16 << 20) == 21
    assert log.trimmable(82, retain_bytes=6_500_000) == 61


def test_no_write_that_was_under_way_before_a_truncation_says_that_later_records_are_synced() -> None:
    """The disk has had records in these places, but not the ones that are there now."""
    ctx = Context(CoreSettings("b1", 11, "s", "c", ""))
    log = DurableLog(ctx, 1, None)
    log.raise_epoch(1)
    found: list[int] = []

    def save() -> None:
        log.save(lambda now: found.append(log.synced))
        ctx.close_writes()

    for sequence in (1, 2, 3, 4, 5):
        log.append(entry(sequence, 1))
        if sequence in (3, 5):
            save()
    log.raise_epoch(2)
    log.truncate(3)
    for sequence in (3, 4, 5):
        log.append(entry(sequence, 2))
    save()
    for token in (1, 2, 3):
        ctx.persisted(token, Now(0, 0))
    assert found == [2, 2, 5]


def test_an_older_epoch_changes_nothing() -> None:
    log = opened()
    log.raise_epoch(3)
    log.dirty = False
    for epoch in (2, 3):
        log.raise_epoch(epoch)
        assert (log.epoch, log.dirty) == (3, False)


def test_a_damaged_log_begins_anew_in_the_epoch_that_it_knew() -> None:
    """A lower one could let the leader of an older epoch be followed."""
    log = opened(
        RecoveredPartition(
            1, "t", 5, 80, 80, 1, 80, [(0, 0), (5, 1)], [], 0, NO_ENTRIES, {}, b"", [], damaged="a block"
        )
    )
    assert (log.start, log.end, log.commit, log.epoch) == (1, 0, 0, 5)


@st.composite
def _steps(draw: st.DrawFn) -> list[tuple[str, int]]:
    return draw(
        st.lists(
            st.one_of(
                st.tuples(st.just("append"), st.integers(0, 2)),
                st.tuples(st.just("truncate"), st.integers(1, 40)),
                st.tuples(st.just("trim"), st.integers(1, 40)),
            ),
            max_size=60,
        )
    )


@given(_steps())
def test_epochs_agree_with_a_plain_list(steps: list[tuple[str, int]]) -> None:
    log, epochs, start = ReplicaLog(), [0], 1
    for what, number in steps:
        if what == "append":
            epochs.append(epochs[-1] + number)
            log.append(entry(len(epochs) - 1, epochs[-1]))
        elif what == "truncate" and start <= number < len(epochs):
            del epochs[number:]
            log.truncate(number)
        elif what == "trim" and start < number <= len(epochs):
            start = number
            log.trim(number)
        assert (log.start, log.end) == (start, len(epochs) - 1)
        for sequence in range(start - 1, len(epochs)):
            assert log.epoch_at(sequence) == epochs[sequence]
        for asked in range(epochs[-1] + 2):
            held = [s for s in range(start - 1, len(epochs)) if epochs[s] <= asked]
            expected = (epochs[held[-1]], held[-1]) if held else (0, 0)
            assert log.epoch_not_above(asked) == expected
