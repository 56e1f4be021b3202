"""A compare-and-set counts as refused only when it is known to have changed nothing (protocol case B6, R8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kazoo.exceptions
import pytest
from kazoo.exceptions import BadVersionError, KazooException, NoNodeError

from dueq.cluster.requests import NotSent, Requests
from dueq.cluster.zookeeper import ZooKeeperCoordinator
from dueq.core.ports.membership import (
    CompareAndSet,
    CompareAndSetDone,
    CoordinatorState,
    PartitionNode,
    SetOutcome,
)
from dueq_chaos.bugs.bug import change
from dueq_chaos.bugs.patching import Rewrite, rewritten

ERRORS = [
    error
    for error in vars(kazoo.exceptions).values()
    if isinstance(error, type) and issubclass(error, KazooException)
]
"""Everything that kazoo can say of a request."""


class Answer:
    """An IAsyncResult of kazoo's."""

    def __init__(self) -> None:
        self.exception: Exception | None = None
        self.value: Any = None
        self.told: Callable[[Answer], None] = lambda answer: None

    def rawlink(self, told: Callable[[Answer], None]) -> None:
        self.told = told

    def fail(self, error: Exception) -> None:
        self.exception = error
        self.told(self)


class Client:
    """kazoo's client, as far as a set goes."""

    def __init__(self) -> None:
        self.sets: list[tuple[str, bytes, int, Answer]] = []

    def set_async(self, path: str, value: bytes, version: int) -> Answer:
        self.sets.append((path, value, version, Answer()))
        return self.sets[-1][3]


class Desk:
    """A coordinator that believes in its connection, without threads."""

    def __init__(self) -> None:
        self.coordinator = coordinator = ZooKeeperCoordinator("127.0.0.1:1")
        self.done: list[CompareAndSetDone] = []
        self.client = Client()
        coordinator._client = self.client  # type: ignore[assignment]
        coordinator._deliver = lambda event: self.done.append(event) if hasattr(event, "outcome") else None  # type: ignore[func-returns-value]
        coordinator._requests = Requests(lambda call: call())
        coordinator._mirror = type("Mirror", (), {"connection_lost": lambda self: None})()  # type: ignore[assignment]
        coordinator._state = CoordinatorState.CONNECTED

    def set(self, token: int = 1) -> None:
        self.coordinator._on_order(CompareAndSet(token, 7, 3, PartitionNode("b1", 1, 4, ())))

    def lose(self) -> None:
        self.coordinator._lose(CoordinatorState.SUSPENDED)

    @property
    def outcomes(self) -> list[SetOutcome]:
        return [done.outcome for done in self.done]


def outcome_of(error: Exception) -> SetOutcome:
    """The outcome of a set for which kazoo reports this."""
    desk = Desk()
    desk.set()
    desk.client.sets[0][3].fail(error)
    return desk.outcomes[0]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_only_another_version_or_no_node_is_a_refusal(error: type[Exception]) -> None:
    """Every other answer may have been preceded by the set."""
    refused = issubclass(error, BadVersionError | NoNodeError)
    assert outcome_of(error()) is (SetOutcome.BAD_VERSION if refused else SetOutcome.UNKNOWN)


def test_a_set_that_was_handed_over_when_the_connection_was_lost_may_have_been_done() -> None:
    desk = Desk()
    desk.set()
    desk.lose()
    assert desk.outcomes == [SetOutcome.UNKNOWN]
    desk.client.sets[0][3].fail(BadVersionError())
    assert desk.outcomes == [SetOutcome.UNKNOWN], "what kazoo says later is of a repeated request, perhaps"


def test_a_set_that_was_not_handed_over_is_refused() -> None:
    desk = Desk()
    for token in range(1, 101):
        desk.set(token)
    handed_over = len(desk.client.sets)
    desk.lose()
    assert 0 < handed_over < 100
    assert desk.outcomes == [SetOutcome.UNKNOWN] * handed_over + [SetOutcome.REFUSED] * (100 - handed_over)


def test_without_a_connection_a_set_is_refused_and_never_sent() -> None:
    desk = Desk()
    desk.lose()
    desk.set()
    assert desk.outcomes == [SetOutcome.REFUSED]
    assert desk.client.sets == []


def test_a_set_is_handed_over_once() -> None:
    """kazoo's own retry would repeat one whose answer was lost, and report one's own success as a bad version."""
    desk = Desk()
    desk.set()
    desk.lose()
    desk.coordinator._state = CoordinatorState.CONNECTED
    desk.set(2)
    assert len(desk.client.sets) == 2


# ---------------------------------------------------------------- planted bugs that these must find

_ENDED = "cluster.zookeeper:ZooKeeperCoordinator._set_ended"
_LOST = "cluster.requests:Requests.connection_lost"
PLANTED: dict[str, tuple[Callable[[], None], Rewrite]] = {
    "a lost answer is a refusal": (
        test_a_set_that_was_handed_over_when_the_connection_was_lost_may_have_been_done,
        change(_ENDED, "outcome = SetOutcome.UNKNOWN", "outcome = SetOutcome.REFUSED"),
    ),
    "a lost answer is another version": (
        test_a_set_that_was_handed_over_when_the_connection_was_lost_may_have_been_done,
        change(_ENDED, "(BadVersionError, NoNodeError)", "KazooException"),
    ),
    "what was sent counts as not sent": (
        test_a_set_that_was_handed_over_when_the_connection_was_lost_may_have_been_done,
        change(_LOST, "ended(None, ConnectionLoss())", "ended(None, NotSent())"),
    ),
    "late answers count": (
        test_a_set_that_was_handed_over_when_the_connection_was_lost_may_have_been_done,
        change(_LOST, "sent, self._sent = self._sent, {}", "sent = self._sent"),
    ),
    "a set is sent without a connection": (
        test_without_a_connection_a_set_is_refused_and_never_sent,
        change(
            "cluster.zookeeper:ZooKeeperCoordinator._compare_and_set",
            "if self._state is not CoordinatorState.CONNECTED:", "if False:",
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", PLANTED)
def test_a_careless_commit_is_found(bug: str) -> None:
    check, rewrite = PLANTED[bug]
    with rewritten([rewrite]):
        try:
            check()
        except (AssertionError, NameError):
            return
    pytest.fail(f"{check.__name__} does not find it")


def test_not_sent_is_no_error_of_kazoos() -> None:
    assert not issubclass(NotSent, KazooException)
