"""The asyncio face over real sockets."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from dueq import AsyncClient, AsyncMessage, ClientClosed, MessageNotFound, Outcome, OutcomeUnknown
from dueq.client.aio import waiting
from dueq_codecs.messages import ConsumerAction
from tests.unit.client.fake_broker import FakeBroker

DUE = 4_000_000_000_000


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


def test_tasks_schedule_together_and_settle_one_by_one(broker: FakeBroker) -> None:
    async def work() -> None:
        async with AsyncClient(broker.endpoint) as client:
            async with client.producer("departures") as producer:
                ids = await asyncio.gather(
                    *(producer.schedule(b"%d" % i, timedelta(hours=1)) for i in range(100))
                )
                assert len(set(ids)) == 100
                assert len(broker.changes) < 60
                await producer.move(ids[0], DUE)
                await producer.cancel(ids[0])
                with pytest.raises(MessageNotFound):
                    await producer.cancel(ids[0])
                assert await producer.cancel_many(ids[1:]) == [Outcome.DONE] * 99
            assert (await client.describe("departures")).ready == 2
        with pytest.raises(ClientClosed):
            await client.topics()

    run(work())


def test_a_consumer_iterates_and_acks(broker: FakeBroker) -> None:
    async def work() -> None:
        async with (
            AsyncClient(broker.endpoint) as client,
            client.consumer("departures", credit=4) as consumer,
        ):
            assert await consumer.receive(timeout=0) == []
            broker.push([b"1", b"2", b"3"])
            got = []
            async for message in consumer:
                got.append(message.payload)
                await message.ack()
                if len(got) == 2:
                    break
            [last] = await consumer.receive(timeout=5)
            assert await consumer.ack([last]) == [Outcome.DONE]
            assert [*got, last.payload] == [b"1", b"2", b"3"]
        assert not broker.rows

    run(work())


def test_other_tasks_have_their_turn_while_messages_are_at_hand(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taking one that is there waits for nothing, and neither does an ack that nobody waits for."""
    monkeypatch.setattr(waiting, "_TURN_S", 0.0)

    async def work() -> None:
        async with AsyncClient(broker.endpoint) as client, client.consumer("departures") as consumer:
            broker.push([b"%d" % i for i in range(50)])
            [first] = await consumer.receive(1, timeout=5)
            assert len(consumer._inbox) == 49
            turns = 0

            async def count() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            other = asyncio.create_task(count())
            for _ in range(49):
                [message] = await consumer.receive(1, timeout=5)
                await message.ack()
            assert turns >= 49
            other.cancel()
            await first.ack(wait=True)

    run(work())


def test_a_client_is_closed_while_the_executor_of_the_loop_is_full(broker: FakeBroker) -> None:
    """Handlers that never return keep their threads."""

    async def work() -> None:
        released = threading.Event()
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        stuck = asyncio.ensure_future(asyncio.to_thread(released.wait, 20))
        client = AsyncClient(broker.endpoint)
        await client.topics()
        await client.close()
        assert not stuck.done()
        released.set()
        await stuck

    run(work())


def test_lost_leases_are_told_in_the_loop(broker: FakeBroker) -> None:
    async def work() -> None:
        told: asyncio.Queue[AsyncMessage] = asyncio.Queue()
        async with AsyncClient(broker.endpoint) as client:
            consumer = client.consumer("departures", on_lease_lost=told.put)
            async with consumer:
                broker.push([b"x"])
                [message] = await consumer.receive(timeout=5)
                broker.rows.clear()
                await message.ack()
                assert await told.get() == message
                assert message.lost

    run(work())


def test_a_cancelled_call_is_abandoned_and_an_unknown_one_can_be_retried(broker: FakeBroker) -> None:
    async def work() -> None:
        async with AsyncClient(broker.endpoint) as client:
            producer = client.producer("departures")
            broker.refuse = lambda request: "silent"
            abandoned = asyncio.ensure_future(producer.schedule(b"x", DUE))
            await asyncio.to_thread(broker.wait_for, lambda: bool(broker.changes))
            abandoned.cancel()
            with pytest.raises(asyncio.CancelledError):
                await abandoned
            with pytest.raises(OutcomeUnknown) as caught:
                await producer.schedule(b"y", DUE, timeout=2)
            broker.refuse = lambda request: None
            assert len(await caught.value.retry()) == 26
            assert [payload for payload, _ in broker.rows.values()] == [b"y"]

    run(work())


def test_nothing_is_kept_of_calls_that_were_cancelled(broker: FakeBroker) -> None:
    async def work() -> None:
        async with AsyncClient(broker.endpoint) as client:
            await client.describe("departures")
            broker.refuse = lambda request: "silent"
            for coroutine in (
                client.producer("departures").schedule(b"x", DUE),
                client.pull("departures", wait=5),
                client.get("departures", key="a"),
                client.describe("departures"),
            ):
                task = asyncio.ensure_future(coroutine)
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            await client.describe("departures")
            assert not client.connection.live()._answers

    run(work())


def test_a_consumer_whose_opening_is_cancelled_takes_no_messages(broker: FakeBroker) -> None:
    def said(action: ConsumerAction) -> bool:
        return any(frame.action is action for frame in broker.frames)

    async def work() -> None:
        async with AsyncClient(broker.endpoint) as client:
            await client.topics()
            opening = asyncio.create_task(client.consumer("departures").receive())
            await asyncio.sleep(0)
            broker.wait_for(
                lambda: said(ConsumerAction.ATTACH)
            )  # holds up the loop: the answer waits for its turn
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            await asyncio.to_thread(broker.wait_for, lambda: said(ConsumerAction.GOODBYE), 5)

    run(work())


def test_a_consumer_that_is_closed_while_it_opens_lets_go_of_the_mesh(broker: FakeBroker) -> None:
    def said(action: ConsumerAction) -> bool:
        return any(frame.action is action for frame in broker.frames)

    async def work() -> None:
        async with AsyncClient(broker.endpoint) as client:
            consumer = client.consumer("departures")
            receiving = asyncio.create_task(consumer.receive())
            await asyncio.sleep(0)
            await consumer.close()
            assert await receiving == []
            await asyncio.to_thread(broker.wait_for, lambda: said(ConsumerAction.GOODBYE), 5)

    run(work())


def test_a_signal_ends_all_runs_of_a_loop_and_the_last_puts_the_handlers_back(broker: FakeBroker) -> None:
    numbers = (signal.SIGTERM, signal.SIGINT)

    async def work() -> None:
        broker.add_topic("arrivals")
        before = [signal.getsignal(number) for number in numbers]
        async with AsyncClient(broker.endpoint) as client:
            consumers = [client.consumer(topic) for topic in ("departures", "arrivals", "arrivals")]
            runs = [asyncio.create_task(consumer.run(print)) for consumer in consumers]
            await asyncio.to_thread(broker.wait_for, lambda: all(consumer.attached for consumer in consumers))
            consumers[0].stop()
            assert await runs[0] == (0, 0, 0)
            signal.raise_signal(signal.SIGTERM)
            assert await asyncio.gather(*runs[1:]) == [(0, 0, 0)] * 2
        assert [signal.getsignal(number) for number in numbers] == before

    run(work())
