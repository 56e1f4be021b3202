"""Calls with unique keys wait for the callers that were just answered, so that one request has the rows of all."""

from __future__ import annotations

from itertools import compress, count

import pytest

from dueq.client import calls
from dueq.client.core.ports.returning import RETURN_US, RETURN_US_MAX
from dueq_codecs.messages import ChangeRequest
from dueq_codecs.rules import homes_of_keys, key_hashes
from dueq_codecs.topic_settings import TopicSettings
from tests.unit.client.stage import TOPIC, Stage, ok, sent

ROWS = 40
RETURN_MS = RETURN_US / 1000


@pytest.fixture
def stage() -> Stage:
    """One broker, two partitions, unique keys; connected, topic known."""
    stage = Stage(uids={1: "a", 2: "a"}, settings=TopicSettings(version=1, keys="unique").encode())
    stage.connect()
    stage.learn_topic()
    return stage


class Callers:
    """Callers that schedule rows with keys of their own, which are all at home in one partition."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._numbers = count(1)

    def call(self, rows: int = ROWS) -> list[ChangeRequest]:
        """One of them calls; returns the requests that go out for it."""
        number = next(self._numbers)
        names = [f"{number}-{row}" for row in range(4 * rows + 40)]
        at_home = homes_of_keys(key_hashes(map(str.encode, names))[0], 2) == 0
        keys = list(compress(names, at_home.tolist()))[:rows]
        call = calls.schedule_many(TOPIC, [b"x"] * rows, 10**12, lambda: 0, keys=keys)
        return sent(self._stage.step(call.build(number, self._stage.at_us(60_000))), ChangeRequest)

    def answer(self, request: ChangeRequest) -> list[ChangeRequest]:
        """A request is answered; returns those that go out then."""
        return sent(self._stage.receive("a", ok(request, next(self._numbers))), ChangeRequest)


@pytest.fixture
def callers(stage: Stage) -> Callers:
    return Callers(stage)


def together(callers: Callers) -> ChangeRequest:
    """Three callers share a request: one has come back while the others waited, and those have come back, too."""
    [first] = callers.call()
    assert not callers.call()
    assert not callers.call()
    [second] = callers.answer(first)
    assert second.rows == 2 * ROWS
    assert not callers.call()
    assert not callers.answer(second)
    assert not callers.call()
    [third] = callers.call()
    assert third.rows == 3 * ROWS
    return third


def test_callers_that_return_share_each_request_from_then_on(callers: Callers) -> None:
    request = together(callers)
    for _ in range(3):
        assert not callers.answer(request)
        assert not callers.call()
        assert not callers.call()
        [request] = callers.call()
        assert request.rows == 3 * ROWS


def test_one_caller_waits_for_nobody(callers: Callers) -> None:
    for _ in range(5):
        [request] = callers.call()
        assert not callers.answer(request)


def test_who_does_not_return_is_waited_for_once_and_not_for_long(stage: Stage, callers: Callers) -> None:
    request = together(callers)
    assert not callers.answer(request)
    assert not callers.call()
    assert not sent(stage.step(ms=stage.ms + RETURN_MS - 1), ChangeRequest)
    [request] = sent(stage.step(ms=stage.ms + 1), ChangeRequest)
    assert request.rows == ROWS
    assert not callers.call()
    [request] = callers.answer(request)
    assert request.rows == ROWS


def test_the_wait_is_as_long_as_the_request_took_within_bounds(stage: Stage, callers: Callers) -> None:
    for took_ms, waits_ms in ((50.0, 50.0), (900.0, RETURN_US_MAX / 1000)):
        request = together(callers)
        stage.step(ms=stage.ms + took_ms)
        assert not callers.answer(request)
        assert not callers.call()
        assert not sent(stage.step(ms=stage.ms + waits_ms - 1), ChangeRequest)
        [request] = sent(stage.step(ms=stage.ms + 1), ChangeRequest)
        assert not callers.answer(request)
        stage.step(ms=stage.ms + 1_000)


def test_many_rows_go_without_those_who_are_missing(callers: Callers) -> None:
    request = together(callers)
    assert not callers.answer(request)
    [request] = callers.call(rows=600)
    assert request.rows == 600


def test_callers_with_few_rows_are_not_waited_for(callers: Callers) -> None:
    [first] = callers.call(rows=2)
    callers.call(rows=2)
    [second] = callers.answer(first)
    assert not callers.answer(second)
    [third] = callers.call(rows=2)
    assert third.rows == 2
