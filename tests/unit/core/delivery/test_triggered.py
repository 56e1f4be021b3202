"""Triggered messages: no pause and no rate holds them, only the credit of consumers."""

from __future__ import annotations

import numpy as np
import pytest

from dueq import limits
from dueq.core.partition.fullness import UnderWay, fullness
from dueq.core.state.timeline import Timeline
from dueq_codecs.messages import ChangeRequest, ConsumerAction
from dueq_codecs.records import JobAction, Record, RecordKind, RequestRef
from dueq_codecs.topic_settings import AS_CREATED, TopicSettings
from tests.unit.core.delivery.test_pausing import configure, paused, resumed
from tests.unit.core.led import ALICE, START_MS, Led, Stage, at, keys_in, kinds

FAR_MS = 3_600_000


def trigger(stage: Stage, ms: float, keys: list[int], uid: int = 1) -> None:
    record = Record(RecordKind.TRIGGER, uid, 0, 0, 0, version=2)
    named = np.array(keys, np.uint64)
    record.target_sequence = named >> np.uint64(16)
    record.target_row = (named & np.uint64(0xFFFF)).astype(np.uint16)
    record.first = np.ascontiguousarray(stage.leds[uid].timeline.rows(named)["first"])
    record.token = stage.dispatcher.withhold(uid, named)
    stage.leds[uid].append(record, at(ms))
    stage.commit(ms)


def limited(rate: int) -> TopicSettings:
    return AS_CREATED.changed({"rate": rate, "burst": rate}, "a" * 32)


def timeline_of(stage: Stage) -> Timeline:
    return stage.leds[1].timeline


def test_a_pause_holds_all_but_the_triggered_message() -> None:
    stage = Stage()
    stage.attach(0)
    configure(stage, 0, paused())
    keys = stage.insert([10, FAR_MS, 20], 1)
    assert stage.run(50) == []
    trigger(stage, 60, keys[1:2])
    [push] = stage.run(61)
    assert keys_in(push) == keys[1:2]
    assert timeline_of(stage).triggered == {}
    assert stage.run(500) == []


def test_it_is_leased_once_however_long_its_lease_waits_for_its_commit() -> None:
    """A second lease would be refused, and the credit that it takes given to nobody meanwhile."""
    stage = Stage()
    stage.attach(0)
    [key] = stage.insert([FAR_MS], 1)
    trigger(stage, 60, [key])
    for ms in (61, 62, 200):
        stage.tick(ms)
    assert kinds(stage).count(RecordKind.LEASE) == 1
    assert [keys_in(push) for push in stage.run(201)] == [[key]]


def test_a_paused_leader_gives_it_to_whoever_has_credit_next() -> None:
    stage = Stage()
    stage.attach(0, credit=0)
    configure(stage, 0, paused())
    keys = stage.insert([10, FAR_MS], 1)
    trigger(stage, 60, keys[1:])
    assert stage.run(61) == []
    assert stage.dispatcher.has_waiting(at(61))
    stage.attach(70, credit=1, attach=2, number=2)
    [push] = stage.run(71)
    assert keys_in(push) == keys[1:]


def test_a_rate_holds_all_but_the_triggered_message_which_costs_no_token() -> None:
    stage = Stage()
    stage.attach(0)
    configure(stage, 0, limited(1))
    keys = stage.insert([1, 1, 1, FAR_MS], 1)
    assert [keys_in(push) for push in stage.run(5)] == [keys[:1]]
    trigger(stage, 10, keys[3:])
    assert [keys_in(push) for push in stage.run(11)] == [keys[3:]]
    assert [keys_in(push) for push in stage.run(1_005)] == [keys[1:2]]


def test_it_goes_once_and_waits_like_any_other_after_it_was_given_back() -> None:
    stage = Stage()
    stage.attach(0)
    configure(stage, 0, paused())
    [key] = stage.insert([FAR_MS], 1)
    trigger(stage, 60, [key])
    [push] = stage.run(61)
    stage.leds[1].change(RecordKind.NACK, [key], at(70), token=push.token.tolist(), amount_ms=[0])
    stage.commit(70)
    assert timeline_of(stage).triggered == {}
    assert stage.run(500) == []


def test_what_was_triggered_and_not_pushed_outlives_a_pause_and_a_release() -> None:
    stage = Stage()
    stage.leds[1].cached = False  # its payload is on its way
    stage.attach(0)
    [key] = stage.insert([FAR_MS], 1)
    trigger(stage, 60, [key])
    stage.run(61)
    assert kinds(stage)[-1] == RecordKind.LEASE
    configure(stage, 62, paused())
    stage.run(63)
    assert kinds(stage)[-1] == RecordKind.SETTINGS
    [entry] = timeline_of(stage).leased()
    stage.leds[1].change(RecordKind.RELEASE, [key], at(64), token=[int(entry["token"])])
    stage.commit(64)
    assert list(timeline_of(stage).triggered) == [key]
    stage.leds[1].cached = True
    [push] = stage.run(65)
    assert (keys_in(push), push.attempt.tolist()) == ([key], [1])


