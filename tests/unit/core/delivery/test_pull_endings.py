"""When a pull is over, and what its leader does and keeps until then and afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dueq import limits
from dueq.core.delivery.consumers import Consumers
from dueq.core.delivery.leases import LeaseTable
from dueq.core.ports.entry import keys_of
from dueq.core.ports.events import Route
from dueq_codecs.messages import Code, ConsumerAction, ConsumerReply, Push
from dueq_codecs.records import LEVEL_OF_KINDS, RecordKind
from tests.unit.core.delivery.test_pulls import PULL, ends, pull, say_waiting, staged
from tests.unit.core.led import Stage, at, keys_in, kinds

ROUTE = Route(b"c" * 16)
OTHER = b"q" * 16


def staged_over(partitions: int) -> Stage:
    """Several partitions without messages."""
    stage = Stage(partitions=partitions)
    for led in stage.leds.values():
        led.timeline.level = LEVEL_OF_KINDS
    return stage


def run_until_over(stage: Stage, ms: float) -> float:
    """Have a turn whenever the dispatcher asks for one, until a pull is over; returns when it was."""
    stage.tick(ms)
    while not ends(stage) and ms < 10_000:
        deadline_us = stage.dispatcher.next_deadline_us(at(ms))
        assert deadline_us is not None
        assert deadline_us > at(ms).mono_us, "else it would never rest"
        ms += (deadline_us - at(ms).mono_us) / 1000
        stage.tick(ms)
    return ms


def counted(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[None]:
    """Return a list that grows with each call of a method."""
    calls: list[None] = []
    whole = getattr(owner, name)

    def count(*arguments: Any) -> Any:
        calls.append(None)
        return whole(*arguments)

    monkeypatch.setattr(owner, name, count)
    return calls


# -------------------------------------------------------------- its time


def test_a_pause_of_the_process_takes_nothing_from_the_time_of_a_pull() -> None:
    stage, _ = staged(0)
    pull(stage, 0, wait_ms=1_000)
    stage.run(100)
    stage.dispatcher.shift(5_000_000, at(5_100))
    stage.run(5_199)
    assert not stage.sent
    stage.run(5_200)
    (told,) = [message for _, message, _ in stage.sent]
    assert isinstance(told, ConsumerReply)
    assert not told.ended
    stage.run(5_999)
    assert not ends(stage)
    stage.run(6_000)
    assert [end.code for end in ends(stage)] == [Code.OK]


def test_the_rest_of_an_answer_is_waited_for_briefly() -> None:
    """One partition is slow to commit its lease. The pull would have waited for seconds."""
    stage = staged_over(2)
    (key,), _ = stage.insert([10]), stage.insert([10], uid=2)
    pull(stage, 20, wait_ms=6_500)
    stage.tick(20)
    stage.commit(20, uid=1)
    assert run_until_over(stage, 20) == 70
    (push,) = [message for _, message, _ in stage.sent if isinstance(message, Push)]
    assert keys_in(push) == [key]
    assert [end.push_sent for end in ends(stage)] == [1]
    stage.run(100)
    assert kinds(stage, 2) == [RecordKind.LEASE, RecordKind.RELEASE]


def test_a_pull_whose_time_is_over_leaves_its_leader_in_peace() -> None:
    """Its message is held up, since the leadership is not confirmed."""
    stage, _ = staged(1)
    pull(stage, 5, wait_ms=75)
    stage.run(5)
    assert kinds(stage) == [RecordKind.LEASE]
    stage.leds[1].answering = False
    assert run_until_over(stage, 6) == pytest.approx(1_080, abs=50)
    assert [end.push_sent for end in ends(stage)] == [0]


# -------------------------------------------------------------- another leader


def test_a_pull_is_told_when_one_of_several_partitions_moves() -> None:
    stage = staged_over(2)
    pull(stage, 20, wait_ms=1_000)
    stage.run(20)
    stage.dispatcher.unlead(2, at(30))
    stage.dispatcher.served_by(2, "b2", at(40))
    stage.run(40)
    assert [(end.code, end.push_sent) for end in ends(stage)] == [(Code.NOT_LEADER, 0)]


def test_a_pull_that_has_a_lease_here_gets_it_though_another_partition_moves() -> None:
    stage = staged_over(2)
    keys = stage.insert([50])
    pull(stage, 25, wait_ms=1_000)
    stage.run(25)
    assert kinds(stage) == [RecordKind.LEASE]
    stage.dispatcher.unlead(2, at(30))
    stage.dispatcher.served_by(2, "b2", at(40))
    stage.run(40)
    (push,) = stage.run(50)
    assert (keys_in(push), push.consumer_id) == (keys, PULL)
    assert [(end.code, end.push_sent) for end in ends(stage)] == [(Code.OK, 1)]


# -------------------------------------------------------------- late frames


def test_a_copy_of_a_question_that_was_answered_gets_nothing_more() -> None:
    """Nobody would wait for it."""
    stage, keys = staged(2)
    pull(stage, 20, credit=1)
    (push,) = stage.run(20)
    assert keys_in(push) == keys[:1]
    pull(stage, 30, credit=1)
    assert stage.run(30) == []
    assert len(ends(stage)) == 1
    assert kinds(stage) == [RecordKind.LEASE]


@pytest.mark.parametrize("late", [1, 2])
def test_an_earlier_question_that_comes_late_changes_nothing_of_the_present_one(late: int) -> None:
    stage, _ = staged(0)
    pull(stage, 20, attach=2, wait_ms=100)
    pull(stage, 30, attach=late, wait_ms=1_000)
    stage.run(119)
    assert not ends(stage)
    stage.run(120)
    assert [end.attach for end in ends(stage)] == [2]


def test_a_goodbye_is_answered_by_its_own_number() -> None:
    stage, _ = staged(0)
    pull(stage, 20, wait_ms=1_000)
    reply = stage.frame(ConsumerAction.GOODBYE, 30, PULL, attach=1, number=7)
    assert reply is not None
    assert (reply.ended, reply.attach, reply.number) == (True, 1, 7)


# -------------------------------------------------------------- what it leaves behind


def test_what_was_to_be_pushed_again_stays_leased_when_the_pull_ends_and_takes_no_room() -> None:
    """Its holder may have it from the first answer."""
    stage, (key,) = staged(1)
    pull(stage, 20)
    assert len(stage.run(20)) == 1
    stage.leds[1].answering = False
    pull(stage, 30, attach=2, wait_ms=1_000)
    stage.run(30)
    leases = stage.dispatcher._lanes[1].leases
    assert leases.staged_bytes
    stage.frame(ConsumerAction.GOODBYE, 40, PULL, attach=2)
    stage.run(40)
    assert not leases.staged_bytes
    assert kinds(stage) == [RecordKind.LEASE]
    stage.leds[1].answering = True
    assert stage.run(50) == []
    pull(stage, 60, attach=3, wait_ms=1_000)
    assert [keys_in(push) for push in stage.run(60)] == [[key]]


def test_of_what_has_not_left_when_a_pull_ends_only_what_nobody_can_have_goes_back() -> None:
    stage, keys = staged(2)
    pull(stage, 20, credit=1)
    assert [keys_in(push) for push in stage.run(20)] == [keys[:1]]
    stage.leds[1].cached = False
    pull(stage, 30, attach=2, wait_ms=1_000)
    stage.run(30)
    assert stage.leds[1].timeline.leased_count == 2
    stage.frame(ConsumerAction.GOODBYE, 40, PULL, attach=2)
    stage.run(40)
    assert keys_of(stage.leds[1].timeline.leased()).tolist() == keys[:1]


# -------------------------------------------------------------- what it costs


def test_pulls_that_wait_cost_a_turn_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be a thousand of them."""
    stage, _ = staged(0)
    for number in range(40):
        pull(stage, 20, bytes([number]) * 16, wait_ms=1_000)
    stage.tick(20)
    looks = counted(monkeypatch, Consumers, "offer")
    stage.tick(21)
    assert not looks


