"""A paused topic: nothing is leased or pushed, what was granted goes back uncounted, leases in hands go on."""

from __future__ import annotations

from dueq_codecs.records import Record, RecordKind
from dueq_codecs.topic_settings import AS_CREATED, TopicSettings
from tests.unit.core.led import ALICE, START_MS, Stage, at, keys_in


def configure(stage: Stage, ms: float, settings: TopicSettings) -> None:
    record = Record(RecordKind.SETTINGS, 1, 0, 0, 0, version=2, document=settings.encode())
    stage.leds[1].append(record, at(ms))
    stage.commit(ms)


def paused(until_ms: int = 0) -> TopicSettings:
    until = START_MS + until_ms if until_ms else 0
    return AS_CREATED.changed({"paused": True, "paused_until_ms": until}, "a" * 32)


def resumed() -> TopicSettings:
    return paused().changed({"paused": False}, "b" * 32)


def kinds(stage: Stage) -> list[RecordKind]:
    return [record.kind for record in stage.leds[1].log]


def test_nothing_is_leased_while_it_is_paused_and_all_of_it_afterwards() -> None:
    stage = Stage()
    stage.attach(0)
    configure(stage, 0, paused())
    keys = stage.insert([10, 20], 1)
    assert stage.run(50) == []
    assert RecordKind.LEASE not in kinds(stage)
    configure(stage, 60, resumed())
    [push] = stage.run(61)
    assert keys_in(push) == keys
    assert push.attempt.tolist() == [1, 1]


def test_what_was_granted_goes_back_uncounted() -> None:
    stage = Stage()
    stage.attach(0)
    [key] = stage.insert([30])
    stage.run(5)
    assert kinds(stage)[-1] == RecordKind.LEASE
    configure(stage, 10, paused())
    assert stage.run(31) == []
    assert kinds(stage)[-1] == RecordKind.RELEASE
    configure(stage, 40, resumed())
    [push] = stage.run(41)
    assert (keys_in(push), push.attempt.tolist()) == ([key], [1])


def test_what_was_proposed_before_the_pause_is_granted_and_goes_back() -> None:
    stage = Stage()
    stage.attach(0)
    stage.insert([30])
    stage.tick(5)  # proposes the lease, which commits after the pause
    record = Record(RecordKind.SETTINGS, 1, 0, 0, 0, version=2, document=paused().encode())
    stage.leds[1].append(record, at(6))
    stage.leds[1].open.rotate(1)
    lease, settings = stage.leds[1].open[1], stage.leds[1].open[0]
    lease.sequence, settings.sequence = settings.sequence, lease.sequence
    stage.commit(7)
    assert stage.run(31) == []
    assert stage.run(60) == []


def test_leases_in_hands_go_on() -> None:
    stage = Stage()
    stage.attach(0)
    stage.insert([0], 0)
    [push] = stage.run(1)
    configure(stage, 2, paused())
    stage.run(3)
    assert kinds(stage)[-1] == RecordKind.SETTINGS
    stage.ack(push, 5)
    assert stage.leds[1].timeline.live_count == 0


def test_a_pause_ends_by_itself_at_its_instant() -> None:
    stage = Stage()
    stage.attach(0)
    configure(stage, 0, paused(until_ms=500))
    keys = stage.insert([10], 1)
    assert stage.run(499) == []
    assert stage.dispatcher.next_deadline_us(at(499)) == at(500).mono_us
    [push] = stage.run(500)
    assert keys_in(push) == keys


def test_a_paused_leader_is_idle_and_asks_nobody_for_credit() -> None:
    stage = Stage()
    stage.attach(0, credit=0)
    configure(stage, 0, paused())
    stage.insert([10], 1)
    stage.run(50)
    assert not stage.dispatcher.has_waiting(at(50))
    assert stage.dispatcher.waiting(at(50)) == 0
    deadline = stage.dispatcher.next_deadline_us(at(50))
    assert deadline is None or deadline > at(1_000).mono_us


def test_what_a_consumer_has_not_got_is_pushed_again_after_the_pause_only() -> None:
    stage = Stage()
    stage.attach(0)
    [key] = stage.insert([0], 0)
    stage.run(1)
    configure(stage, 2, paused())
    stage.attach(3, ALICE, attach=2, number=2)
    stage.read_payloads(4)
    assert stage.run(5) == []
    configure(stage, 6, resumed())
    [push] = stage.run(7)
    assert keys_in(push) == [key]
