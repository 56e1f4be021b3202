"""Delays of a back-off, and what its document may be."""

from __future__ import annotations

from typing import Any

import pytest

from dueq_codecs.backoff import BACKOFF_MS_MAX, delay_ms, fault_of_backoff

PLAIN: dict[str, Any] = {
    "first_ms": 1000,
    "factor": 2.0,
    "longest_ms": 60_000,
    "jitter": 0.0,
    "doublings": None,
}


def test_each_delay_is_a_multiple_of_the_one_before_up_to_the_longest() -> None:
    assert [delay_ms(PLAIN, attempt, 0.5) for attempt in (1, 2, 3, 6, 7, 65_535)] == [
        1000, 2000, 4000, 32_000, 60_000, 60_000,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("doublings", "delays"),
    [(2, [1000, 2000, 4000, 8000, 12_000, 16_000]), (0, [1000, 2000, 3000, 4000, 5000, 6000])],
)
def test_after_the_doublings_it_grows_by_equal_steps(doublings: int, delays: list[int]) -> None:
    backoff = PLAIN | {"doublings": doublings}
    assert [delay_ms(backoff, attempt, 0.5) for attempt in range(1, 7)] == delays


def test_chance_moves_a_delay_by_the_jitter_and_never_beyond_the_longest() -> None:
    backoff = PLAIN | {"jitter": 0.1}
    assert (delay_ms(backoff, 1, 0.0), delay_ms(backoff, 1, 1.0)) == (900, 1100)
    assert delay_ms(backoff, 99, 1.0) == 60_000


def test_without_a_back_off_nothing_waits() -> None:
    assert delay_ms(None, 3, 0.5) == 0


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"first_ms": -1}, f"first_ms of backoff is 0 to {BACKOFF_MS_MAX} ms, not -1"),
        ({"longest_ms": 1.5}, "longest_ms of backoff is"),
        ({"factor": 0.5}, "factor of backoff is 1 to 1000, not 0.5"),
        ({"factor": float("nan")}, "factor of backoff is"),
        ({"factor": float("inf")}, "factor of backoff is"),
        ({"factor": 10**400}, "factor of backoff is 1 to 1000, not 1000"),
        ({"jitter": -(10**400)}, "jitter of backoff is 0 to 1, not -1000"),
        ({"jitter": 2}, "jitter of backoff is 0 to 1, not 2"),
        ({"doublings": -1}, "doublings of backoff is 0 to 1000, or null, not -1"),
        ({"colour": 1}, "backoff has doublings, factor, first_ms, jitter, longest_ms, not"),
    ],
)
def test_a_bad_document_is_refused_with_value_and_limit(changes: dict[str, Any], text: str) -> None:
    fault = fault_of_backoff(PLAIN | changes)
    assert fault is not None
    assert fault.startswith(text)
    assert fault_of_backoff(PLAIN) is None
    assert fault_of_backoff(None) is None
