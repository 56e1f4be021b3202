"""How long sessions last: goodbye, silence, and leases across a change of leader (protocol cases B8, S8)."""

from __future__ import annotations

import numpy as np
import pytest

from dueq.core.delivery.consumers import SESSION_US
from dueq.core.ports.events import Route
from dueq.instant import Now
from dueq_codecs.messages import Code, ConsumerAction, ConsumerReply
from dueq_codecs.records import RecordKind
from tests.unit.core.led import ALICE, BOB, Led, Stage, at, keys_in, kinds, pushed


def test_who_lets_a_lease_run_out_gets_nothing_more_until_it_speaks() -> None:
    stage, keys = pushed(lease_ms=2_000)
    told = len(stage.sent)
    assert stage.run(2_010) == []
    assert any(isinstance(message, ConsumerReply) for _, message, _ in stage.sent[told:])
    stage.beat(2_300, number=2, push_seen=1)
    assert [(keys_in(push), push.attempt.tolist()) for push in stage.run(2_300)] == [(keys, [2])]


def test_who_has_just_spoken_gets_what_ran_out_again_at_once() -> None:
    stage, keys = pushed(lease_ms=2_000)
    stage.beat(1_990, number=2, push_seen=1)
    assert [(keys_in(push), push.attempt.tolist()) for push in stage.run(2_010)] == [(keys, [2])]


def test_a_goodbye_returns_leases_at_once_and_uncounted() -> None:
    stage, keys = pushed()
    stage.insert([40])
    stage.run(20)
    reply = stage.frame(ConsumerAction.GOODBYE, 20, number=9)
    assert reply is not None
    assert reply.code == Code.OK
    stage.attach(20, BOB)
    assert [(keys_in(push), push.attempt.tolist()) for push in stage.run(20)] == [(keys, [1])]
    assert kinds(stage)[2] == RecordKind.RELEASE
    assert stage.leds[1].log[-2].rows == 2
    assert [s.consumer_id for s in stage.dispatcher.sessions(at(20))] == [BOB.hex()]
    assert [push.attempt.tolist() for push in stage.run(40)] == [[1]]


def test_a_goodbye_returns_what_waits_to_be_pushed_again_uncounted() -> None:
    """Its consumer has said that it lacks it: an attempt that counts could end the message though nobody had it."""
    stage, keys = pushed()
    stage.attach(20, attach=2, number=8)
    stage.frame(ConsumerAction.GOODBYE, 20, attach=2, number=9)
    stage.attach(20, BOB)
    assert [(keys_in(push), push.attempt.tolist()) for push in stage.run(20)] == [(keys, [1])]
    assert kinds(stage)[:2] == [RecordKind.LEASE, RecordKind.RELEASE]


def test_after_one_session_has_ended_by_silence_the_next_one_does_too() -> None:
    """Nobody says anything in between that would have the leader look."""
    stage = Stage()
    stage.attach(0)
    stage.attach(3_000, BOB)
    stage.run(10_001)
    assert [session.consumer_id for session in stage.dispatcher.sessions(at(10_001))] == [BOB.hex()]
    deadline_us = stage.dispatcher.next_deadline_us(at(10_001))
    assert deadline_us is not None
    assert deadline_us <= at(13_001).mono_us
    stage.run(13_001)
    assert stage.dispatcher.sessions(at(13_001)) == []


@pytest.mark.parametrize("leaves", [True, False])
def test_a_lease_whose_end_is_being_committed_is_not_ended_once_more(leaves: bool) -> None:
    stage, _ = pushed(lease_ms=9_985)
    stage.tick(9_996)
    if leaves:
        stage.frame(ConsumerAction.GOODBYE, 9_997, number=9)
    stage.tick(10_050)
    assert stage.dispatcher.sessions(at(10_050)) == []
    assert [record.kind for record in stage.leds[1].open] == [RecordKind.EXPIRE]


def test_a_consumer_that_is_silent_for_two_thirds_gets_nothing_new_and_keeps_what_it_has() -> None:
    stage, _ = pushed()
    stage.insert([6700], ms=20)
    assert stage.run(6700) == []
    stage.run(9999)
    assert kinds(stage) == [RecordKind.LEASE]
    stage.beat(9999, number=2, lease_ms=60_000, push_seen=1)
    assert len(stage.run(9999)) == 1
    assert stage.dispatcher.sessions(at(9999))[0].attached


