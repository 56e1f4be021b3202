"""Consumers that nobody has any more, though nobody has closed them."""

from __future__ import annotations

import asyncio
import gc
import random
from types import SimpleNamespace
from typing import Any

import pytest

from dueq import AsyncClient, Client
from dueq.client.core.ports.events import CloseConsumer, Settle
from dueq.client.host import SessionHost
from dueq.client.inbox import Inbox
from dueq.errors import OutcomeUnknown
from dueq.instant import Now
from dueq.testing import mesh
from dueq_codecs.messages import ConsumerAction
from dueq_codecs.records import RecordKind
from tests.unit.client.fake_broker import FakeBroker


def goodbyes(broker: FakeBroker) -> int:
    return sum(frame.action is ConsumerAction.GOODBYE for frame in broker.frames)


def ack_and_drop(broker: FakeBroker, client: Client) -> None:
    """Ack what a consumer has received, and let nobody have it any more."""
    consumer = client.consumer("departures")
    assert consumer.receive(timeout=0) == []
    broker.push([b"x"])
    for message in consumer.receive(timeout=10):
        message.ack()
    del consumer, message
    gc.collect()


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
    ack_and_drop(broker, client)
    broker.wait_for(lambda: goodbyes(broker) > 0, 10)
    assert not broker.rows


def test_what_it_had_acked_is_acked_also_if_its_client_is_closed_at_once(broker: FakeBroker) -> None:
    with Client(broker.endpoint) as client:
        ack_and_drop(broker, client)
    assert not broker.rows


def test_an_error_of_it_is_raised_when_the_others_are_closed(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(broker.endpoint)
    consumer = client.consumer("departures")
    assert consumer.receive(timeout=0) == []
    connection, waited_for = client.connection, list[object]()

    def answer_to(call: object, *_: object) -> None:
        waited_for.append(call)
        raise OutcomeUnknown(f"the answer to call {len(waited_for)}")

    monkeypatch.setattr(connection.live(), "take_dropped", lambda: [(bytes(16), [])])
    monkeypatch.setattr(connection, "answer_to", answer_to)
    with pytest.raises(OutcomeUnknown, match="call 1"):
        client.close()
    assert len(waited_for) == 2


def test_it_is_closed_behind_what_it_had_settled_while_another_one_was_being_closed() -> None:
    happened: list[Any] = []
    meanwhile: list[bool] = []

    class Host(SessionHost):
        def now(self) -> Now:
            if not meanwhile:
                meanwhile.append(True)
                self._inboxes[b"second"] = second
                self._queue.append(Settle(b"second", RecordKind.ACK, []))
                self.drop(b"second", second)
            return Now(0, 0)

        def mono_us(self) -> int:
            return self.now().mono_us

    def step(events: list[Any], now: Now) -> list[Any]:
        happened.extend(events)
        return []

    first, second = Inbox(lambda: None), Inbox(lambda: None)
    host = Host(["tcp://127.0.0.1:1"], bytes(16), random.Random(1))
    core: Any = SimpleNamespace(step=step)
    host._core = core
    links: Any = None
    host._inboxes[b"first"] = first
    host.drop(b"first", first)
    for _ in range(2):
        host._step([], links)
    of_second = [type(event) for event in happened if event.consumer_id == b"second"]
    assert of_second == [Settle, CloseConsumer]


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


def test_the_next_one_of_its_name_may_be_opened_at_once() -> None:
    """What the one before has acked is done, and its goodbye does not end the next one."""
    with mesh() as dueq_mesh:
        client = dueq_mesh.client()
        client.create_topic("tasks")
        for payload in (b"0", b"1"):
            client.producer("tasks").schedule(payload, 0)
            consumer = client.consumer("tasks", name="worker-3")
            [message] = consumer.receive(timeout=1)
            assert message.payload == payload
            message.ack()
            del consumer, message
            gc.collect()
        with client.consumer("tasks", name="worker-3") as last:
            dueq_mesh.advance(30)
            client.producer("tasks").schedule(b"2", 0)
            dueq_mesh.advance(1)
            assert [message.payload for message in last.receive(timeout=0)] == [b"2"]