def test_a_move_takes_it_back() -> None:
    stage = Stage()
    stage.attach(0, credit=0)
    configure(stage, 0, paused())
    [key] = stage.insert([FAR_MS], 1)
    trigger(stage, 60, [key])
    stage.leds[1].change(RecordKind.MOVE, [key], at(61), due=[at(62).wall_ms])
    stage.commit(61)
    assert timeline_of(stage).triggered == {}
    stage.attach(70, credit=5, attach=2, number=2)
    assert stage.run(500) == []


@pytest.mark.parametrize("uids", [(1,), (1, 2)], ids=["one partition", "two"])
def test_a_large_one_has_a_claim_before_smaller_ones_that_have_waited_for_longer(
    uids: tuple[int, ...],
) -> None:
    stage = Stage(partitions=len(uids))
    stage.attach(0, credit_bytes=1_000, lease_ms=FAR_MS)
    [large] = stage.insert([FAR_MS], size=900)
    for uid in uids:
        stage.insert([1] * 30, uid=uid, size=100)
    held = [(uid, key) for push in stage.run(5) for uid, key in zip(push.uid, keys_in(push), strict=True)]
    trigger(stage, 10, [large])
    for ms in range(20, 110, 10):
        uid, key = int(held[0][0]), held.pop(0)[1]
        token = stage.leds[uid].timeline.rows(np.array([key], np.uint64))["token"].tolist()
        stage.leds[uid].change(RecordKind.ACK, [key], at(ms), token=token)
        stage.commit(ms)
        came = [key for push in stage.run(ms) for key in keys_in(push)]
        assert came in ([], [large])
    assert came == [large]


LOST, LOST_BYTES = 180, 200_000


def attach_all(stage: Stage, ms: float, attach: int) -> None:
    """Attach with credit for all, and hold nothing of what was pushed before."""
    stage.attach(
        ms, ALICE, attach=attach, number=attach, credit=LOST + 1, credit_bytes=64 << 20, lease_ms=FAR_MS
    )


def with_lost_pushes() -> Stage:
    """Pushes are lost in a pause: their payloads are brought into memory again, and wait."""
    assert LOST * LOST_BYTES > limits.LOOK_AHEAD_BYTES_MAX
    stage = Stage()
    attach_all(stage, 0, 1)
    stage.insert([10] * LOST, size=LOST_BYTES)
    pushed = [key for ms in range(0, 1_000, 5) for push in stage.run(ms) for key in keys_in(push)]
    assert len(pushed) == LOST
    configure(stage, 1_000, paused())
    attach_all(stage, 1_001, 2)
    assert stage.run(1_100) == []
    return stage


def test_lost_pushes_that_a_pause_holds_back_leave_it_room() -> None:
    stage = with_lost_pushes()
    [key] = stage.insert([FAR_MS], 1_101)
    trigger(stage, 1_102, [key])
    assert [keys_in(push) for push in stage.run(1_103)] == [[key]]


def test_pushes_that_are_lost_twice_in_a_pause_do_not_keep_the_room_that_they_need() -> None:
    """The second attach found the payloads of the first at hand, counted, and never freed."""
    stage = with_lost_pushes()
    [key] = stage.insert([FAR_MS], 1_101)
    trigger(stage, 1_102, [key])
    assert [keys_in(push) for push in stage.run(1_103)] == [[key]]
    attach_all(stage, 1_200, 3)
    assert [keys_in(push) for ms in range(1_200, 1_300, 5) for push in stage.run(ms)] == [[key]]
    configure(stage, 1_300, resumed())
    again = [key for ms in range(1_301, 3_000, 5) for push in stage.run(ms) for key in keys_in(push)]
    assert len(again) == LOST


def test_one_that_had_expired_and_was_redriven_is_delivered_in_a_pause() -> None:
    """The leader has ended it once, and must not believe for ever that its end is on its way."""
    stage = Stage()
    dying = AS_CREATED.changed({"expired": "dead"}, "a" * 32)
    configure(stage, 0, dying)
    keys = stage.insert([10], expires_ms=20)
    stage.attach(0, credit=0)
    assert stage.run(30) == []
    assert timeline_of(stage).dead_count == 1
    configure(stage, 35, dying.changed({"paused": True}, "b" * 32))
    stage.leds[1].change(RecordKind.REDRIVE, keys, at(40), due=[START_MS + FAR_MS]).version = 2
    stage.commit(40)
    trigger(stage, 50, keys)
    stage.attach(60, attach=2)
    [push] = stage.run(61)
    assert keys_in(push) == keys


def test_one_whose_push_is_lost_in_a_pause_goes_again_beside_lost_ones_that_the_pause_holds() -> None:
    """They fill the room in memory for as long as the pause lasts."""
    stage = with_lost_pushes()
    [key] = stage.insert([FAR_MS], 1_101)
    trigger(stage, 1_102, [key])
    assert [keys_in(push) for push in stage.run(1_103)] == [[key]]
    found = []
    for ms in range(2_200, 6_000, 600):  # it never comes, and each beat says so
        stage.beat(
            ms, attach=2, number=ms, credit=LOST + 1, credit_bytes=64 << 20, lease_ms=FAR_MS, push_seen=0
        )
        for later in (0, 5, 100, 300):
            found += [key for push in stage.run(ms + later) for key in keys_in(push)]
    assert found[:1] == [key]


