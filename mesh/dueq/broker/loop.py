"""The event loop: drain all input, one step of the core, carry out its effects, wait for the next thing.

Waiting is by `select` with microseconds, because `poll` counts whole milliseconds and a due instant must not be
missed by one. ZeroMQ's descriptors are edge-triggered: whether there is input is asked before every wait.
"""

from __future__ import annotations

import gc
import select
import time
from collections.abc import Callable
from typing import Protocol

import structlog

from dueq.broker.inbox import Inbox
from dueq.broker.sockets import Sockets
from dueq.core.effects import (
    ConnectPeer,
    Coordinate,
    DisconnectPeer,
    Effect,
    Exit,
    Log,
    Persist,
    Read,
    SendClient,
    SendPeer,
)
from dueq.core.events import Event
from dueq.core.instant import Now
from dueq.core.membership import CoordinatorOrder
from dueq.core.persistence import StoreRead

_IDLE_US = 20_000
_COLLECT_S = 2.0
_WAIT_MAX_S = 0.5
_LOG_S = 1.0


class Core(Protocol):
    """What the loop drives."""

    def step(self, events: list[Event], now: Now) -> list[Effect]:
        """Take a turn."""
        ...

    def next_deadline_us(self, now: Now) -> int:
        """When the next turn must be taken, whatever happens."""
        ...


class Orders(Protocol):
    """Who carries out what takes time."""

    def persist(self, order: Persist) -> None:
        """Write, sync, answer Persisted."""
        ...

    def read(self, request: StoreRead) -> None:
        """Read, answer."""
        ...

    def coordinate(self, order: CoordinatorOrder) -> None:
        """Ask the coordinator."""
        ...


def read_clocks() -> Now:
    """Read both clocks."""
    return Now(time.time_ns() // 1000, time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000)


class Loop:
    """Drives one core until it is told to stop.

    Attributes:
        turns, busy_us: how many turns were taken, and how long they took in all.
        exit_reason: why the core ordered the process to end; "" if it did not.
    """

    def __init__(
        self,
        core: Core,
        sockets: Sockets,
        inbox: Inbox,
        orders: Orders,
        log: structlog.stdlib.BoundLogger,
        each_second: Callable[[Now], None],
    ) -> None:
        self._core, self._sockets, self._inbox, self._orders, self._log = core, sockets, inbox, orders, log
        self._each_second = each_second
        self._stop = False
        self._second_at = 0.0
        self._collect_at = 0.0
        self._said_at = 0.0
        self._pending: list[Event] = []
        self.turns = 0
        self.busy_us = 0
        self.exit_reason = ""
        self._execute: dict[type, Callable[..., None]] = {
            SendClient: self._send_client,
            SendPeer: lambda effect: sockets.to_peer(effect.broker_id, effect.message, effect.bodies),
            Persist: orders.persist,
            Read: lambda effect: orders.read(effect.request),
            Coordinate: lambda effect: orders.coordinate(effect.order),
            ConnectPeer: lambda effect: sockets.connect(effect.broker_id, effect.endpoint),
            DisconnectPeer: lambda effect: sockets.disconnect(effect.broker_id),
            Log: self._say,
            Exit: self._exit,
        }

    def stop(self) -> None:
        """End after the present turn; may be called from a signal handler or another thread."""
        self._stop = True
        self._inbox.wake()

    def run(self) -> None:
        """Take turns until told to stop."""
        while not self._stop:
            events = self._pending + self._inbox.take() + self._sockets.receive()
            self._pending = []
            now = read_clocks()
            for effect in self._core.step(events, now):
                self._execute[type(effect)](effect)
            self.turns += 1
            after = read_clocks()
            self.busy_us += after.mono_us - now.mono_us
            self._wait(self._core.next_deadline_us(after), after)

    def _wait(self, deadline_us: int, now: Now) -> None:
        left_us = deadline_us - now.mono_us
        if self._pending or left_us <= 0 or self._sockets.readable():
            return
        if left_us > _IDLE_US:
            self._idle(now)
        seconds = min(left_us / 1e6, _WAIT_MAX_S)
        select.select([self._inbox.fileno(), *self._sockets.descriptors()], [], [], seconds)

    def _idle(self, now: Now) -> None:
        """Garbage is collected, and numbers are published, only where nothing is due."""
        seconds = now.mono_us / 1e6
        if seconds >= self._second_at:
            self._second_at = seconds + 1.0
            self._each_second(now)
            self._complain(seconds)
        if seconds >= self._collect_at:
            self._collect_at = seconds + _COLLECT_S
            gc.collect(1)

    def _complain(self, seconds: float) -> None:
        """Refused frames are logged at most once a second."""
        refusals = self._sockets.refusals
        if refusals and seconds - self._said_at >= _LOG_S:
            self._said_at = seconds
            self._log.warning("frames.refused", count=len(refusals), latest=refusals[-1])
        refusals.clear()

    # -------------------------------------------------------------- effects

    def _send_client(self, effect: SendClient) -> None:
        lost = self._sockets.to_client(effect.identity, effect.message, effect.bodies)
        if lost is not None:
            self._pending.append(lost)

    def _say(self, effect: Log) -> None:
        getattr(self._log, effect.level)(effect.event, **effect.fields)

    def _exit(self, effect: Exit) -> None:
        self.exit_reason = effect.reason
        self._stop = True
