"""Consumers' frames: attach, beat and goodbye, in whatever order they come, and routes that are lost."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq.core.ports.events import Route
from dueq_codecs.messages import Code, ConsumerAction, ConsumerReply
from dueq_codecs.records import RecordKind
from tests.unit.core.led import ALICE, BOB, Stage, at, keys_in, kinds, pushed


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


def test_a_lost_route_gets_nothing_until_it_attaches_again() -> None:
    stage, keys = pushed()
    later = stage.insert([500])
    stage.run(480)
    stage.dispatcher.route_lost(Route(ALICE), ConsumerReply("t", ALICE, 1, 1, Code.OK), at(490))
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


def test_who_was_asked_to_attach_again_and_says_goodbye_is_told_that_its_goodbye_has_come() -> None:
    """By its number: else the consumer would say it again until it gives up waiting, and close late."""
    stage, _ = pushed()
    stage.dispatcher.route_lost(Route(ALICE), ConsumerReply("t", ALICE, 1, 1, Code.OK), at(20))
    reply = stage.frame(ConsumerAction.GOODBYE, 30, number=7)
    assert reply is not None
    assert (reply.code, reply.text, reply.number) == (Code.OK, "", 7)


def test_an_attach_is_answered_though_it_lists_aside_what_another_leads() -> None:
    stage = Stage()
    assert stage.attach(0, held=[(7, 1 << 16, 1)]) is None
    reply = stage.attach(1, attach=2, held=[(7, 1 << 16, 1)], aside=1)
    assert reply is not None
    assert reply.code == Code.OK


def test_more_aside_than_there_is_in_the_list_is_refused() -> None:
    reply = Stage().attach(0, held=[(7, 1 << 16, 1)], aside=2)
    assert reply is not None
    assert (reply.code, reply.text) == (Code.INVALID_REQUEST, "2 leases aside, of 1 that are listed")


def test_a_lost_route_has_only_partitions_look_that_have_leases_of_its_consumer() -> None:
    """A topic may have a thousand, and clients come and go."""
    stage = Stage(partitions=3)
    stage.attach(0)
    stage.insert([100], uid=2)
    stage.run(90)
    before = {uid: lane.act_us for uid, lane in stage.dispatcher._lanes.items()}
    stage.dispatcher.route_lost(Route(ALICE), ConsumerReply("t", ALICE, 1, 1, Code.OK), at(91))
    after = {uid: lane.act_us for uid, lane in stage.dispatcher._lanes.items()}
    assert after == before | {2: at(91).mono_us}


def test_there_are_no_more_sessions_than_a_leader_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SESSIONS_MAX", 1)
    stage = Stage()
    stage.attach(0)
    for ms, consumer, code in ((1, BOB, Code.BUSY), (2, ALICE, Code.OK)):
        reply = stage.attach(ms, consumer, attach=2)
        assert reply is not None
        assert reply.code == code
    stage.frame(ConsumerAction.GOODBYE, 3, attach=2, number=2)
    reply = stage.attach(4, BOB, attach=3)
    assert reply is not None
    assert reply.code == Code.OK