def test_an_answer_looks_only_at_partitions_with_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of a topic's partitions may have none."""
    stage = staged_over(8)
    stage.insert([10])
    pull(stage, 20, wait_ms=1_000)
    stage.tick(20)
    stage.commit(20)
    looks = counted(monkeypatch, LeaseTable, "coming")
    stage.tick(20)
    assert [end.push_sent for end in ends(stage)] == [1]
    assert len(looks) == 1


def test_pulls_that_end_without_anything_look_at_no_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be a thousand of them, and hundreds of partitions."""
    stage = staged_over(8)
    for number in range(40):
        pull(stage, 20, bytes([number]) * 16, wait_ms=1_000)
    stage.tick(20)
    looks = counted(monkeypatch, LeaseTable, "of_owner")
    stage.tick(1_020)
    assert len(ends(stage)) == 40
    assert not looks


def test_of_pulls_that_are_over_the_last_ones_are_remembered_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "PULLS_MAX", 5)
    stage, _ = staged(0)
    remembered = stage.dispatcher._pulls._recent
    for number in range(20):
        pull(stage, 20, bytes([number]) * 16)
        stage.run(20)
    assert list(remembered) == [bytes([number]) * 16 for number in range(15, 20)]
    pull(stage, 5_000)
    stage.run(5_000)
    assert list(remembered) == [PULL]


def test_a_listed_pull_that_was_told_it_has_arrived_waits_no_longer_than_it_says() -> None:
    stage, _ = staged(0)
    pull(stage, 0, wait_ms=6_500)
    stage.run(0)
    stage.run(200)  # it is told that it has arrived
    say_waiting(stage, 1_000, (PULL, 1, 200))
    deadline_us = stage.dispatcher.next_deadline_us(at(1_000))
    assert deadline_us is not None
    assert deadline_us <= at(1_200).mono_us
    stage.run(1_200)
    assert len(ends(stage)) == 1
    stage.insert([1_300])
    assert stage.run(1_300) == []


def test_of_many_pulls_that_are_over_the_one_that_ended_last_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of them ended twice. Its second answer comes back unsent."""
    monkeypatch.setattr(limits, "PULLS_MAX", 2)
    stage, _ = staged(0)
    for ms, name in ((20, PULL), (21, OTHER)):
        pull(stage, ms, name)
        stage.run(ms)
    stage.insert([25])
    pull(stage, 30, attach=2)
    (push,) = stage.run(30)
    pull(stage, 31, b"r" * 16)
    stage.run(31)
    stage.dispatcher.route_lost(ROUTE, push, at(40))
    stage.run(100)
    assert kinds(stage) == [RecordKind.LEASE, RecordKind.RELEASE]


