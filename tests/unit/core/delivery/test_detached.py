"""Detached leases of consumers: silence, a goodbye and a change of leader do not end them."""

from __future__ import annotations

import pytest

from dueq.core.ports.events import Route
from dueq_codecs.messages import Code, ConsumerAction
from dueq_codecs.records import LEVEL_OF_KINDS, RecordKind
from tests.unit.core.led import ALICE, BOB, Led, Stage, at, keys_in, kinds


def detached(count: int = 1, lease_ms: int = 60_000, level: int = LEVEL_OF_KINDS) -> tuple[Stage, list[int]]:
    """A consumer with detached leases of `count` pushed messages, due at 10 ms."""
    stage = Stage()
    stage.leds[1].timeline.level = level
    keys = stage.insert([10] * count)
    stage.attach(0, lease_ms=lease_ms, detached=True)
    stage.run(0)
    stage.run(10)
    return stage, keys


def successor(stage: Stage, ms: float) -> Stage:
    other = Stage(partitions=0)
    led = Led(1, epoch=2, timeline=stage.leds[1].timeline)
    led.payloads = stage.leds[1].payloads
    other.leds[1] = led
    other.dispatcher.lead(led, at(ms))
    return other


def led_anew(old: Stage, new: Stage, ms: float) -> None:
    led = Led(1, epoch=2, timeline=old.leds[1].timeline)
    led.payloads = old.leds[1].payloads
    new.leds[1] = led
    new.dispatcher.lead(led, at(ms))


def test_silence_ends_the_session_and_not_the_leases() -> None:
    stage, keys = detached()
    stage.attach(10_500, BOB)
    stage.run(10_500)
    assert [each.consumer_id for each in stage.dispatcher.sessions(at(10_500))] == [BOB.hex()]
    assert kinds(stage) == [RecordKind.LEASE]
    for ms in range(20_000, 60_000, 10_000):
        stage.beat(ms - 5_000, BOB, number=ms)
        stage.beat(ms, BOB, number=ms + 1)
        assert stage.run(ms) == []
    stage.beat(60_005, BOB, number=70_000)
    assert stage.run(60_009) == []
    (push,) = stage.run(60_010)
    assert (keys_in(push), push.attempt.tolist()) == (keys, [2])
    assert kinds(stage)[1] == RecordKind.EXPIRE


def test_what_was_not_pushed_before_the_silence_goes_to_others_uncounted() -> None:
    stage = Stage()
    stage.leds[1].timeline.level = LEVEL_OF_KINDS
    (key,) = stage.insert([10_020])
    stage.attach(0, lease_ms=60_000, detached=True)
    stage.beat(6_000, number=2, lease_ms=60_000)
    stage.run(9_990)
    stage.dispatcher.route_lost(Route(ALICE), stage.sent[-1][1], at(9_991))
    stage.attach(16_500, BOB)
    (push,) = stage.run(16_500)
    assert (keys_in(push), push.attempt.tolist()) == ([key], [1])


def test_who_comes_back_has_its_leases_again_and_gets_what_it_lacks_under_the_same_token() -> None:
    stage, keys = detached(count=2)
    stage.run(12_000)
    assert stage.dispatcher.sessions(at(12_000)) == []
    stage.attach(20_000, attach=2, lease_ms=60_000, held=[(1, keys[0], 2)], detached=True)
    (push,) = stage.run(20_000)
    assert (keys_in(push), push.token.tolist(), push.attempt.tolist()) == (keys[1:], [2], [1])
    (status,) = stage.dispatcher.sessions(at(20_000))
    assert status.leases == 2
    stage.ack(push, 20_001)
    (status,) = stage.dispatcher.sessions(at(20_001))
    assert status.leases == 1
    assert kinds(stage) == [RecordKind.LEASE, RecordKind.ACK]


def test_who_comes_back_gets_no_more_bytes_than_it_wants_to_hold() -> None:
    stage, keys = detached(count=2)
    stage.run(12_000)
    held = [(1, key, 2) for key in keys]
    stage.attach(20_000, attach=2, lease_ms=60_000, held=held, credit_bytes=8, detached=True)
    (waiting,) = stage.insert([20_001], 20_001)
    assert stage.run(20_001) == []
    stage.leds[1].change(RecordKind.ACK, keys[:1], at(20_002), token=[2])
    stage.commit(20_002)
    assert [keys_in(push) for push in stage.run(20_002)] == [[waiting]]


def test_a_goodbye_returns_what_it_does_not_list() -> None:
    stage, keys = detached(count=2)
    stage.frame(ConsumerAction.GOODBYE, 20, number=9, held=[(1, keys[0], 2)], detached=True)
    stage.attach(20, BOB)
    (push,) = stage.run(20)
    assert (keys_in(push), push.attempt.tolist()) == (keys[1:], [1])
    assert kinds(stage)[1] == RecordKind.RELEASE
    stage.beat(9_000, BOB, number=2)
    assert stage.run(15_000) == []


