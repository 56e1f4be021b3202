"""Leaderships go back to the brokers that are preferred for them, some time after the mesh has changed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dueq import limits
from dueq.core.front.balance import Balance
from dueq.core.ports.membership import CoordinatorState
from dueq.core.turn.context import Context
from dueq.core.turn.settings import CoreSettings
from dueq.instant import Now

CALM_MS = limits.BALANCE_CALM_MS


def at(ms: float) -> Now:
    us = round(ms * 1000)
    return Now(1_700_000_000_000_000 + us, us)


class Broker:
    """Broker b2, which leads partitions that b1 should lead, and could at once."""

    def __init__(self, count: int = 1) -> None:
        self.ctx = Context(CoreSettings("b2", 1, "s1", "cluster", "tcp://b2"))
        self.ctx.coordinator = CoordinatorState.CONNECTED
        self.given_up: list[int] = []
        self.within = True
        self.partitions: dict[int, Any] = {uid: self._partition(uid) for uid in range(1, count + 1)}
        clock: Any = SimpleNamespace(within=lambda broker, now: self.within and broker == "b1")
        self.ctx.clock = clock
        self.balance = Balance(self.ctx, self.partitions, at(0))

    def _partition(self, uid: int) -> SimpleNamespace:
        replica = SimpleNamespace(
            busy=False,
            could_pass_to=lambda broker, now: broker == "b1",
            give_up=lambda now, why: self.given_up.append(uid),
        )
        return SimpleNamespace(replicas=("b1", "b2"), replica=replica)

    def run(self, first_ms: int, last_ms: int) -> list[int]:
        """Tick every 10 ms; returns what is given up meanwhile."""
        before = len(self.given_up)
        for ms in range(first_ms, last_ms + 1, 10):
            self.balance.tick(at(ms))
        return self.given_up[before:]


@pytest.fixture
def broker() -> Broker:
    return Broker()


def test_nothing_is_given_up_before_the_mesh_was_calm_for_a_while(broker: Broker) -> None:
    assert broker.run(0, CALM_MS - 10) == []
    broker.balance.disturbed(at(CALM_MS - 10))
    assert broker.run(CALM_MS, 2 * CALM_MS - 20) == []
    assert broker.run(2 * CALM_MS - 10, 2 * CALM_MS) == [1]


def test_what_came_back_is_not_given_up_again_until_the_mesh_changes(broker: Broker) -> None:
    """It is not wanted there. Another broker may want it once one has come or gone."""
    assert broker.run(0, 5 * CALM_MS) == [1]
    broker.balance.disturbed(at(5 * CALM_MS))
    assert broker.run(5 * CALM_MS, 7 * CALM_MS) == [1]


def test_a_few_are_given_up_in_a_second() -> None:
    broker = Broker(count=9)
    assert broker.run(0, CALM_MS + 190) == [1, 2, 3, 4]


def test_one_with_work_under_way_waits_for_a_quiet_moment_but_not_for_long(broker: Broker) -> None:
    broker.partitions[1].replica.busy = True
    assert broker.run(0, CALM_MS + 990) == []
    assert broker.run(CALM_MS + 1000, CALM_MS + 1100) == [1]


def test_nobody_is_preferred_whose_clock_is_off(broker: Broker) -> None:
    broker.within = False
    assert broker.run(0, 3 * CALM_MS) == []


def test_nothing_is_given_up_while_nobody_could_be_elected(broker: Broker) -> None:
    broker.ctx.coordinator = CoordinatorState.SUSPENDED
    assert broker.run(0, 3 * CALM_MS) == []
