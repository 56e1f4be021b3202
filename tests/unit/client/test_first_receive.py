"""The first receive of a consumer opens it, within the time that it has."""

from __future__ import annotations

import asyncio

import pytest

from dueq import AsyncClient, Client, Consumer, Disconnected
from dueq.client.aio import consumer as asynchronous
from dueq.client.sync import consumer as synchronous
from dueq_codecs.messages import Hello, HelloReply
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


def test_its_time_is_over_while_another_task_opens_it() -> None:
    """That one has the client's own time."""

    async def run() -> None:
        async with AsyncClient(NOBODY, timeout=86_400) as client:
            consumer = client.consumer("departures")
            opening = asyncio.create_task(consumer.__aenter__())
            while not consumer._opening.locked():
                await asyncio.sleep(0)
            assert await consumer.receive(timeout=0.02) == []
            assert not opening.done()
            opening.cancel()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_its_time_is_over_while_another_thread_opens_it() -> None:
    with Client(NOBODY, timeout=86_400) as client:
        consumer = client.consumer("departures")
        with consumer._opening:  # as that thread has it
            assert consumer.receive(timeout=0.02) == []


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


def test_a_broker_that_does_not_know_the_time_yet_is_waited_for(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The life of a name is an instant of the mesh: a worker that polls must not end, since a broker has just begun."""
    knows, hello = False, broker._hello

    def greeting(message: Hello) -> HelloReply:
        reply = hello(message)
        if not knows:
            reply.received_wall_us = reply.sent_wall_us = 0
        return reply

    monkeypatch.setattr(broker, "_hello", greeting)
    with Client(broker.endpoint, timeout=86_400) as client:
        consumer = client.consumer("departures", name="worker-3")
        assert consumer.receive(timeout=0.02) == []
        knows = True
        while not consumer.attached:
            assert consumer.receive(timeout=0.02) == []


def test_who_asks_once_more_much_later_has_not_asked_all_the_time() -> None:
    """It hears why no sooner than after the client's default time."""
    with Client(NOBODY, timeout=0.05) as client:
        consumer = client.consumer("departures")
        assert consumer.receive(timeout=0.02) == []
        consumer._tried_us -= 3_600_000_000
        consumer._give_up_us -= 3_600_000_000
        assert consumer.receive(timeout=0.02) == []
