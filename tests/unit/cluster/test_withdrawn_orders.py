"""Orders of topics that were answered because time ran out: what they have begun is cleared all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, NoAuthError

from dueq.cluster.requests import Ended, Procedure
from dueq.cluster.zookeeper import ZooKeeperCoordinator
from dueq.core.ports.membership import CoordinatorEvent, CoordinatorState, CreateTopic, Member, TopicOrderDone
from dueq_codecs.topic_settings import TopicSettings

ORDER = CreateTopic(1, "t", "a" * 32, "timeline", (("b1",),), (Member("b1", "s1"),), 1, 1, TopicSettings())


class Runs:
    """The procedures that were begun; the test ends them."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, Ended]] = []

    def run(self, procedure: Procedure, ended: Ended) -> None:
        self.begun.append((procedure.__name__, ended))
        procedure.close()

    def connection_lost(self) -> None:
        pass


class Desk:
    """A coordinator that believes in its connection, without threads."""

    def __init__(self) -> None:
        self.coordinator = coordinator = ZooKeeperCoordinator("127.0.0.1:1")
        self.runs = Runs()
        self.events: list[CoordinatorEvent] = []
        coordinator._client = None
        coordinator._deliver = self.events.append
        coordinator._requests = self.runs  # type: ignore[assignment]
        coordinator._mirror = type(
            "Mirror", (), {"connection_lost": lambda self: None, "refresh": lambda self: None}
        )()  # type: ignore[assignment]
        coordinator._state = CoordinatorState.CONNECTED

    def answers(self) -> list[str]:
        return [event.error for event in self.events if isinstance(event, TopicOrderDone)]

    def end(self, value: Any, error: Exception | None = None) -> None:
        """End the procedure that was begun last."""
        self.runs.begun[-1][1](value, error)

    def late(self) -> None:
        self.coordinator._topic_order_late(ORDER)

    def connect(self) -> None:
        self.coordinator._lose(CoordinatorState.SUSPENDED)
        self.coordinator._registered(None, None)


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.coordinator._on_order(ORDER)
    return desk


def made_nodes(desk: Desk) -> None:
    desk.coordinator._topic_orders[1].partitions.unnamed = (5, 6)


def test_an_order_that_has_made_nothing_is_over_when_its_time_is(desk: Desk) -> None:
    desk.end(None, ConnectionLoss())
    desk.late()
    desk.connect()
    assert desk.answers() == ["unknown"]
    assert len(desk.runs.begun) == 1


@pytest.mark.parametrize("lose_first", [True, False])
def test_what_an_order_has_made_is_cleared_at_the_next_connection(desk: Desk, lose_first: bool) -> None:
    made_nodes(desk)
    steps: list[Callable[[], None]] = [lambda: desk.end(None, ConnectionLoss()), desk.late]
    for step in steps if lose_first else reversed(steps):
        step()
    assert desk.answers() == ["unknown"]
    desk.connect()
    assert [name for name, _ in desk.runs.begun] == ["_create", "clear"]
    desk.end(None)
    assert desk.answers() == ["unknown"]
    desk.connect()
    assert len(desk.runs.begun) == 2


def test_what_zookeeper_says_is_told(desk: Desk) -> None:
    """Somebody has taken away the right to read a node, or the node."""
    desk.end(None, NoAuthError())
    desk.late()
    [done] = [event for event in desk.events if isinstance(event, TopicOrderDone)]
    assert "; it says NoAuthError(); " in done.text


def test_an_attempt_that_ends_after_its_time_is_not_answered_twice(desk: Desk) -> None:
    desk.late()
    desk.end(TopicOrderDone(1, ""))
    assert desk.answers() == ["unknown"]
    assert not desk.coordinator._topic_orders