def test_a_consumer_that_is_silent_for_a_session_loses_its_leases() -> None:
    stage, keys = pushed()
    deadline_us = stage.dispatcher.next_deadline_us(at(5000))
    assert deadline_us == at(10_000).mono_us
    stage.run(10_000)
    assert kinds(stage) == [RecordKind.LEASE, RecordKind.EXPIRE]
    assert stage.dispatcher.sessions(at(10_000)) == []
    stage.attach(10_001, BOB)
    (push,) = stage.run(10_001)
    assert (keys_in(push), push.attempt.tolist()) == (keys, [2])


def successor(stage: Stage, ms: float) -> Stage:
    """A new leader of the partition, with what its timeline shows."""
    other = Stage(partitions=0)
    led = Led(1, epoch=2, timeline=stage.leds[1].timeline)
    led.payloads = stage.leds[1].payloads
    other.leds[1] = led
    other.dispatcher.lead(led, at(ms))
    return other


def test_a_new_leader_keeps_inherited_leases_and_pushes_what_the_holder_lacks() -> None:
    old, keys = pushed(count=2)
    (ahead,) = old.insert([2000], ms=20)
    old.run(1980)
    new = successor(old, 1985)
    assert new.run(1985) == []
    assert kinds(new) == []
    new.attach(1990, lease_ms=60_000, held=[(1, keys[0], 2)])
    (push,) = new.run(1990)
    assert keys_in(push) == keys[1:]
    assert push.token.tolist() == [2]
    assert push.epoch == 2
    assert push.lease_left_ms.tolist() == [59_995]
    assert new.run(1999) == []
    (due,) = new.run(2000)
    assert keys_in(due) == [ahead]
    assert due.lease_left_ms.tolist() == [60_000]


def test_inherited_leases_of_a_consumer_that_never_attaches_end_after_a_session() -> None:
    old, keys = pushed()
    new = successor(old, 3000)
    new.attach(3000, BOB)
    new.run(9000)
    new.beat(9000, BOB, number=2)
    assert new.run(12_999) == []
    (push,) = new.run(13_000)
    assert (keys_in(push), push.attempt.tolist()) == (keys, [2])
    assert kinds(new)[0] == RecordKind.EXPIRE


def test_a_consumer_that_had_nothing_to_say_to_a_new_leader_has_a_whole_session_to_attach() -> None:
    """It attached to this broker when another one led what it holds; since then there was nothing to beat for."""
    old, keys = pushed(lease_ms=30_000)
    new = Stage(partitions=0)
    new.attach(100, lease_ms=30_000, held=[(1, keys[0], 2)])
    led = Led(1, epoch=2, timeline=old.leds[1].timeline)
    led.payloads = old.leds[1].payloads
    new.leds[1] = led
    new.dispatcher.lead(led, at(9000))
    new.attach(9000, BOB)
    new.run(10_500)
    assert kinds(new) == []
    new.attach(11_000, attach=2, lease_ms=30_000, held=[(1, keys[0], 2)])
    new.run(20_000)
    assert kinds(new) == []


def test_an_inherited_lease_runs_its_full_length_from_the_takeover() -> None:
    old, _ = pushed(lease_ms=4000)
    new = successor(old, 3000)
    new.run(6999)
    assert kinds(new) == []
    new.run(7000)
    assert kinds(new) == [RecordKind.EXPIRE]


def test_an_inherited_lease_is_never_withheld() -> None:
    old, _ = pushed()
    (ahead,) = old.insert([2000], ms=20)
    old.run(1980)
    new = successor(old, 1985)
    assert new.dispatcher.withhold(1, np.array([ahead], np.uint64)).tolist() == [0]


def test_inherited_leases_count_as_credit_and_a_goodbye_returns_them() -> None:
    old, keys = pushed(count=2)
    new = successor(old, 100)
    new.insert([150], ms=100)
    new.attach(100, credit=2, held=[(1, key, 2) for key in keys])
    assert new.run(150) == []
    new.frame(ConsumerAction.GOODBYE, 160)
    new.attach(160, BOB)
    pushes = new.run(160)
    assert [attempt for push in pushes for attempt in push.attempt.tolist()] == [1, 1, 1]
    assert keys[0] in keys_in(pushes[-1])


