"""Runs of a handler against a fake broker: what is acked, what ends a run, what it leaves behind."""

from __future__ import annotations

import logging
import signal
import threading

import pytest

from dueq import Client, ClientClosed, InvalidRequest, Message
from dueq.client.handling import reason_of
from dueq_codecs.records import REASON_BYTES_MAX
from tests.unit.client.fake_broker import FakeBroker


def test_a_reason_is_type_and_message_as_long_as_a_reason_may_be() -> None:
    assert reason_of(ValueError("no such card")) == "ValueError: no such card"
    assert reason_of(ValueError()) == "ValueError"
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


def test_a_signal_drains(broker: FakeBroker, client: Client) -> None:
    def handler(message: Message) -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    consumer = client.consumer("departures")
    with consumer:
        broker.push([b"x"])
        assert consumer.run(handler) == (1, 0, 0)
    assert not broker.rows


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
        with pytest.raises(ClientClosed, match="during its run"):
            consumer.run(lambda message: consumer.close())


def test_a_drain_has_its_limits(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="drain"):
        client.consumer("departures").run(print, drain=-1)