def test_a_pull_that_is_over_for_long_is_forgotten_though_an_earlier_one_ended_again() -> None:
    stage, _ = staged(0)
    for ms, name in ((20, PULL), (21, OTHER)):
        pull(stage, ms, name)
        stage.run(ms)
    pull(stage, 5_000, attach=2)
    stage.run(5_000)
    assert list(stage.dispatcher._pulls._recent) == [PULL]


def test_a_pause_of_the_process_does_not_count_for_how_long_an_answer_is_remembered() -> None:
    stage, _ = staged(1)
    pull(stage, 20)
    (push,) = stage.run(20)
    stage.dispatcher.shift(5_000_000, at(5_021))
    pull(stage, 5_022, OTHER)
    stage.run(5_022)
    stage.dispatcher.route_lost(ROUTE, push, at(5_030))
    stage.run(5_100)
    assert kinds(stage) == [RecordKind.LEASE, RecordKind.RELEASE]


def test_a_pull_whose_credit_is_short_of_bytes_gets_what_is_due_at_one_instant_and_is_over() -> None:
    stage, _ = staged(0)
    keys = stage.insert([10, 10], size=300_000)
    for size in (100_000, 600_000):
        stage.insert([12], size=size)
    pull(stage, 0, wait_ms=6_500)
    stage.run(0)
    (push,) = stage.run(10)
    assert keys_in(push) == keys
    assert [end.push_sent for end in ends(stage)] == [1]
    assert stage.run(12) == []


def test_an_answer_of_an_earlier_question_that_comes_back_returns_nothing_of_the_later_one() -> None:
    """Both count their pushes from one, and the later answer has arrived."""
    stage, keys = staged(2)
    pull(stage, 20, credit=1)
    (lost,) = stage.run(20)
    held = ((keys[0], int(lost.token[0])),)
    pull(stage, 30, credit=1, attach=2, held=held)
    (push,) = stage.run(30)
    assert (push.number, keys_in(push)) == (lost.number, keys[1:])
    stage.dispatcher.route_lost(ROUTE, lost, at(40))
    stage.run(100)
    assert kinds(stage) == [RecordKind.LEASE, RecordKind.LEASE]


def test_a_pull_whose_message_was_cancelled_before_its_push_takes_another_one() -> None:
    """What it was dealt was due at another instant."""
    stage, _ = staged(0)
    (gone,) = stage.insert([30])
    pull(stage, 0, wait_ms=6_500)
    stage.run(5)
    assert kinds(stage) == [RecordKind.LEASE]
    token = stage.dispatcher.withhold(1, np.array([gone], np.uint64)).tolist()
    stage.leds[1].change(RecordKind.CANCEL, [gone], at(10), token=token)
    stage.commit(10)
    stage.run(10)
    keys = stage.insert([40], 11)
    assert [keys_in(push) for push in [*stage.run(20), *stage.run(40)]] == [keys]
    assert [end.push_sent for end in ends(stage)] == [1]


def test_a_late_goodbye_to_an_earlier_question_ends_nothing_of_the_present_one() -> None:
    stage, _ = staged(0)
    pull(stage, 20, attach=2, wait_ms=1_000)
    stage.frame(ConsumerAction.GOODBYE, 30, PULL, attach=1, number=7)
    stage.run(30)
    keys = stage.insert([40], 35)
    assert [keys_in(push) for push in stage.run(40)] == [keys]


def test_a_pause_of_the_process_does_not_count_as_the_silence_of_a_pull() -> None:
    stage, _ = staged(0)
    pull(stage, 0, wait_ms=6_500)
    stage.run(100)
    stage.dispatcher.shift(20_000_000, at(20_100))
    stage.tick(20_100)
    keys = stage.insert([20_150], 20_101)
    stage.run(20_120)
    assert [keys_in(push) for push in stage.run(20_150)] == [keys]


def test_there_are_no_more_pulls_than_a_leader_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is open may be repeated all the same."""
    monkeypatch.setattr(limits, "PULLS_MAX", 1)
    stage, _ = staged(0)
    pull(stage, 0, wait_ms=1_000)
    pull(stage, 10, OTHER, wait_ms=1_000)
    pull(stage, 20, attach=2, wait_ms=1_000)
    stage.run(20)
    replies = [message for _, message, _ in stage.sent if isinstance(message, ConsumerReply)]
    assert [(reply.consumer_id, reply.code) for reply in replies] == [(OTHER, Code.BUSY)]
    stage.run(1_020)
    assert [end.consumer_id for end in ends(stage)] == [PULL]
