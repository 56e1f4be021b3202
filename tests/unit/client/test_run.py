"""Runs of a handler against a fake broker: what is acked, what ends a run, what it leaves behind."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import types
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest

from dueq import AsyncClient, Client, ClientClosed, InvalidRequest, Message, OutcomeUnknown
from dueq.client.handling import reason_of
from dueq_codecs.records import REASON_BYTES_MAX
from tests.unit.client.fake_broker import FakeBroker


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise LookupError("no words")


def test_a_reason_is_type_and_message_as_long_as_a_reason_may_be() -> None:
    assert reason_of(ValueError("no such card")) == "ValueError: no such card"
    assert reason_of(ValueError()) == "ValueError"
    assert reason_of(Unspeakable()) == "Unspeakable"
    long = reason_of(ValueError("é" * 5000))
    assert long.startswith("ValueError: é")
    assert REASON_BYTES_MAX - 2 < len(long.encode()) <= REASON_BYTES_MAX


def test_a_run_that_was_stopped_before_takes_nothing_and_puts_the_handlers_back(client: Client) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    consumer = client.consumer("departures")
    consumer.stop()
    assert consumer.run(print) == (0, 0, 0)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
    with pytest.raises(ClientClosed):
        consumer.run(print)


@pytest.mark.parametrize("signals", [(signal.SIGTERM,), (signal.SIGTERM, signal.SIGINT)])
def test_a_signal_drains_and_another_one_does_not_cut_that_short(
    broker: FakeBroker, client: Client, signals: tuple[signal.Signals, ...]
) -> None:
    def handler(message: Message) -> None:
        for number in signals:
            signal.pthread_kill(threading.main_thread().ident or 0, number)

    consumer = client.consumer("departures")
    with consumer:
        broker.push([b"x"])
        assert consumer.run(handler) == (1, 0, 0)
    assert not broker.rows


def test_a_signal_during_the_closing_of_a_run_does_not_cut_that_short(
    broker: FakeBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = client.consumer("departures")
    close = consumer.close

    def closing(timeout: float = 5.0) -> None:
        signal.raise_signal(signal.SIGINT)
        close(timeout)

    monkeypatch.setattr(consumer, "close", closing)
    assert consumer.receive(timeout=0) == []
    broker.push([b"x"])
    assert consumer.run(lambda message: consumer.stop()) == (1, 0, 0)
    assert not broker.rows


def generate(message: object) -> Iterator[None]:
    raise AssertionError("nothing runs")
    yield


async def generate_in_tasks(message: object) -> AsyncIterator[None]:
    raise AssertionError("nothing runs")
    yield


class Generating:
    """A handler with a method that is a generator function."""

    __call__ = generate


@pytest.mark.parametrize("handler", [generate, generate_in_tasks, Generating(), partial(generate)])
def test_a_generator_function_is_no_handler(
    broker: FakeBroker, client: Client, handler: Callable[[Any], object]
) -> None:
    async def work() -> None:
        async with AsyncClient(broker.endpoint) as client:
            await client.consumer("departures").run(handler)

    with pytest.raises(InvalidRequest, match="is a generator function: to call it runs nothing of it"):
        client.consumer("departures").run(handler)
    with pytest.raises(InvalidRequest, match="is a generator function: to call it runs nothing of it"):
        asyncio.run(work())


@pytest.mark.parametrize("of", [generate, generate_in_tasks])
def test_a_message_is_not_acked_whose_handler_has_returned_what_would_handle_it(
    broker: FakeBroker, client: Client, of: Callable[[Any], object]
) -> None:
    consumer = client.consumer("departures")

    def handler(message: Message) -> object:
        consumer.stop()
        return of(message)

    assert consumer.receive(timeout=0) == []
    broker.push([b"x"])
    assert consumer.run(handler) == (0, 1, 0)


@pytest.mark.parametrize("form", ["made of a generator", "returns what is done"])
def test_a_task_acks_what_was_awaited(broker: FakeBroker, form: str) -> None:
    async def work() -> object:
        async with AsyncClient(broker.endpoint) as client:
            consumer = client.consumer("departures")

            @types.coroutine
            def made_of_a_generator(message: object) -> Iterator[None]:
                consumer.stop()
                yield

            async def returning_what_is_done(message: object) -> object:
                consumer.stop()
                task = asyncio.create_task(asyncio.sleep(0))
                await task
                return task

            assert await consumer.receive(timeout=0) == []
            broker.push([b"x"])
            handler: Any = made_of_a_generator if form == "made of a generator" else returning_what_is_done
            return await consumer.run(handler)

    assert asyncio.run(asyncio.wait_for(work(), 60)) == (1, 0, 0)


def test_a_message_is_not_acked_whose_handler_has_returned_what_nobody_awaits(
    broker: FakeBroker, client: Client
) -> None:
    class Later:
        def __await__(self) -> Iterator[None]:
            raise AssertionError("no thread awaits it")

    consumer = client.consumer("departures")

    def handler(message: Message) -> Later:
        consumer.stop()
        return Later()

    assert consumer.receive(timeout=0) == []
    broker.push([b"x"])
    assert consumer.run(handler) == (0, 1, 0)


@pytest.mark.parametrize("awaited", [True, False])
def test_a_task_does_not_ack_what_its_handler_has_only_generated(broker: FakeBroker, awaited: bool) -> None:
    async def work() -> object:
        async with AsyncClient(broker.endpoint) as client:
            consumer = client.consumer("departures")

            def handler(message: object) -> object:
                consumer.stop()
                return generate_in_tasks(message)

            async def task(message: object) -> object:
                return handler(message)

            assert await consumer.receive(timeout=0) == []
            broker.push([b"x"])
            return await consumer.run(task if awaited else handler)

    assert asyncio.run(asyncio.wait_for(work(), 60)) == (0, 1, 0)


def test_no_ack_follows_a_lost_lease(
    broker: FakeBroker, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    lost: list[Message] = []
    told = threading.Event()

    def tell(message: Message) -> None:
        lost.append(message)
        told.set()

    def handler(message: Message) -> None:
        broker.rows.clear()
        message.extend(60.0)  # refused
        assert told.wait(10)
        consumer.stop()

    consumer = client.consumer("departures", on_lease_lost=tell)
    with consumer, caplog.at_level(logging.WARNING, "dueq.client"):
        broker.push([b"x"])
        assert consumer.run(handler) == (1, 0, 0)
    assert len(lost) == 1
    assert "handler.lease_lost" in caplog.text


def test_closing_it_ends_a_run(broker: FakeBroker, client: Client) -> None:
    consumer = client.consumer("departures")
    with consumer:
        broker.push([b"x"])
        with pytest.raises(ClientClosed, match="during its run: of its messages 1 were handled"):
            consumer.run(lambda message: consumer.close())


def test_a_second_run_at_once_is_refused(broker: FakeBroker, client: Client) -> None:
    refused: list[str] = []

    def handler(message: Message) -> None:
        try:
            consumer.run(print)
        except InvalidRequest as error:
            refused.append(str(error))
        consumer.stop()

    consumer = client.consumer("departures")
    with consumer:
        broker.push([b"x"])
        assert consumer.run(handler) == (1, 0, 0)
    assert refused == ["the consumer of 'departures' runs a handler already: one run has many workers"]


def test_an_error_of_closing_does_not_hide_what_became_of_the_messages(
    broker: FakeBroker, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = client.consumer("departures")

    def close(timeout: float = 5.0) -> None:
        raise OutcomeUnknown("the client's own thread did not answer in time")

    with consumer, monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "dueq.client"):
        patch.setattr(consumer, "close", close)
        broker.push([b"x"])
        assert consumer.run(lambda message: consumer.stop()) == (1, 0, 0)
    assert "run.not_closed" in caplog.text


def test_an_error_of_a_callback_does_not_end_a_run(
    broker: FakeBroker, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    told = threading.Event()

    def tell(message: Message) -> None:
        told.set()
        raise LookupError("no such card")

    def handler(message: Message) -> None:
        broker.rows.clear()
        message.extend(60.0)  # refused
        assert told.wait(10)
        consumer.stop()

    consumer = client.consumer("departures", on_lease_lost=tell)
    with consumer, caplog.at_level(logging.WARNING, "dueq.client"):
        broker.push([b"x"])
        assert consumer.run(handler) == (1, 0, 0)
    assert "run.callback_failed" in caplog.text


def test_a_drain_has_its_limits(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="drain"):
        client.consumer("departures").run(print, drain=-1)
