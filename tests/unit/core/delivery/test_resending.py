"""A message that a consumer lacks is pushed again under the same token, or goes to another (protocol case B8)."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq.core.delivery import resending
from dueq.core.delivery.leasing import AGAIN_ROWS
from dueq.core.delivery.resending import SLOWEST_LINK
from dueq.core.ports.events import Route
from dueq_codecs.messages import Code, ConsumerReply, Push, PushChunk
from dueq_codecs.records import RecordKind
from tests.unit.core.led import ALICE, BOB, Stage, at, keys_in, kinds, pushed


def test_who_never_says_what_has_come_has_to_attach_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every push is remembered until it was seen: a client that acks, and reports nothing, must not fill the memory."""
    monkeypatch.setattr(limits, "PUSHES_UNSEEN_MAX", 8)
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


def _push(stage: Stage) -> Push:
    return next(m for _, m, _ in stage.sent if isinstance(m, Push))


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


def test_leases_of_several_partitions_that_are_pushed_again_say_how_much_of_each_is_left() -> None:
    """A holder that believed in more would work on what another one has by then."""
    stage = Stage(partitions=2)
    for uid, due_ms in ((1, 10), (2, 20)):
        stage.insert([due_ms], uid=uid)
    stage.attach(0, lease_ms=60_000)
    for ms in (0, 10, 20):
        stage.run(ms)
    stage.attach(2000, attach=2)
    (push,) = stage.run(2000)
    assert (push.uid.tolist(), push.lease_left_ms.tolist()) == ([1, 2], [58_010, 58_020])


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


def test_a_lease_that_has_just_half_of_its_time_left_is_pushed_again() -> None:
    stage, keys = pushed(lease_ms=4000)
    stage.attach(2010, attach=2)
    assert [keys_in(push) for push in stage.run(2010)] == [keys]


def test_a_lease_whose_message_has_expired_since_is_not_pushed_again_but_runs_out() -> None:
    """The consumer may be at work on it: the attach that lacks it and the push may have crossed."""
    stage = Stage()
    keys = stage.insert([10], expires_ms=1_000)
    stage.attach(0, lease_ms=4000)
    stage.run(0)
    assert [keys_in(push) for push in stage.run(10)] == [keys]
    stage.attach(1500, attach=2)
    assert stage.run(1500) == []
    stage.beat(3000, attach=2, number=2)
    stage.run(3000)
    assert kinds(stage) == [RecordKind.LEASE]
    stage.beat(4010, attach=2, number=3)
    assert stage.run(4010) == []
    assert kinds(stage) == [RecordKind.LEASE, RecordKind.EXPIRE, RecordKind.LAPSE]


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


def fillers(stage: Stage, since: int = 0) -> list[int]:
    """The numbers of the empty pushes that have left."""
    pushes = [message for _, message, _ in stage.sent[since:] if isinstance(message, Push)]
    return [push.number for push in pushes if not len(push.uid)]


def test_an_empty_push_is_sent_again_when_it_was_not_seen_for_a_second_either() -> None:
    """It may be lost, too, and its consumer could never say that a later push has come."""
    stage, _ = pushed()
    stage.beat(1_010, number=2, lease_ms=60_000, push_seen=0)
    stage.beat(2_009, number=3, lease_ms=60_000, push_seen=0)
    assert fillers(stage) == [1]
    stage.beat(2_010, number=4, lease_ms=60_000, push_seen=0)
    assert fillers(stage) == [1, 1]


def test_an_empty_push_that_is_late_sends_nothing_again_of_what_has_left_since() -> None:
    """The payload came from the disk only now: the push with it is on its way."""
    stage, keys = pushed()
    stage.leds[1].cached = False
    stage.beat(1_010, number=2, lease_ms=60_000, push_seen=0)
    assert stage.run(1_010) == []
    stage.read_payloads(1_900)
    assert [keys_in(push) for push in stage.run(1_900)] == [keys]
    stage.leds[1].cached = True
    stage.beat(2_010, number=3, lease_ms=60_000, push_seen=0)
    assert stage.run(2_010) == []
    assert fillers(stage) == [1, 1]


def test_an_empty_push_that_could_not_be_sent_takes_nothing_back() -> None:
    """The first push of its number may have come."""
    stage, _ = pushed()
    stage.beat(1_010, number=2, lease_ms=60_000, push_seen=0)
    stage.run(1_010)
    [filler] = [m for _, m, _ in stage.sent if isinstance(m, Push) and not len(m.uid)]
    stage.dispatcher.route_lost(Route(ALICE), filler, at(1_020))
    stage.run(1_020)
    assert RecordKind.RELEASE not in kinds(stage)


