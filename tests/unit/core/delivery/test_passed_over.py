"""What may not be delivered (it has expired, or its job was cancelled) takes nothing from what is behind it."""

from __future__ import annotations

import numpy as np
import pytest

from dueq.core.delivery import lane
from dueq.limits import RECORD_ROWS_MAX
from dueq_codecs.messages import Push
from dueq_codecs.records import FEATURE_LEVEL, JobAction, Record, RecordKind, RequestRef
from dueq_codecs.topic_settings import TopicSettings
from tests.unit.core.led import BOB, START_MS, Stage, at, keys_in

KINDS = ("timeline", "priority", "fair")
JOB = b"j" * 16


def of_job(stage: Stage, count: int) -> None:
    """Let messages of a committed job wait, due at 100 ms."""
    led = stage.leds[1]
    for size in [RECORD_ROWS_MAX] * (count // RECORD_ROWS_MAX) + [count % RECORD_ROWS_MAX]:
        record = Record(RecordKind.INSERT, 1, 0, 0, 0, job=JOB)
        record.due = np.full(size, START_MS + 100, np.uint64)
        record.size, record.crc = np.full(size, 4, np.uint32), np.zeros(size, np.uint32)
        record.requests = (RequestRef(b"p" * 16, led.sequence + 1, led.sequence + 1, size),)
        led.append(record, at(0))
        stage.commit(0)


def cancel(stage: Stage) -> None:
    """Cancel the job; nothing of it is withdrawn yet."""
    record = Record(RecordKind.JOB, 1, 0, 0, 0, job=JOB, job_action=JobAction.CANCEL)
    record.requests = (RequestRef(b"d" * 16, 1, 1, 1),)
    stage.leds[1].append(record, at(0))
    stage.commit(0)


def pushed_at(stage: Stage, ms: float, looks: int = 1) -> list[int]:
    """Take so many looks, of which each is committed; returns the keys that were pushed, and acks them."""
    keys: list[int] = []
    for look in range(looks):
        before = len(stage.sent)
        stage.tick(ms + look)
        stage.commit(ms + look)
        stage.tick(ms + look)
        pushes = [message for _, message, _ in stage.sent[before:] if isinstance(message, Push)]
        for push in pushes:
            keys += keys_in(push)
            stage.ack(push, ms + look)
    return keys


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("credit", [1, 7])
def test_messages_of_a_cancelled_job_hold_up_nothing_behind_them(kind: str, credit: int) -> None:
    stage = Stage(kind=kind)
    of_job(stage, 900)
    free = stage.insert([101] * 700)
    cancel(stage)
    assert len(stage.dispatcher._lanes[1].queue) == 1600, "they are passed over one by one"
    stage.attach(200, credit=credit)
    assert pushed_at(stage, 201, looks=5)[0] == free[0]


@pytest.mark.parametrize("kind", KINDS)
def test_a_look_passes_over_a_bounded_number_and_the_next_one_comes_at_once(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "PASSED_MAX", 60)
    stage = Stage(kind=kind)
    of_job(stage, 100)
    free = stage.insert([101] * 9)
    cancel(stage)
    stage.attach(200, credit=1)
    stage.tick(201)
    assert stage.dispatcher.next_deadline_us(at(201)) == at(201).mono_us
    assert pushed_at(stage, 201) == free[:1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("credit", [1, 7])
def test_what_has_expired_is_ended_by_few_records_whatever_credit_there_is(kind: str, credit: int) -> None:
    stage = Stage(kind=kind)
    expired = stage.insert([100] * 900, expires_ms=150)
    free = stage.insert([101])
    stage.attach(200, credit=credit)
    assert pushed_at(stage, 201, looks=9) == free
    lapses = [record for record in stage.leds[1].log if record.kind == RecordKind.LAPSE]
    assert sum(record.rows for record in lapses) == len(expired)
    assert len(lapses) <= len(expired) // lane.POPS_MAX + 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("consumer", [False, True])
def test_what_expires_while_nobody_has_credit_is_ended_at_its_instant(kind: str, consumer: bool) -> None:
    stage = Stage(kind=kind)
    stage.insert([100] * 900, expires_ms=5_000)
    free = stage.insert([101])
    if consumer:
        stage.attach(0, credit=0)
    led = stage.leds[1]
    stage.tick(200)
    assert led.timeline.live_count == 901
    assert stage.dispatcher.next_deadline_us(at(200)) == at(5_000).mono_us
    looks = 0
    while stage.dispatcher.next_deadline_us(at(5_000)) == at(5_000).mono_us:
        pushed_at(stage, 5_000)
        looks += 1
    stage.commit(5_000)
    assert led.timeline.live_count == 1
    assert looks <= 900 // lane.POPS_MAX + 2
    stage.tick(7_000)
    silence_us = at(10_000).mono_us if consumer else None
    assert stage.dispatcher.next_deadline_us(at(7_000)) == silence_us, (
        "what does not expire waits for a consumer"
    )
    stage.attach(8_000, BOB)
    assert pushed_at(stage, 8_001) == free


def test_while_nobody_has_credit_there_is_at_most_one_look_a_second_for_what_has_expired() -> None:
    stage = Stage()
    led = stage.leds[1]
    stage.insert([100], expires_ms=150)
    stage.run(200)
    assert led.timeline.live_count == 0
    stage.insert([250], expires_ms=260, ms=210)
    stage.run(300)
    assert led.timeline.live_count == 1
    assert stage.dispatcher.next_deadline_us(at(300)) == at(1_200).mono_us
    led.full = True
    stage.run(1_200)
    again_us = stage.dispatcher.next_deadline_us(at(1_200))
    assert again_us is not None
    assert again_us > at(1_200).mono_us, "it does not spin"
    led.full = False
    stage.run(2_200)
    assert led.timeline.live_count == 0


def test_while_a_topic_is_paused_nothing_is_looked_for() -> None:
    stage = Stage()
    stage.leds[1].timeline._live.settings.current = TopicSettings(paused=True)
    stage.insert([100], expires_ms=150)
    stage.run(200)
    stage.run(201)
    deadline_us = stage.dispatcher.next_deadline_us(at(201))
    assert deadline_us is None or deadline_us > at(1_300).mono_us
    stage.leds[1].timeline._live.settings.current = TopicSettings()
    stage.run(300)
    assert stage.leds[1].timeline.live_count == 0


def test_what_has_expired_costs_its_group_no_turn() -> None:
    stage = Stage(kind="fair")
    stage.insert([100] * 30, group="a", expires_ms=150)
    mine = set(stage.insert([100] * 9, group="a"))
    stage.insert([100] * 50, group="b")
    stage.attach(200, credit=2)
    order = [key in mine for key in pushed_at(stage, 201, looks=5)]
    assert order.count(True) == order.count(False) == 5


def test_what_cannot_be_ended_yet_is_ended_later() -> None:
    stage = Stage(kind="fair")
    stage.insert([100] * 9, group="a", expires_ms=150)
    stage.attach(200, credit=2)
    led = stage.leds[1]
    led.full = True
    stage.tick(201)
    assert led.timeline.live_count == 9
    assert stage.dispatcher.next_deadline_us(at(201)) > at(201).mono_us, "it does not spin"  # type: ignore[operator]
    led.full = False
    pushed_at(stage, 210)
    assert led.timeline.live_count == 0


def test_a_triggered_message_that_has_expired_is_ended_by_one_record() -> None:
    stage = Stage()
    keys = stage.insert([10_000] * 3, expires_ms=20_000)
    led = stage.leds[1]
    led.change(RecordKind.TRIGGER, keys, at(5)).version = FEATURE_LEVEL
    stage.commit(5)
    stage.attach(20_001, credit=1)
    for look in range(5):
        stage.tick(20_002 + look)
    assert [record.kind for record in led.log].count(RecordKind.LAPSE) == 1
    stage.commit(20_010)
    assert led.timeline.live_count == 0


def test_a_triggered_message_of_a_cancelled_job_is_not_delivered() -> None:
    stage = Stage()
    of_job(stage, 1)
    led = stage.leds[1]
    led.change(RecordKind.TRIGGER, [1 << 16], at(5)).version = FEATURE_LEVEL
    stage.commit(5)
    assert list(led.timeline.triggered) == [1 << 16]
    cancel(stage)
    stage.attach(10, credit=1)
    assert pushed_at(stage, 11, looks=3) == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_had_not_expired_by_the_stamp_of_the_record_that_ends_it_is_looked_at_again(kind: str) -> None:
    """It still waits, and was taken out of the queue: nothing else would bring it back."""
    stage = Stage(kind=kind)
    stage.insert([10], expires_ms=50)
    stage.attach(0, credit=0)
    stage.tick(60)
    led = stage.leds[1]
    assert [record.kind for record in led.open] == [RecordKind.LAPSE]
    led.open[0].stamp = START_MS + 49
    stage.commit(61)
    assert led.timeline.live_count == 1
    stage.attach(70, attach=2, number=2)
    assert pushed_at(stage, 71, looks=3) == []
    assert led.timeline.live_count == 0


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_look_has_taken_beyond_the_credit_is_delivered_later(kind: str) -> None:
    """Behind what is passed over a look takes more at a time than it wants."""
    stage = Stage(kind=kind)
    of_job(stage, 9)
    free = stage.insert([101] * 40)
    cancel(stage)
    stage.attach(200, credit=3)
    assert sorted(pushed_at(stage, 201, looks=30)) == free
