"""Consumers that nobody has any more, though nobody has closed them."""

from __future__ import annotations

import asyncio
import gc

from dueq import AsyncClient, Client
from dueq.testing import mesh
from dueq_codecs.messages import ConsumerAction
from tests.unit.client.fake_broker import FakeBroker


def goodbyes(broker: FakeBroker) -> int:
    return sum(frame.action is ConsumerAction.GOODBYE for frame in broker.frames)


def test_it_is_closed(broker: FakeBroker, client: Client) -> None:
    assert client.consumer("departures").receive(timeout=0) == []
    gc.collect()
    broker.wait_for(lambda: goodbyes(broker) > 0, 10)
    assert not client.connection.live()._inboxes


def test_it_is_closed_in_a_loop(broker: FakeBroker) -> None:
    async def work() -> None:
        async with AsyncClient(broker.endpoint) as client:
            assert await client.consumer("departures").receive(timeout=0) == []
            gc.collect()
            await asyncio.to_thread(broker.wait_for, lambda: goodbyes(broker) > 0, 10)

    asyncio.run(asyncio.wait_for(work(), 60))


def test_what_it_had_acked_is_acked(broker: FakeBroker, client: Client) -> None:
    consumer = client.consumer("departures")
    assert consumer.receive(timeout=0) == []
    broker.push([b"x"])
    for message in consumer.receive(timeout=10):
        message.ack()
    del consumer, message
    gc.collect()
    broker.wait_for(lambda: goodbyes(broker) > 0, 10)
    assert not broker.rows


def test_it_is_not_closed_while_somebody_has_a_message_of_it() -> None:
    with mesh() as dueq_mesh:
        client = dueq_mesh.client()
        client.create_topic("tasks")
        client.producer("tasks").schedule(b"x", 0)
        [message] = client.consumer("tasks", lease=30.0).receive(timeout=1)
        gc.collect()
        dueq_mesh.advance(20)
        message.ack(wait=True)


def test_its_messages_go_to_others_at_once() -> None:
    """A program may open a consumer for each look: those of before took the messages, again and again."""
    with mesh() as dueq_mesh:
        client = dueq_mesh.client()
        client.create_topic("tasks")
        for _ in range(3):
            assert client.consumer("tasks").receive(timeout=0) == []
            gc.collect()
        client.producer("tasks").schedule_many([b"%d" % i for i in range(10)], 0)
        with client.consumer("tasks") as consumer:
            dueq_mesh.advance(1)
            assert len(consumer.receive(timeout=0)) == 10


def test_the_next_one_of_its_name_may_be_opened() -> None:
    with mesh() as dueq_mesh:
        client = dueq_mesh.client()
        client.create_topic("tasks")
        for _ in range(3):
            assert client.consumer("tasks", name="worker-3").receive(timeout=0) == []
            gc.collect()
            dueq_mesh.advance(1)
