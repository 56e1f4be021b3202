"""Handlers of `consumer.run` inside a test: the clock waits for them, and their errors surface."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from dueq import AsyncMessage, Backoff, Client, InvalidRequest, Message, TopicNotFound
from dueq.testing import Mesh, amesh, mesh

START = datetime(2026, 3, 28, 12, tzinfo=UTC)


@pytest.fixture
def dueq_mesh() -> Iterator[Mesh]:
    with mesh(START) as found:
        yield found


@pytest.fixture
def client(dueq_mesh: Mesh) -> Client:
    found = dueq_mesh.client()
    found.create_topic("t")
    return found


def work_elsewhere() -> None:
    """Wait for what is not of the mesh."""
    for _ in range(20):
        thread = threading.Thread(target=sum, args=(range(1000),))
        thread.start()
        thread.join()


def test_handlers_run_at_the_instants_of_their_messages(dueq_mesh: Mesh, client: Client) -> None:
    client.producer("t").schedule_many([b""] * 3, [timedelta(minutes=n) for n in (1, 2, 3)])
    late: list[int] = []

    def handler(message: Message) -> None:
        work_elsewhere()  # the clock waits for it
        late.append(dueq_mesh.now_ms - message.due)

    with dueq_mesh.running(client.consumer("t"), handler, workers=2) as run:
        dueq_mesh.advance(120)
        assert late == [0, 0]
        dueq_mesh.advance(60)
        assert late == [0, 0, 0]
    assert run.result == (3, 0, 0)
    assert client.describe("t").scheduled == 0


def test_an_error_of_a_handler_surfaces_where_the_clock_moves(dueq_mesh: Mesh, client: Client) -> None:
    client.producer("t").schedule(b"", timedelta(minutes=1))
    attempts: list[int] = []

    def handler(message: Message) -> None:
        attempts.append(message.attempt)
        if message.attempt == 1:
            raise ValueError("no such card")

    begin = dueq_mesh.now_ms
    with dueq_mesh.running(client.consumer("t"), handler) as run:
        with pytest.raises(ValueError, match="no such card"):
            dueq_mesh.advance(3600)
        assert dueq_mesh.now_ms - begin in (60_000, 60_001)
        dueq_mesh.advance(60)  # the retry
    assert attempts == [1, 2]
    assert run.result == (1, 1, 0)


def test_what_a_handler_has_not_run_is_not_acked(dueq_mesh: Mesh, client: Client) -> None:
    client.update_topic("t", backoff=Backoff(first=60.0))
    message_id = client.producer("t").schedule(b"", timedelta(seconds=1))

    async def work(_message: Message) -> None:
        raise AssertionError("no thread can run it")

    refused = pytest.raises(InvalidRequest, match=r"returned a coroutine of .*work: threads cannot run it")
    with dueq_mesh.running(client.consumer("t"), lambda message: work(message)), refused:
        dueq_mesh.advance(1)
    assert "threads cannot run it" in client.get("t", message_id).reason


def test_several_errors_are_told_with_the_first(dueq_mesh: Mesh, client: Client) -> None:
    client.update_topic("t", backoff=Backoff(first=60.0))
    client.producer("t").schedule_many([b"a", b"b"], 0)
    both = threading.Barrier(2)

    def handler(message: Message) -> None:
        both.wait(10)
        raise ValueError(message.payload)

    with dueq_mesh.running(client.consumer("t"), handler, workers=2), pytest.raises(ValueError) as caught:
        dueq_mesh.advance(0.5)
    assert len(caught.value.__notes__) == 1


def test_an_error_surfaces_where_the_test_itself_waits(dueq_mesh: Mesh, client: Client) -> None:
    client.producer("t").schedule(b"", timedelta(seconds=1))

    def handler(message: Message) -> None:
        raise LookupError("no such card")

    with pytest.raises(LookupError, match="no such card"):
        client.consumer("t").run(handler)


def test_an_error_that_nobody_saw_surfaces_at_the_end(dueq_mesh: Mesh, client: Client) -> None:
    client.producer("t").schedule(b"", 0)
    consumer = client.consumer("t")

    def handler(message: Message) -> None:
        consumer.stop()
        raise LookupError("nobody")

    with pytest.raises(LookupError, match="nobody"), dueq_mesh.running(consumer, handler) as run:
        pass
    assert run.result == (0, 1, 0)


def test_a_failed_assertion_and_a_failing_test_surface_from_handlers(dueq_mesh: Mesh, client: Client) -> None:
    client.producer("t").schedule(b"", 0)

    def handler(message: Message) -> None:
        pytest.fail("not this one")

    with (
        dueq_mesh.running(client.consumer("t"), handler),
        pytest.raises(pytest.fail.Exception, match="not this one"),
    ):
        dueq_mesh.advance(1)


def test_an_error_of_the_run_itself_surfaces(dueq_mesh: Mesh, client: Client) -> None:
    with (
        pytest.raises(TopicNotFound),
        dueq_mesh.running(dueq_mesh.client().consumer("missing"), lambda message: None),
    ):
        pass


def test_handlers_may_use_the_client(dueq_mesh: Mesh, client: Client) -> None:
    client.producer("t").schedule(b"once", timedelta(seconds=1))

    def handler(message: Message) -> None:
        if message.payload == b"once":
            client.producer("t").schedule(b"again", timedelta(seconds=5))
            message.ack(wait=True)

    with dueq_mesh.running(client.consumer("t"), handler) as run:
        dueq_mesh.advance(10)
    assert run.result == (2, 0, 0)


def test_a_handler_that_does_not_end_is_released_when_its_time_is_over(
    dueq_mesh: Mesh, client: Client
) -> None:
    client.producer("t").schedule(b"", 0)
    consumer = client.consumer("t")

    def handler(message: Message) -> None:
        consumer.stop()
        client.consumer("t").receive(timeout=3600)  # waits by the mesh's clock

    begin = dueq_mesh.now
    assert consumer.run(handler, drain=5.0) == (0, 0, 1)
    assert timedelta(seconds=5) <= dueq_mesh.now - begin < timedelta(seconds=6)


def test_tasks_run_functions_of_both_sorts_and_their_errors_surface() -> None:
    threads: set[str] = set()

    async def awaited(message: AsyncMessage) -> None:
        await asyncio.to_thread(work_elsewhere)
        if message.attempt == 1:
            raise ValueError("no such card")

    def plain(message: AsyncMessage) -> None:
        work_elsewhere()
        threads.add(threading.current_thread().name)

    async def run() -> None:
        with amesh(START) as dueq_mesh:
            client = dueq_mesh.client()
            await client.create_topic("t")
            producer = client.producer("t")
            await producer.schedule(b"", timedelta(minutes=1))
            async with dueq_mesh.running(client.consumer("t"), awaited) as done:
                with pytest.raises(ValueError, match="no such card"):
                    await dueq_mesh.advance(3600)
                await dueq_mesh.advance(60)
            assert done.result == (1, 1, 0)
            await producer.schedule(b"", timedelta(minutes=1))
            async with dueq_mesh.running(client.consumer("t"), plain) as done:
                await dueq_mesh.advance(60)
                assert threads
            assert done.result == (1, 0, 0)
            await client.close()

    asyncio.run(run())


def test_a_failing_test_surfaces_from_a_task() -> None:
    async def handler(message: AsyncMessage) -> None:
        pytest.fail("not this one")

    async def run() -> None:
        with amesh(START) as dueq_mesh:
            client = dueq_mesh.client()
            await client.create_topic("t")
            await client.producer("t").schedule(b"", 0)
            async with dueq_mesh.running(client.consumer("t"), handler):
                with pytest.raises(pytest.fail.Exception, match="not this one"):
                    await dueq_mesh.advance(1)

    asyncio.run(run())


def test_a_function_that_raises_stop_iteration_has_failed() -> None:
    """A future takes no such exception, so the run would not hear that its function has ended."""

    def first_line(message: AsyncMessage) -> None:
        next(iter(message.payload.splitlines()))

    async def run() -> None:
        with amesh(START) as dueq_mesh:
            client = dueq_mesh.client()
            await client.create_topic("t")
            await client.producer("t").schedule(b"", 0)
            async with dueq_mesh.running(client.consumer("t"), first_line) as running:
                with pytest.raises(RuntimeError, match="StopIteration"):
                    await dueq_mesh.advance(1)
            assert running.result == (0, 1, 0)

    asyncio.run(run())
