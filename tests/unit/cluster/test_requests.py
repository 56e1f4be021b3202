"""Requests under way: bounded, answered once, ended by a lost connection."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, NoNodeError
from kazoo.handlers.threading import SequentialThreadingHandler

from dueq.cluster.requests import NotSent, Requests, one

Outcomes = list[tuple[Any, Any]]


class Wire:
    """Takes requests as kazoo does; a handler that was not started calls back at once."""

    def __init__(self) -> None:
        self.handler = SequentialThreadingHandler()
        self.calls: deque[Callable[[], None]] = deque()
        self.requests = Requests(self.calls.append)
        self.sent: list[tuple[str, Any]] = []

    def send(self, name: str) -> Callable[[], Any]:
        def hand_over() -> Any:
            result = self.handler.async_result()
            self.sent.append((name, result))
            return result

        return hand_over

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.sent]

    def answer(self, index: int, value: Any) -> None:
        result = self.sent[index][1]
        if isinstance(value, Exception):
            result.set_exception(value)
        else:
            result.set(value)
        while self.calls:
            self.calls.popleft()()


@pytest.fixture
def wire() -> Wire:
    return Wire()


def collect(outcomes: Outcomes) -> Callable[[Any, Exception | None], None]:
    return lambda value, error: outcomes.append((value, type(error) if error else None))


def test_an_answer_arrives_as_value_or_error(wire: Wire) -> None:
    outcomes: Outcomes = []
    for name in "ab":
        wire.requests.submit(wire.send(name), collect(outcomes))
    wire.answer(0, 5)
    wire.answer(1, NoNodeError())
    assert outcomes == [(5, None), (None, NoNodeError)]


def test_no_more_than_the_window_is_handed_over(wire: Wire) -> None:
    outcomes: Outcomes = []
    for number in range(100):
        wire.requests.submit(wire.send(str(number)), collect(outcomes))
    assert len(wire.sent) == 64
    wire.answer(0, None)
    assert len(wire.sent) == 65
    for index in range(1, 100):
        wire.answer(index, None)
    assert len(outcomes) == 100


def test_an_urgent_request_overtakes_what_waits(wire: Wire) -> None:
    outcomes: Outcomes = []
    for number in range(66):
        wire.requests.submit(wire.send(str(number)), collect(outcomes))
    wire.requests.submit(wire.send("urgent"), collect(outcomes), urgent=True)
    wire.answer(0, None)
    assert wire.names[-1] == "urgent"


def test_a_lost_connection_tells_what_was_sent_from_what_was_not(wire: Wire) -> None:
    outcomes: Outcomes = []
    for number in range(66):
        wire.requests.submit(wire.send(str(number)), collect(outcomes))
    wire.requests.connection_lost()
    assert outcomes == [(None, ConnectionLoss)] * 64 + [(None, NotSent)] * 2


def test_an_answer_after_the_loss_is_ignored(wire: Wire) -> None:
    outcomes: Outcomes = []
    wire.requests.submit(wire.send("a"), collect(outcomes))
    wire.requests.connection_lost()
    wire.answer(0, 5)
    assert outcomes == [(None, ConnectionLoss)]


def test_a_procedure_goes_on_with_its_answers(wire: Wire) -> None:
    outcomes: Outcomes = []

    def procedure() -> Generator[Any, Any, Any]:
        first = yield from one(wire.send("a"))
        second, third = yield [wire.send("b"), wire.send("c")]
        return first, second, type(third)

    wire.requests.run(procedure(), collect(outcomes))
    wire.answer(0, 1)
    wire.answer(2, NoNodeError())
    wire.answer(1, 2)
    assert wire.names == ["a", "b", "c"]
    assert outcomes == [((1, 2, NoNodeError), None)]


def test_a_procedure_can_make_no_request_at_all(wire: Wire) -> None:
    outcomes: Outcomes = []

    def procedure() -> Generator[Any, Any, Any]:
        answers = yield []
        return answers

    wire.requests.run(procedure(), collect(outcomes))
    assert outcomes == [([], None)]


def test_a_procedures_error_ends_it(wire: Wire) -> None:
    outcomes: Outcomes = []

    def procedure() -> Generator[Any, Any, Any]:
        yield from one(wire.send("a"))

    wire.requests.run(procedure(), collect(outcomes))
    wire.answer(0, NoNodeError())
    assert outcomes == [(None, NoNodeError)]


def test_a_lost_connection_closes_a_procedure(wire: Wire) -> None:
    outcomes: Outcomes = []
    closed = []

    def procedure() -> Generator[Any, Any, Any]:
        try:
            yield [wire.send("a"), wire.send("b")]
        finally:
            closed.append(True)

    wire.requests.run(procedure(), collect(outcomes))
    wire.answer(0, 1)
    wire.requests.connection_lost()
    assert closed == [True]
    assert outcomes == [(None, ConnectionLoss)]
