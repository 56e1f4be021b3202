"""A producer that knows its messages by unique keys only, and the consumer of these messages.

It keeps no id and no `retry()`: after any error it schedules again under the same key, as a process that was started
anew would. Lines of its notes, one JSON object each; instants are Unix µs of this machine's clock:

    {"asked": [keys]}                                 before they are scheduled
    {"scheduled": [keys], "ids": [message ids]}       it is known that they are
    {"cancelling": key}                               before it is cancelled
    {"cancelled": key, "at": us}                      it is known that it is
    {"came": key, "id": message id, "due": ms, "left": when it left the leader, "at": us}
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from pathlib import Path
from random import Random
from typing import Any, Final

from dueq import Client
from dueq.errors import DueqError, InvalidRequest
from dueq_chaos.nemesis.traffic.insisting import CALL_S, repeat
from dueq_chaos.nemesis.traffic.notes import Notes
from dueq_chaos.nemesis.traffic.specification import Specification

_THREADS: Final = 2
_TURN_S: Final = 0.2
_RECENT: Final = 60
_SOON_MS: Final = (200, 5_000)
_CANCELLED, _MOVED = 0.3, 0.3
_RECEIVE_S: Final = 0.3
_SETTLE_S: Final = 3.0


class Keying:
    """Schedules, moves and cancels by key, and receives.

    Args:
        specification: `history` is where the notes go, `rate` counts messages a second.
    """

    def __init__(self, specification: Specification) -> None:
        self._specification = specification
        self._stop = threading.Event()
        self._calm = threading.Event()
        self._producing = _THREADS
        self._lock = threading.Lock()
        self._scheduled = self._delivered = 0

    def run(self) -> None:
        """Go on until `stop`."""
        with (
            Path(self._specification.history).open("a", encoding="utf-8") as file,
            Client(self._specification.endpoints) as client,
        ):
            notes = Notes(file)
            threads = [
                threading.Thread(target=self._produce, args=(client, notes, number))
                for number in range(_THREADS)
            ]
            for thread in threads:
                thread.start()
            while not self._stop.is_set():
                with contextlib.suppress(DueqError):
                    self._consume(client, notes)
            for thread in threads:
                thread.join()

    def stop(self) -> None:
        """Schedule nothing more, and receive no more."""
        self._calm.set()
        self._stop.set()

    def calm(self) -> None:
        """Schedule nothing more."""
        self._calm.set()

    def counters(self) -> dict[str, Any]:
        """Return what was scheduled, what came, and whether something is still being asked for."""
        return {
            "scheduled": self._scheduled, "delivered": self._delivered, "late_ms": [], "busy": self._producing > 0,
        }  # fmt: skip

    def _produce(self, client: Client, notes: Notes, number: int) -> None:
        random = Random(f"{self._specification.seed} {number}")
        prefix = f"{self._specification.name}.{number}"
        producer = client.producer(self._specification.topic)
        recent: deque[str] = deque(maxlen=_RECENT)
        made, owed = 0, 0.0
        while not self._calm.wait(_TURN_S * random.uniform(0.5, 1.5)):
            owed += self._specification.rate * _TURN_S / _THREADS
            rows, owed = int(owed), owed % 1
            keys = [f"{prefix}.{made + row}" for row in range(rows)]
            made += rows
            if keys:
                now = time.time_ns() // 1_000_000
                dues = [now + random.randint(*_SOON_MS) for _ in keys]
                self._schedule(client, notes, keys, dues)
                recent.extend(keys)
            if recent and random.random() < _MOVED:
                key, due = random.choice(recent), time.time_ns() // 1_000_000 + random.randint(*_SOON_MS)
                with contextlib.suppress(DueqError):
                    producer.move(key=key, due=due, timeout=CALL_S)
            if recent and random.random() < _CANCELLED:
                key = random.choice(recent)
                notes.write({"cancelling": key})
                with contextlib.suppress(DueqError):
                    producer.cancel(key=key, timeout=CALL_S)
                    notes.write({"cancelled": key, "at": time.time_ns() // 1000})
        with self._lock:
            self._producing -= 1

    def _schedule(self, client: Client, notes: Notes, keys: list[str], dues: list[int]) -> None:
        producer = client.producer(self._specification.topic)
        payloads = [key.encode() for key in keys]
        notes.write({"asked": keys})
        ids = repeat(
            lambda: producer.schedule_many(payloads, dues, keys=keys, on_duplicate="keep", timeout=CALL_S),
            (InvalidRequest,),
        )
        if ids is not None:
            notes.write({"scheduled": keys, "ids": ids})
            with self._lock:
                self._scheduled += len(keys)

    def _consume(self, client: Client, notes: Notes) -> None:
        with client.consumer(self._specification.topic, lease=self._specification.lease_s) as consumer:
            while not self._stop.is_set():
                messages = consumer.receive(100, timeout=_RECEIVE_S)
                now_us = time.time_ns() // 1000
                for message in messages:
                    left = message.due * 1000 + round(message.lateness * 1e6)
                    key = message.payload.decode()
                    notes.write(
                        {"came": key, "id": message.id, "due": message.due, "left": left, "at": now_us}
                    )
                self._delivered += len(messages)
                with contextlib.suppress(DueqError):
                    consumer.ack(messages, timeout=_SETTLE_S)
