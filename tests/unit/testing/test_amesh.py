"""The same for asyncio."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from dueq import AsyncClient
from dueq.errors import ClientClosed
from dueq.testing import NotAtRest, amesh

START = datetime(2026, 3, 28, 12, tzinfo=UTC)


def test_a_message_comes_at_its_instant_and_not_before() -> None:
    async def run() -> None:
        with amesh(START) as mesh:
            client = mesh.client()
            await client.create_topic("t")
            due = mesh.now + timedelta(hours=1)
            await client.producer("t").schedule(b"hello", due)
            async with client.consumer("t") as consumer:
                assert await consumer.receive(timeout=60) == []
                await mesh.run_until(due)
                [message] = await consumer.receive(timeout=0)
                assert (message.payload, message.lateness) == (b"hello", 0.0)
                await message.ack()
                await client.close()

    asyncio.run(run())


def test_a_handler_in_another_task_is_waited_for() -> None:
    async def run() -> None:
        with amesh(START) as mesh:
            client = mesh.client()
            await client.create_topic("t")
            dues = [timedelta(seconds=n) for n in range(1, 6)]
            await client.producer("t").schedule_many([b""] * 5, dues)
            late: list[int] = []
            attached = asyncio.Event()

            async def handle() -> None:
                async with client.consumer("t") as consumer:
                    attached.set()
                    async for message in consumer:
                        late.append(mesh.now_ms - message.due)
                        await message.ack()

            task = asyncio.create_task(handle())
            await attached.wait()
            await mesh.advance(10)
            assert late == [0] * 5
            assert (await client.describe("t")).scheduled == 0
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await client.close()

    asyncio.run(run())


def test_a_wait_that_nothing_can_end_is_refused() -> None:
    async def run() -> None:
        with amesh(START) as mesh:
            client = mesh.client()
            await client.create_topic("t")
            await client.producer("t").schedule(b"", timedelta(minutes=90))
            async with client.consumer("t") as consumer:
                await (await anext(aiter(consumer))).ack()
                with pytest.raises(NotAtRest, match="nothing is going to happen"):
                    await anext(aiter(consumer))

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_test_that_fails_amid_the_work_of_another_task_ends() -> None:
    """Loops cancel the tasks that are left, and these close their consumers."""
    tasks: list[asyncio.Task[None]] = []

    async def fail() -> None:
        with amesh(START) as mesh:
            client = mesh.client()
            await client.create_topic("t")

            async def handle() -> None:
                async with client.consumer("t") as consumer:
                    async for message in consumer:
                        await message.ack()

            tasks.append(asyncio.create_task(handle()))
            await mesh.advance(1)
            raise AssertionError("the test fails")

    async def run() -> None:
        failing = asyncio.create_task(fail())
        with pytest.raises(AssertionError, match="the test fails"):
            await failing
        tasks[0].cancel()
        _, pending = await asyncio.wait(tasks, timeout=30)
        assert not pending

    asyncio.run(run())
    assert tasks[0].cancelled()


def test_whoever_waits_when_the_mesh_ends_is_told() -> None:
    async def run() -> None:
        with amesh(START) as mesh:
            client = mesh.client()
            await client.create_topic("t")
            consumer = client.consumer("t")
            waiting = asyncio.create_task(consumer.receive(timeout=None))
            await mesh.advance(1)
        with pytest.raises(ClientClosed, match="the mesh of this test has ended"):
            await asyncio.wait_for(waiting, 30)
        with pytest.raises(ClientClosed, match="the mesh of this test has ended"):
            await client.describe("t")
        await client.close()

    asyncio.run(run())


def test_a_client_may_be_made_before_the_loop_runs_or_by_a_task_that_has_ended() -> None:
    """As by fixtures of pytest-asyncio, and by `asyncSetUp`."""

    async def receive(client: AsyncClient) -> None:
        async with client.consumer("t") as consumer:
            assert await consumer.receive(timeout=60) == []
        await client.close()

    with amesh(START) as mesh:
        early = mesh.client()
        asyncio.run(early.create_topic("t"))
        asyncio.run(receive(early))
    with asyncio.Runner() as runner, amesh(START) as mesh:

        async def set_up() -> AsyncClient:
            client = mesh.client()
            await client.create_topic("t")
            return client

        client = runner.run(set_up())
        runner.run(receive(client))


def test_a_task_beside_the_test_does_not_take_over_the_clock() -> None:
    with asyncio.Runner() as runner, amesh(START) as mesh:

        async def set_up() -> AsyncClient:
            client = mesh.client()
            await client.create_topic("t")
            await client.producer("t").schedule(b"x", timedelta(hours=1))
            return client

        async def test() -> None:
            begun, late, before = asyncio.Event(), list[int](), mesh.now

            async def handle() -> None:
                async with client.consumer("t") as consumer:
                    begun.set()
                    async for message in consumer:
                        late.append(mesh.now_ms - message.due)
                        await message.ack()

            task = asyncio.create_task(handle())
            await begun.wait()
            for _ in range(100):
                await asyncio.sleep(0)
            assert mesh.now - before < timedelta(seconds=1)
            await mesh.advance(3601)
            assert late == [0]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        client = runner.run(set_up())
        runner.run(test())


def test_a_task_whose_waiting_is_cancelled_counts_as_at_work_until_it_waits_again() -> None:
    async def run() -> None:
        with amesh(START) as mesh:
            client = mesh.client()
            await client.create_topic("jobs")
            ended_at: list[int] = []
            async with client.consumer("jobs") as consumer:

                async def clean_up_once_cancelled() -> None:
                    try:
                        await consumer.receive()
                    except asyncio.CancelledError:
                        for _ in range(100):
                            await asyncio.sleep(0)
                        ended_at.append(mesh.now_ms)

                task = asyncio.create_task(clean_up_once_cancelled())
                await mesh.advance(1)
                cancelled_at = mesh.now_ms
                task.cancel()
                await mesh.advance(60)
            assert ended_at == [cancelled_at]

    asyncio.run(run())
