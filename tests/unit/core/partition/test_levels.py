"""A leader raises its partition's level when every assigned replica has announced it, and once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dueq.core.partition.levels import Levels
from dueq.instant import Now
from dueq_codecs.records import Record, RecordKind

NOW = Now(1_000_000, 2_000_000)


class Led:
    """A partition of three replicas that this broker leads, at level 1."""

    def __init__(self) -> None:
        self.uid, self.replicas = 7, ("b1", "b2", "b3")
        self.replica = SimpleNamespace(serving=True)
        self.timeline = SimpleNamespace(level=1)
        self.proposed: list[Record] = []
        self.takes = True

    def propose(self, record: Record, now: Now) -> int:
        if self.takes:
            self.proposed.append(record)
        return int(self.takes)


@pytest.fixture
def led() -> Led:
    return Led()


def levels_of(led: Led, own: int, **others: int) -> Levels:
    settings = SimpleNamespace(broker_id="b1", feature_level=own)
    ctx: Any = SimpleNamespace(settings=settings, levels=others, log=lambda *args, **fields: None)
    partition: Any = led
    return Levels(ctx, partition)


def test_the_smallest_level_of_all_replicas_counts(led: Led) -> None:
    levels = levels_of(led, 4, b2=3, b3=2, b9=1)
    assert levels.tick(NOW)
    [record] = led.proposed
    assert (record.kind, record.version, record.rows) == (RecordKind.BARRIER, 2, 0)


@pytest.mark.parametrize("others", [{"b2": 2}, {"b2": 2, "b3": 1}, {}])
def test_one_that_is_older_or_has_never_been_heard_of_holds_it(led: Led, others: dict[str, int]) -> None:
    assert not levels_of(led, 2, **others).tick(NOW)
    assert led.proposed == []


def test_it_is_asked_for_once_until_it_is_applied(led: Led) -> None:
    levels = levels_of(led, 2, b2=2, b3=2)
    assert levels.tick(NOW)
    assert levels.tick(NOW), "it is under way"
    assert len(led.proposed) == 1
    led.timeline.level = 2
    assert not levels.tick(NOW)
    assert len(led.proposed) == 1


def test_what_the_log_does_not_take_now_is_tried_again(led: Led) -> None:
    levels = levels_of(led, 2, b2=2, b3=2)
    led.takes = False
    assert levels.tick(NOW)
    led.takes = True
    assert levels.tick(NOW)
    assert len(led.proposed) == 1


def test_the_next_leadership_sees_for_itself(led: Led) -> None:
    levels = levels_of(led, 2, b2=2, b3=2)
    levels.tick(NOW)
    led.replica.serving = False
    levels.leadership_lost()
    assert not levels.tick(NOW), "who does not serve raises nothing"
    led.replica.serving = True
    assert levels.tick(NOW)
    assert len(led.proposed) == 2


def test_it_does_not_fall(led: Led) -> None:
    led.timeline.level = 3
    assert not levels_of(led, 4, b2=2, b3=2).tick(NOW)
    assert led.proposed == []