def test_what_was_not_sent_of_several_pushes_is_that_of_its_number() -> None:
    stage, keys = pushed()
    others = stage.insert([40], 20)
    (later,) = stage.run(40)
    assert keys_in(later) == others
    stage.attach(50, BOB)
    stage.dispatcher.route_lost(Route(ALICE), later, at(50))
    assert [keys_in(push) for push in stage.run(50)] == [others]
    assert stage.leds[1].timeline.leased()["sequence"].tolist() == [keys[0] >> 16, others[0] >> 16]


def test_one_beat_repairs_a_bounded_number_of_pushes_and_the_next_one_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resending, "FILLERS_MAX", 2)
    stage = Stage()
    stage.insert([10, 20, 30])
    stage.attach(0, lease_ms=60_000)
    for ms in (0, 10, 20, 30):
        stage.run(ms)
    stage.beat(1_500, number=2, lease_ms=60_000, push_seen=0)
    assert fillers(stage) == [1, 2]
    stage.beat(1_501, number=3, lease_ms=60_000, push_seen=2)
    assert fillers(stage) == [1, 2, 3]


def test_nothing_is_pushed_again_to_who_has_to_attach_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The attach says what it lacks."""
    monkeypatch.setattr(limits, "PUSHES_UNSEEN_MAX", 2)
    stage = Stage()
    stage.insert([10, 20, 30])
    stage.attach(0, lease_ms=60_000)
    for ms in (0, 10, 20, 30):
        stage.run(ms)
    reply = stage.beat(1_500, number=2, lease_ms=60_000, push_seen=0)
    assert reply is not None
    assert reply.code == Code.UNKNOWN_SESSION
    assert stage.run(1_500) == []
    assert fillers(stage) == []


def test_a_pause_of_the_process_makes_no_push_late() -> None:
    """Nothing could be heard of it meanwhile. The first beat was on its way before the push."""
    stage, _ = pushed()
    stage.dispatcher.shift(6_000_000, at(6_020))
    stage.beat(6_020, number=2, lease_ms=60_000, push_seen=0)
    assert stage.run(6_020) == []
    assert stage.run(6_030) == []


def test_what_was_acked_meanwhile_is_not_pushed_again() -> None:
    stage, _ = pushed()
    stage.ack(_push(stage), 20)
    stage.beat(2000, number=2, push_seen=0)
    assert stage.run(2000) == []


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


def test_a_push_of_an_older_attach_that_could_not_be_sent_takes_back_nothing_of_the_newer_one() -> None:
    """Both count their pushes from one: the number alone would name what the consumer holds by now."""
    stage, keys = pushed()
    old = _push(stage)
    stage.attach(20, attach=2, lease_ms=60_000, held=[(1, keys[0], 2)])
    later = stage.insert([40], 20)
    (newer,) = stage.run(40)
    assert (newer.number, newer.attach, keys_in(newer)) == (old.number, 2, later)
    stage.attach(50, BOB)
    stage.dispatcher.route_lost(Route(ALICE), old, at(50))
    assert stage.run(50) == []
    assert RecordKind.RELEASE not in kinds(stage)


@pytest.mark.parametrize("attaches", [False, True])
def test_a_lease_whose_end_is_being_committed_is_not_pushed_again(attaches: bool) -> None:
    """Its EXPIRE is in the log: who got it now would hold it together with the next consumer."""
    stage, keys = pushed(lease_ms=2_000)
    stage.tick(2_010)
    assert [record.kind for record in stage.leds[1].open] == [RecordKind.EXPIRE]
    before = len(stage.sent)
    if attaches:
        stage.attach(2_011, attach=2, lease_ms=2_000)
    else:
        stage.beat(2_011, number=2, lease_ms=2_000, push_seen=0)
    stage.tick(2_012)
    assert not [m for _, m, _ in stage.sent[before:] if isinstance(m, Push) and len(m.uid)]
    assert [(keys_in(push), push.attempt.tolist()) for push in stage.run(2_013)] == [(keys, [2])]


def test_what_is_being_returned_stays_uncounted_though_its_consumer_attaches_without_it() -> None:
    stage, keys = pushed()
    stage.dispatcher.route_lost(Route(ALICE), _push(stage), at(20))
    stage.attach(20, attach=2, lease_ms=60_000)
    (push,) = stage.run(20)
    assert (keys_in(push), push.token.tolist(), push.attempt.tolist()) == (keys, [4], [1])


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


def test_chunks_that_have_all_gone_to_an_earlier_attach_are_waited_for_again() -> None:
    """The connection may have broken on their way: the push must not come without them."""
    stage = Stage()
    keys = stage.insert([100], size=600_000, upload=7)
    stage.attach(0, lease_ms=60_000)
    stage.run(70)
    stage.read_payloads(75)
    stage.attach(80, attach=2, lease_ms=60_000)
    assert stage.run(100) == []
    stage.read_payloads(101)
    assert [(push.attach, keys_in(push)) for push in stage.run(101)] == [(2, keys)]


def long_pushed(dues_ms: list[int], chunks: int, lease_ms: int) -> tuple[Stage, list[int]]:
    """A consumer to which messages of so many chunks were pushed; their keys."""
    stage = Stage()
    stage.attach(0, credit_bytes=1 << 30, lease_ms=lease_ms)
    keys = []
    for ms in dues_ms:
        keys += stage.insert([ms], size=chunks * limits.CHUNK_BYTES, upload=ms)
        stage.run(ms - 5)
        stage.read_payloads(ms - 5)
        assert [keys_in(push) for push in stage.run(ms)] == [keys[-1:]]
    return stage, keys


def beats_unseen(stage: Stage, from_ms: int, until_ms: int, lease_ms: int) -> list[PushChunk]:
    """Beat each second without having seen the push; returns the chunks that are sent meanwhile."""
    before = len(stage.sent)
    for ms in range(from_ms, until_ms, 1_001):
        stage.beat(ms, number=ms, credit_bytes=1 << 30, lease_ms=lease_ms, push_seen=0)
        stage.run(ms)
        stage.read_payloads(ms)
    return [message for _, message, _ in stage.sent[before:] if isinstance(message, PushChunk)]


def test_a_long_payload_is_not_sent_anew_while_a_slow_link_may_be_busy_with_it() -> None:
    stage, _ = long_pushed([10], 16, lease_ms=60_000)
    travel_ms = 16 * limits.CHUNK_BYTES * 1_000 // SLOWEST_LINK
    assert not beats_unseen(stage, 1_010, 1_010 + travel_ms, 60_000)
    chunks = beats_unseen(stage, 1_010 + travel_ms, 1_010 + travel_ms + 1, 60_000)
    assert [message.chunk for message in chunks] == list(range(16))


def test_what_is_behind_long_payloads_on_its_way_waits_for_them() -> None:
    """All of it is on one connection, in order."""
    stage, keys = long_pushed([10, 20, 30], 16, lease_ms=120_000)
    travel_ms = 16 * limits.CHUNK_BYTES * 1_000 // SLOWEST_LINK
    chunks = beats_unseen(stage, 1_030 + travel_ms, 1_030 + travel_ms + 1, 120_000)
    assert {message.sequence << 16 | message.row for message in chunks} == {keys[0]}


def test_payloads_inside_a_push_do_not_count_as_chunks_that_are_on_their_way() -> None:
    """What was lost would come again seconds later than it might."""
    stage = Stage()
    stage.attach(0, credit_bytes=1 << 30, lease_ms=60_000)
    keys = stage.insert([100], size=limits.CHUNK_BYTES, upload=7)
    keys += stage.insert([100], size=1_000_000)
    stage.run(70)
    stage.read_payloads(70)
    assert [keys_in(push) for push in stage.run(100)] == [keys]
    travel_ms = limits.CHUNK_BYTES * 1_000 // SLOWEST_LINK
    assert beats_unseen(stage, 1_100 + travel_ms, 1_100 + travel_ms + 1, 60_000)


def test_a_lost_chunk_is_repaired_while_much_of_the_lease_is_left() -> None:
    """The slowest link would need longer than the lease."""
    stage, keys = long_pushed([10], 80, lease_ms=20_000)
    assert [message.chunk for message in beats_unseen(stage, 1_010, 7_000, 20_000)] == list(range(80))
    assert [keys_in(push) for push in stage.run(7_000)] == [keys]


def test_a_lost_chunk_of_a_short_lease_is_repaired_before_half_of_the_lease_is_over() -> None:
    """Its consumer speaks once a second: at the next beat it would be too late."""
    stage, keys = long_pushed([10], 16, lease_ms=5_000)
    assert [message.chunk for message in beats_unseen(stage, 968, 1_970, 5_000)] == list(range(16))
    assert [keys_in(push) for push in stage.run(1_970)] == [keys]


def led_again(stage: Stage, ms: float) -> None:
    """Leadership is lost and won again: the leases have other places in a new table."""
    led = stage.leds[1]
    stage.dispatcher.unlead(1, at(ms))
    led.epoch += 1
    stage.dispatcher.lead(led, at(ms))


def test_pushes_of_an_earlier_leadership_say_nothing_of_leases_in_this_one() -> None:
    stage = Stage()
    keys = stage.insert([10] * 20)
    for consumer in (ALICE, BOB):
        stage.attach(0, consumer=consumer, lease_ms=60_000)
    stage.run(0)
    pushes = {push.consumer_id: push for push in stage.run(10)}
    token = int(pushes[ALICE].token[0])
    stage.leds[1].change(RecordKind.ACK, keys[:8], at(20), token=[token] * 8)
    stage.commit(20)
    led_again(stage, 30)
    stage.dispatcher.route_lost(Route(ALICE), pushes[ALICE], at(32))
    stage.run(33)
    assert RecordKind.RELEASE not in kinds(stage), "the leases may be anybody's"


def test_what_was_pushed_and_never_seen_in_an_earlier_leadership_is_no_place_in_this_one() -> None:
    stage, keys = pushed(credit=200, count=100)
    stage.leds[1].change(RecordKind.ACK, keys[:99], at(20), token=[2] * 99)
    stage.commit(20)
    led_again(stage, 30)
    stage.tick(32)
    stage.beat(1500, number=2, credit=200, push_seen=0, lease_ms=60_000)
    assert stage.leds[1].timeline.leased_count == 1


def test_payloads_that_were_brought_back_are_let_go_when_the_consumer_has_the_message() -> None:
    """They would take the room of what is to be pushed, until the lease ends."""
    stage, keys = pushed(count=3)
    leases = stage.dispatcher._lanes[1].leases
    held = [(1, key, 2) for key in keys]
    stage.leds[1].cached = False
    stage.attach(100, attach=2, lease_ms=60_000)  # its list went out before the push came
    stage.tick(100)
    assert leases.staged_bytes
    stage.attach(101, attach=3, lease_ms=60_000, held=held)
    assert not leases.staged_bytes
    stage.read_payloads(102)
    assert not any(leases.bodies)
    assert not leases.staged_bytes


def test_payloads_brought_back_for_a_consumer_that_is_gone_take_no_room() -> None:
    """It may never come again, and its lease may last for long."""
    stage, keys = pushed()
    stage.leds[1].answering = False
    stage.attach(20, attach=2)
    stage.run(20)
    leases = stage.dispatcher._lanes[1].leases
    assert leases.staged_bytes == 4
    stage.dispatcher.route_lost(Route(ALICE), ConsumerReply("t", ALICE, 2, 1), at(30))
    stage.leds[1].answering = True
    assert stage.run(40) == []
    assert leases.staged_bytes == 0
    stage.attach(50, attach=3)
    (push,) = stage.run(50)
    assert keys_in(push) == keys


def test_more_lost_leases_than_are_staged_at_a_time_all_come_again() -> None:
    """A broken connection loses thousands at once."""
    count = AGAIN_ROWS + 10
    stage, keys = pushed(credit=count, count=count)
    stage.attach(2_000, attach=2, credit=count, lease_ms=60_000)
    again = [key for ms in (2_000, 2_001) for push in stage.run(ms) for key in keys_in(push)]
    assert sorted(again) == keys


@pytest.mark.parametrize("size", [60_000, 1 << 16])
def test_what_was_lost_finds_room_beside_a_backlog_whose_sizes_fill_it_to_the_byte(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOOK_AHEAD_BYTES_MAX", 8 << 16)
    stage, most = Stage(), 1 << 30
    lost = stage.insert([10], size=size)
    stage.attach(0, credit=200, credit_bytes=most, lease_ms=60_000)
    stage.run(0)
    assert [keys_in(push) for push in stage.run(10)] == [lost]
    stage.insert([20] * 32, ms=15, size=size)
    stage.tick(21)
    stage.commit(21)
    stage.attach(22, attach=2, number=2, credit=200, credit_bytes=most, lease_ms=60_000)
    for ms in range(22, 1_000, 20):
        begun = len(stage.sent)
        stage.tick(ms)
        pushes = [message for _, message, _ in stage.sent[begun:] if isinstance(message, Push)]
        if any(lost[0] in keys_in(push) for push in pushes):
            return
        stage.commit(ms)
        for push in pushes:  # acked at once, and as much comes in
            stage.ack(push, ms)
            stage.insert([20] * len(push.uid), ms=ms, size=size)
    pytest.fail("it was not pushed again")
