"""Consumers: attach, beat, goodbye, silence, and leases across a change of leader (protocol cases B8, S8)."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

from dueq import limits
from dueq.core.delivery import sessions
from dueq.core.ports.events import Route
from dueq.instant import Now
from dueq_codecs.messages import Code, ConsumerAction, ConsumerReply, Push, PushChunk
from dueq_codecs.records import RecordKind

LED = runpy.run_path(str(Path(__file__).parents[1] / "led.py"))
Stage, Led, at, keys_in = LED["Stage"], LED["Led"], LED["at"], LED["keys_in"]
ALICE, BOB = LED["ALICE"], LED["BOB"]
ANSWER = ConsumerReply("t", ALICE, 1, 1, Code.OK)


def kinds(stage: Stage) -> list[RecordKind]:
    return [record.kind for record in stage.leds[1].log if record.kind != RecordKind.INSERT]


def pushed(credit: int = 10, count: int = 1, lease_ms: int = 60_000) -> tuple[Stage, list[int]]:
    """A consumer with `count` pushed messages, due at 10 ms."""
    stage = Stage()
    keys = stage.insert([10] * count)
    stage.attach(0, credit=credit, lease_ms=lease_ms)
    stage.run(0)
    stage.run(10)
    return stage, keys


def test_beat_and_goodbye_of_an_unknown_consumer_are_told_so() -> None:
    stage = Stage()
    for action in (ConsumerAction.BEAT, ConsumerAction.GOODBYE):
        reply = stage.frame(action, 0, number=3)
        assert reply is not None
        assert (reply.code, reply.number, reply.attach) == (Code.UNKNOWN_SESSION, 3, 1)
    assert stage.dispatcher.sessions(at(0)) == []


def test_a_wrong_consumer_id_is_refused() -> None:
    reply = Stage().attach(0, consumer=b"short")
    assert reply is not None
    assert reply.code == Code.INVALID_REQUEST


def test_who_states_more_partitions_than_a_topic_has_is_refused() -> None:
    """They would be remembered for as long as the session lasts."""
    held = [(uid, 1 << 16, 1) for uid in range(limits.PARTITIONS_MAX + 1)]
    reply = Stage().attach(0, held=held)
    assert reply is not None
    assert reply.code == Code.INVALID_REQUEST


def test_who_never_says_what_has_come_has_to_attach_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every push is remembered until it was seen: a client that acks, and reports nothing, must not fill the memory."""
    monkeypatch.setattr(sessions, "UNSEEN_MAX", 8)
    stage = Stage()
    stage.attach(0)
    for number in range(1, 30):
        stage.insert([10 * number], 10 * number - 5)
        for push in stage.run(10 * number):
            stage.ack(push, 10 * number)
        reply = stage.beat(10 * number, number=1 + number)
    assert reply is not None
    assert reply.code == Code.UNKNOWN_SESSION
    [session] = stage.dispatcher._consumers.by_id.values()
    assert len(session.unseen) <= 9
    stage.attach(400, attach=2, number=100)
    stage.insert([410], 400)
    assert stage.run(410)


def test_the_highest_attach_wins_and_older_frames_are_ignored() -> None:
    stage = Stage()
    stage.insert([10])
    new, old = Route(b"new"), Route(b"old")
    stage.attach(0, attach=2, route=new)
    assert stage.attach(1, attach=1, number=9, route=old, credit=0) is None
    assert stage.beat(2, attach=1, number=9, route=old, credit=0) is None
    assert stage.frame(ConsumerAction.GOODBYE, 3, attach=1, route=old) is None
    stage.run(3)
    stage.run(10)
    assert stage.sent[-1][0] == new
    ahead = stage.beat(11, attach=3)
    assert ahead is not None
    assert ahead.code == Code.UNKNOWN_SESSION


def test_a_repeated_attach_changes_nothing() -> None:
    stage, _ = pushed()
    reply = stage.attach(20, lease_ms=60_000)
    assert reply is not None
    assert (reply.code, reply.push_sent) == (Code.OK, 1)
    assert stage.run(20) == []


def test_a_lease_is_pushed_again_under_its_token_when_an_attach_lacks_it() -> None:
    stage, keys = pushed(count=3)
    stage.attach(2000, attach=2, held=[(1, keys[0], 2), (1, keys[1], 1)])
    (push,) = stage.run(2000)
    assert keys_in(push) == keys[1:]
    assert push.token.tolist() == [2, 2]
    assert (push.number, push.attach) == (1, 2)
    assert push.lease_left_ms.tolist() == [58_010, 58_010]
    assert push.attempt.tolist() == [1, 1]
    assert stage.sent[-1][2] == [b"".join(stage.leds[1].payloads[key] for key in keys[1:])]
    assert kinds(stage) == [RecordKind.LEASE]
    assert stage.run(2001) == []


def test_two_attaches_in_a_row_push_a_missing_lease_once() -> None:
    stage, keys = pushed()
    stage.attach(2000, attach=2)
    stage.attach(2000, attach=3)
    (push,) = stage.run(2000)
    assert (keys_in(push), push.attach) == (keys, 3)


def test_a_lease_that_lacks_half_of_its_time_is_not_pushed_again_but_runs_out() -> None:
    stage, _ = pushed(lease_ms=4000)
    stage.attach(2500, attach=2)
    assert stage.run(2500) == []
    stage.beat(4009, attach=2, number=2)
    stage.run(4009)
    assert kinds(stage) == [RecordKind.LEASE]
    assert [push.attempt.tolist() for push in stage.run(4010)] == [[2]]


