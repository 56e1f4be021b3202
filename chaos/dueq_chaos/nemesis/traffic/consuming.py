"""Consumers: they acknowledge most messages, and give back, keep longer or let lapse the others."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from dueq import Client, Message
from dueq.errors import DueqError
from dueq_chaos.history.recorded import RecordedConsumer
from dueq_chaos.history.recorder import Recorder
from dueq_chaos.nemesis.traffic.specification import Specification

_RECEIVE_S = 0.3
_SETTLE_S = 3.0
_EXTEND_S = 5.0
_KEEP_S = 2.0
_NACK_S = (0.1, 1.5)
_WHIMS = ("nack", "release", "extend", "lapse")


class Consuming:
    """One consumer.

    Attributes:
        delivered: deliveries, repeated ones too.
        lateness_ms: of first deliveries since the last call of `counters`, by this machine's clock.
    """

    def __init__(self, specification: Specification, recorder: Recorder) -> None:
        self._specification, self._recorder = specification, recorder
        self._random = Random(specification.seed)
        self._stop = threading.Event()
        self._calm = threading.Event()
        self.delivered = 0
        self.lateness_ms: list[float] = []
        self._kept: list[tuple[float, Message]] = []

    def run(self) -> None:
        """Go on until `stop`."""
        with Client(self._specification.endpoints) as client:
            while not self._stop.is_set():
                # The mesh was out of reach for a whole time-out: begin again, as every user would.
                with contextlib.suppress(DueqError):
                    self._consume(client)

    def _consume(self, client: Client) -> None:
        specification = self._specification
        plain = client.consumer(specification.topic, lease=specification.lease_s, credit=200)
        with RecordedConsumer(self._recorder, plain, specification.name) as consumer:
            while not self._stop.is_set():
                with contextlib.suppress(DueqError):
                    self._turn(consumer)

    def stop(self) -> None:
        """Receive no more."""
        self._stop.set()

    def calm(self) -> None:
        """From now on simply acknowledge."""
        self._calm.set()

    def counters(self) -> dict[str, Any]:
        """Return the deliveries, and their lateness, since the last call."""
        late_ms = [round(ms, 1) for ms in self._take_lateness()]
        return {"delivered": self.delivered, "late_ms": late_ms}

    def _take_lateness(self) -> list[float]:
        """Return the lateness of first deliveries since the last call, ms."""
        taken, self.lateness_ms = self.lateness_ms, []
        return taken

    def _turn(self, consumer: RecordedConsumer) -> None:
        messages = consumer.receive(100, timeout=_RECEIVE_S)
        now_ms = time.time() * 1000
        self.delivered += len(messages)
        self.lateness_ms += [now_ms - message.due for message in messages if message.attempt == 1]
        done: list[Message] = []
        for message in messages:
            careless = not self._calm.is_set() and self._random.random() < self._specification.careless
            if careless:
                self._follow_whim(consumer, message)
            else:
                done.append(message)
        done += self._kept_long_enough()
        _settle(lambda: consumer.ack(done, timeout=_SETTLE_S))

    def _follow_whim(self, consumer: RecordedConsumer, message: Message) -> None:
        whim = self._random.choice(_WHIMS)
        if whim == "nack":
            delay = self._random.uniform(*_NACK_S)
            _settle(lambda: consumer.nack([message], delay=delay, timeout=_SETTLE_S))
        elif whim == "release":
            _settle(lambda: consumer.release([message], timeout=_SETTLE_S))
        elif whim == "extend":
            _settle(lambda: consumer.extend([message], _EXTEND_S, timeout=_SETTLE_S))
            self._kept.append((time.monotonic() + _KEEP_S, message))

    def _kept_long_enough(self) -> Sequence[Message]:
        now = time.monotonic()
        ready = [message for until, message in self._kept if until <= now and not message.lost]
        self._kept = [(until, message) for until, message in self._kept if until > now]
        return ready


def _settle(settle: Callable[[], Any]) -> None:
    """A refusal or an unknown outcome is in the history; the message comes again or it does not."""
    with contextlib.suppress(DueqError):
        settle()
