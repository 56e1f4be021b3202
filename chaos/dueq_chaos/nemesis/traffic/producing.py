"""Producers: they schedule, move and cancel, and retry until they know the outcome."""

from __future__ import annotations

import threading
import time
from collections import deque
from functools import partial
from random import Random
from typing import Any

from dueq import Client
from dueq_chaos.history.recorded import RecordedProducer
from dueq_chaos.history.recorder import Recorder
from dueq_chaos.nemesis.traffic import topics
from dueq_chaos.nemesis.traffic.insisting import CALL_S, insist
from dueq_chaos.nemesis.traffic.specification import Specification

_TOPIC_OF_THREAD = (topics.TIMELINE, topics.TIMELINE, topics.RANKED, topics.SHARED)
_TURN_S = 0.2
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
                threading.Thread(target=self._produce, args=(client, number))
                for number in range(len(_TOPIC_OF_THREAD))
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def stop(self) -> None:
        """Begin nothing new."""
        self._stop.set()

    def calm(self) -> None:
        """Begin nothing new: a producer has nothing else to do."""
        self._stop.set()

    def counters(self) -> dict[str, Any]:
        """Return how many messages were acknowledged."""
        return {"scheduled": self.scheduled}

    def _produce(self, client: Client, number: int) -> None:
        name = f"{self._specification.name}.{number}"
        random = Random(f"{self._specification.seed} {name}")
        topic = _TOPIC_OF_THREAD[number]
        producer = RecordedProducer(self._recorder, client.producer(topic), name)
        recent: deque[str] = deque(maxlen=_RECENT)
        turn, owed = 0, random.random()
        while not self._stop.wait(_TURN_S * random.uniform(0.5, 1.5)):
            owed += self._specification.rate * _TURN_S / len(_TOPIC_OF_THREAD)
            rows, owed = int(owed), owed % 1
            if rows:
                self._schedule(producer, topic, f"{name} {turn}", rows, random, recent)
            if recent and random.random() < _MOVED:
                chosen = random.sample(recent, min(3, len(recent)))
                due = _now_ms() + random.randint(*_SOON_MS)
                insist(partial(producer.move_many, chosen, due, timeout=CALL_S))
            if recent and random.random() < _CANCELLED:
                chosen = random.sample(recent, min(2, len(recent)))
                insist(partial(producer.cancel_many, chosen, timeout=CALL_S))
            turn += 1

    def _schedule(
        self, producer: RecordedProducer, topic: str, name: str, rows: int, random: Random, recent: deque[str]
    ) -> None:
        payloads = [f"{name} {row} ".encode() + _FILLER for row in range(rows)]
        now = _now_ms()
        dues = [
            now + random.randint(*(_LATER_MS if random.random() < _LATER else _SOON_MS)) for _ in payloads
        ]
        kind = _kind_columns(topic, rows, random)
        ids = insist(lambda: producer.schedule_many(payloads, dues, timeout=CALL_S, **kind))
        if ids is not None:
            recent.extend(ids)
            with self._lock:
                self.scheduled += len(ids)


def _kind_columns(topic: str, rows: int, random: Random) -> dict[str, Any]:
    """Return what messages of this kind of topic bear besides a due."""
    if topic == topics.RANKED:
        return {"ranks": [random.randrange(topics.RANKS) for _ in range(rows)]}
    if topic == topics.SHARED:
        return {"groups": [random.choice(topics.GROUPS) for _ in range(rows)]}
    return {}


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
