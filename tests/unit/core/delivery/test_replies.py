"""What consumers are told: what waits and what comes, when it is certain, and where a leader has gone."""

from __future__ import annotations

import pytest

from dueq.core.delivery.leases import I64, LeaseTable
from dueq_codecs.messages import Code, ConsumerAction, ConsumerReply
from tests.unit.core.led import ALICE, BOB, Stage, at, pushed


def test_the_reply_says_what_waits_for_credit() -> None:
    stage = Stage()
    stage.insert([10] * 5)
    stage.attach(0, credit=2)
    stage.run(0)
    stage.run(10)
    reply = stage.beat(500, credit=2, number=2)
    assert reply is not None
    assert reply.waiting == 3


def test_the_reply_says_what_is_on_its_way_to_whom_it_answers() -> None:
    stage = Stage()
    stage.insert([10] * 5)
    stage.attach(0, credit=2)
    stage.attach(0, consumer=BOB, credit=3)
    stage.run(0)
    assert [reply.coming for reply in (stage.beat(1, number=2), stage.beat(1, consumer=BOB, number=2))] == [
        2,
        3,
    ]
    stage.run(10)
    assert [reply.coming for reply in (stage.beat(11, number=3), stage.beat(11, consumer=BOB, number=3))] == [
        0,
        0,
    ]


def test_what_is_pushed_again_is_on_its_way() -> None:
    """Uncounted, its credit was given to another leader, and the consumer held more than it wanted (storm 77000124)."""
    stage = Stage()
    stage.insert([10] * 2)
    stage.attach(0, credit=2)
    stage.run(0)
    assert stage.run(10)
    reply = stage.attach(11, attach=2, credit=1)
    assert reply is not None
    assert reply.coming == 2


def test_a_consumer_without_credit_is_told_when_messages_begin_to_wait() -> None:
    stage = Stage()
    stage.insert([1000, 1001, 2000])
    stage.attach(0, credit=0)
    stage.run(0)
    assert stage.dispatcher.next_deadline_us(at(0)) == at(1000).mono_us
    before = len(stage.sent)
    stage.run(1000)
    stage.run(1001)
    (told,) = [m for _, m, _ in stage.sent[before:]]
    assert isinstance(told, ConsumerReply)
    assert told.waiting == 1


def test_who_was_told_just_now_that_messages_wait_is_told_of_later_ones_after_a_while() -> None:
    """It has room for what waited first, and for no more."""
    stage = Stage()
    stage.insert([1000, 1200])
    stage.attach(0, credit=0)
    stage.run(1000)
    stage.beat(1100, credit=1, number=2)
    assert stage.run(1100)
    before = len(stage.sent)
    stage.run(1200)
    assert len(stage.sent) == before
    assert stage.dispatcher.next_deadline_us(at(1200)) == at(1500).mono_us
    stage.run(1500)
    (told,) = [m for _, m, _ in stage.sent[before:]]
    assert isinstance(told, ConsumerReply)
    assert told.waiting == 1


def test_an_answer_on_which_leases_rest_waits_until_the_leadership_is_confirmed() -> None:
    """Otherwise a leader that was replaced would keep leases alive that its successor ends."""
    stage, _ = pushed()
    stage.leds[1].answering = False
    before = len(stage.sent)
    assert stage.beat(20, number=2, push_seen=1) is None
    assert stage.leds[1].asked
    assert stage.dispatcher.next_deadline_us(at(20)) == at(20).mono_us
    stage.tick(20)
    assert stage.dispatcher.next_deadline_us(at(20)) == at(25).mono_us
    stage.tick(25)
    assert len(stage.sent) == before
    stage.leds[1].answering = True
    stage.tick(30)
    [reply] = [message for _, message, _ in stage.sent[before:]]
    assert isinstance(reply, ConsumerReply)
    assert (reply.code, reply.number) == (Code.OK, 2)


def told_to_look(stage: Stage, ms: float) -> list[bytes]:
    """The consumers that are told at this instant that another broker serves."""
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


def test_a_beat_looks_only_at_partitions_that_have_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic may have a thousand partitions, and ten consumers for each of them beat all the time."""
    looks: list[int] = []
    whole = LeaseTable.coming

    def coming(leases: LeaseTable) -> I64:
        looks.append(len(leases))
        return whole(leases)

    monkeypatch.setattr(LeaseTable, "coming", coming)
    stage = Stage(partitions=30)
    stage.attach(0)
    stage.attach(0, consumer=BOB, credit=0)
    stage.insert([100] * 3, uid=7)
    stage.run(90)
    looks.clear()
    reply = stage.beat(91, number=2)
    assert reply is not None
    assert (reply.coming, looks) == (3, [3])
    assert stage.beat(91, consumer=BOB, credit=0, number=2) is not None
    assert looks == [3], "who has no lease waits for no push"
