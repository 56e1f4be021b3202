"""How runs end: in a forked process, in a cancelled task, while handlers come to their end."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from dueq import AsyncClient
from dueq.client.handling import ending_signals
from tests.unit.client.fake_broker import FakeBroker


def test_a_process_that_a_handler_has_forked_ends_by_sigterm() -> None:
    """Such as a worker of multiprocessing: who ends that waits until it has ended."""
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