def test_a_new_leader_whose_clock_is_an_hour_behind_does_not_keep_leases_for_an_hour() -> None:
    """They had been granted, so they are due: its clock cannot say how long ago."""
    old, keys = pushed(lease_ms=5_000)
    new = Stage(partitions=0)
    led = Led(1, epoch=2, timeline=old.leds[1].timeline)
    led.payloads = old.leds[1].payloads
    new.leds[1] = led
    behind = Now(at(100).wall_us - 3_600_000_000, at(100).mono_us)
    new.dispatcher.lead(led, behind)
    new.attach(5_500, BOB)
    (push,) = new.run(5_500)
    assert (keys_in(push), push.attempt.tolist()) == (keys, [2])


def test_who_is_attached_when_leases_are_inherited_is_asked_to_attach_again() -> None:
    old, keys = pushed()
    new = Stage(partitions=0)
    new.attach(50, lease_ms=60_000)
    led = Led(1, epoch=2, timeline=old.leds[1].timeline)
    led.payloads = old.leds[1].payloads
    new.leds[1] = led
    new.dispatcher.lead(led, at(100))
    new.tick(100)
    asked = new.sent[-1][1]
    assert isinstance(asked, ConsumerReply)
    assert (asked.code, asked.attach) == (Code.UNKNOWN_SESSION, 1)
    beat = new.beat(200, number=2, lease_ms=60_000)
    assert beat is not None
    assert beat.code == Code.UNKNOWN_SESSION
    new.attach(210, attach=2, lease_ms=60_000)
    assert [keys_in(push) for push in new.run(210)] == [keys]


def led_on(old: Stage, new: Stage, ms: float) -> None:
    """The second partition gets a new leader."""
    led = old.leds.pop(2)
    old.dispatcher.unlead(2, at(ms))
    led.epoch, new.leds[2] = 2, led
    new.dispatcher.lead(led, at(ms))
    new.run(ms)


@pytest.mark.parametrize("again", [False, True])
def test_a_late_goodbye_returns_nothing_that_a_later_process_of_the_name_may_have(again: bool) -> None:
    """The later one has attached at the leader of before, and not yet here; `again`: the older one has, since."""
    old, new = Stage(partitions=2), Stage(partitions=1)
    older, later = Route(b"older"), Route(b"later")
    for stage in (old, new):
        stage.attach(0, route=older, life=1, lease_ms=60_000)
        stage.attach(10, route=later, life=2, attach=100, lease_ms=60_000)
    old.frame(ConsumerAction.GOODBYE, 20, route=older, life=1, number=2)
    old.attach(30, route=later, life=2, attach=101, lease_ms=60_000)
    keys = old.insert([40], 31, uid=2)
    [push] = old.run(40)
    led_on(old, new, 100)
    if again:
        new.attach(110, route=older, life=1, attach=2, lease_ms=60_000)
    new.frame(ConsumerAction.GOODBYE, 200, route=older, life=1, attach=1 + again, number=2)
    new.attach(210, BOB)
    assert [keys_in(other) for other in new.run(210)] == ([keys] if again else [])
    if not again:
        new.attach(
            220, route=later, life=2, attach=102, lease_ms=60_000, held=[(2, keys[0], int(push.token[0]))]
        )
        new.ack(push, 230)
        assert new.leds[2].timeline.live_count == 0


def test_a_late_goodbye_to_a_leader_that_never_heard_of_the_name_returns_nothing() -> None:
    """It has inherited the later process's lease, and cannot tell whose it is."""
    old = Stage()
    older, later = Route(b"older"), Route(b"later")
    old.attach(0, route=older, life=1, lease_ms=60_000)
    old.attach(10, route=later, life=2, attach=100, lease_ms=60_000)
    old.frame(ConsumerAction.GOODBYE, 20, route=older, life=1, number=2)
    old.attach(30, route=later, life=2, attach=101, lease_ms=60_000)
    keys = old.insert([40], 31)
    [push] = old.run(40)
    new = successor(old, 100)
    new.run(100)
    new.frame(ConsumerAction.GOODBYE, 200, route=older, life=1, number=2)
    new.attach(210, BOB)
    assert new.run(210) == []
    new.attach(220, route=later, life=2, attach=102, lease_ms=60_000, held=[(1, keys[0], int(push.token[0]))])
    new.ack(push, 230)
    assert new.leds[1].timeline.live_count == 0


