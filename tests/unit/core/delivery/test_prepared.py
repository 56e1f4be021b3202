"""A push that was laid out leaves at its instant only if nothing has happened to its leases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dueq.core.ports.events import Route
from dueq.instant import Now
from dueq_codecs.messages import Code, ConsumerReply
from dueq_codecs.records import RecordKind
from tests.unit.core.led import ALICE, START_MS, Stage, at, keys_in


class Behind:
    """Mesh time that is 20 ms behind this broker's clock."""

    hold = False

    def mesh_now_us(self, now: Now) -> int:
        return now.wall_us - 20_000


def granted(dues_ms: list[int], **options: Any) -> tuple[Stage, list[int]]:
    """A stage whose messages are leased to one consumer and wait for their instant."""
    stage = Stage()
    keys = stage.insert(dues_ms)
    stage.attach(0, **options)
    assert stage.run(0) == []
    assert stage.dispatcher._lanes[1].prepared.next_ms == START_MS + min(dues_ms)
    return stage, keys


def test_what_comes_with_other_headers_than_it_was_scheduled_with_is_not_laid_out() -> None:
    stage = Stage()
    keys = stage.insert([20, 20])
    headings = stage.leds[1].timeline.headings
    headings.note(stage.leds[1].timeline.rows(np.array(keys[1:], np.uint64)), '{"tries":"1"}')
    stage.attach(0)
    stage.run(0)
    (push,) = stage.run(20)
    assert keys_in(push) == keys
    assert [push.headings[place] for place in push.heading.tolist()] == ["", '{"tries":"1"}']


def test_rows_of_several_records_and_partitions_leave_in_one_frame_in_their_order() -> None:
    stage = Stage(partitions=2)
    early = stage.insert([20, 19], uid=2)
    stage.attach(0)
    stage.run(0)
    late = stage.insert([20], uid=1)
    stage.run(1)
    (push,) = stage.run(20)
    rows = list(zip(push.uid.tolist(), keys_in(push), strict=True))
    assert rows == sorted(
        [(2, early[1]), (1, late[0]), (2, early[0])], key=lambda row: (row[1] != early[1], row[1])
    )
    assert stage.sent[-1][2] or stage.sent[-2][2]


def test_each_row_keeps_its_rank_where_rows_change_their_places() -> None:
    stage = Stage(partitions=2)
    stage.insert([9_000])
    (second,) = stage.insert([20], rank=7)
    (first,) = stage.insert([20], uid=2)
    stage.attach(0)
    stage.run(0)
    (push,) = stage.run(20)
    assert (keys_in(push), push.rank.tolist()) == ([first, second], [0, 7])


@pytest.mark.parametrize("count", [2, 40])
def test_what_a_cancel_withholds_stays(count: int) -> None:
    stage, keys = granted([20] * count, credit=count)
    stage.dispatcher.withhold(1, np.array(keys[:1], np.uint64))
    (push,) = stage.run(20)
    assert keys_in(push) == keys[1:]


@pytest.mark.parametrize("count", [1, 40])
def test_a_place_that_another_lease_has_is_not_taken_for_the_old_one(count: int) -> None:
    stage, keys = granted([20] * count, credit=count)
    token = stage.dispatcher.withhold(1, np.array(keys, np.uint64)).tolist()
    stage.leds[1].change(RecordKind.CANCEL, keys, at(1), token=token)
    stage.commit(1)
    others = stage.insert([20] * count, 1)
    stage.run(1)
    (push,) = stage.run(20)
    assert keys_in(push) == others


@pytest.mark.parametrize("count", [1, 40])
def test_nothing_leaves_before_its_payload_is_here(count: int) -> None:
    stage = Stage()
    stage.leds[1].cached = False
    stage.insert([20] * count)
    stage.attach(0, credit=count)
    stage.run(0)
    assert stage.run(20) == []
    stage.read_payloads(21)
    (push,) = stage.run(21)
    assert [len(bodies[0]) for _, message, bodies in stage.sent if message is push] == [4 * count]


