"""How many payload bytes a client has on their way at once, and what waits for room."""

from __future__ import annotations

import pytest

from dueq import limits
from dueq.client import calls
from dueq.client.core.ports import events
from dueq.client.core.ports.effects import Completed
from dueq_codecs.messages import ChangeRequest
from dueq_codecs.records import RecordKind
from tests.unit.client.stage import CONSUMER, TOPIC, Stage, attached, delivered, of, ok, sent

ROW = bytes(1_000)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    """One broker with two partitions, and room for the payloads of two requests; connected, topic known."""
    monkeypatch.setattr(limits, "CLIENT_OUT_BYTES_MAX", 1_500)
    stage = Stage(uids={1: "a", 2: "a"})
    attached(stage)
    return stage


def insert_at(stage: Stage, call: int, partition: int) -> list[ChangeRequest]:
    """Schedule one row in one partition; returns the requests that go out for it."""
    event = calls.schedule_many(TOPIC, [ROW], 10**12, lambda: 0, partition=partition)
    return sent(stage.step(event.build(call, stage.at_us(stage.ms + 30_000))), ChangeRequest)


def test_an_answer_of_one_partition_makes_room_for_what_waits_at_another(stage: Stage) -> None:
    """Nothing is open there whose answer would have it looked at."""
    [first], [second] = insert_at(stage, 1, 0), insert_at(stage, 2, 0)
    assert not insert_at(stage, 3, 1)
    [request] = sent(stage.receive("a", ok(first, 90)), ChangeRequest)
    assert (first.uid, second.uid, request.uid) == (1, 1, 2)


def test_what_waits_for_room_goes_as_answers_come(stage: Stage) -> None:
    waiting = [request for call in range(8) for request in sent(stage.insert(call, ROW), ChangeRequest)]
    assert len(waiting) == 2
    done = []
    while waiting:
        effects = stage.receive("a", ok(waiting.pop(0), 90))
        done += [each.call for each in of(effects, Completed)]
        waiting += sent(effects, ChangeRequest)
        assert len(waiting) <= 2
    assert sorted(done) == list(range(8))


def test_a_decision_waits_for_no_room(stage: Stage) -> None:
    """Its lease may end before inserts are answered."""
    [delivery] = delivered(stage, "a", b"x")
    for call in range(8):
        stage.insert(call, ROW)
    effects = stage.step(events.Settle(CONSUMER, RecordKind.ACK, [delivery], 0, 50, stage.at_us(5_000)))
    [request] = sent(effects + stage.run_until(stage.ms + 10), ChangeRequest)
    assert request.kind is RecordKind.ACK