def test_what_a_late_goodbye_has_left_is_returned_if_no_later_process_comes() -> None:
    old, new = Stage(partitions=2), Stage(partitions=1)
    for stage in (old, new):
        stage.attach(0, life=1, lease_ms=600_000)
    keys = old.insert([40], 31, uid=2)
    old.run(40)
    led_on(old, new, 100)
    new.frame(ConsumerAction.GOODBYE, 200, life=1, number=2)
    new.attach(210, BOB)
    assert new.run(210) == []
    new.attach(200 + SESSION_US // 1000, BOB, attach=2)
    [push] = new.run(201 + SESSION_US // 1000)
    assert keys_in(push) == keys


def test_who_has_leases_of_a_partition_that_goes_elsewhere_must_attach_again() -> None:
    """An answer would keep them alive at their holder, though the new leader may end them."""
    stage = Stage(partitions=2)
    stage.insert([10], uid=2)
    stage.attach(0)
    stage.run(0)
    assert stage.run(10)
    stage.dispatcher.unlead(2, at(20))
    beat = stage.beat(30, number=2, push_seen=1)
    assert beat is not None
    assert beat.code == Code.UNKNOWN_SESSION


@pytest.mark.parametrize("aside", [0, 1])
def test_who_has_stated_leases_of_a_partition_that_goes_elsewhere_must_attach_again(aside: int) -> None:
    """They may have come from the leader before. What it lists aside is not this broker's to know of."""
    stage = Stage(partitions=2)
    stage.attach(0, held=[(2, 1 << 16, 7)], aside=aside)
    stage.dispatcher.unlead(2, at(20))
    beat = stage.beat(30, number=2)
    assert beat is not None
    assert beat.code == (Code.OK if aside else Code.UNKNOWN_SESSION)


def test_who_has_nothing_of_a_partition_that_goes_elsewhere_goes_on() -> None:
    """There may be thousands of them, who would all attach at once."""
    stage = Stage(partitions=2)
    stage.insert([10])
    stage.attach(0)
    stage.attach(0, BOB)
    stage.run(0)
    assert stage.run(10)
    stage.dispatcher.unlead(2, at(20))
    for consumer in (ALICE, BOB):
        beat = stage.beat(30, consumer, number=2, push_seen=1)
        assert beat is not None
        assert beat.code == Code.OK


def test_an_inherited_lease_counts_from_when_no_earlier_leader_can_push_it_any_more() -> None:
    old, _ = pushed(lease_ms=4000)
    new = Stage(partitions=0)
    led = Led(1, epoch=2, timeline=old.leds[1].timeline)
    led.leases_from_us = at(5000).mono_us
    new.leds[1] = led
    new.dispatcher.lead(led, at(3000))
    new.run(8999)
    assert kinds(new) == []
    new.run(9000)
    assert kinds(new) == [RecordKind.EXPIRE]


def test_a_pause_of_the_process_is_no_silence() -> None:
    """As long as it lasted, nobody could be heard."""
    stage = Stage()
    stage.attach(0)
    stage.insert([12_000])
    stage.dispatcher.shift(6_000_000, at(6_000))
    assert len(stage.run(12_000)) == 1, "it is as healthy as six seconds before"
    stage.run(15_999)
    assert [session.consumer_id for session in stage.dispatcher.sessions(at(15_999))] == [ALICE.hex()]
    stage.run(16_000)
    assert stage.dispatcher.sessions(at(16_000)) == []


def test_who_let_a_lease_run_out_says_nothing_by_a_pause_of_the_process() -> None:
    """It may have died, as before the pause: only a frame of its own says that it lives."""
    stage, _ = pushed(lease_ms=1_000)
    stage.run(1_010)
    [session] = stage.dispatcher._consumers.by_number.values()
    assert session.free_rows(at(1_020)) == 0
    stage.dispatcher.shift(2_000_000, at(3_020))
    assert session.free_rows(at(3_020)) == 0
    assert stage.run(3_020) == []
    stage.beat(3_030, number=2, lease_ms=1_000)
    assert [push.attempt.tolist() for push in stage.run(3_030)] == [[2]]


def test_inherited_leases_count_with_their_bytes() -> None:
    old, keys = pushed(count=2)
    new = successor(old, 100)
    [status] = new.dispatcher.sessions(at(100))
    assert (status.attached, status.leases, status.leased_bytes) == (False, 2, 8)
    new.attach(110, credit_bytes=8, lease_ms=60_000, held=[(1, key, 2) for key in keys])
    new.insert([150], 110)
    assert new.run(150) == []


def test_who_was_only_known_from_leases_of_a_partition_that_goes_elsewhere_is_forgotten() -> None:
    """Who is attached stays, and so does who has leases of another partition."""
    old = Stage(partitions=2)
    for uid in (1, 2):
        old.insert([10], uid=uid)
    old.attach(0, lease_ms=60_000)
    old.run(0)
    assert old.run(10)
    new = Stage(partitions=0)
    for uid in (1, 2):
        led = Led(uid, epoch=2, timeline=old.leds[uid].timeline)
        led.payloads = old.leds[uid].payloads
        new.leds[uid] = led
        new.dispatcher.lead(led, at(100))
    new.attach(100, BOB)

    def known() -> list[tuple[str, int]]:
        return [(status.consumer_id, status.leases) for status in new.dispatcher.sessions(at(100))]

    assert known() == [(ALICE.hex(), 2), (BOB.hex(), 0)]
    new.dispatcher.unlead(2, at(110))
    assert known() == [(ALICE.hex(), 1), (BOB.hex(), 0)]
    new.dispatcher.unlead(1, at(120))
    assert known() == [(BOB.hex(), 0)]


def test_what_a_late_goodbye_has_left_counts_for_a_later_process_of_the_name() -> None:
    old, new = Stage(partitions=2), Stage(partitions=1)
    for stage in (old, new):
        stage.attach(0, life=1, lease_ms=60_000)
    old.insert([40, 40], 31, uid=2)
    assert old.run(40)
    led_on(old, new, 100)
    new.frame(ConsumerAction.GOODBYE, 200, life=1, number=2)
    [status] = new.dispatcher.sessions(at(200))
    assert (status.attached, status.leases, status.leased_bytes) == (False, 2, 8)


@pytest.mark.parametrize("life", [0, 7])
def test_a_goodbye_returns_what_this_leader_has_granted_and_leaves_no_session(life: int) -> None:
    stage = Stage()
    stage.insert([10])
    stage.attach(0, life=life, lease_ms=60_000)
    stage.run(0)
    assert stage.run(10)
    stage.frame(ConsumerAction.GOODBYE, 20, life=life, number=9)
    stage.run(20)
    assert kinds(stage) == [RecordKind.LEASE, RecordKind.RELEASE]
    assert stage.dispatcher.sessions(at(20)) == []


def test_a_goodbye_of_a_consumer_without_a_name_returns_what_it_has_inherited() -> None:
    """No later process of it can have these leases, though it has not attached since."""
    old, _ = pushed()
    new = Stage(partitions=0)
    new.attach(50, lease_ms=60_000)
    led = Led(1, epoch=2, timeline=old.leds[1].timeline)
    led.payloads = old.leds[1].payloads
    new.leds[1] = led
    new.dispatcher.lead(led, at(100))
    new.frame(ConsumerAction.GOODBYE, 200, number=9)
    new.run(200)
    assert kinds(new) == [RecordKind.RELEASE]
    assert new.dispatcher.sessions(at(200)) == []


def test_each_of_two_silent_consumers_is_ended_when_its_own_time_is_over() -> None:
    """At the first look neither was, and the one that has been silent for longer is looked at first."""
    stage = Stage()
    stage.attach(0)
    stage.attach(3_000, BOB)
    stage.beat(2_000, number=2)
    stage.run(10_000)
    assert len(stage.dispatcher.sessions(at(10_000))) == 2
    stage.run(12_000)
    assert [session.consumer_id for session in stage.dispatcher.sessions(at(12_000))] == [BOB.hex()]


def test_where_nobody_is_left_no_further_look_is_wanted() -> None:
    """The broker would have turn after turn for nothing."""
    stage = Stage()
    stage.attach(0)
    stage.run(10_000)
    assert stage.dispatcher.sessions(at(10_000)) == []
    assert stage.dispatcher.next_deadline_us(at(10_001)) is None
