"""Pulls: detached leases for one answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dueq import limits
from dueq.core.delivery.leases import LeaseTable
from dueq.core.ports.entry import FLAG_DETACHED
from dueq.core.ports.events import Route
from dueq_codecs.messages import Code, ConsumerAction, ConsumerFrame, ConsumerReply, Push
from dueq_codecs.records import LEVEL_OF_KINDS, RecordKind
from tests.unit.core.led import ALICE, Stage, at, keys_in, kinds

PULL = b"p" * 16
NAME = b"n" * 16


def staged(count: int = 3, level: int = LEVEL_OF_KINDS) -> tuple[Stage, list[int]]:
    """Messages that are due at 10 ms."""
    stage = Stage()
    stage.leds[1].timeline.level = level
    return stage, stage.insert([10] * count)


def pull(
    stage: Stage,
    ms: float,
    name: bytes = PULL,
    holder: bytes = b"",
    attach: int = 1,
    credit: int = 10,
    wait_ms: int = 0,
    held: tuple[tuple[int, int], ...] = (),
    life: int = 0,
) -> None:
    """Hand in a pull; `held` are (key, token)."""
    frame = ConsumerFrame(
        ConsumerAction.PULL,
        "t",
        name,
        attach,
        attach,
        credit,
        1 << 20,
        20_000,
        holder=holder or name,
        wait_ms=wait_ms,
        life=life,
    )
    frame.held_uid = np.array([1 for _ in held], np.uint32)
    frame.held_sequence = np.array([key >> 16 for key, _ in held], np.uint64)
    frame.held_row = np.array([key & 0xFFFF for key, _ in held], np.uint16)
    frame.held_token = np.array([token for _, token in held], np.uint64)
    stage.dispatcher.consumer_frame(Route(b"c" * 16), frame, at(ms))


def ends(stage: Stage) -> list[ConsumerReply]:
    return [message for _, message, _ in stage.sent if isinstance(message, ConsumerReply) and message.ended]


def test_a_pull_gets_what_is_ready_and_is_over() -> None:
    stage, keys = staged()
    pull(stage, 20, credit=2)
    (push,) = stage.run(20)
    assert keys_in(push) == keys[:2]
    assert push.consumer_id == PULL
    (end,) = ends(stage)
    assert (end.consumer_id, end.push_sent, end.code) == (PULL, 1, Code.OK)
    assert stage.leds[1].timeline.leased()["flags"].tolist() == [FLAG_DETACHED] * 2
    assert stage.run(21) == []


def test_a_pull_that_is_over_costs_nothing_more() -> None:
    """While something was dealt to a pull, each push takes a whole turn."""
    stage, _ = staged(1)
    pull(stage, 20)
    stage.run(20)
    stage.dispatcher.next_deadline_us(at(20))
    assert stage.dispatcher.push(at(20.5), stage.clock)


def test_with_nothing_ready_it_is_answered_when_its_time_is_over() -> None:
    stage, _ = staged(0)
    pull(stage, 20)
    assert stage.run(20) == []
    assert [end.push_sent for end in ends(stage)] == [0]
    pull(stage, 30, b"q" * 16, wait_ms=1_000)
    stage.run(1_029)
    assert len(ends(stage)) == 1
    stage.run(1_030)
    assert len(ends(stage)) == 2


def test_a_pull_that_waits_is_answered_at_the_instant() -> None:
    stage, keys = staged(2)
    later = stage.insert([15])
    pull(stage, 0, wait_ms=1_000)
    assert stage.run(9.9) == []
    (push,) = stage.run(10)
    assert keys_in(push) == keys
    assert len(ends(stage)) == 1
    assert stage.run(15) == []
    assert stage.leds[1].timeline.rows(np.array(later, np.uint64))["attempt"].tolist() == [0]


def test_neither_a_goodbye_nor_silence_nor_another_leader_ends_what_was_pulled() -> None:
    stage, keys = staged(1)
    pull(stage, 20)
    (push,) = stage.run(20)
    stage.frame(ConsumerAction.GOODBYE, 21, PULL, attach=2)
    stage.run(15_000)
    assert kinds(stage) == [RecordKind.LEASE]
    stage.dispatcher.unlead(1, at(15_000))
    stage.dispatcher.lead(stage.leds[1], at(15_000))
    stage.run(34_000)
    assert kinds(stage) == [RecordKind.LEASE]
    stage.run(35_001)  # counted from the take-over
    assert kinds(stage) == [RecordKind.LEASE, RecordKind.EXPIRE]
    row = stage.leds[1].timeline.rows(np.array(keys, np.uint64))
    assert row["flags"].tolist() == [0]
    assert push.token.tolist() == [stage.leds[1].log[1].sequence]


def test_a_lost_answer_is_pushed_again_under_the_same_token() -> None:
    stage, keys = staged(2)
    pull(stage, 20, credit=2)
    (push,) = stage.run(20)
    tokens = push.token.tolist()
    pull(stage, 30, credit=0, attach=2, held=((keys[0], tokens[0]),))
    (again,) = stage.run(30)
    assert (keys_in(again), again.token.tolist()) == ([keys[1]], [tokens[1]])
    assert again.lease_left_ms.tolist() == [19_990]
    assert [end.attach for end in ends(stage)] == [1, 2]
    assert kinds(stage) == [RecordKind.LEASE]


def lead_anew(stage: Stage, ms: float) -> None:
    stage.dispatcher.unlead(1, at(ms))
    stage.dispatcher.lead(stage.leds[1], at(ms))


def test_a_lost_answer_is_pushed_again_under_the_same_token_by_a_new_leader_too() -> None:
    stage, keys = staged(1)
    pull(stage, 20)
    (push,) = stage.run(20)
    lead_anew(stage, 30)
    pull(stage, 40, attach=2)
    (again,) = stage.run(40)
    assert (keys_in(again), again.token.tolist()) == (keys, push.token.tolist())


def test_what_a_pull_takes_over_leaves_its_consumer_the_credit_for_it() -> None:
    """A consumer has detached leases, and a pull bears its name."""
    stage, keys = staged(2)
    stage.attach(0, ALICE, credit=2, detached=True)
    stage.run(0)
    (push,) = stage.run(10)
    pull(stage, 20, holder=ALICE, credit=2)
    (again,) = stage.run(20)
    assert (keys_in(again), again.consumer_id) == (keys, PULL)
    [session] = stage.dispatcher.sessions(at(20))
    assert (session.leases, session.leased_bytes) == (0, 0)
    more = stage.insert([21, 21])
    (push,) = stage.run(21)
    assert (keys_in(push), push.consumer_id) == (more, ALICE)


def test_a_push_that_comes_back_late_returns_nothing_that_a_later_pull_has_taken_over() -> None:
    """Its messages have left once more, and arrived."""
    stage, keys = staged(2)
    pull(stage, 20, holder=NAME)
    (lost,) = stage.run(20)
    pull(stage, 30, b"q" * 16, holder=NAME)
    (again,) = stage.run(30)
    assert keys_in(again) == keys
    stage.dispatcher.route_lost(Route(b"c" * 16), lost, at(40))
    stage.run(40)
    assert kinds(stage) == [RecordKind.LEASE, RecordKind.LEASE]
    stage.ack(again, 50)
    assert stage.leds[1].timeline.live_count == 0


def test_a_consumer_is_sent_nothing_again_that_a_pull_has_taken_over() -> None:
    stage, keys = staged(2)
    stage.attach(0, ALICE, detached=True)
    stage.run(0)
    (lost,) = stage.run(10)
    pull(stage, 20, holder=ALICE, credit=2)
    (again,) = stage.run(20)
    assert (keys_in(again), again.consumer_id) == (keys, PULL)
    stage.beat(1_500, ALICE, number=2, detached=True)
    assert stage.run(1_500) == []
    assert stage.dispatcher._lanes[1].leases.staged_bytes == 0, "nobody waits for their payloads"
    stage.dispatcher.route_lost(Route(ALICE), lost, at(1_600))
    stage.run(1_600)
    assert kinds(stage) == [RecordKind.LEASE, RecordKind.LEASE]


def test_a_pull_without_a_name_is_brought_nothing_of_another_one_of_its_process() -> None:
    stage, _ = staged(1)
    pull(stage, 20)
    assert stage.run(20)
    pull(stage, 30, PULL[:8] + b"2" * 8)
    assert stage.run(30) == []
    assert kinds(stage) == [RecordKind.LEASE]


def test_a_later_pull_of_a_name_ends_the_one_that_waits() -> None:
    stage, _ = staged(0)
    pull(stage, 20, holder=NAME, wait_ms=1_000)
    stage.run(20)
    pull(stage, 30, b"q" * 16, holder=NAME, wait_ms=1_000)
    stage.run(30)
    assert [(end.consumer_id, end.code) for end in ends(stage)] == [(PULL, Code.UNKNOWN_SESSION)]


def test_one_that_was_followed_is_told_so_again_and_ends_nothing() -> None:
    """The first answer was lost, so it asks again: while the later one waits, and when that has got something."""
    stage, keys = staged(0)
    pull(stage, 20, holder=NAME, wait_ms=1_000)
    pull(stage, 30, b"q" * 16, holder=NAME, wait_ms=1_000)
    pull(stage, 40, holder=NAME, wait_ms=1_000, attach=2)
    stage.run(40)
    told = [(PULL, 1, Code.UNKNOWN_SESSION), (PULL, 2, Code.UNKNOWN_SESSION)]
    assert [(end.consumer_id, end.attach, end.code) for end in ends(stage)] == told
    keys = stage.insert([50])
    (push,) = stage.run(60)
    assert (push.consumer_id, keys_in(push)) == (b"q" * 16, keys)
    stage.run(200)
    pull(stage, 210, holder=NAME, wait_ms=1_000, attach=3)
    assert stage.run(210) == []
    assert [(end.consumer_id, end.code) for end in ends(stage)][-1] == (PULL, Code.UNKNOWN_SESSION)


def test_what_brought_something_is_followed_too() -> None:
    """Its answer was lost. What it brought has come to the later one."""
    stage, keys = staged(1)
    pull(stage, 20, holder=NAME)
    stage.run(20)
    stage.run(200)
    pull(stage, 210, b"q" * 16, holder=NAME)
    (again,) = stage.run(210)
    assert (again.consumer_id, keys_in(again)) == (b"q" * 16, keys)
    stage.run(400)
    pull(stage, 410, holder=NAME, attach=2)
    assert stage.run(410) == []
    assert [(end.consumer_id, end.code) for end in ends(stage)][-1] == (PULL, Code.UNKNOWN_SESSION)


def test_at_a_leader_that_knows_neither_the_later_one_waits_whichever_asks_first() -> None:
    stage, _ = staged(0)
    pull(stage, 20, b"q" * 16, holder=NAME, wait_ms=1_000, life=8)
    pull(stage, 30, holder=NAME, wait_ms=1_000, life=7)
    stage.run(30)
    assert [(end.consumer_id, end.code) for end in ends(stage)] == [(PULL, Code.UNKNOWN_SESSION)]
    pull(stage, 40, b"r" * 16, holder=NAME, wait_ms=1_000, life=8)  # the next one of the same stream
    stage.run(40)
    assert [end.consumer_id for end in ends(stage)] == [PULL, b"q" * 16]
    pull(stage, 50, b"s" * 16, holder=NAME, wait_ms=1_000)  # of one who says no order
    stage.run(50)
    assert [end.consumer_id for end in ends(stage)] == [PULL, b"q" * 16, b"r" * 16]


def test_an_earlier_stream_gets_nothing_while_the_later_one_works() -> None:
    """It would be brought what the later one has. Clocks differ, so only what is clearly older is refused."""
    stage, keys = staged(1)
    second = 1_000_000 << 12
    pull(stage, 20, holder=NAME, life=9 * second)
    (push,) = stage.run(20)
    assert keys_in(push) == keys
    stage.run(200)
    pull(stage, 210, b"q" * 16, holder=NAME, life=8 * second, wait_ms=1_000)
    assert stage.run(210) == []
    assert [(end.consumer_id, end.code) for end in ends(stage)][-1] == (b"q" * 16, Code.UNKNOWN_SESSION)
    near = PULL[:8] + b"r" * 8
    pull(stage, 220, near, holder=NAME, life=9 * second - (5_000 << 12))
    (again,) = stage.run(220)
    assert (again.consumer_id, keys_in(again)) == (near, keys)
    pull(stage, 60_500, b"s" * 16, holder=NAME, life=7 * second, wait_ms=1_000)  # nobody remembers
    stage.run(60_500)
    assert (b"s" * 16, Code.UNKNOWN_SESSION) not in {(end.consumer_id, end.code) for end in ends(stage)}


def test_a_frame_that_comes_late_opens_no_pull_again() -> None:
    stage, _ = staged(1)
    stage.frame(ConsumerAction.GOODBYE, 5, PULL, attach=2)
    pull(stage, 20)
    assert stage.run(20) == []
    assert kinds(stage) == []


def test_what_could_not_be_sent_is_for_others_at_once() -> None:
    stage, keys = staged(1)
    pull(stage, 20)
    (push,) = stage.run(20)
    stage.dispatcher.route_lost(Route(b"c" * 16), push, at(21))
    stage.run(50)
    assert kinds(stage) == [RecordKind.LEASE, RecordKind.RELEASE]
    assert stage.leds[1].timeline.rows(np.array(keys, np.uint64))["attempt"].tolist() == [0]


def test_nothing_is_pushed_to_a_pull_while_the_leadership_is_not_confirmed() -> None:
    stage, _ = staged(1)
    pull(stage, 20, wait_ms=1_000)
    stage.tick(20)
    stage.commit(20)
    stage.leds[1].answering = False
    assert stage.run(21) == []
    stage.leds[1].answering = True
    assert len(stage.run(30)) == 1


def test_pulls_and_consumers_take_turns() -> None:
    stage, _ = staged(40)
    stage.attach(20, ALICE, credit=10)
    pull(stage, 20, credit=10)
    pushes: list[Push] = stage.run(20)
    assert sorted((push.consumer_id, len(push.uid)) for push in pushes) == [(ALICE, 10), (PULL, 10)]


def test_an_earlier_pull_whose_frame_comes_late_does_not_follow_a_later_one() -> None:
    """The later one had its answer. It asks again, as it does not have all answers yet."""
    stage, _ = staged(0)
    pull(stage, 20, b"q" * 16, holder=NAME, life=9 << 30)
    stage.run(200)  # nothing has come: it is over
    pull(stage, 210, holder=NAME, life=(9 << 30) - (50_000 << 12), wait_ms=1_000)
    pull(stage, 220, b"q" * 16, holder=NAME, life=9 << 30, attach=2, wait_ms=1_000)
    stage.run(220)
    assert [end.consumer_id for end in ends(stage) if end.code == Code.UNKNOWN_SESSION] == [PULL]
    keys = stage.insert([230])
    (push,) = stage.run(240)
    assert (push.consumer_id, keys_in(push)) == (b"q" * 16, keys)


def test_an_older_replica_keeps_pulls_away() -> None:
    stage, _ = staged(1, level=1)
    pull(stage, 20)
    stage.run(20)
    (reply,) = [message for _, message, _ in stage.sent if isinstance(message, ConsumerReply)]
    assert reply.code == Code.BUSY


def test_limits_are_named() -> None:
    stage, _ = staged(0)
    pull(stage, 20, credit=limits.PULL_ROWS_MAX + 1)
    pull(stage, 20, wait_ms=limits.PULL_WAIT_MS + 1)
    stage.run(20)
    texts = [message.text for _, message, _ in stage.sent if isinstance(message, ConsumerReply)]
    assert "at most 1000 messages, not 1001" in texts[0]
    assert f"{limits.PULL_WAIT_MS} ms, not {limits.PULL_WAIT_MS + 1}" in texts[1]


def test_a_pull_that_goes_on_is_not_told_that_it_has_arrived() -> None:
    stage, _ = staged(0)
    pull(stage, 1, wait_ms=1_000)
    for ms in (201, 1_001):
        stage.run(ms)
    pull(stage, 1_002, attach=2, wait_ms=1_000)
    for ms in (1_300, 2_002):
        stage.run(ms)
    replies = [message for _, message, _ in stage.sent if isinstance(message, ConsumerReply)]
    assert [(reply.attach, reply.ended) for reply in replies] == [(1, False), (1, True), (2, True)]
    pull(stage, 2_003, attach=3, wait_ms=1_000)
    pull(stage, 2_100, attach=4, wait_ms=1_000)  # it asks again: perhaps it has heard nothing
    stage.run(2_301)
    [*_, last] = [message for _, message, _ in stage.sent if isinstance(message, ConsumerReply)]
    assert (last.attach, last.ended) == (4, False)


ROUTE, OTHER_ROUTE = Route(b"c" * 16), Route(b"d" * 16)
CLIENT = b"w" * 16


def say_waiting(
    stage: Stage, ms: float, *pulls: tuple[bytes, int, int], route: Route = ROUTE
) -> ConsumerReply:
    """List pulls that go on waiting: (name, attach, for how many ms); returns the answer."""
    frame = ConsumerFrame(ConsumerAction.WAITING, "t", CLIENT, 1, 5, 0, 0, 0)
    frame.pulls = b"".join(name for name, _, _ in pulls)
    frame.pull_attach = np.array([attach for _, attach, _ in pulls], np.uint64)
    frame.pull_wait_ms = np.array([wait_ms for _, _, wait_ms in pulls], np.uint32)
    stage.dispatcher.consumer_frame(route, frame, at(ms))
    stage.run(ms)
    (reply,) = [
        message
        for _, message, _ in stage.sent
        if isinstance(message, ConsumerReply) and message.consumer_id == CLIENT
    ][-1:]
    assert (reply.number, reply.attach, reply.ended) == (5, 1, False)
    return reply


def test_a_pull_that_is_listed_waits_on_and_one_that_is_not_ends() -> None:
    stage, _ = staged(0)
    pull(stage, 0, wait_ms=6_500)
    pull(stage, 0, b"q" * 16, wait_ms=6_500)
    stage.run(0)
    for ms in (2_500, 5_000, 7_500, 10_000):
        reply = say_waiting(stage, ms, (PULL, 1, 6_500))
        assert (reply.code, reply.over.tolist()) == (Code.OK, [])
    assert [end.consumer_id for end in ends(stage)] == [b"q" * 16]
    keys = stage.insert([11_000])
    (push,) = stage.run(11_000)
    assert (push.consumer_id, keys_in(push)) == (PULL, keys)


def test_a_pull_that_is_repeated_and_listed_is_looked_at_once_at_a_time() -> None:
    stage, _ = staged(0)
    for attach in range(1, 101):
        pull(stage, 20 + attach, attach=attach, wait_ms=6_500)
    assert len(stage.dispatcher._pulls._timers) == 1
    for ms in range(5_000, 25_000, 500):
        if not ms % 5_000:
            say_waiting(stage, ms, (PULL, 100, 6_500))
        stage.run(ms)
    assert not ends(stage)
    assert len(stage.dispatcher._pulls._timers) == 1


def test_a_listed_pull_ends_when_its_client_says_no_more_of_it() -> None:
    stage, _ = staged(0)
    pull(stage, 0, wait_ms=6_500)
    stage.run(0)
    say_waiting(stage, 5_000, (PULL, 1, 6_500))
    stage.run(11_499)
    assert not ends(stage)
    stage.run(11_500)
    assert [end.push_sent for end in ends(stage)] == [0]
    stage.insert([11_600])
    assert stage.run(11_600) == []


def test_a_listed_pull_waits_no_longer_than_it_says() -> None:
    stage, _ = staged(0)
    pull(stage, 0, wait_ms=6_500)
    stage.run(0)
    say_waiting(stage, 1_000, (PULL, 1, 200))
    stage.run(1_200)
    assert len(ends(stage)) == 1
    stage.insert([1_300])
    assert stage.run(1_300) == []


def test_it_is_told_which_pulls_do_not_wait_here() -> None:
    stage, _ = staged(0)
    pull(stage, 0, attach=3, wait_ms=6_500)
    stage.run(0)
    unknown = b"u" * 16
    reply = say_waiting(stage, 100, (unknown, 1, 500), (PULL, 3, 500), (PULL, 2, 500), (PULL, 4, 500))
    assert reply.over.tolist() == [0, 2, 3]
    assert say_waiting(stage, 101, (PULL, 3, 500), route=OTHER_ROUTE).over.tolist() == [0]
    assert (say_waiting(stage, 102).code, say_waiting(stage, 102).over.tolist()) == (Code.OK, [])


def test_a_pull_whose_answer_is_on_its_way_is_left_alone() -> None:
    stage, keys = staged(1)
    pull(stage, 20, wait_ms=6_500)
    stage.dispatcher.tick(at(20), stage.clock, 30, False)
    reply = say_waiting(stage, 20.5, (PULL, 1, 6_500))
    assert reply.over.tolist() == []
    stage.run(100)
    (end,) = ends(stage)
    assert end.push_sent == 1
    assert stage.leds[1].timeline.rows(np.array(keys, np.uint64))["attempt"].tolist() == [1]
    assert say_waiting(stage, 101, (PULL, 1, 6_500)).over.tolist() == [0]


def test_a_pull_whose_time_was_over_is_not_kept_by_a_late_list() -> None:
    """Nothing new is dealt to it any more, so it would wait in vain."""
    stage, _ = staged(0)
    stage.insert([50])
    pull(stage, 25, wait_ms=75)
    stage.run(25)
    assert kinds(stage) == [RecordKind.LEASE]
    stage.leds[1].answering = False  # so it is not pushed
    stage.run(50)
    stage.run(101)
    assert not ends(stage)
    assert say_waiting(stage, 130, (PULL, 1, 6_500)).over.tolist() == []
    stage.run(1_101)
    assert len(ends(stage)) == 1


def test_lists_that_are_refused() -> None:
    stage, _ = staged(0)
    pull(stage, 0, wait_ms=6_500)
    assert "waits 6500 ms" in say_waiting(stage, 10, (PULL, 1, limits.PULL_WAIT_MS + 1)).text
    many = [(PULL, 1, 100)] * (limits.PULLS_MAX + 1)
    assert "more than 1024" in say_waiting(stage, 11, *many).text
    stage.dispatcher.unlead(1, at(20))
    assert say_waiting(stage, 21, (PULL, 1, 100)).code is Code.NOT_LEADER


def test_many_pulls_that_are_answered_at_once_look_at_each_partition_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A topic may have hundreds of partitions with leases, and a thousand pulls."""
    stage = Stage(partitions=8)
    for led in stage.leds.values():
        led.timeline.level = LEVEL_OF_KINDS
        stage.insert([10] * 5, uid=led.uid)
    looks = 0
    for name in ("of_owner", "coming"):
        whole = getattr(LeaseTable, name)

        def counted(table: LeaseTable, *arguments: int, whole: Any = whole) -> Any:
            nonlocal looks
            looks += 1
            return whole(table, *arguments)

        monkeypatch.setattr(LeaseTable, name, counted)
    for number in range(40):
        pull(stage, 20, bytes([number]) * 16, credit=1, wait_ms=1_000)
    stage.tick(20)
    looks = 0
    stage.commit(20)
    stage.tick(20)
    assert len(ends(stage)) == 40
    assert looks <= 2 * 8
