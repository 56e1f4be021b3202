"""Finished objects are freed at once: payloads do not wait for the garbage collector, and users do not wait for it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dueq import AsyncClient, Client, MessageNotFound
from dueq.client.sync import Consumer, Producer
from tests.unit.client.fake_broker import FakeBroker

DUE = 4_000_000_000_000
ROUNDS = 20


@contextmanager
def nothing_left() -> Iterator[None]:
    """Check that no object of the client is left that only the collector would free."""
    gc.collect()
    gc.disable()
    # A client of an earlier test, whose thread ends only now on a busy machine, is none of this.
    before = set(map(id, gc.get_objects()))
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield
        gc.collect()
        new = [type(found) for found in gc.garbage if id(found) not in before]
        left = sorted({kind.__qualname__ for kind in new if "dueq.client" in kind.__module__})
        assert not left
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def by_turns(broker: FakeBroker, producer: Producer, consumer: Consumer) -> None:
    """Schedule, move and cancel; deliver, ack, give back."""
    for number in range(ROUNDS):
        first, second = producer.schedule_many([b"x", b"y"], DUE)
        producer.move(first, DUE + 1)
        producer.cancel(second)
        with pytest.raises(MessageNotFound):
            producer.cancel(second)
        broker.push([b"0", b"1", b"2"], token=7 + number)
        messages = consumer.receive(3, timeout=5)
        while len(messages) < 3:
            messages += consumer.receive(3, timeout=5)
        messages[0].ack(wait=True)
        messages[1].ack()
        messages[2].nack(delay=1)
        consumer.ack(messages[:2])


def test_calls_that_ended_and_messages_that_were_settled_leave_nothing(
    broker: FakeBroker, client: Client
) -> None:
    with client.producer("departures") as producer, client.consumer("departures") as consumer:
        by_turns(broker, producer, consumer)
        with nothing_left():
            by_turns(broker, producer, consumer)


def test_nor_do_those_of_tasks(broker: FakeBroker) -> None:
    async def work() -> None:
        async with (
            AsyncClient(broker.endpoint) as client,
            client.producer("departures") as producer,
            client.consumer("departures") as consumer,
        ):

            async def by_turns() -> None:
                for number in range(ROUNDS):
                    await asyncio.gather(*(producer.schedule(b"x", DUE) for _ in range(5)))
                    broker.push([b"0", b"1"], token=7 + number)
                    messages = await consumer.receive(2, timeout=5)
                    while len(messages) < 2:
                        messages += await consumer.receive(2, timeout=5)
                    await messages[0].ack()
                    await consumer.ack(messages[:2])

            await by_turns()
            with nothing_left():
                await by_turns()

    asyncio.run(asyncio.wait_for(work(), 30))
