"""Waiting for the I/O thread, in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from dueq.client.core.ports import events
from dueq.client.core.ports.effects import Completed
from dueq.client.host import Answer, SessionHost
from dueq.errors import OutcomeUnknown

Lock = threading.Lock

_PATIENCE_S: Final = 5.0
"""The session machine answers every call by its deadline; should its thread be stuck, a caller still returns."""


class Bridges:
    """Answers come into the thread that waits: there is nothing to keep for it."""


class Pending:
    """A call that is under way.

    Args:
        host: sends it.
        bridges: not used.
        build: its event, from its number and its deadline (monotonic µs).
        seconds: until it must be answered.
        undo: of its `Call`. It undoes the answer to an abandoned call. That may happen in the I/O thread, and twice.
    """

    def __init__(
        self,
        host: SessionHost,
        bridges: Bridges,
        build: Callable[[int, int], events.Event],
        seconds: float,
        undo: Callable[[Any], events.Event] | None = None,
    ) -> None:
        self._host = host
        self._seconds = seconds
        self._undo = undo
        self._abandoned = False
        self._done = threading.Lock()
        self._done.acquire()
        self._answers: list[Answer] = []
        try:
            self._call: Final = host.call(build, seconds, self._settle)
        except BaseException:
            self._give_up()
            raise

    def answer(self) -> Answer:
        """Wait for the answer; a thread that is interrupted meanwhile, or waits in vain, abandons the call."""
        try:
            if not self._host.wait_done(self._done, self._seconds + _PATIENCE_S):
                raise OutcomeUnknown("the client's own thread did not answer in time")
        except BaseException:
            self.abandon()
            raise
        return self._answers[0]

    def came(self) -> bool:
        """Whether the answer is there."""
        return bool(self._answers)

    def abandon(self) -> None:
        """Nobody waits any more; it may or may not take effect."""
        self._give_up()
        self._host.submit(events.Abandon(self._call))

    def _settle(self, answer: Answer) -> None:
        self._answers.append(answer)
        self._done.release()
        if self._abandoned:
            self._take_back(answer)

    def _give_up(self) -> None:
        self._abandoned = True
        if self._answers:
            self._take_back(self._answers[0])

    def _take_back(self, answer: Answer) -> None:
        if self._undo is not None and isinstance(answer, Completed) and answer.value:
            self._host.submit(self._undo(answer.value))


class Arrivals:
    """Wakes the thread that waits for messages; lost leases are told when it asks for messages the next time.

    Args:
        bridges: of the client.
        tell: not kept: nothing is told in another thread than the user's.
    """

    def __init__(self, bridges: Bridges, tell: Callable[[], object]) -> None:
        self._event = threading.Event()
        self.wake = self._event.set
        """For the I/O thread: something has come."""
        self.clear = self._event.clear
        """Wait for what comes from now on."""

    def begin(self) -> None:
        """Every thread can be woken."""

    def give_way(self) -> None:
        """Other threads have their turn by themselves."""

    def wait(self, host: SessionHost, seconds: float | None) -> None:
        """Return when something has come, or time is over."""
        host.wait(self._event, seconds)

    def follow(self, result: object) -> None:
        """What a callback returns is of no interest."""


def acquired(lock: threading.Lock, seconds: float) -> bool:
    """Whether the lock could be had in time; who has it releases it."""
    return lock.acquire(timeout=seconds)


def sleep(host: SessionHost, seconds: float) -> None:
    """Let time pass."""
    host.sleep(seconds)


def stop(host: SessionHost) -> None:
    """End what runs the session machine."""
    host.stop()