def test_a_new_leader_asks_who_is_attached_what_it_holds() -> None:
    old, keys = detached(count=2)
    new = Stage(partitions=0)
    new.attach(50, lease_ms=60_000, detached=True)
    led = Led(1, epoch=2, timeline=old.leds[1].timeline)
    led.payloads = old.leds[1].payloads
    new.leds[1] = led
    new.dispatcher.lead(led, at(100))
    new.attach(110, attach=2, lease_ms=60_000, held=[(1, keys[0], 2)], detached=True)
    (push,) = new.run(110)
    assert (keys_in(push), push.token.tolist()) == (keys[1:], [2])


def test_a_new_leader_keeps_them_for_who_attaches_after_a_long_silence() -> None:
    old, keys = detached()
    new = successor(old, 3_000)
    new.run(20_000)
    assert kinds(new) == []
    new.attach(21_000, lease_ms=60_000, held=[(1, keys[0], 2)], detached=True)
    assert new.run(21_000) == []
    (status,) = new.dispatcher.sessions(at(21_000))
    assert status.leases == 1


def test_where_a_replica_knows_no_detached_leases_they_are_as_others() -> None:
    stage, _ = detached(level=LEVEL_OF_KINDS - 1)
    stage.run(10_500)
    assert kinds(stage) == [RecordKind.LEASE, RecordKind.EXPIRE]


def test_a_consumer_with_a_name_has_none() -> None:
    stage = Stage()
    reply = stage.attach(0, life=7, detached=True)
    assert reply is not None
    assert (reply.code, reply.text) == (
        Code.INVALID_REQUEST,
        "leases of a consumer with a name are not detached",
    )


def test_payloads_that_were_brought_back_for_who_falls_silent_take_no_room() -> None:
    stage, _ = detached()
    stage.leds[1].answering = False
    stage.attach(20, attach=2, lease_ms=60_000, detached=True)
    stage.run(20)
    leases = stage.dispatcher._lanes[1].leases
    assert leases.staged_bytes == 4
    stage.run(10_100)
    assert stage.dispatcher.sessions(at(10_100)) == []
    assert leases.staged_bytes == 0


def test_what_was_about_to_be_pushed_again_stays_with_who_falls_silent() -> None:
    """It may well have had it: the first push may only be late."""
    stage, _ = detached()
    stage.leds[1].answering = False
    stage.attach(20, attach=2, lease_ms=60_000, detached=True)
    stage.run(20)
    stage.leds[1].answering = True
    stage.attach(10_100, BOB)
    assert stage.run(10_100) == []
    assert kinds(stage) == [RecordKind.LEASE]


def test_who_comes_back_gets_nothing_of_what_another_one_was_parted_from() -> None:
    """Two consumers fell silent, and only one of them attaches again."""
    stage = Stage()
    stage.leds[1].timeline.level = LEVEL_OF_KINDS
    stage.insert([10, 10])
    for consumer in (ALICE, BOB):
        stage.attach(0, consumer, credit=1, lease_ms=60_000, detached=True)
    stage.run(0)
    pushes = {push.consumer_id: keys_in(push) for push in stage.run(10)}
    stage.run(12_000)
    assert stage.dispatcher.sessions(at(12_000)) == []
    stage.attach(20_000, ALICE, attach=2, credit=1, lease_ms=60_000, detached=True)
    (push,) = stage.run(20_000)
    assert (keys_in(push), push.consumer_id) == (pushes[ALICE], ALICE)
    (status,) = stage.dispatcher.sessions(at(20_000))
    assert status.leases == 1


def test_a_goodbye_returns_what_it_lists_under_a_token_of_another_lease() -> None:
    """It means an earlier lease of the same message: it does not have this one."""
    stage, keys = detached()
    stage.frame(ConsumerAction.GOODBYE, 20, number=9, held=[(1, keys[0], 1)], detached=True)
    stage.attach(20, BOB)
    (push,) = stage.run(20)
    assert (keys_in(push), push.attempt.tolist()) == (keys, [1])


def test_who_is_attached_at_a_new_leader_counts_detached_leases_as_its_own_at_once() -> None:
    """They take its credit before it has attached again."""
    old, _ = detached(count=2)
    new = Stage(partitions=0)
    new.attach(50, credit=2, lease_ms=60_000, detached=True)
    led_anew(old, new, 100)
    (status,) = new.dispatcher.sessions(at(100))
    assert (status.leases, status.leased_bytes) == (2, 8)


def test_detached_leases_are_nobodys_to_who_holds_none_at_a_new_leader() -> None:
    """Neither its goodbye nor its silence ends what an earlier process of it may still hold."""
    old, _ = detached()
    new = Stage(partitions=0)
    new.attach(50, lease_ms=60_000)
    led_anew(old, new, 100)
    (status,) = new.dispatcher.sessions(at(100))
    assert status.leases == 0
    new.frame(ConsumerAction.GOODBYE, 200, number=9)
    new.run(20_000)
    assert kinds(new) == []


@pytest.mark.parametrize("other", [b"a" * 8 + b"b" * 8, b"b" * 8 + b"a" * 8], ids=["low", "high"])
def test_who_comes_back_is_known_by_the_whole_of_its_id(other: bytes) -> None:
    stage, _ = detached()
    stage.run(12_000)
    stage.attach(20_000, other, lease_ms=60_000, detached=True)
    stage.run(20_000)
    (status,) = stage.dispatcher.sessions(at(20_000))
    assert status.leases == 0