def test_a_push_that_was_not_seen_for_a_second_goes_out_again() -> None:
    stage, keys = pushed(count=2)
    stage.beat(900, number=2, lease_ms=60_000, push_seen=0)
    assert stage.run(900) == []
    before = len(stage.sent)
    stage.beat(1010, number=3, lease_ms=60_000, push_seen=0)
    (again,) = stage.run(1010)
    filler = [m for _, m, _ in stage.sent[before:] if isinstance(m, Push) and not len(m.uid)]
    assert [m.number for m in filler] == [1]
    assert (again.number, keys_in(again), again.token.tolist()) == (2, keys, [2, 2])
    stage.beat(3000, number=4, lease_ms=60_000, push_seen=2)
    assert stage.run(3000) == []


def _push(stage: Stage) -> Push:
    return next(m for _, m, _ in stage.sent if isinstance(m, Push))


def test_what_was_acked_meanwhile_is_not_pushed_again() -> None:
    stage, _ = pushed()
    stage.ack(_push(stage), 20)
    stage.beat(2000, number=2, push_seen=0)
    assert stage.run(2000) == []


def test_a_lost_route_gets_nothing_until_it_attaches_again() -> None:
    stage, keys = pushed()
    later = stage.insert([500])
    stage.run(480)
    stage.dispatcher.route_lost(Route(ALICE), ANSWER, at(490))
    assert stage.run(500) == []
    assert kinds(stage) == [RecordKind.LEASE, RecordKind.LEASE, RecordKind.RELEASE]
    beat = stage.beat(505, number=2)
    assert beat is not None
    assert beat.code == Code.UNKNOWN_SESSION
    assert stage.run(505) == []
    stage.attach(510, attach=2, route=Route(b"new"), held=[(1, keys[0], 2)])
    (push,) = stage.run(510)
    assert (keys_in(push), push.attempt.tolist()) == (later, [1])
    assert stage.sent[-1][0] == Route(b"new")


def test_a_push_that_could_not_be_sent_goes_to_another_at_once_and_uncounted() -> None:
    stage, keys = pushed(count=2)
    stage.attach(20, BOB)
    stage.dispatcher.route_lost(Route(ALICE), _push(stage), at(20))
    (push,) = stage.run(20)
    assert (keys_in(push), push.consumer_id, push.attempt.tolist()) == (keys, BOB, [1, 1])
    assert kinds(stage) == [RecordKind.LEASE, RecordKind.RELEASE, RecordKind.LEASE]


def test_what_a_consumer_may_have_from_an_earlier_push_stays_its_own() -> None:
    stage, keys = pushed(lease_ms=60_000)
    stage.attach(500, attach=2, lease_ms=60_000)
    (again,) = stage.run(500)
    assert keys_in(again) == keys
    stage.attach(510, BOB)
    stage.dispatcher.route_lost(Route(ALICE), again, at(510))
    assert stage.run(510) == []


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


def test_chunks_begin_anew_after_an_attach() -> None:
    stage = Stage()
    stage.insert([100], size=600_000, upload=7)
    stage.attach(0, lease_ms=60_000)
    stage.run(70)
    stage.attach(80, attach=2, lease_ms=60_000)
    stage.read_payloads(90)
    chunks = [m for _, m, _ in stage.sent if isinstance(m, PushChunk)]
    assert [(m.attach, m.chunk) for m in chunks] == [(2, 0), (2, 1), (2, 2)]
    assert [push.attach for push in stage.run(100)] == [2]


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


def told_to_look(stage: Stage, ms: float) -> list[bytes]:
    """Who is told at this instant that another broker serves."""
    before = len(stage.sent)
    stage.tick(ms)
    replies = [message for _, message, _ in stage.sent[before:] if isinstance(message, ConsumerReply)]
    return [reply.consumer_id for reply in replies if reply.code == Code.NOT_LEADER]


def test_consumers_are_told_once_that_another_broker_serves_what_they_were_given_from_here() -> None:
    stage = Stage(partitions=3)
    stage.attach(0, ALICE)
    stage.attach(0, BOB)
    stage.dispatcher.served_by(1, "b2", at(10))
    assert told_to_look(stage, 10) == [], "it leads that itself: an old word"
    for uid in (1, 2, 3):
        stage.dispatcher.unlead(uid, at(20))
    assert told_to_look(stage, 20) == [], "nobody serves it yet: there is nothing to be learnt"
    stage.dispatcher.served_by(1, "b2", at(30))
    assert told_to_look(stage, 30) == [ALICE, BOB]
    stage.dispatcher.served_by(1, "b2", at(40))
    assert told_to_look(stage, 40) == [], "they know"
    stage.dispatcher.served_by(2, "b2", at(50))
    assert told_to_look(stage, 50) == [], "they have attached to that one"
    stage.dispatcher.served_by(3, "b3", at(60))
    assert told_to_look(stage, 60) == [ALICE, BOB]


def test_who_has_said_goodbye_is_not_told_of_a_new_leader() -> None:
    stage = Stage()
    stage.attach(0, ALICE)
    stage.frame(ConsumerAction.GOODBYE, 5, ALICE, number=2)
    stage.dispatcher.unlead(1, at(20))
    stage.dispatcher.served_by(1, "b2", at(30))
    assert told_to_look(stage, 30) == []
