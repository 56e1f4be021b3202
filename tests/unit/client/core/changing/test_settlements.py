"""What a client's requests may still settle."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dueq import limits
from dueq.client.core.changing import settlements
from dueq.client.core.changing.settlements import FEW, PARTS_MAX, Settlements
from dueq.client.core.links.context import Context
from dueq.client.core.ports.change import Part
from dueq.errors import Busy, OutcomeUnknown
from dueq_codecs.records import RecordKind


def releases(sequence: int, rows: int = 1, topic: str = "t", kind: RecordKind = RecordKind.RELEASE) -> Part:
    return Part(
        kind, topic, 3, b"c" * 16, rows, lambda part: None,
        target_sequence=np.full(rows, sequence, np.uint64), target_row=np.arange(rows, dtype=np.uint16),
        token=np.full(rows, 9, np.uint64),
    )  # fmt: skip


def begun() -> tuple[Context, Settlements]:
    context = Context(b"c" * 16, random.Random(1))
    return context, Settlements(context)


def test_a_request_without_an_answer_counts_and_one_that_was_refused_does_not() -> None:
    context, under_way = begun()
    first, second, third = (releases(sequence) for sequence in (5, 6, 7))
    for part in (first, second, third, releases(8, topic="other")):
        under_way.add(part)
    second.error, third.error = OutcomeUnknown("lost"), Busy("full")
    assert list(under_way.of("t")) == [(3, 5, 0, 9), (3, 6, 0, 9)]
    first.error = Busy("full")
    assert [lease[1] for lease in under_way.of("t")] == [6]
    assert list(under_way.of("nobody's")) == []
    context.now = context.now._replace(mono_us=context.now.mono_us + limits.DEDUP_MS * 1000 + 1)
    assert list(under_way.of("t")) == []


def test_answered_requests_are_forgotten_though_nobody_asks() -> None:
    _, under_way = begun()
    for sequence in range(10 * FEW):
        part = releases(sequence)
        under_way.add(part)
        part.error = Busy("full")
    assert len(under_way._topics["t"].parts) <= FEW


def test_topics_where_all_was_answered_are_forgotten_and_those_of_an_unknown_outcome_are_not() -> None:
    _, under_way = begun()
    lost = releases(5, topic="lost")
    under_way.add(lost)
    lost.error = OutcomeUnknown("lost")
    for number in range(10 * FEW):
        part = releases(5, topic=f"t{number}")
        under_way.add(part)
        part.error = Busy("full")
    assert len(under_way._topics) <= FEW
    assert list(under_way.of("lost")) == [(3, 5, 0, 9)]


def test_what_is_never_answered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settlements, "LISTED_MAX", 10)
    _, under_way = begun()
    for sequence in range(3 * PARTS_MAX):
        under_way.add(releases(sequence, rows=3))
    assert len(under_way._topics["t"].parts) <= 2 * PARTS_MAX
    assert len(list(under_way.of("t"))) == 10
    assert len(under_way._topics["t"].parts) == PARTS_MAX


def test_a_request_that_is_repeated_counts_though_it_had_been_refused() -> None:
    """It is entered before it is sent again, and its old error is there until then."""
    _, under_way = begun()
    again = releases(5)
    for part in (*(releases(sequence) for sequence in range(6, 6 + FEW)), again):
        part.error = Busy("full") if part is again else None
        under_way.add(part)
    again.error = None
    assert (3, 5, 0, 9) in list(under_way.of("t"))


def test_one_that_is_not_sent_yet_counts_however_long_it_waits() -> None:
    context, under_way = begun()
    waits, lost = releases(5), releases(6)
    under_way.add(waits)
    under_way.add(lost)
    lost.error = OutcomeUnknown("lost")
    context.now = context.now._replace(mono_us=context.now.mono_us + limits.DEDUP_MS * 1000 + 1)
    assert list(under_way.of("t")) == [(3, 5, 0, 9)]


def test_of_too_many_those_that_give_back_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late ACK ends what is done anyway. A late RELEASE or NACK gives to another what its holder works on."""
    monkeypatch.setattr(settlements, "LISTED_MAX", 3)
    monkeypatch.setattr(settlements, "PARTS_MAX", 4)
    _, under_way = begun()
    kinds = [
        RecordKind.ACK,
        RecordKind.NACK,
        RecordKind.ACK,
        RecordKind.EXTEND,
        RecordKind.ACK,
        RecordKind.RELEASE,
    ]
    parts = [releases(sequence, kind=kind) for sequence, kind in enumerate(kinds)]
    for part in parts:
        under_way.add(part)
    parts[-1].error = OutcomeUnknown("lost")
    assert [lease[1] for lease in under_way.of("t")] == [1, 5, 3]
    assert parts[1] in under_way._topics["t"].parts
