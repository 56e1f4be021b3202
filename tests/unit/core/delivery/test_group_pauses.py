"""A paused group: as in a paused topic, nothing leaves that was leased before, but for triggered messages."""

from __future__ import annotations

import pytest

from dueq.core.ports.entry import keys_of
from dueq.core.ports.events import Route
from dueq_codecs.records import LEVEL_OF_KINDS, Record, RecordKind, RequestRef
from tests.unit.core.delivery.test_pulls import NAME, pull
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


def test_a_push_that_had_left_before_the_pause_is_repeated_if_it_was_lost() -> None:
    """Its consumer may have it, and its lease goes on. To wait for the end of the pause would cost it its credit."""
    stage = Stage(kind="fair")
    stage.attach(0, credit=1, lease_ms=60_000)
    [key] = stage.insert([10], group="acme")
    [push] = stage.run(10)
    pause(stage, 15)
    stage.attach(100, attach=2, credit=2, lease_ms=60_000)
    [other] = stage.insert([100], ms=100, group="other")
    pushes = [found for ms in (110, 120) for found in stage.run(ms)]
    assert sorted(key for found in pushes for key in keys_in(found)) == [key, other]
    assert push.token.tolist()[0] in [token for found in pushes for token in found.token.tolist()]


def renewing(name: str = "acme") -> Stage:
    """A consumer with a name has messages of two groups, of which one is paused."""
    stage = Stage(kind="fair")
    stage.leds[1].append(Record(RecordKind.BARRIER, 1, 0, 0, 0, version=2), at(0))
    stage.commit(0)
    stage.attach(0, life=1, lease_ms=60_000)
    stage.insert([10], group="acme")
    stage.insert([10], group="other")
    stage.run(10)
    pause(stage, 15, name)
    return stage


@pytest.mark.parametrize("where", ["before", "meanwhile"])
def test_a_newer_process_of_the_name_gets_what_a_pause_held_when_that_ends(where: str) -> None:
    """Until then it waits in its group: it takes no credit from messages of others."""
    stage = renewing()
    keys = keys_of(stage.leds[1].timeline.leased()).tolist()
    [token, _] = stage.leds[1].timeline.leased()["token"].tolist()
    if where == "meanwhile":
        pause(stage, 16, paused=False)
    stage.dispatcher.route_lost(Route(ALICE), None, at(20))  # type: ignore[arg-type]
    stage.run(20)
    if where == "meanwhile":
        pause(stage, 30, "acme", commits=False)
    stage.attach(100, life=2, attach=5, credit=2, route=Route(b"new"), lease_ms=60_000)
    if where == "meanwhile":
        stage.commit(100)
    assert [keys_in(push) for push in stage.run(110)] == [keys[1:]]
    [more] = stage.insert([120], ms=110, group="other")
    assert [keys_in(push) for push in stage.run(120)] == [[more]]
    pause(stage, 200, paused=False)
    stage.beat(205, life=2, attach=5, number=3, credit=3, route=Route(b"new"), lease_ms=60_000)
    [again] = [found for ms in (210, 300) for found in stage.run(ms)]
    assert keys_in(again) == keys[:1]
    assert again.token.tolist() > [token]


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


def test_a_pull_takes_over_nothing_of_a_paused_group() -> None:
    """That stays leased to the older process, and takes no room from messages of other groups."""
    stage = Stage(kind="fair")
    stage.leds[1].timeline.level = LEVEL_OF_KINDS
    [key] = stage.insert([10], group="acme")
    pull(stage, 20, holder=NAME, life=7, credit=1)
    assert stage.run(20)
    pause(stage, 25)
    [other] = stage.insert([30], ms=30, group="other")
    pull(stage, 40, b"q" * 16, holder=NAME, life=8, credit=1)
    assert [keys_in(push) for push in stage.run(40)] == [[other]]
    pause(stage, 50, paused=False)
    pull(stage, 60, b"q" * 8 + b"2" * 8, holder=NAME, life=8, credit=2)
    assert [(keys_in(push), push.attempt.tolist()) for push in stage.run(60)] == [([key, other], [2, 1])]
