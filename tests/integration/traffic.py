"""A producer and consumers that go on through everything, and keep a ledger."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from dueq import Client, Producer
from tests.integration.ledger import PATIENCE_S, Ledger, now_ms

_ROWS = 10
_AHEAD_MS = 250
_PAUSE_S = 0.05


class Traffic:
    """Schedules ten messages every few milliseconds, moves two of them, cancels one; receives and acks all others.

    Producer and consumers have a client each and run in threads of their own.

    Args:
        endpoints: of the mesh.
        topic: an existing one.
        consumers: how many.
        lease: seconds.
    """

    def __init__(
        self, endpoints: Sequence[str], topic: str, *, consumers: int = 1, lease: float = 60.0
    ) -> None:
        self._endpoints, self._topic, self._lease = list(endpoints), topic, lease
        self.ledger = Ledger()
        self._producing, self._consuming = True, True
        self._failure: BaseException | None = None
        self._producer = threading.Thread(target=self._guard, args=(self._produce,))
        self._consumers = [
            threading.Thread(target=self._guard, args=(self._consume,)) for _ in range(consumers)
        ]

    def __enter__(self) -> Self:
        for thread in (self._producer, *self._consumers):
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._producing = self._consuming = False
        for thread in (self._producer, *self._consumers):
            thread.join(PATIENCE_S)

    def go_on(self, count: int = 100) -> None:
        """Wait until so many more messages have been scheduled, and about as many delivered."""
        ledger = self.ledger
        promised, delivered = ledger.promised + count, ledger.delivered + count * 8 // 10
        self.wait(lambda: ledger.promised >= promised and ledger.delivered >= delivered)

    def wait(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds; it is looked at whenever the ledger changes."""
        self.ledger.wait(lambda: self._failure is not None or condition())
        if self._failure is not None:
            raise self._failure

    def finish(self, redelivered: int | None = 0) -> None:
        """Stop producing, wait for all that is due, and judge."""
        self._producing = False
        self._producer.join(PATIENCE_S)
        self.wait(lambda: not self.ledger.outstanding)
        self._consuming = False
        for thread in self._consumers:
            thread.join(PATIENCE_S)
        self.wait(lambda: True)
        self.ledger.check(redelivered)

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._failure = error
            self.ledger.wake()

    def _produce(self) -> None:
        pace = threading.Event()
        with Client(self._endpoints) as client, client.producer(self._topic) as producer:
            for turn in itertools.count():
                if not self._producing:
                    return
                self._change(producer, turn)
                pace.wait(_PAUSE_S)

    def _change(self, producer: Producer, turn: int) -> None:
        payloads = [b"%d.%d " % (turn, row) + b"x" * 50 for row in range(_ROWS)]
        due = now_ms() + _AHEAD_MS
        ids = self.ledger.schedule(producer, payloads, due)
        self.ledger.move(producer, ids[:2], due + 100)
        self.ledger.cancel(producer, ids[2:3])

    def _consume(self) -> None:
        with (
            Client(self._endpoints) as client,
            client.consumer(self._topic, lease=self._lease, credit=200) as consumer,
        ):
            while self._consuming:
                self.ledger.ack(consumer, self.ledger.receive(consumer, timeout=0.2))
