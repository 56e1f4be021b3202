"""Dispatch: look-ahead, credit, pushes at their instant, and what may never be pushed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dueq import limits
from dueq.core.delivery.due_queue import DueQueue
from dueq.core.ports.events import Route
from dueq_codecs.messages import ConsumerReply, PushChunk
from dueq_codecs.records import FILTERED, Outcome, RecordKind
from tests.unit.core.led import ALICE, BOB, MONO_US, START_MS, Stage, at, keys_in, kinds, pushed

# ------------------------------------------------------------------ from due to pushed


def test_a_message_is_leased_ahead_and_pushed_at_its_instant() -> None:
    stage = Stage()
    (key,) = stage.insert([100])
    stage.attach(0)
    assert stage.run(69) == []
    assert kinds(stage) == []
    assert stage.dispatcher.next_deadline_us(at(69)) == MONO_US + 70_000
    assert stage.run(70) == []
    assert kinds(stage) == [RecordKind.LEASE]
    assert stage.dispatcher.next_deadline_us(at(70)) == MONO_US + 100_000
    assert stage.run(99.999) == []
    (push,) = stage.run(100)
    assert keys_in(push) == [key]
    assert push.released_at_us == (START_MS + 100) * 1000
    assert push.token.tolist() == [2]
    assert push.attempt.tolist() == [1]
    assert push.lease_left_ms.tolist() == [10_000]
    assert (push.number, push.epoch, push.leader, push.consumer_id) == (1, 1, "b1", ALICE)
    route, _, bodies = stage.sent[-1]
    assert route == Route(ALICE)
    assert bodies == [stage.leds[1].payloads[key]]
    assert stage.metrics.messages["push", "t"] == stage.metrics.messages["lease", "t"] == 1
    assert stage.metrics.lateness_of("t").total_us == 0


def test_a_lease_that_this_leader_has_not_proposed_is_not_pushed() -> None:
    """Nobody has dealt it credit, or read its payload."""
    stage = Stage()
    (key,) = stage.insert([10])
    stage.attach(0)
    record = stage.leds[1].change(
        RecordKind.LEASE, [key], at(0), consumer=[0], lease_ms=[10_000],
    )  # fmt: skip
    record.consumers, record.requests = (ALICE,), ()
    stage.commit(0)
    assert stage.run(10) == []
    assert stage.dispatcher.sessions(at(10))[0].leases == 0


def test_nothing_is_pushed_before_the_lease_is_committed() -> None:
    stage = Stage()
    stage.insert([10])
    stage.attach(0)
    stage.tick(5)
    stage.tick(11)
    assert not [m for _, m, _ in stage.sent if not isinstance(m, ConsumerReply)]
    stage.commit(12)
    assert stage.dispatcher.next_deadline_us(at(12)) == MONO_US + 12_000
    (push,) = stage.run(12)
    assert push.released_at_us == (START_MS + 12) * 1000


def test_rows_of_several_partitions_share_a_push_in_order_of_their_instants() -> None:
    stage = Stage(partitions=2)
    first = stage.insert([12, 10, 10], uid=1)
    second = stage.insert([11, 9], uid=2)
    stage.attach(0)
    stage.run(0)
    (push,) = stage.run(20)
    pairs = list(zip(push.uid.tolist(), keys_in(push), strict=True))
    assert pairs == [(2, second[1]), (1, first[1]), (1, first[2]), (2, second[0]), (1, first[0])]
    _, _, bodies = stage.sent[-1]
    assert bodies == [b"".join(stage.leds[uid].payloads[key] for uid, key in pairs)]


def test_where_a_record_is_made_anyway_what_is_due_soon_after_the_look_ahead_is_leased_along() -> None:
    stage = Stage()
    stage.insert([100, 150])
    stage.attach(0)
    stage.tick(0)
    stage.tick(10, recording=True)
    assert kinds(stage) == []
    stage.tick(30)
    assert kinds(stage) == []
    stage.tick(30, recording=True)
    assert [record.rows for record in stage.leds[1].open] == [2]


def test_what_is_due_soon_after_the_look_ahead_is_leased_with_what_is_near() -> None:
    """A steady stream would cost a record, and its sync, for each message."""
    stage = Stage()
    stage.insert([100, 150])
    stage.attach(0)
    stage.tick(70)
    assert [record.rows for record in stage.leds[1].open] == [2]


def test_each_of_two_consumers_gets_its_own_messages_with_ranks_when_payloads_come_late() -> None:
    stage = Stage()
    stage.leds[1].cached = False
    keys = stage.insert([10] * 4, rank=7)
    stage.attach(0, ALICE, credit=2)
    stage.attach(0, BOB, credit=2)
    assert [*stage.run(0), *stage.run(10)] == []
    stage.read_payloads(11)
    pushes = stage.run(11)
    assert {push.consumer_id: keys_in(push) for push in pushes} == {ALICE: keys[:2], BOB: keys[2:]}


def test_a_long_push_is_cut_by_bytes() -> None:
    stage = Stage()
    stage.insert([10] * 30, size=100_000)
    stage.attach(0, credit=100, credit_bytes=1 << 30)
    pushes = [*stage.run(0), *stage.run(10)]
    assert [len(push.uid) for push in pushes] == [20, 10]
    assert [push.number for push in pushes] == [1, 2]
    assert [len(b"".join(bodies)) for _, m, bodies in stage.sent if m in pushes] == [2_000_000, 1_000_000]


def test_one_turn_leases_a_whole_record_of_each_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RECORD_ROWS_MAX", 3)
    stage = Stage(partitions=4)
    for uid in stage.leds:
        stage.insert([10] * 3, uid=uid)
    stage.attach(0, credit=100)
    stage.tick(0)
    assert [led.open[-1].rows for led in stage.leds.values()] == [3] * 4


def test_a_spike_is_leased_in_records_of_bounded_size_without_waiting() -> None:
    stage = Stage()
    for _ in range(3):
        stage.insert([10] * 1024)
    stage.attach(0, credit=10_000)
    stage.tick(0)
    assert stage.leds[1].open[-1].rows == limits.RECORD_ROWS_MAX
    assert stage.dispatcher.next_deadline_us(at(0)) == at(0).mono_us
    pushes = [*stage.run(0), *stage.run(10)]
    assert sum(len(push.uid) for push in pushes) == 3072
    assert max(len(push.uid) for push in pushes) <= 2048


def test_payloads_that_are_not_in_memory_are_read_before_the_instant() -> None:
    stage = Stage()
    (key,) = stage.insert([100])
    stage.leds[1].cached = False
    stage.attach(0)
    stage.run(70)
    assert len(stage.reads) == 1
    assert stage.run(100) == []
    stage.read_payloads(101)
    (push,) = stage.run(101)
    assert keys_in(push) == [key]
    assert stage.sent[-1][2] == [stage.leds[1].payloads[key]]


def test_chunks_of_a_long_payload_go_ahead_of_its_push() -> None:
    stage = Stage()
    size = 20 * limits.CHUNK_BYTES + 1
    (key,) = stage.insert([100], size=size, upload=77)
    stage.attach(0, credit_bytes=1)
    stage.run(70)
    assert [(r.upload, r.chunk) for r in stage.reads] == [(77, chunk) for chunk in range(8)]
    assert stage.run(100) == []
    stage.read_payloads(101)
    chunks = [m for _, m, _ in stage.sent if isinstance(m, PushChunk)]
    assert [m.chunk for m in chunks] == list(range(21))
    assert {(m.chunks, m.token, m.leader, m.attach) for m in chunks} == {(21, 2, "b1", 1)}
    (push,) = stage.run(101)
    assert keys_in(push) == [key]
    assert stage.sent[-1][2] == [b""]


def test_a_payload_that_cannot_be_read_is_not_pushed_and_tried_again_later() -> None:
    stage = Stage()
    stage.insert([10])
    stage.leds[1].cached = False
    stage.attach(0, lease_ms=1000)
    stage.run(0)
    stage.leds[1].payloads = dict.fromkeys(stage.leds[1].payloads)
    stage.read_payloads(5)
    assert stage.run(10) == []
    assert stage.metrics.errors["payload_unreadable"] == 1
    stage.run(520)
    assert kinds(stage) == [RecordKind.LEASE, RecordKind.RELEASE, RecordKind.LEASE]


# ------------------------------------------------------------------ what holds a push back


def test_no_push_while_an_isr_member_has_not_answered() -> None:
    stage = Stage()
    stage.insert([10])
    stage.attach(0)
    stage.run(0)
    stage.leds[1].answering = False
    assert stage.run(10) == []
    deadline_us = stage.dispatcher.next_deadline_us(at(10))
    assert deadline_us is not None
    assert deadline_us > at(10).mono_us
    assert stage.leds[1].asked, "the members are asked, or nothing would ever confirm"
    stage.leds[1].answering = True
    assert len(stage.run(15)) == 1


def test_no_lease_and_no_push_while_paused() -> None:
    stage = Stage()
    stage.insert([10, 200])
    stage.attach(0)
    stage.run(0)
    stage.tick(10, paused=True)
    stage.tick(90, paused=True)
    assert kinds(stage) == [RecordKind.LEASE]
    assert stage.dispatcher.counts(1, at(90)).unpushed == 1
    assert [len(push.uid) for push in stage.run(91)] == [1]


def test_less_than_half_of_the_lease_left_releases_it_uncounted_and_leases_again() -> None:
    stage = Stage()
    (key,) = stage.insert([10])
    stage.attach(0, lease_ms=1000)
    stage.run(0)
    stage.leds[1].answering = False
    assert stage.run(509) == []
    assert kinds(stage) == [RecordKind.LEASE]
    stage.run(511)
    assert kinds(stage) == [RecordKind.LEASE, RecordKind.RELEASE]
    stage.leds[1].answering = True
    (push,) = stage.run(520)
    assert keys_in(push) == [key]
    assert push.attempt.tolist() == [1]
    assert push.lease_left_ms.tolist() == [1000]


def test_a_paused_process_does_not_push_what_others_may_have_changed_meanwhile() -> None:
    """Protocol case B13: timers move by the gap, and the push waits for the ISR."""
    stage = Stage()
    stage.insert([10])
    stage.attach(0, lease_ms=2000)
    stage.run(5)
    stage.leds[1].answering = False
    stage.dispatcher.shift(6_000_000, at(6005))
    assert stage.run(6005) == []
    assert kinds(stage) == [RecordKind.LEASE]
    assert stage.dispatcher.sessions(at(6005))[0].heard_ms_ago == 5
    stage.leds[1].answering = True
    assert len(stage.run(6006)) == 1


def test_a_cancel_before_the_push_withholds_it() -> None:
    stage = Stage()
    key, other = stage.insert([100, 100])
    stage.attach(0)
    stage.run(70)
    tokens = stage.dispatcher.withhold(1, np.array([key, 12345], np.uint64))
    assert tokens.tolist() == [2, 0]
    stage.leds[1].change(RecordKind.CANCEL, [key], at(90), token=[2])
    stage.tick(100)
    stage.tick(150)
    (applied,) = stage.commit(151)
    assert applied.results[0].outcomes.tolist() == [Outcome.DONE]
    pushed = [keys_in(m) for _, m, _ in stage.sent if not isinstance(m, ConsumerReply)]
    assert pushed == [[other]]
    assert stage.dispatcher.sessions(at(151))[0].leases == 1
    assert stage.dispatcher.withhold(1, np.array([other], np.uint64)).tolist() == [0]


def test_a_cancel_before_the_lease_is_committed_withholds_it_too() -> None:
    stage = Stage()
    (key,) = stage.insert([100])
    stage.attach(0)
    stage.tick(70)
    assert stage.dispatcher.withhold(1, np.array([key], np.uint64)).tolist() == [2]
    stage.leds[1].change(RecordKind.CANCEL, [key], at(71), token=[2])
    assert stage.run(200) == []
    assert stage.dispatcher.counts(1, at(200)) == (0, 0, 0)


def test_a_move_that_overtakes_the_lease_waits_for_its_new_instant() -> None:
    stage = Stage()
    (key,) = stage.insert([100])
    stage.attach(0)
    stage.leds[1].change(RecordKind.MOVE, [key], at(60), due=[START_MS + 5000])
    stage.run(70)
    assert kinds(stage)[:3] == [RecordKind.MOVE, RecordKind.LEASE, RecordKind.RELEASE]
    assert stage.run(4999) == []
    (push,) = stage.run(5000)
    assert (keys_in(push), push.attempt.tolist()) == ([key], [1])


def test_a_repeated_move_withholds_nothing_once_it_was_applied_without_effect() -> None:
    """Its first copy came before the lease; a message that nobody may push waited for half of the lease."""
    stage = Stage()
    (key,) = stage.insert([100])
    stage.attach(0)
    led = stage.leds[1]
    led.change(RecordKind.MOVE, [key], at(60), due=[START_MS + 120])
    moved = led.open[-1]
    stage.tick(70)
    tokens = stage.dispatcher.withhold(1, np.array([key], np.uint64))
    assert tokens.tolist() == [3]
    led.append(replace(moved, token=tokens), at(71))
    stage.commit(72)
    (push,) = stage.run(121)
    assert (keys_in(push), push.attempt.tolist()) == ([key], [1])


def test_a_cancel_ends_a_lease_that_a_move_without_effect_withholds() -> None:
    """Nothing was pushed, so the answer must not be that a consumer has the message."""
    stage = Stage()
    (key,) = stage.insert([100])
    stage.attach(0)
    led, named = stage.leds[1], np.array([key], np.uint64)
    led.change(RecordKind.MOVE, [key], at(60), due=[START_MS + 120])
    moved = led.open[-1]
    stage.tick(70)
    led.append(replace(moved, token=stage.dispatcher.withhold(1, named)), at(71))
    led.change(RecordKind.CANCEL, [key], at(72), token=stage.dispatcher.withhold(1, named).tolist())
    applied = stage.commit(73)
    assert applied[-1].results[0].outcomes.tolist() == [Outcome.DONE]
    assert stage.run(200) == []


def test_a_cancel_that_overtakes_the_lease_gives_its_credit_back() -> None:
    stage = Stage()
    (key,) = stage.insert([100])
    stage.attach(0, credit=1)
    stage.leds[1].change(RecordKind.CANCEL, [key], at(60))
    stage.tick(70)
    stage.commit(71)
    assert stage.dispatcher.sessions(at(71))[0].leases == 0
    assert stage.run(100) == []


# ------------------------------------------------------------------ credit


def test_credit_is_a_limit_over_all_partitions() -> None:
    stage = Stage(partitions=3)
    for uid in (1, 2, 3):
        stage.insert([10, 10], uid=uid)
    stage.attach(0, credit=4)
    stage.run(0)
    (push,) = stage.run(10)
    assert len(push.uid) == 4
    assert set(push.uid.tolist()) == {1, 2, 3}
    assert stage.run(11) == []
    stage.ack(push, 12)
    (rest,) = stage.run(12)
    assert len(rest.uid) == 2


def test_credit_one_serves_the_partition_that_has_waited_longest() -> None:
    stage = Stage(partitions=3)
    for uid, due in ((1, 30), (2, 10), (3, 20)):
        stage.insert([due, due + 1], uid=uid)
    stage.attach(100, credit=1)
    order = []
    for turn in range(6):
        (push,) = stage.run(100 + turn)
        order += push.due.tolist()
        stage.ack(push, 100 + turn)
    assert order == [START_MS + due for due in (10, 11, 20, 21, 30, 31)]


def test_a_partition_has_no_more_leases_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PARTITION_LEASES_MAX", 3)
    stage = Stage()
    stage.insert([10] * 5)
    stage.attach(0)
    stage.run(0)
    (push,) = stage.run(10)
    assert len(push.uid) == 3
    stage.ack(push, 11)
    assert [len(push.uid) for push in stage.run(11)] == [2]


def test_look_ahead_takes_no_credit_that_a_ready_message_wants() -> None:
    """Protocol case S15."""
    stage = Stage(partitions=2)
    stage.insert([120], uid=1)
    (ready,) = stage.insert([50], uid=2)
    stage.attach(100, credit=1)
    (push,) = stage.run(100)
    assert keys_in(push) == [ready]
    assert kinds(stage, 1) == []


def test_no_credit_is_larger_than_what_a_consumer_may_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """It could not list what it holds when it attaches again."""
    monkeypatch.setattr(limits, "CONSUMER_LEASES_MAX", 3)
    stage = Stage()
    stage.insert([10] * 5)
    stage.attach(0, credit=1_000_000)
    stage.run(0)
    assert [len(push.uid) for push in stage.run(10)] == [3]


@pytest.mark.parametrize(("asked_ms", "given_ms"), [(0, limits.LEASE_MS_MIN), (1 << 40, limits.LEASE_MS_MAX)])
def test_a_lease_has_a_length_that_the_mesh_allows_whatever_its_consumer_asks_for(
    asked_ms: int, given_ms: int
) -> None:
    stage = Stage()
    stage.insert([10])
    stage.attach(0, lease_ms=asked_ms)
    stage.run(0)
    (push,) = stage.run(10)
    assert push.lease_left_ms.tolist() == [given_ms]


def test_messages_are_dealt_in_turn_to_all_who_have_credit() -> None:
    stage = Stage()
    stage.insert([10] * 10)
    stage.attach(0, ALICE, credit=3)
    stage.attach(0, BOB, credit=100)
    stage.run(0)
    pushes = {push.consumer_id: push.row.tolist() for push in stage.run(10)}
    assert pushes == {ALICE: [0, 1, 2], BOB: [3, 4, 5, 6, 7, 8, 9]}


def test_bytes_of_credit_bind_but_a_single_message_always_fits() -> None:
    stage = Stage()
    stage.insert([10, 11, 12], size=100)
    stage.attach(0, credit=10, credit_bytes=250)
    stage.run(0)
    assert [len(push.uid) for push in stage.run(20)] == [2]
    assert stage.dispatcher.sessions(at(20))[0].leased_bytes == 200
    lone = Stage()
    lone.insert([10, 10], size=1000)
    lone.attach(0, credit=10, credit_bytes=5)
    lone.run(0)
    (push,) = lone.run(10)
    assert len(push.uid) == 1
    lone.ack(push, 11)
    assert len(lone.run(11)) == 1


def test_a_large_message_is_not_starved_by_small_ones() -> None:
    stage = Stage()
    stage.insert([10] * 4, size=100)
    stage.attach(0, credit=10, credit_bytes=500)
    stage.run(0)
    (small,) = stage.run(10)
    (large,) = stage.insert([11], ms=11, size=450)
    stage.insert([12], ms=12, size=50)
    assert stage.run(13) == []
    stage.ack(small, 14)
    pushes = stage.run(14)
    assert keys_in(pushes[0])[0] == large


def test_restated_credit_counts_only_with_a_higher_number() -> None:
    stage = Stage()
    stage.insert([10] * 5)
    stage.attach(0, credit=1, number=5)
    stage.beat(1, credit=5, number=4)
    stage.run(1)
    (push,) = stage.run(10)
    assert len(push.uid) == 1
    reply = stage.beat(11, credit=3, number=6)
    assert reply is not None
    assert (reply.number, reply.push_sent) == (6, 1)
    assert [len(push.uid) for push in stage.run(11)] == [2]


def test_a_refused_proposal_gives_credit_and_messages_back() -> None:
    stage = Stage()
    (key,) = stage.insert([10])
    stage.attach(0, credit=1)
    stage.leds[1].full = True
    stage.run(0)
    assert stage.dispatcher.sessions(at(0))[0].leases == 0
    assert stage.dispatcher.next_deadline_us(at(0)) == at(5).mono_us
    stage.leds[1].full = False
    stage.run(5)
    assert [keys_in(push) for push in stage.run(10)] == [[key]]


# ------------------------------------------------------------------ leases that end


def test_a_granted_lease_whose_message_expires_before_it_may_leave_ends_at_once() -> None:
    """Nobody has it: it must not take credit for half of its length."""
    stage = Stage()
    stage.insert([20], expires_ms=50)
    stage.attach(0, lease_ms=60_000)
    stage.run(0)
    stage.leds[1].answering = False
    assert stage.run(20) == []
    stage.leds[1].answering = True
    assert stage.run(60) == []
    assert stage.run(80) == []
    assert kinds(stage) == [RecordKind.LEASE, RecordKind.RELEASE, RecordKind.LAPSE]
    assert stage.leds[1].timeline.live_count == 0


def test_a_lease_that_runs_out_is_expired_and_counted() -> None:
    stage = Stage()
    (key,) = stage.insert([10])
    stage.attach(0, lease_ms=1000)
    stage.run(0)
    stage.run(10)
    stage.beat(1009, number=2, lease_ms=1000, push_seen=1)
    stage.run(1009)
    assert stage.dispatcher.next_deadline_us(at(1009)) == at(1010).mono_us
    assert kinds(stage) == [RecordKind.LEASE]
    stage.tick(1010)
    others = stage.insert([1010, 1010], 1010)
    (push,) = stage.run(1010)
    assert kinds(stage) == [RecordKind.LEASE, RecordKind.EXPIRE, RecordKind.LEASE]
    assert (keys_in(push), push.attempt.tolist()) == ([key, *others], [2, 1, 1])
    assert stage.metrics.messages["expire", "t"] == stage.metrics.redelivered["t"] == 1
    assert stage.metrics.messages["push", "t"] == 4


def test_the_end_of_a_lease_that_the_log_has_no_room_for_is_proposed_again_soon() -> None:
    """Else the lease would be held to be ending, and its message would never come again."""
    stage, keys = pushed(lease_ms=1_000)
    stage.beat(1_005, number=2, lease_ms=1_000, push_seen=1)
    stage.leds[1].full = True
    assert stage.run(1_010) == []
    assert stage.dispatcher.next_deadline_us(at(1_010)) == at(1_015).mono_us
    stage.leds[1].full = False
    (push,) = stage.run(1_015)
    assert (keys_in(push), push.attempt.tolist()) == (keys, [2])


def test_an_extended_lease_ends_later() -> None:
    stage = Stage()
    (key,) = stage.insert([10])
    stage.attach(0, lease_ms=1000)
    stage.run(0)
    stage.run(10)
    keys, token = np.array([key], np.uint64), np.array([2], np.uint64)
    stage.dispatcher.extending(1, keys, token, np.array([5000], np.uint64), at(1009))
    stage.leds[1].change(RecordKind.EXTEND, [key], at(1009), token=[2], amount_ms=[5000])
    stage.tick(1500)
    assert kinds(stage)[-1] == RecordKind.EXTEND
    stage.commit(1501)
    stage.run(6400)
    assert kinds(stage)[-1] == RecordKind.EXTEND
    stage.run(6501)
    assert RecordKind.EXPIRE in kinds(stage)


def test_an_extend_may_make_a_lease_shorter_also_after_one_that_was_refused() -> None:
    """Only what another one on its way asks for is kept meanwhile."""
    stage, keys = pushed(lease_ms=60_000)
    named = np.array(keys, np.uint64)
    for ms, token, amount_ms in ((500, 1, 600_000), (600, 2, 1_000)):
        columns = np.array([token], np.uint64), np.array([amount_ms], np.uint64)
        stage.dispatcher.extending(1, named, *columns, at(ms))
        stage.leds[1].change(RecordKind.EXTEND, keys, at(ms), token=[token], amount_ms=[amount_ms])
        stage.commit(ms)
    stage.run(1_599)
    assert RecordKind.EXPIRE not in kinds(stage)
    stage.run(1_600)
    assert RecordKind.EXPIRE in kinds(stage)


def test_an_extend_that_is_applied_takes_nothing_from_the_next_one_on_its_way() -> None:
    """Its shorter end would have an EXPIRE proposed before the longer one is applied."""
    stage = Stage()
    (key,) = stage.insert([10])
    stage.attach(0, lease_ms=1000)
    stage.run(0)
    stage.run(10)
    keys, token = np.array([key], np.uint64), np.array([2], np.uint64)
    stage.dispatcher.extending(1, keys, token, np.array([1000], np.uint64), at(500))
    stage.leds[1].change(RecordKind.EXTEND, [key], at(500), token=[2], amount_ms=[1000])
    stage.dispatcher.extending(1, keys, token, np.array([5000], np.uint64), at(600))
    stage.commit(601)
    stage.tick(1700)
    assert kinds(stage)[-1] == RecordKind.EXTEND


def test_an_extend_of_an_earlier_lease_prolongs_nothing_of_the_present_one() -> None:
    """Its holder was slow; the message is leased anew, and that lease must run out in time."""
    stage, keys = pushed(lease_ms=1_000)
    stage.beat(1_009, number=2, lease_ms=1_000, push_seen=1)
    (push,) = stage.run(1_010)
    named, earlier = np.array(keys, np.uint64), np.array([2], np.uint64)
    assert push.token[0] != earlier[0]
    stage.dispatcher.extending(1, named, earlier, np.array([600_000], np.uint64), at(1_020))
    stage.leds[1].change(RecordKind.EXTEND, keys, at(1_020), token=earlier, amount_ms=[600_000])
    stage.commit(1_021)
    stage.beat(2_009, number=3, lease_ms=1_000, push_seen=2)
    (push,) = stage.run(2_010)
    assert (keys_in(push), push.attempt.tolist()) == (keys, [3])


def test_a_nack_waits_again_and_frees_credit() -> None:
    stage = Stage()
    (key,) = stage.insert([10])
    stage.attach(0, credit=1)
    stage.run(0)
    stage.run(10)
    stage.leds[1].change(RecordKind.NACK, [key], at(20), token=[2], amount_ms=[500])
    stage.commit(20)
    assert stage.run(519) == []
    (push,) = stage.run(520)
    assert push.attempt.tolist() == [2]


def test_unlead_forgets_everything_of_the_partition() -> None:
    stage = Stage(partitions=2)
    stage.insert([10], uid=1)
    stage.insert([10], uid=2)
    stage.attach(0, credit=1)
    stage.run(0)
    stage.dispatcher.unlead(1, at(5))
    assert len(stage.run(10)) == 1
    assert stage.dispatcher.counts(1, at(10)) == (0, 0, 0)
    assert stage.dispatcher.leads
    stage.dispatcher.unlead(2, at(11))
    assert stage.dispatcher.sessions(at(11))[0].leases == 0
    assert not stage.dispatcher.leads


def test_the_queue_counts_and_forgets_nothing_on_duplicates() -> None:
    stage = Stage()
    led = stage.leds[1]
    stage.insert([10, 20, 30])
    queue = DueQueue(led.timeline.rows)
    queue.add(led.timeline.waiting_hot())
    queue.add(led.timeline.waiting_hot())
    assert queue.count_until(START_MS + 10, 10) == 2
    nobody: dict[int, int] = {}
    assert queue.pop(START_MS + 25, 10, nobody.keys())["due"].tolist() == [START_MS + 10, START_MS + 20]
    assert queue.head_ms == START_MS + 30


@pytest.mark.parametrize("rows", [1, 40])
def test_what_has_less_than_half_of_its_lease_left_is_not_pushed_though_no_timer_has_ended_it_yet(
    rows: int,
) -> None:
    """Timers are looked at every 20 ms at most. In between a payload may come that a push has waited for."""
    stage = Stage()
    stage.insert([100] * rows)
    stage.attach(0, credit=100, lease_ms=10_000)
    stage.run(70)
    lane = stage.dispatcher._lanes[1]
    lane.leases.act_us[: lane.leases.high] = at(99).mono_us
    lane.act_us = at(110).mono_us
    assert stage.run(100) == []
    assert kinds(stage) == [RecordKind.LEASE]


def test_payloads_of_several_partitions_share_the_room_for_what_is_looked_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "LOOK_AHEAD_BYTES_MAX", 1_000)
    stage = Stage(partitions=3)
    for uid in stage.leds:
        stage.insert([100] * 2, uid=uid, size=400)
    stage.attach(0, credit=100)
    stage.tick(70)
    assert sum(record.rows for led in stage.leds.values() for record in led.open) == 2
    pushes = [*stage.run(100), *stage.run(101)]
    assert sum(len(push.uid) for push in pushes) == 6, "the others follow once there is room"


def test_messages_that_were_done_unsent_are_counted() -> None:
    stage, keys = pushed(count=3)
    record = stage.leds[1].change(RecordKind.ACK, keys, at(20), token=[2, 2, 2])
    record.reasons, record.reason = ("", FILTERED), np.array([0, 1, 1], np.uint16)
    stage.commit(20)
    assert stage.metrics.messages["filter", "t"] == 2


def test_partitions_whose_first_messages_were_cancelled_keep_little_credit_from_no_other() -> None:
    stage = Stage(partitions=9)
    stage.attach(0, credit=1)
    for uid in range(1, 9):
        (gone,) = stage.insert([1_000], ms=0, uid=uid)
        stage.leds[uid].change(RecordKind.CANCEL, [gone], at(1))
        stage.commit(1)
    (key,) = stage.insert([1_000], ms=2, uid=9)
    assert [keys_in(push) for push in stage.run(1_000)] == [[key]]
