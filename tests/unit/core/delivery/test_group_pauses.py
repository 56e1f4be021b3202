"""A paused group: as in a paused topic, nothing leaves that was leased before, but for triggered messages."""

from __future__ import annotations

import pytest

from dueq.core.delivery.leases import NEVER_US
from dueq.core.ports.events import Route
from dueq_codecs.records import Record, RecordKind, RequestRef
from tests.unit.core.delivery.test_triggered import trigger
from tests.unit.core.led import ALICE, BOB, Stage, at, keys_in, kinds


def pause(stage: Stage, ms: float, name: str = "acme", paused: bool = True, commits: bool = True) -> None:
    led = stage.leds[1]
    record = Record(RecordKind.GROUP, 1, 0, 0, 0)
    record.name, record.document = name, f'{{"paused":{str(paused).lower()}}}'
    record.requests = (RequestRef(b"p" * 16, led.sequence + 1, led.sequence + 1, 1),)
    led.append(record, at(ms))
    if commits:
        stage.commit(ms)


@pytest.mark.parametrize("name", ["acme", "acme.reports"])
def test_what_waits_for_its_payload_goes_back_uncounted(name: str) -> None:
    """The pause may be of a level above."""
    stage = Stage(kind="fair")
    stage.leds[1].cached = False
    stage.attach(0, lease_ms=60_000)
    [key] = stage.insert([10], group=name)
    [other] = stage.insert([10], group="other")
    stage.tick(10)
    stage.commit(11)
    pause(stage, 15)
    stage.read_payloads(500)
    assert [keys_in(push) for push in stage.run(500)] == [[other]]
    assert kinds(stage)[-1] == RecordKind.RELEASE
    pause(stage, 600, paused=False)
    stage.run(600)
    stage.read_payloads(610)
    assert [(keys_in(push), push.attempt.tolist()) for push in stage.run(620)] == [([key], [1])]


@pytest.mark.parametrize("first", ["lease", "pause"])
def test_what_was_proposed_before_the_pause_is_granted_and_goes_back(first: str) -> None:
    """In the log the lease may come after the pause, which is not applied yet."""
    stage = Stage(kind="fair")
    stage.attach(0)
    stage.insert([30], group="acme")
    if first == "pause":
        pause(stage, 5, commits=False)
    stage.tick(5)
    if first == "lease":
        pause(stage, 6, commits=False)
    assert stage.run(40) == []
    assert kinds(stage)[-1] == RecordKind.RELEASE


def test_a_push_that_was_lost_is_not_repeated_before_the_pause_ends() -> None:
    stage = Stage(kind="fair")
    stage.attach(0, lease_ms=60_000)
    [key] = stage.insert([10], group="acme")
    assert stage.run(10)
    pause(stage, 15)
    stage.attach(100, attach=2, lease_ms=60_000)
    assert stage.run(110) == []
    pause(stage, 200, paused=False)
    assert [keys_in(push) for push in stage.run(210)] == [[key]]


def lost(stage: Stage, count: int, size: int) -> list[int]:
    """Messages of a group were pushed; it is paused, and their consumer attaches again without them."""
    stage.attach(0, credit=1_000, credit_bytes=64 << 20, lease_ms=600_000)
    stage.attach(0, BOB, credit=0)
    keys = stage.insert([10] * count, group="acme", size=size)
    for ms in (10, 11, 12):
        stage.run(ms)
    pause(stage, 15)
    stage.attach(100, attach=2, credit=1_000, credit_bytes=64 << 20, lease_ms=600_000)
    stage.run(101)
    return keys


def test_what_waits_for_the_end_of_a_pause_takes_no_room_from_other_groups() -> None:
    """Its payloads would fill what there is for all, for as long as the leases last."""
    stage = Stage(kind="fair")
    keys = lost(stage, 40, 900 << 10)
    assert stage.leds[1].timeline.leased_count == 40
    stage.beat(105, BOB, number=2, credit=100)
    other = stage.insert([110], ms=105, group="other")
    assert [keys_in(push) for push in stage.run(110)] == [other]
    pause(stage, 200, paused=False)
    assert sorted(key for ms in (200, 210, 220) for push in stage.run(ms) for key in keys_in(push)) == keys


def test_what_waits_for_the_end_of_a_pause_costs_no_turn_anything() -> None:
    stage = Stage(kind="fair")
    lost(stage, 3, 4)
    [lane] = stage.dispatcher._lanes.values()
    assert (lane.has_late, lane.leases.staged_bytes) == (False, 0)


def test_what_its_consumer_has_after_all_does_not_come_again_when_the_pause_ends() -> None:
    stage = Stage(kind="fair")
    keys = lost(stage, 2, 4)
    token = stage.leds[1].timeline.leased()["token"][0]
    stage.attach(150, attach=3, credit=1_000, lease_ms=600_000, held=[(1, keys[0], int(token))])
    stage.run(151)
    pause(stage, 200, paused=False)
    assert [keys_in(push) for push in stage.run(210)] == [keys[1:]]


