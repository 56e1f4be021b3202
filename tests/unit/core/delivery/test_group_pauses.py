"""A paused group: as in a paused topic, nothing leaves that was leased before, but for triggered messages."""

from __future__ import annotations

import pytest

from dueq.core.ports.events import Route
from dueq_codecs.records import Record, RecordKind, RequestRef
from tests.unit.core.delivery.test_triggered import trigger
from tests.unit.core.led import ALICE, Stage, at, keys_in, kinds


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
