"""Smoothing, held against a queue that moves one message at a time."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dueq.campaign.counts import Counts
from dueq.campaign.smoothing import Slots, smoothed
from dueq.errors import InvalidRequest

DAY_S = 86_400


def counts(by_second: dict[int, int]) -> Counts:
    return Counts.of(list(by_second), list(by_second.values()))


def dues_of(by_second: dict[int, int]) -> np.ndarray:
    """Dues of that many messages in each second, ascending, some at the same ms."""
    dues = [second * 1000 + i * 7 % 1000 for second, count in by_second.items() for i in range(count)]
    return np.array(sorted(dues), np.int64)


def applied(plan: Slots, by_second: dict[int, int]) -> tuple[np.ndarray, np.ndarray]:
    dues = dues_of(by_second)
    return dues, plan.instants(np.arange(len(dues), dtype=np.int64), dues)


def twin(by_second: dict[int, int], existing: dict[int, int], per_second: int) -> list[int]:
    """The second in which each message leaves: each takes the first one with room, in order."""
    left: Counter[int] = Counter()
    now, seconds = 0, []
    for due in dues_of(by_second):
        now = max(now, int(due) // 1000)
        while left[now] + existing.get(now, 0) >= per_second:
            now += 1
        left[now] += 1
        seconds.append(now)
    return seconds


crowds = st.dictionaries(st.integers(0, 40), st.integers(1, 30), max_size=12)


@given(crowds, crowds, st.integers(1, 12))
def test_each_leaves_in_the_first_second_with_room_in_order(
    arriving: dict[int, int], existing: dict[int, int], per_second: int
) -> None:
    plan = smoothed(counts(arriving), counts(existing), per_second, DAY_S)
    dues, leaving = applied(plan, arriving)
    assert (leaving // 1000).tolist() == twin(arriving, existing, per_second)
    assert np.all(leaving >= dues), "nobody leaves early"
    assert np.all(np.diff(leaving) >= 0), "the order is kept"
    seconds = Counter((leaving // 1000).tolist())
    assert dict(zip(plan.after.at.tolist(), plan.after.count.tolist(), strict=True)) == seconds
    for second, count in seconds.items():
        assert count + min(existing.get(second, 0), per_second) <= per_second
    longest = (leaving // 1000 - dues // 1000).max(initial=0)
    assert plan.longest_s == longest


@given(crowds, crowds, st.integers(1, 60))
def test_without_a_limit_the_lowest_is_found_that_the_window_allows(
    arriving: dict[int, int], existing: dict[int, int], window_s: int
) -> None:
    plan = smoothed(counts(arriving), counts(existing), None, window_s)
    assert plan.longest_s <= window_s
    assert plan.per_second >= max(existing.values(), default=0), "lower, it would smooth nothing"
    if plan.per_second > max(1, *existing.values(), 1):
        with pytest.raises(InvalidRequest):
            smoothed(counts(arriving), counts(existing), plan.per_second - 1, window_s)


def test_what_has_room_stays_at_its_millisecond() -> None:
    plan = smoothed(counts({10: 5, 20: 5}), Counts.nothing(), 5, 60)
    assert plan.smooth
    dues, leaving = applied(plan, {10: 5, 20: 5})
    assert leaving.tolist() == dues.tolist()


def test_a_crowd_is_spread_evenly_inside_its_seconds() -> None:
    plan = smoothed(counts({100: 10}), Counts.nothing(), 4, 60)
    leaving = plan.instants(np.arange(10, dtype=np.int64), np.full(10, 100_000, np.int64))
    assert leaving.tolist() == [
        100_000, 100_250, 100_500, 100_750, 101_000, 101_250, 101_500, 101_750, 102_000, 102_500,
    ]  # fmt: skip
    assert plan.longest_s == 2


def test_a_window_that_is_too_short_is_refused_and_the_second_named() -> None:
    with pytest.raises(
        InvalidRequest, match=r"4 a second.*10 messages due at 1970-01-01T00:01:40.000Z.*1 s late"
    ):
        smoothed(counts({100: 10}), Counts.nothing(), 4, 1)


def test_what_waits_already_takes_its_room() -> None:
    plan = smoothed(counts({5: 4}), counts({5: 3, 6: 9, 7: 2}), 4, 60)
    _, leaving = applied(plan, {5: 4})
    assert (leaving // 1000).tolist() == [5, 7, 7, 8]


def test_a_topic_that_is_full_throughout_the_window_is_an_error_not_an_endless_search() -> None:
    full = counts(dict.fromkeys(range(100), 4))
    with pytest.raises(InvalidRequest, match="what waits in the topic already counts"):
        smoothed(counts({3: 1}), full, 4, 30)


def test_millions_of_one_instant_take_no_longer_than_their_seconds() -> None:
    plan = smoothed(counts({0: 5_000_000}), Counts.nothing(), 1000, DAY_S)
    assert (len(plan.first), plan.after.total, plan.longest_s) == (5000, 5_000_000, 4999)


def test_nothing_needs_no_plan() -> None:
    plan = smoothed(Counts.nothing(), Counts.nothing(), None, 1)
    assert plan.smooth
    assert plan.after.total == 0