@pytest.mark.parametrize("count", [1, 40])
def test_each_row_leaves_with_its_own_payload(count: int) -> None:
    stage, keys = granted([20] * count, credit=count)
    [push] = stage.run(20)
    [bodies] = [bodies for _, message, bodies in stage.sent if message is push]
    assert keys_in(push) == keys
    assert b"".join(bodies) == b"".join(stage.leds[1].payloads[key] for key in keys)


def test_less_than_half_a_lease_goes_back_instead() -> None:
    stage, keys = granted([20], lease_ms=1_000)
    token = next(record.sequence for record in stage.leds[1].log if record.kind == RecordKind.LEASE)
    pushes = stage.run(700)
    assert [keys_in(push) for push in pushes] == [keys]
    assert pushes[0].token[0] > token


@pytest.mark.parametrize("count", [1, 40])
def test_a_lease_that_is_half_over_does_not_leave_though_it_cannot_be_returned_just_now(count: int) -> None:
    for ms, leaves in ((519.999, count), (520, 0)):
        stage, _ = granted([20] * count, credit=count, lease_ms=1_000)
        stage.leds[1].full = True
        assert sum(len(push.row) for push in stage.run(ms)) == leaves


def test_the_instant_is_that_of_mesh_time() -> None:
    stage = Stage()
    keys = stage.insert([30, 50])
    stage.clock = Behind()  # type: ignore[assignment]
    stage.attach(0)
    stage.run(20)
    assert [keys_in(push) for push in stage.run(50)] == [keys[:1]]
    assert [keys_in(push) for push in stage.run(70)] == [keys[1:]]


def test_a_lease_that_is_granted_when_its_consumer_is_lost_goes_back() -> None:
    stage = Stage()
    stage.insert([20])
    stage.attach(0)
    stage.tick(0)
    unsent = ConsumerReply("t", ALICE, 1, 0, Code.OK)
    stage.dispatcher.route_lost(Route(ALICE), unsent, at(1))
    stage.run(1)
    assert stage.run(20) == []
    assert stage.leds[1].log[-1].kind == RecordKind.RELEASE


def test_a_consumer_that_attaches_again_gets_it_under_its_new_attach() -> None:
    stage, keys = granted([20])
    stage.attach(10, attach=2)
    (push,) = stage.run(20)
    assert (push.attach, push.number, keys_in(push)) == (2, 1, keys)


def test_a_lease_that_was_extended_meanwhile_says_its_new_length() -> None:
    stage, keys = granted([20, 20])
    lane = stage.dispatcher._lanes[1]
    token = [int(lane.leases.token[lane.leases.slot_of[keys[0]]])]
    columns = np.array(keys[:1], np.uint64), np.array(token, np.uint64), np.array([20_000], np.uint64)
    stage.dispatcher.extending(1, *columns, at(1))
    stage.leds[1].change(RecordKind.EXTEND, keys[:1], at(1), token=token, amount_ms=[20_000])
    stage.commit(1)
    (push,) = stage.run(20)
    assert push.lease_left_ms.tolist() == [20_000, 10_000]


def test_a_leadership_that_ends_takes_what_it_had_laid_out_with_it() -> None:
    stage, keys = granted([20])
    stage.dispatcher.unlead(1, at(10))
    stage.leds[1].epoch = 2
    stage.dispatcher.lead(stage.leds[1], at(10))
    assert stage.run(20) == []
    stage.attach(60, attach=2)
    (push,) = stage.run(60)
    assert (push.epoch, keys_in(push)) == (2, keys)


def test_nothing_leaves_while_the_clock_is_on_hold_or_nobody_confirms() -> None:
    stage, keys = granted([20])
    stage.tick(20, paused=True)
    stage.leds[1].answering = False
    assert stage.run(21) == []
    stage.leds[1].answering = True
    assert [keys_in(push) for push in stage.run(22)] == [keys]
