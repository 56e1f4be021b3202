"""One broker, its clients, and the only clock that they know.

Time stands still while work is done: a call, its answer and the push that follows all happen at one instant. It moves
when the test moves it, and while the test itself waits for something. No thread and no task of its own: whoever brings
an event in does the work that follows, under one lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Protocol

from dueq.instant import Now
from dueq.testing.broker import Broker
from dueq.testing.errors import NotAtRest

HOPE_US: Final = 60_000_000
"""How often a wait without a time-out looks whether anything can still come."""
_TURNS_MAX: Final = 100_000
"""Turns at one instant; more of them would never end."""
_MONO_US: Final = 1_000_000_000_000
"""What the clock for durations shows at the beginning."""


class Host(Protocol):
    """One client's session machine."""

    def next_us(self, now: Now) -> int | None:
        """Return when it must have a turn, monotonic µs; None: not by itself."""
        ...

    def turn(self) -> None:
        """Have a turn."""
        ...

    def end(self) -> None:
        """Tell everybody who waits that nothing comes any more; once more does nothing."""
        ...


class World:
    """Everything that happens in one test.

    Args:
        wall_us: the instant at which it begins, Unix µs.

    Attributes:
        broker: the mesh.
        lock: held while anything happens.
        owner: the thread in which time may move.
        errors: of handlers; the test has not seen them.
        rest: called at each instant at which something happened, without the lock, before time moves on.
    """

    def __init__(self, wall_us: int) -> None:
        self._wall_us, self._mono_us = wall_us, _MONO_US
        self.broker = Broker(self.now())
        self.lock = threading.RLock()
        self.owner = threading.get_ident()
        self.rest: Callable[[], None] = lambda: None
        self.errors: list[BaseException] = []
        self._hosts: list[Host] = []
        self._working = False

    def now(self) -> Now:
        """The instant, as every clock of the mesh shows it."""
        return Now(self._wall_us, self._mono_us)

    def add(self, host: Host) -> None:
        """A client has come."""
        with self.lock:
            self._hosts.append(host)

    def remove(self, host: Host) -> None:
        """A client has gone."""
        with self.lock:
            if host in self._hosts:
                self._hosts.remove(host)

    # -------------------------------------------------------------- the present instant

    def settle(self) -> None:
        """Do everything that is to be done at this instant."""
        with self.lock:
            if self._working:  # an answer's callback has brought in another event: who is at work sees to it
                return
            self._working = True
            try:
                for _ in range(_TURNS_MAX):
                    if not self._turns():
                        return
            finally:
                self._working = False
        raise RuntimeError(f"the mesh does not come to rest at {self._wall_us} µs")

    def _turns(self) -> bool:
        """Have everybody take a turn whose time has come; returns whether there was anybody."""
        now, any_turn = self.now(), False
        if self.broker.next_us(now) <= now.mono_us:
            self.broker.turn(now)
            any_turn = True
        for host in list(self._hosts):
            at_us = host.next_us(now)
            if at_us is not None and at_us <= now.mono_us:
                host.turn()
                any_turn = True
        return any_turn

    # -------------------------------------------------------------- time

    def next_us(self) -> int:
        """Return the next instant at which something happens by itself, monotonic µs."""
        with self.lock:
            now = self.now()
            times = [self.broker.next_us(now)]
            times += [at_us for host in self._hosts if (at_us := host.next_us(now)) is not None]
            return min(times)

    def expect(self) -> None:
        """Return if a message waits for its time, one is leased, or a recurrence runs.

        Raises:
            NotAtRest: a wait without a time-out would never end.
        """
        with self.lock:
            if self.broker.next_ms(self.now()) is None:
                raise NotAtRest("nothing is going to happen, and the test waits for it without a time-out")

    def step(self, until_us: int) -> bool:
        """Move to the next instant at which something happens, or to `until_us`; returns whether that is reached."""
        with self.lock:
            at_us = min(max(self.next_us(), self._mono_us), until_us)
            self._wall_us += at_us - self._mono_us
            self._mono_us = at_us
            self.settle()
            return at_us >= until_us

    def move(self, until_us: int) -> None:
        """Let time pass until an instant, monotonic µs, or until a handler has failed; for the owner."""
        self.settle()
        self.rest()
        while not self.errors and not self.step(until_us):
            self.rest()
        self.rest()
        self.surface()

    def pass_until(self, over: Callable[[], bool], until_us: int) -> bool:
        """Let time pass until something is so, or it is `until_us`; for the owner. Returns whether it is so."""
        self.settle()
        while not over():
            self.rest()
            if over():
                return True
            if self.step(until_us):
                return over()
        return True

    def surface(self) -> None:
        """Raise the first error of a handler that the test has not seen."""
        errors, self.errors = self.errors, []
        if errors:
            for other in errors[1:]:
                errors[0].add_note(f"another handler failed: {other!r}")
            raise errors[0]

    def close(self) -> None:
        """End everything; calls under way, and later ones, raise ClientClosed."""
        with self.lock:
            try:
                for host in list(self._hosts):
                    host.end()
            finally:
                self._hosts.clear()
                self.broker.close()