def test_what_rests_goes_to_a_newer_process_of_the_name_under_a_new_token() -> None:
    """The older one may be at work on it still: it must not settle what the newer one has."""
    stage = Stage(kind="fair")
    stage.leds[1].append(Record(RecordKind.BARRIER, 1, 0, 0, 0, version=2), at(0))
    stage.commit(0)
    stage.attach(0, life=1, lease_ms=60_000)
    stage.insert([10], group="acme")
    [push] = stage.run(10)
    pause(stage, 15)
    stage.attach(50, life=1, attach=2, number=2, lease_ms=60_000)
    stage.run(60)
    stage.dispatcher.route_lost(Route(ALICE), None, at(70))  # type: ignore[arg-type]
    stage.attach(100, life=2, attach=5, route=Route(b"new"), lease_ms=60_000)
    stage.run(110)
    pause(stage, 120, name="other")
    pause(stage, 200, paused=False)
    [again] = [found for ms in (210, 300) for found in stage.run(ms)]
    assert again.token.tolist() > push.token.tolist()
    assert again.attempt.tolist() == [2]


def test_a_group_that_is_closed_makes_no_other_late() -> None:
    stage = Stage(kind="fair")
    pause(stage, 0)
    stage.insert([5], group="acme")
    stage.insert([1_050], group="other")
    stage.attach(0)
    stage.run(10)
    stage.run(200)
    deadline_us = stage.dispatcher.next_deadline_us(at(990))
    assert deadline_us is not None
    assert deadline_us <= at(1_050).mono_us


def test_nothing_waits_where_all_of_a_group_below_a_paused_one_is_gone() -> None:
    stage = Stage(kind="fair")
    keys = stage.insert([5] * 600, group="acme.x")
    stage.run(10)
    pause(stage, 15)
    stage.attach(20, credit=1)
    stage.run(20)
    stage.leds[1].change(RecordKind.CANCEL, keys, at(30))
    stage.commit(30)
    stage.run(31)
    stage.attach(40, BOB, credit=0)
    assert stage.dispatcher.waiting(at(40)) == 0


def test_nothing_is_renewed_where_the_leadership_has_ended_in_a_pause() -> None:
    stage = Stage(partitions=2, kind="fair")
    for led in stage.leds.values():
        led.append(Record(RecordKind.BARRIER, led.uid, 0, 0, 0, version=2), at(0))
    stage.commit(0)
    stage.attach(0, life=1, lease_ms=60_000)
    stage.insert([10], group="acme")
    stage.run(10)
    pause(stage, 15)
    stage.dispatcher.route_lost(Route(ALICE), None, at(20))  # type: ignore[arg-type]
    stage.attach(100, life=2, attach=5, route=Route(b"new"), lease_ms=60_000)
    stage.run(110)
    stage.dispatcher.unlead(1, at(120))
    stage.tick(200)
    assert stage.dispatcher._renewals.next_us == NEVER_US


def test_a_newer_process_of_the_name_gets_nothing_before_the_pause_ends() -> None:
    stage = Stage(kind="fair")
    stage.leds[1].append(Record(RecordKind.BARRIER, 1, 0, 0, 0, version=2), at(0))
    stage.commit(0)
    stage.attach(0, life=1, lease_ms=60_000)
    keys = stage.insert([10], group="acme") + stage.insert([10], group="other")
    stage.run(10)
    pause(stage, 15)
    stage.dispatcher.route_lost(Route(ALICE), None, at(20))  # type: ignore[arg-type]
    stage.run(20)
    stage.attach(100, life=2, attach=5, route=Route(b"new"), lease_ms=60_000)
    assert [keys_in(push) for push in stage.run(110)] == [keys[1:]]
    assert RecordKind.RELEASE not in kinds(stage)
    pause(stage, 200, paused=False)
    assert [keys_in(push) for push in stage.run(300)] == [keys[:1]]


def test_no_pause_of_its_group_holds_a_triggered_message() -> None:
    stage = Stage(kind="fair")
    stage.leds[1].cached = False
    stage.attach(0, lease_ms=60_000)
    [key] = stage.insert([3_600_000], group="acme")
    trigger(stage, 5, [key])
    stage.tick(10)
    stage.commit(11)
    pause(stage, 15)
    stage.read_payloads(20)
    assert [keys_in(push) for push in stage.run(20)] == [[key]]


def test_what_an_older_build_has_set_for_no_group_holds_nothing() -> None:
    stage = Stage(kind="fair")
    pause(stage, 0, name="")
    keys = [key for name in ("", "acme", "acme.reports") for key in stage.insert([5], group=name)]
    stage.attach(2, credit=100)
    assert sorted(key for push in stage.run(10) for key in keys_in(push)) == keys
