"""The first receive of a consumer opens it, within the time that it has."""

from __future__ import annotations

import asyncio

import pytest

from dueq import AsyncClient, Client, Consumer, Disconnected
from dueq.client.aio import consumer as asynchronous
from dueq.client.sync import consumer as synchronous
from tests.unit.client.fake_broker import FakeBroker

NOBODY = "tcp://127.0.0.1:1"


@pytest.fixture(autouse=True)
def opening_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (asynchronous, synchronous):
        monkeypatch.setattr(module, "_OPEN_S", 0.01)


@pytest.mark.parametrize("name", [None, "worker-3"])
def test_its_time_is_over_where_no_broker_answers(name: str | None) -> None:
    """The client's own time never is."""
    with Client(NOBODY, timeout=86_400) as client:
        consumer = client.consumer("departures", name=name)
        assert consumer.receive(timeout=0.02) == []
        assert consumer.receive(timeout=0) == []


def test_its_time_is_over_in_a_loop_too() -> None:
    async def run() -> None:
        async with AsyncClient(NOBODY, timeout=86_400) as client:
            assert await client.consumer("departures").receive(timeout=0.02) == []

    asyncio.run(run())


def test_who_asks_again_and_again_hears_why() -> None:
    def ask(consumer: Consumer) -> None:
        while True:
            assert consumer.receive(timeout=0.02) == []

    with Client(NOBODY, timeout=0.1) as client:
        consumer = client.consumer("departures")
        for _ in range(2):
            with pytest.raises(Disconnected, match="nobody listens"):
                ask(consumer)


def test_a_longer_time_than_the_clients_is_taken_and_the_reason_told() -> None:
    with Client(NOBODY, timeout=0.05) as client, pytest.raises(Disconnected, match="nobody listens"):
        client.consumer("departures").receive(timeout=0.1)


@pytest.mark.parametrize("name", [None, "worker-3"])
def test_who_does_not_wait_opens_it_by_and_by(broker: FakeBroker, name: str | None) -> None:
    with Client(broker.endpoint) as client:
        consumer = client.consumer("departures", name=name)
        while not consumer.attached:
            assert consumer.receive(timeout=0) == []
        broker.push([b"x"])
        [message] = consumer.receive()
        assert message.payload == b"x"
