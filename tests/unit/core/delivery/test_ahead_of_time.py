"""Priority and fair topics lease nothing ahead: what is not due takes no credit and no slot from what is."""

from __future__ import annotations

import pytest

from dueq_codecs.records import Record, RecordKind
from tests.unit.core.led import Stage, at, keys_in, kinds


def stage_of(kind: str) -> Stage:
    stage = Stage(kind=kind)
    if kind == "fair":
        record = Record(RecordKind.GROUP, 1, 0, 0, 0, name="a", document='{"max_unacked":1}')
        stage.leds[1].append(record, at(0))
        stage.commit(0)
    return stage


@pytest.mark.parametrize("kind", ["priority", "fair"])
def test_what_is_due_within_the_look_ahead_takes_no_credit_and_no_slot(kind: str) -> None:
    stage = stage_of(kind)
    group = "a" if kind == "fair" else ""
    [later] = stage.insert([20], group=group)
    stage.attach(0, credit=1)
    stage.run(0)
    assert RecordKind.LEASE not in kinds(stage), "it is due in 20 ms, and the look-ahead is 30"
    [sooner] = stage.insert([1], 1, group=group)
    [push] = stage.run(2)
    assert keys_in(push) == [sooner]
    assert stage.run(25) == [], "the one credit and the one slot are taken"
    stage.ack(push, 26)
    [push] = stage.run(27)
    assert keys_in(push) == [later]
