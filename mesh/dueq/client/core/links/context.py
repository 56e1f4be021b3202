"""Shared by all parts of the session machine: the instant, timers, effects, request numbers, randomness."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Protocol

from dueq.client.core.ports.clock import MeshClock
from dueq.client.core.ports.effects import Effect, Log
from dueq.client.core.ports.timers import Timer, Timers
from dueq.instant import Now
from dueq_codecs.messages import BrokerMessage


class RandomSource(Protocol):
    """The injected source of jitter: a `random.Random`."""

    def random(self) -> float:
        """Return a number in [0, 1)."""
        ...


class Context:
    """The shared tools of one session machine.

    Attributes:
        client_id: names the windows that number this client's inserts, moves and cancels.
        settling_id: names the windows in which all its consumers settle messages: many consumers share
            requests.
        now: the instant of the present step.
        effects: orders of the present step, in order.
        refused: answers and pushes of brokers that were dropped, as something is wrong with them.
        steady: no link falls silent, and leaders stay: nobody looks after them.
    """

    def __init__(self, client_id: bytes, random: RandomSource, *, steady: bool = False) -> None:
        self.client_id = client_id
        self.steady = steady
        self.settling_id = hashlib.blake2b(client_id, digest_size=16, person=b"dueq.settling").digest()
        self.now = Now(0, 0)
        self.effects: list[Effect] = []
        self.timers = Timers()
        self.clock = MeshClock()
        self._random = random
        self._requests = 0
        self.refused = 0

    @property
    def mono_us(self) -> int:
        """The monotonic instant of the present step."""
        return self.now.mono_us

    def emit(self, effect: Effect) -> None:
        """Order something."""
        self.effects.append(effect)

    def log(self, level: str, event: str, **fields: object) -> None:
        """Order one line of log."""
        self.effects.append(Log(level, event, fields))

    def refuse(self, message: BrokerMessage, fault: str) -> None:
        """Drop what a broker has sent: whoever waits for it has heard nothing."""
        self.refused += 1
        self.log("warning", "answer.refused", kind=type(message).__name__, reason=fault, count=self.refused)

    def after(self, delay_us: int, action: Callable[[], None]) -> Timer:
        """Run `action` once `delay_us` have passed."""
        return self.timers.at(self.now.mono_us + delay_us, action)

    def next_request(self) -> int:
        """A request number that this client has not used."""
        self._requests += 1
        return self._requests

    def jittered(self, duration_us: int) -> int:
        """Return a random time between half of the duration and the whole."""
        return int(duration_us * (0.5 + self._random.random() / 2))
