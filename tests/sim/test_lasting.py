"""The verdict on detached leases: none ends before its length, but by a decision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dueq_chaos.sim.judging.lasting import Lasting
from dueq_codecs.records import Record, RecordKind

S = 1_000_000


def record(kind: RecordKind, sequence: int, **columns: Any) -> Record:
    """Of one message."""
    found = Record(kind, 1, sequence, 1, 0)
    found.target_sequence, found.target_row = np.array([7], np.uint64), np.array([0], np.uint16)
    found.first = np.array([1_000], np.uint64)
    for name, value in columns.items():
        setattr(found, name, value)
    return found


def lease(sequence: int, detached: bool = True) -> Record:
    marks = np.array([1], np.uint8) if detached else np.zeros(0, np.uint8)
    return record(
        RecordKind.LEASE, sequence, consumer=np.zeros(1, np.uint16), consumers=(b"c" * 16,),
        lease_ms=np.array([30_000], np.uint64), detached=marks,
    )  # fmt: skip


def expire(sequence: int, token: int) -> Record:
    return record(RecordKind.EXPIRE, sequence, token=np.array([token], np.uint64))


@pytest.mark.parametrize(("ends_s", "wrong"), [(10, True), (26, True), (28, False), (31, False)])
def test_a_detached_lease_lasts_for_its_length(ends_s: int, wrong: bool) -> None:
    lasting = Lasting()
    assert lasting.cut_short(lease(10), 0) == ""
    said = lasting.cut_short(expire(11, 10), ends_s * S)
    assert bool(said) is wrong
    if wrong:
        assert (
            said
            == f"the detached lease 10 of message {7 << 16} was ended {30_000 - ends_s * 1000} ms before its length"
        )


def test_what_another_replica_shows_is_no_news() -> None:
    lasting = Lasting()
    lasting.cut_short(lease(10), 0)
    assert lasting.cut_short(expire(11, 10), 31 * S) == ""
    assert lasting.cut_short(lease(10), 32 * S) == ""
    assert lasting.cut_short(expire(11, 10), 32 * S) == ""


def test_an_extended_lease_lasts_for_its_new_length() -> None:
    lasting = Lasting()
    lasting.cut_short(lease(10), 0)
    extended = record(
        RecordKind.EXTEND, 11, token=np.array([10], np.uint64), amount_ms=np.array([60_000], np.uint64)
    )
    lasting.cut_short(extended, 20 * S)
    assert lasting.cut_short(expire(12, 10), 40 * S)


@pytest.mark.parametrize(("ends_s", "wrong"), [(70, True), (80, False)])
def test_an_extension_that_is_committed_late_counts_from_when_it_was_asked_for(
    ends_s: int, wrong: bool
) -> None:
    lasting = Lasting()
    lasting.cut_short(lease(10), 0)
    extended = record(
        RecordKind.EXTEND, 11, token=np.array([10], np.uint64), amount_ms=np.array([60_000], np.uint64)
    )
    extended.stamp = 20_000
    lasting.cut_short(extended, 29 * S)
    ended = expire(12, 10)
    ended.stamp = ends_s * 1000
    assert bool(lasting.cut_short(ended, ends_s * S)) is wrong


def test_who_names_the_message_by_another_instant_extends_nothing() -> None:
    lasting = Lasting()
    lasting.cut_short(lease(10), 0)
    extended = record(
        RecordKind.EXTEND, 11, token=np.array([10], np.uint64), amount_ms=np.array([60_000], np.uint64)
    )
    extended.first = np.array([1_001], np.uint64)
    lasting.cut_short(extended, 20 * S)
    assert lasting.cut_short(expire(12, 10), 30 * S) == ""


def test_other_leases_end_with_their_sessions() -> None:
    lasting = Lasting()
    lasting.cut_short(lease(10), 0)
    lasting.cut_short(lease(11, detached=False), 1)
    assert lasting.cut_short(expire(12, 11), 10 * S) == ""
