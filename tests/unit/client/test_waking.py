"""When a user's thread wakes the client's: an ack that nobody waits for does so only if it would wait too long."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dueq.client.core.ports.effects import Deliver
from dueq.client.core.ports.events import Settle
from dueq.client.inbox import Inbox
from dueq.client.runtime import IDLE_MS, LAZY_US, Runtime
from dueq_codecs.records import RecordKind

CONSUMER = b"c" * 16
ACK = Settle(CONSUMER, RecordKind.ACK, [])


class Counting(Runtime):
    """Counts how often its thread is woken, which does nothing by itself."""

    woken = 0

    def _run(self) -> None:
        pass

    def _wake(self) -> None:
        self.woken += 1
        self._sleeping = False


@pytest.fixture
def runtime() -> Iterator[Counting]:
    counting = Counting([])
    yield counting
    counting._end()


def test_after_a_delivery_the_thread_sleeps_no_longer_than_an_ack_may_wait(runtime: Counting) -> None:
    runtime._fill(Inbox(lambda: None), Deliver(CONSUMER, []))
    assert runtime._sleep_ms() == LAZY_US // 1000
    for _ in range(3):
        runtime.submit_lazily(ACK)
    assert runtime.woken == 0, "it takes them when it wakes by itself"
    runtime._queue.clear()
    assert runtime._sleep_ms() == IDLE_MS, (
        "once for each delivery: an idle consumer does not wake for nothing"
    )
    runtime.submit_lazily(ACK)
    runtime.submit_lazily(ACK)
    assert runtime.woken == 1


def test_what_somebody_waits_for_wakes_it_at_once(runtime: Counting) -> None:
    runtime._fill(Inbox(lambda: None), Deliver(CONSUMER, []))
    runtime._sleep_ms()
    runtime.submit(ACK)
    assert runtime.woken == 1


def test_what_is_submitted_before_the_thread_sleeps_keeps_it_awake(runtime: Counting) -> None:
    """Nobody wakes a thread that does not sleep: it looks itself, once it has said that it will."""
    runtime.submit(ACK)
    assert runtime.woken == 0
    assert runtime._sleep_ms() == 0
