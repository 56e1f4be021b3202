"""Leaderships that a broker gives up since something of it has gone wrong."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dueq import limits
from dueq.core.front.stepping_aside import SteppingAside
from dueq.core.ports.membership import CoordinatorState
from dueq.core.turn.context import Context
from dueq.core.turn.settings import CoreSettings
from dueq.instant import Now

NOW = Now(1_700_000_000_000_000, 1_000_000)


def later(seconds: int) -> Now:
    return Now(NOW.wall_us + seconds * 1_000_000, NOW.mono_us + seconds * 1_000_000)


class Broker:
    """A broker that leads two partitions, and its clock."""

    def __init__(self) -> None:
        self.ctx = Context(CoreSettings("b1", 1, "s1", "cluster", "tcp://b1"))
        self.ctx.coordinator = CoordinatorState.CONNECTED
        self.clock_off = False
        self.handed_over: list[tuple[int, str]] = []
        self.partitions: dict[int, Any] = {uid: self._partition(uid) for uid in (1, 2)}
        clock: Any = SimpleNamespace(excess=lambda now: self.clock_off, alarm=lambda now: "the clock is off")
        self.aside = SteppingAside(self.ctx, clock, self.partitions)

    def _partition(self, uid: int) -> SimpleNamespace:
        hand_over = lambda now, why: self.handed_over.append((uid, why))  # noqa: E731
        return SimpleNamespace(uid=uid, replica=SimpleNamespace(hand_over=hand_over))


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_nothing_is_handed_over_while_all_is_well(broker: Broker) -> None:
    broker.aside.tick(NOW)
    assert broker.handed_over == []


def test_an_almost_full_disk_hands_everything_over_and_again_only_after_a_while(broker: Broker) -> None:
    broker.aside.pressed(True, NOW)
    assert broker.handed_over == [(1, "the disk is almost full"), (2, "the disk is almost full")]
    broker.aside.tick(NOW)
    assert len(broker.handed_over) == 2
    broker.aside.tick(later(3600))
    assert len(broker.handed_over) == 4
    broker.aside.pressed(False, later(7200))
    assert len(broker.handed_over) == 4


def test_a_clock_that_is_off_hands_everything_over(broker: Broker) -> None:
    broker.clock_off = True
    broker.aside.tick(NOW)
    assert broker.handed_over == [(1, "the clock is off"), (2, "the clock is off")]


def test_nothing_is_handed_over_while_nobody_could_be_elected(broker: Broker) -> None:
    broker.ctx.coordinator = CoordinatorState.SUSPENDED
    broker.clock_off = True
    broker.aside.pressed(True, NOW)
    broker.aside.payload_unreadable(broker.partitions[1], NOW)
    assert broker.handed_over == []


def test_what_nobody_could_take_is_handed_over_once_somebody_can(broker: Broker) -> None:
    """The ten minutes without another hand-over begin with a hand-over."""
    broker.ctx.coordinator = CoordinatorState.SUSPENDED
    broker.aside.payload_unreadable(broker.partitions[1], NOW)
    broker.ctx.coordinator = CoordinatorState.CONNECTED
    broker.aside.payload_unreadable(broker.partitions[1], later(1))
    assert broker.handed_over == [(1, "a payload cannot be read")]


def test_a_payload_that_cannot_be_read_hands_its_partition_over_once_in_ten_minutes(broker: Broker) -> None:
    for seconds in (0, 1, 599, 600):
        broker.aside.payload_unreadable(broker.partitions[1], later(seconds))
    assert broker.handed_over == [(1, "a payload cannot be read")] * 2
    broker.aside.forget(1)
    broker.aside.payload_unreadable(broker.partitions[1], later(601))
    assert len(broker.handed_over) == 3


def test_where_a_payload_cannot_be_read_a_full_disk_hands_over_only_a_minute_later(broker: Broker) -> None:
    """Each hand-over stops deliveries for a moment."""
    broker.aside.payload_unreadable(broker.partitions[1], NOW)
    broker.aside.pressed(True, later(limits.HANDOVER_MS // 1000 - 1))
    assert broker.handed_over == [(1, "a payload cannot be read")]
    broker.aside.tick(later(limits.HANDOVER_MS // 1000))
    assert broker.handed_over[1:] == [(1, "the disk is almost full"), (2, "the disk is almost full")]
