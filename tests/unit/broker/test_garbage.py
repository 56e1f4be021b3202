"""Garbage is collected where the loop rests, and only there."""

from __future__ import annotations

import gc
import itertools
import time
import weakref
from collections.abc import Iterator

import pytest

from dueq.broker.garbage import IdleCollector


class Knot:
    """Something that only the collector can free."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def collector() -> Iterator[IdleCollector]:
    found = IdleCollector()
    found.start()
    yield found
    found.stop()


def knots(count: int) -> weakref.ref[Knot]:
    """Leave some cycles behind; returns a reference to the first."""
    made = [Knot() for _ in range(count)]
    return weakref.ref(made[0])


def test_nothing_is_collected_while_the_loop_is_at_work(collector: IdleCollector) -> None:
    first = knots(30_000)
    assert first() is not None
    assert not gc.isenabled()


def test_cycles_are_freed_in_a_rest(collector: IdleCollector) -> None:
    first = knots(30_000)
    collector.rest(25_000)
    assert first() is None


def test_a_few_allocations_are_not_worth_a_collection(collector: IdleCollector) -> None:
    gc.collect()
    first = knots(100)
    collector.rest(25_000)
    assert first() is not None


def test_without_a_rest_only_what_is_much_is_collected(collector: IdleCollector) -> None:
    gc.collect()
    first = knots(5_000)
    collector.rest(0)
    assert first() is not None
    knots(30_000)
    collector.rest(0)
    assert first() is None


def frees_what_has_grown_old(collector: IdleCollector, rest_us: int) -> bool:
    """Whether a cycle that has become old before it was dropped is freed in rests of that length."""
    held = Knot()
    first = weakref.ref(held)
    for _ in range(3):
        knots(30_000)
        collector.rest(25_000)
    del held
    for _ in range(510):
        knots(2_500)
        collector.rest(rest_us)
    return first() is None


def test_cycles_that_have_grown_old_are_freed_in_a_long_rest(collector: IdleCollector) -> None:
    assert frees_what_has_grown_old(collector, rest_us=60_000_000)


def test_a_pause_in_a_collection_does_not_put_off_all_others(
    collector: IdleCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that has peers never rests for as long as that took: nothing that had grown old was freed again."""
    ticks = itertools.count(step=10_000_000_000)
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(ticks))
    for _ in range(2):
        assert frees_what_has_grown_old(collector, rest_us=200_000)


def test_afterwards_the_interpreter_collects_again() -> None:
    collector = IdleCollector()
    collector.start()
    collector.stop()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
