"""How runs end: in a forked process, in a cancelled task, while handlers come to their end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from types import SimpleNamespace

import pytest

from dueq import AsyncClient, AsyncMessage, Client, Disconnected, Message
from dueq.client.handling import ending_signals
from dueq.client.sync import crew
from tests.unit.client.fake_broker import FakeBroker


def test_a_process_that_a_handler_has_forked_ends_by_sigterm() -> None:
    """Such as a worker of multiprocessing: who ends that waits until it has ended."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with ending_signals(lambda: None):
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(tell, b"x")
            signal.pause()
            os._exit(0)
        os.read(told, 1)
        os.kill(child, signal.SIGTERM)
        _, status = os.waitpid(child, 0)
        os.close(told)
        os.close(tell)
    signal.signal(signal.SIGTERM, before)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGTERM


def test_a_task_can_be_cancelled_in_the_instant_in_which_something_comes(broker: FakeBroker) -> None:
    async def work() -> None:
        async with AsyncClient(broker.endpoint) as client, client.consumer("departures") as consumer:
            receiving = asyncio.create_task(consumer.receive(timeout=30))
            while not consumer._arrivals._event._waiters:
                await asyncio.sleep(0)
            consumer._arrivals._event.set()
            await asyncio.sleep(0)
            receiving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await receiving

    asyncio.run(asyncio.wait_for(work(), 60))


def test_a_run_that_is_cancelled_acks_what_was_done(broker: FakeBroker) -> None:
    async def work() -> None:
        async with AsyncClient(broker.endpoint) as client:
            consumer = client.consumer("departures")

            async def handler(message: AsyncMessage) -> None:
                running.cancel()

            async with consumer:
                broker.push([b"x"])
                running = asyncio.create_task(consumer.run(handler))
                await asyncio.wait([running])
                assert running.cancelled()

    asyncio.run(asyncio.wait_for(work(), 60))
    assert not broker.rows


def test_what_is_done_while_the_log_is_written_is_acked(broker: FakeBroker, client: Client) -> None:
    """A log may be slow, and a handler may end meanwhile."""
    named, done = threading.Event(), threading.Event()

    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            named.set()
            assert done.wait(10)

    def wake() -> None:
        woken()
        if named.is_set():
            done.set()

    def handler(message: Message) -> None:
        consumer.stop()
        assert named.wait(10)

    consumer = client.consumer("departures")
    woken, consumer._arrivals.wake = consumer._arrivals.wake, wake
    slow = Slow()
    logging.getLogger("dueq.client").addHandler(slow)
    try:
        with consumer:
            broker.push([b"x"])
            assert consumer.run(handler, drain=0) == (1, 0, 0)
    finally:
        logging.getLogger("dueq.client").removeHandler(slow)
    assert not broker.rows


def test_a_run_goes_on_where_the_machine_has_no_thread_left(
    broker: FakeBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended, and what its handlers were at work on went to others."""
    begun = threading.Event()
    done: list[bytes] = []

    class Scarce(threading.Thread):
        def start(self) -> None:
            if begun.is_set():
                raise RuntimeError("can't start new thread")
            begun.set()
            super().start()

    def handler(message: Message) -> None:
        done.append(message.payload)
        if len(done) == 3:
            consumer.stop()

    consumer = client.consumer("departures")
    with consumer:
        broker.push([b"1", b"2", b"3"])
        monkeypatch.setattr(crew, "threading", SimpleNamespace(Thread=Scarce, Semaphore=threading.Semaphore))
        assert consumer.run(handler, workers=3) == (3, 0, 0)
    assert sorted(done) == [b"1", b"2", b"3"]
    assert not broker.rows


def test_what_waits_for_a_thread_is_not_begun_once_it_was_given_back(
    broker: FakeBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others have it then."""
    threads: list[threading.Thread] = []
    at_work, go_on = threading.Event(), threading.Event()
    begun: list[bytes] = []

    class Scarce(threading.Thread):
        def start(self) -> None:
            if threads:
                assert at_work.wait(10)
                consumer.stop()
                raise RuntimeError("can't start new thread")
            threads.append(self)
            super().start()

    def handler(message: Message) -> None:
        begun.append(message.payload)
        at_work.set()
        assert go_on.wait(10)

    consumer = client.consumer("departures")
    with consumer:
        broker.push([b"1", b"2"])
        monkeypatch.setattr(crew, "threading", SimpleNamespace(Thread=Scarce, Semaphore=threading.Semaphore))
        assert consumer.run(handler, workers=2, drain=0) == (0, 0, 2)
        go_on.set()
        threads[0].join(10)
    assert begun == [b"1"]


def test_a_run_has_as_many_threads_as_before_once_the_machine_has_them_again(
    broker: FakeBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[threading.Thread] = []
    scarce = threading.Event()
    together = threading.Barrier(2)

    class Scarce(threading.Thread):
        def start(self) -> None:
            if begun and not scarce.is_set():
                scarce.set()
                raise RuntimeError("can't start new thread")
            begun.append(self)
            super().start()

    def handler(message: Message) -> None:
        if message.payload == b"2":
            broker.wait_for(lambda: len(broker.rows) == 1)
            broker.push([b"3", b"4"], token=8)
        elif message.payload in (b"3", b"4"):
            try:
                together.wait(5)
            finally:
                consumer.stop()

    consumer = client.consumer("departures")
    with consumer:
        broker.push([b"1", b"2"])
        monkeypatch.setattr(crew, "threading", SimpleNamespace(Thread=Scarce, Semaphore=threading.Semaphore))
        assert consumer.run(handler, workers=2) == (4, 0, 0)


def longest_attempt(client: Client, monkeypatch: pytest.MonkeyPatch) -> float | None:
    """Return for how long a run asks at a time while no broker answers."""
    consumer = client.consumer("departures")
    asked: list[float | None] = []

    def run(call: object, timeout: float | None) -> None:
        asked.append(timeout)
        consumer.stop()
        raise Disconnected("nobody listens there")

    monkeypatch.setattr(client.connection, "run", run)
    assert consumer.run(print) == (0, 0, 0)
    [timeout] = asked
    return timeout


def test_a_run_that_reaches_no_broker_looks_for_signals_every_few_seconds(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for as long as a call may take, and whoever had pressed Ctrl-C, too."""
    timeout = longest_attempt(client, monkeypatch)
    assert timeout is not None
    assert timeout <= 5


def test_a_run_asks_for_no_longer_than_a_call_of_its_client_may_take(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Client(broker.endpoint, timeout=0.25) as client:
        assert longest_attempt(client, monkeypatch) == 0.25
