"""Producers: they schedule, move and cancel, and retry until they know the outcome."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TypeVar

from dueq import Client
from dueq.errors import DueqError, OutcomeUnknown, PartialFailure
from dueq_chaos.history.recorded import RecordedProducer
from dueq_chaos.history.recorder import Recorder
from dueq_chaos.nemesis.traffic.specification import Specification

T = TypeVar("T")
_THREADS = 4
_TURN_S = 0.2
_CALL_S = 4.0
_INSIST_S = 40.0
_RECENT = 200
_SOON_MS, _LATER_MS = (100, 1_500), (1_500, 6_000)
_LATER, _MOVED, _CANCELLED = 0.25, 0.3, 0.3
_FILLER = b"." * 180


class Producing:
    """Some threads, so that a call that waits through a fault holds back a part of the traffic only.

    Attributes:
        scheduled: messages acknowledged.
    """

    def __init__(self, specification: Specification, recorder: Recorder) -> None:
        self._specification, self._recorder = specification, recorder
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.scheduled = 0

    def run(self) -> None:
        """Go on until `stop`, and then until the outcome of everything begun is known."""
        with Client(self._specification.endpoints) as client:
            threads = [
                threading.Thread(target=self._produce, args=(client, number)) for number in range(_THREADS)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def stop(self) -> None:
        """Begin nothing new."""
        self._stop.set()

    def _produce(self, client: Client, number: int) -> None:
        name = f"{self._specification.name}.{number}"
        random = Random(f"{self._specification.seed} {name}")
        producer = RecordedProducer(self._recorder, client.producer(self._specification.topic), name)
        recent: deque[str] = deque(maxlen=_RECENT)
        turn, owed = 0, random.random()
        while not self._stop.wait(_TURN_S * random.uniform(0.5, 1.5)):
            owed += self._specification.rate * _TURN_S / _THREADS
            rows, owed = int(owed), owed % 1
            if rows:
                self._schedule(producer, f"{name} {turn}", rows, random, recent)
            if recent and random.random() < _MOVED:
                chosen = random.sample(recent, min(3, len(recent)))
                due = _now_ms() + random.randint(*_SOON_MS)
                insist(partial(producer.move_many, chosen, due, timeout=_CALL_S))
            if recent and random.random() < _CANCELLED:
                chosen = random.sample(recent, min(2, len(recent)))
                insist(partial(producer.cancel_many, chosen, timeout=_CALL_S))
            turn += 1

    def _schedule(
        self, producer: RecordedProducer, name: str, rows: int, random: Random, recent: deque[str]
    ) -> None:
        payloads = [f"{name} {row} ".encode() + _FILLER for row in range(rows)]
        now = _now_ms()
        dues = [
            now + random.randint(*(_LATER_MS if random.random() < _LATER else _SOON_MS)) for _ in payloads
        ]
        ids = insist(lambda: producer.schedule_many(payloads, dues, timeout=_CALL_S))
        if ids is not None:
            recent.extend(ids)
            with self._lock:
                self.scheduled += len(ids)


def insist(call: Callable[[], T]) -> T | None:
    """Make a call; repeat it as its error says until its outcome is known.

    Returns:
        What it returned; None where it was refused, or where nobody knew for too long.
    """
    until = time.monotonic() + _INSIST_S
    while time.monotonic() < until:
        try:
            return call()
        except (OutcomeUnknown, PartialFailure) as error:
            call = partial(error.retry, _CALL_S)
        except DueqError:
            return None
    return None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
