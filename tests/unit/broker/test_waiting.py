"""The loop's wait knows every descriptor, however high its number."""

from __future__ import annotations

import fcntl
import os
import resource
import select
from collections.abc import Iterator

import pytest

from dueq.broker.waiting import Waiter


@pytest.fixture
def waiter() -> Iterator[Waiter]:
    found = Waiter()
    yield found
    found.close()


def test_a_descriptor_beyond_those_that_select_knows_ends_the_wait(waiter: Waiter) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4_096:
        pytest.skip("so many descriptors are not allowed here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4_096), hard))
    reading, writing = os.pipe()
    high = fcntl.fcntl(reading, fcntl.F_DUPFD, 2_000)
    waiter.add(high)
    os.write(writing, b"x")
    waiter.wait(3_600.0)
    waiter.remove(high)
    for descriptor in (reading, writing, high):
        os.close(descriptor)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_wait_without_news_ends_by_itself(waiter: Waiter) -> None:
    waiter.wait(0.001)


def test_what_was_removed_is_not_waited_for(waiter: Waiter) -> None:
    reading, writing = os.pipe()
    waiter.add(reading)
    waiter.remove(reading)
    os.write(writing, b"x")
    waiter.wait(0.001)
    os.close(reading)
    os.close(writing)


def test_it_says_what_was_readable_after_the_wait(waiter: Waiter) -> None:
    pipes = [os.pipe(), os.pipe()]
    for reading, _ in pipes:
        waiter.add(reading)
    first, second = (reading for reading, _ in pipes)
    assert waiter.may_be_ready(first)
    assert waiter.may_be_ready(second)
    waiter.wait(0.001)
    assert not waiter.may_be_ready(first)
    assert not waiter.may_be_ready(second)
    os.write(pipes[1][1], b"x")
    waiter.wait(3_600.0)
    assert not waiter.may_be_ready(first)
    assert waiter.may_be_ready(second)
    waiter.skip()
    assert waiter.may_be_ready(first)
    for reading, writing in pipes:
        waiter.remove(reading)
        os.close(reading)
        os.close(writing)


def test_the_kernel_is_asked_for_the_microseconds_that_are_left(
    waiter: Waiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`poll` and `epoll` would round them to whole milliseconds."""
    asked: list[float] = []

    def wait(
        reading: list[object], _writing: object, _failing: object, seconds: float
    ) -> tuple[list[object]]:
        asked.append(seconds)
        return ([],)

    monkeypatch.setattr(select, "select", wait)
    waiter.wait(0.000123)
    assert asked == [0.000123]
