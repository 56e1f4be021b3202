"""Mesh time goes back: a clock that was ahead is set right. What seemed to be due is not."""

from __future__ import annotations

import pytest

from dueq.instant import Now
from tests.unit.core import led
from tests.unit.core.led import MONO_US, START_MS, Stage, keys_in, kinds

HOUR_MS = 3_600_000


class Clock:
    """The wall clock of a stage, ahead by some ms."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead_ms = 0
        monkeypatch.setattr(led, "at", self.at)

    def at(self, ms: float) -> Now:
        us = round(ms * 1000)
        return Now(START_MS * 1000 + us + self.ahead_ms * 1000, MONO_US + us)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def set_right(stage: Stage, clock: Clock, ahead_ms: int) -> None:
    """The leader has looked by a clock that was ahead, while nobody had credit; then a consumer comes."""
    clock.ahead_ms = ahead_ms
    for ms in (10, 20):
        stage.tick(ms)
    clock.ahead_ms = 0
    stage.tick(40, paused=True)
    stage.attach(1_000, credit=100, lease_ms=60_000)


@pytest.mark.parametrize("kind", ["timeline", "priority", "fair"])
@pytest.mark.parametrize("ahead_ms", [3_000, HOUR_MS + 60_000])
def test_what_is_not_due_after_all_is_not_leased(kind: str, ahead_ms: int, clock: Clock) -> None:
    stage = Stage(kind=kind)
    stage.insert([2_500 if ahead_ms < HOUR_MS else HOUR_MS] * 20, group="g" if kind == "fair" else "")
    stage.insert([1_200], group="g" if kind == "fair" else "")
    set_right(stage, clock, ahead_ms)
    assert [len(push.uid) for push in stage.run(1_200)] == [1]
    assert stage.run(1_210) == []
    assert [name.name for name in kinds(stage)] == ["LEASE"]


@pytest.mark.parametrize("kind", ["timeline", "priority", "fair"])
def test_what_is_due_sooner_than_what_seemed_to_be_due_is_looked_for_then(kind: str, clock: Clock) -> None:
    stage = Stage(kind=kind)
    stage.insert([HOUR_MS, HOUR_MS + 1], rank=0, group="g" if kind == "fair" else "")
    stage.insert([10_000], rank=5 if kind == "priority" else 0, group="h" if kind == "fair" else "")
    set_right(stage, clock, 2 * HOUR_MS)
    ms, pushed = 1_000.0, list[float]()
    while ms <= 10_100:
        pushed += [ms] * len(stage.run(ms))
        deadline_us = stage.dispatcher.next_deadline_us(clock.at(ms))
        wanted_ms = (deadline_us - MONO_US) / 1000 if deadline_us is not None else 1e9
        beat_ms = (ms // 2_500 + 1) * 2_500
        ms = max(min(wanted_ms, beat_ms), ms + 0.5)
        if ms == beat_ms:
            stage.beat(ms, number=round(ms), credit=100, lease_ms=60_000, push_seen=9)
    assert pushed == [10_000]


@pytest.mark.parametrize("kind", ["timeline", "priority", "fair"])
def test_what_was_ready_and_is_still_due_is_delivered(kind: str, clock: Clock) -> None:
    stage = Stage(kind=kind)
    stage.insert([5, 6, 7], group="g" if kind == "fair" else "")
    set_right(stage, clock, HOUR_MS)
    assert [len(push.uid) for push in stage.run(1_000)] == [3]


@pytest.mark.parametrize("kind", ["timeline", "priority", "fair"])
@pytest.mark.parametrize("ahead_ms", [60, 3_000])
def test_what_waits_for_its_payload_is_held_until_it_is_due(kind: str, ahead_ms: int, clock: Clock) -> None:
    stage = Stage(kind=kind)
    due_ms = ahead_ms - 10
    stage.insert([due_ms], group="g" if kind == "fair" else "")
    stage.leds[1].cached = False
    stage.attach(0, lease_ms=60_000)
    clock.ahead_ms = ahead_ms
    stage.tick(1)
    stage.commit(2)
    stage.tick(3)  # it seems to be due, and is held up
    clock.ahead_ms = 0
    stage.tick(4, paused=True)
    stage.read_payloads(5)
    assert stage.run(6) == []
    deadline_us = stage.dispatcher.next_deadline_us(clock.at(6))
    assert deadline_us is not None
    assert deadline_us <= MONO_US + due_ms * 1000
    assert stage.run(due_ms - 1) == []
    assert [len(push.uid) for push in stage.run(due_ms)] == [1]


def test_a_push_that_waits_for_its_payload_delays_none_that_is_due_after_it(clock: Clock) -> None:
    stage = Stage()
    stage.leds[1].cached = False
    stage.attach(0, lease_ms=60_000)
    stage.insert([10], 0)
    stage.run(11)
    stage.leds[1].cached = True
    [second] = stage.insert([30], 12)
    stage.run(13)
    deadline_us = stage.dispatcher.next_deadline_us(clock.at(13))
    assert deadline_us is not None
    assert deadline_us <= MONO_US + 30_000
    assert [keys_in(push) for push in stage.run(30)] == [[second]]
