"""A bucket of tokens: the rate over a long time, the burst at once, and no more of either."""

from __future__ import annotations

import pytest

from dueq.core.delivery.token_bucket import UNLIMITED, TokenBucket
from dueq.instant import Now
from dueq_codecs.records import Record, RecordKind
from dueq_codecs.topic_settings import AS_CREATED
from tests.unit.core.led import Stage, at


def after(ms: float) -> Now:
    return Now(0, 5_000_000 + round(ms * 1000))


def bucket(rate: float, burst: int) -> TokenBucket:
    made = TokenBucket()
    made.configure(rate, burst, after(0))
    return made


def test_without_a_rate_there_is_no_limit() -> None:
    made = TokenBucket()
    assert made.available(after(0)) == UNLIMITED
    made.take(9)
    assert made.available(after(0)) == UNLIMITED


def test_it_begins_full_and_holds_no_more_than_the_burst() -> None:
    made = bucket(10, 3)
    assert made.available(after(0)) == 3
    made.take(3)
    assert made.available(after(99.9)) == 0
    assert made.next_us(after(50)) == after(100).mono_us
    assert made.available(after(100)) == 1
    assert made.available(after(60_000)) == 3


@pytest.mark.parametrize("rate", [1, 3, 7, 999, 100_000])
def test_no_time_is_lost_to_rounding(rate: int) -> None:
    made = bucket(rate, rate)
    made.take(rate)
    taken = 0
    for us in range(0, 1_000_001, 125):
        found = made.available(after(us / 1000))
        made.take(found)
        taken += found
    assert taken == rate


def test_another_rate_begins_with_what_is_there() -> None:
    made = bucket(10, 100)
    made.configure(1, 5, after(0))
    assert made.available(after(0)) == 5
    made.take(5)
    made.configure(1_000, 50, after(0))
    assert made.available(after(10)) == 10


def test_a_limited_topic_is_delivered_at_its_rate() -> None:
    stage = Stage()
    stage.attach(0, credit=1_000)
    settings = AS_CREATED.changed({"rate": 10, "burst": 5}, "a" * 32)
    record = Record(RecordKind.SETTINGS, 1, 0, 0, 0, version=2, document=settings.encode())
    stage.leds[1].append(record, at(0))
    stage.commit(0)
    stage.insert([0] * 30)
    counts = [sum(len(push.uid) for push in stage.run(ms)) for ms in range(1, 1_002, 100)]
    assert counts[0] == 5
    assert sum(counts) == 15
    assert not stage.dispatcher.has_waiting(at(1_001))
    deadline_us = stage.dispatcher.next_deadline_us(at(1_001))
    assert deadline_us is not None
    assert deadline_us <= at(1_101).mono_us


def test_a_rate_below_one_a_second_has_a_burst_of_one() -> None:
    made = bucket(0.125, 0)
    assert made.available(after(0)) == 1
    made.take(1)
    assert made.next_us(after(1)) == after(8_000).mono_us
    assert made.available(after(7_999.9)) == 0
    assert made.available(after(8_000)) == 1
    assert made.available(after(80_000)) == 1


def test_the_slowest_rate_is_exact_over_a_day() -> None:
    made = bucket(0.001, 1)
    taken = 0
    for second in range(0, 86_401, 100):
        now = after(second * 1000.0)
        taken += made.available(now)
        made.take(made.available(now))
    assert taken == 1 + 86
