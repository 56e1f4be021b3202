"""Fake brokers and clients of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from dueq import Client
from tests.unit.client.fake_broker import FakeBroker


@pytest.fixture
def start_broker() -> Iterator[Callable[..., FakeBroker]]:
    """Start fake brokers; they stop with the test."""
    started: list[FakeBroker] = []

    def start(*arguments: str) -> FakeBroker:
        started.append(FakeBroker(*arguments))
        return started[-1]

    yield start
    for broker in started:
        broker.stop()


@pytest.fixture
def broker(start_broker: Callable[..., FakeBroker]) -> FakeBroker:
    """One broker with a topic `departures` of two partitions."""
    broker = start_broker()
    broker.add_topic("departures", 2)
    return broker


@pytest.fixture
def client(broker: FakeBroker) -> Iterator[Client]:
    """A client of the broker."""
    with Client(broker.endpoint, timeout=10) as client:
        yield client