def test_one_of_another_partition_goes_again_beside_them_too() -> None:
    stage = Stage(2)
    attach_all(stage, 0, 1)
    stage.insert([10] * LOST, size=LOST_BYTES, uid=1)
    assert len([key for ms in range(0, 1_000, 5) for push in stage.run(ms) for key in keys_in(push)]) == LOST
    for led in stage.leds.values():
        settings = Record(RecordKind.SETTINGS, led.uid, 0, 0, 0, version=2, document=paused().encode())
        led.append(settings, at(1_000))
    stage.commit(1_000)
    [key] = stage.insert([FAR_MS], 1_001, uid=2)
    trigger(stage, 1_002, [key], uid=2)
    assert [keys_in(push) for push in stage.run(1_003)] == [[key]]
    attach_all(stage, 1_100, 2)  # all pushes were lost
    found = [key for ms in range(1_100, 5_000, 100) for push in stage.run(ms) for key in keys_in(push)]
    assert found == [key]


def test_it_stays_in_memory_while_its_job_is_hidden_and_left_out_of_the_window() -> None:
    """The pause holds the others, so nothing would read it again once the job is committed."""
    stage, until_ms, ahead = Stage(), START_MS + 5_000, 20
    timeline = Timeline(1, hot_rows_max=ahead, place=(1, 2))
    stage.leds = {1: Led(1, timeline=timeline)}
    stage.dispatcher.lead(stage.leds[1], at(0))
    job = next(key for at in range(9) if not timeline.jobs.is_home(key := bytes([at]) * 16))
    stage.attach(0, credit=100)
    configure(stage, 0, paused())
    stage.insert([10] * 3 * ahead, 1)
    stage.leds[1].append(hidden(stage, 15, job, until_ms), at(2))
    stage.commit(2)
    key = stage.leds[1].sequence << 16
    stage.leds[1].payloads[key] = b"text"
    trigger(stage, 3, [key])
    save = timeline.checkpoint()
    assert save is not None
    timeline.checkpoint_saved(save.applied)
    record = Record(RecordKind.JOB, 1, 0, 0, 0)
    record.job, record.job_until, record.job_action = job, until_ms, JobAction.COMMIT
    stage.leds[1].append(record, at(5_600))
    stage.commit(5_600)
    stage.beat(5_601, number=2, credit=100)
    assert [keys_in(push) for push in stage.run(5_601)] == [[key]]


def hidden(stage: Stage, count: int, job: bytes, until_ms: int) -> Record:
    """Messages of a job."""
    record = Record(RecordKind.INSERT, 1, 0, 0, 0)
    record.due = np.full(count, START_MS + 20, np.uint64)
    record.size, record.crc = np.full(count, 4, np.uint32), np.zeros(count, np.uint32)
    record.job, record.job_until = job, until_ms
    sequence = stage.leds[1].sequence + 1
    record.requests = (RequestRef(b"p" * 16, sequence, sequence, count),)
    return record


def asks_for_one(stage: Stage, key: int) -> ChangeRequest:
    request = ChangeRequest(1, RecordKind.TRIGGER, "t", 1, ALICE, 1, 1)
    request.target_sequence = np.array([key >> 16], np.uint64)
    request.target_row = np.array([key & 0xFFFF], np.uint16)
    return request


def test_what_is_leased_keeps_its_room_for_when_it_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that says goodbye gives back all that it has at once."""
    monkeypatch.setattr(limits, "TRIGGERED_MAX", 2)
    stage = Stage()
    stage.attach(0, lease_ms=600_000)
    keys = stage.insert([FAR_MS] * 3, 1)
    trigger(stage, 2, keys[:2])
    [push] = stage.run(3)
    timeline, another = timeline_of(stage), asks_for_one(stage, keys[2])
    assert (sorted(keys_in(push)), timeline.triggered, timeline.triggered_leased) == (keys[:2], {}, 2)
    assert fullness(timeline, another, UnderWay()) is not None
    stage.frame(ConsumerAction.GOODBYE, 10, number=9)
    stage.run(20)
    assert (sorted(timeline.triggered), timeline.triggered_leased) == (keys[:2], 0)
    assert fullness(timeline, another, UnderWay()) is not None


def test_what_is_acked_has_no_room_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRIGGERED_MAX", 2)
    stage = Stage()
    stage.attach(0, lease_ms=600_000)
    keys = stage.insert([FAR_MS] * 3, 1)
    trigger(stage, 2, keys[:2])
    [push] = stage.run(3)
    stage.ack(push, 4)
    stage.run(5)
    assert fullness(timeline_of(stage), asks_for_one(stage, keys[2]), UnderWay()) is None
