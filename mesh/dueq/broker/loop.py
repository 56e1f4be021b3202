"""The event loop: push due messages, drain all input, hear of syncs and send the answers that waited for them, take one
step of the core, carry out its effects, wait for the next event.

ZeroMQ's descriptors are edge-triggered: before every wait the loop asks whether there is input. `waiting` says how the
wait meets a due instant to the microsecond.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import filterfalse
from typing import Protocol

import structlog

from dueq.broker.clocks import Clocks, read_clocks
from dueq.broker.garbage import IdleCollector
from dueq.broker.inbox import Inbox
from dueq.broker.inserts import Inserts, is_insert
from dueq.broker.sockets import Sockets
from dueq.broker.waiting import Waiter
from dueq.core.ports.effects import (
    ConnectPeer,
    Coordinate,
    Effect,
    Exit,
    Log,
    Persist,
    Read,
    SendClient,
    SendPeer,
)
from dueq.core.ports.events import Event, PeerFrameReceived, Persisted
from dueq.core.ports.membership import CoordinatorOrder
from dueq.core.ports.persistence import StoreRead
from dueq.core.turn.metrics import Histogram
from dueq.instant import Now
from dueq_codecs.messages import Push

TURN_BUCKETS_US = (100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000)
_IDLE_US = 20_000
_NEVER_US = 1 << 62
_WAIT_MAX_S = 0.5
_SECOND_US = 1_000_000
_OVERDUE_US = 4 * _SECOND_US
"""Under load, the work of each second waits this long for an idle moment, and is then done anyhow."""


class Core(Protocol):
    """The core as the loop drives it."""

    def push(self, now: Now) -> list[Effect]:
        """Push due messages that need nothing else, before a turn."""
        ...

    def hear(self, events: list[Event], now: Now) -> list[Effect]:
        """Begin a turn with what has happened first."""
        ...

    def step(self, events: list[Event], now: Now) -> list[Effect]:
        """Take a turn."""
        ...

    def next_deadline_us(self, now: Now) -> int:
        """When the next turn must be taken, whatever happens."""
        ...


class Orders(Protocol):
    """Carries out the orders that take time."""

    def persist(self, order: Persist) -> None:
        """Write, sync, answer Persisted."""
        ...

    def read(self, request: StoreRead) -> None:
        """Read, answer."""
        ...

    def coordinate(self, order: CoordinatorOrder) -> None:
        """Ask the coordinator."""
        ...


class Loop:
    """Drives one core until it is told to stop.

    Attributes:
        turns: how long the turns took, input, step and effects together.
        inserts: inserts that wait their turn.
        exit_reason: why the core ordered the process to end; "" if it did not.
    """

    def __init__(
        self,
        core: Core,
        sockets: Sockets,
        inbox: Inbox,
        waiter: Waiter,
        orders: Orders,
        log: structlog.stdlib.BoundLogger,
        each_second: Callable[[Now], None],
        clocks: Clocks = read_clocks,
    ) -> None:
        self._core, self._sockets, self._inbox, self._waiter = core, sockets, inbox, waiter
        self._log, self._each_second, self._clocks = log, each_second, clocks
        self.inserts = Inserts()
        self._collector = IdleCollector()
        self._stop = False
        self._second_at_us = 0
        # When the present turn began, when it should have begun (mono µs), and whether it pushes.
        self._began_us = 0
        self._expected_us = _NEVER_US
        self._pushes = False
        self._events: list[Event] = []
        # Clients that could not be sent to in this turn: the core hears of them in the next one.
        self._lost: list[Event] = []
        self.turns = Histogram(TURN_BUCKETS_US)
        self.exit_reason = ""
        self._execute: dict[type, Callable[..., None]] = {
            SendClient: self._send_client,
            SendPeer: lambda effect: sockets.to_peer(effect.broker_id, effect.message, effect.bodies),
            Persist: orders.persist,
            Read: lambda effect: orders.read(effect.request),
            Coordinate: lambda effect: orders.coordinate(effect.order),
            ConnectPeer: lambda effect: sockets.connect(effect.broker_id, effect.endpoint),
            Log: self._say,
            Exit: self._exit,
        }

    def stop(self) -> None:
        """End after the present turn; may be called from a signal handler or another thread."""
        self._stop = True
        self._inbox.wake()

    def run(self) -> None:
        """Take turns until told to stop."""
        self._waiter.add(self._inbox.fileno())
        self._collector.start()
        try:
            while not self._stop:
                self._wait(self._turn())
        finally:
            self._collector.stop()
            self._waiter.remove(self._inbox.fileno())

    def story(self) -> dict[str, object]:
        """Return a description of the present turn, for the log of a failure. No payloads."""
        kinds = Counter(
            f"{type(event).__name__}:{type(message).__name__}"
            if message is not None
            else type(event).__name__
            for event, message in ((event, getattr(event, "message", None)) for event in self._events)
        )
        return {"turn": sum(self.turns.counts), "events": dict(kinds)}

    def _turn(self) -> Now:
        """Take one turn; returns the instant at its end."""
        began = self._clocks()
        self._began_us = began.mono_us
        pushed = self._core.push(began)
        if pushed:
            began = self._carry_out(pushed)
        self._events = self._gather(began)
        ended = began
        if self._events:
            ended = self._step(self._clocks())
        elif not pushed or self._core.next_deadline_us(began) <= began.mono_us:
            ended = self._carry_out(self._core.step([], began))
        self.turns.observe(ended.mono_us - self._began_us)
        return ended

    def _step(self, now: Now) -> Now:
        """Take a turn with the input: first the events that commit, so that requests waiting for them are answered."""
        first = list(filter(_commits, self._events))
        if not first:
            return self._carry_out(self._core.step(self._events, now))
        self._carry_out(self._core.hear(first, now))
        return self._carry_out(self._core.step(list(filterfalse(_commits, self._events)), now))

    def _carry_out(self, effects: list[Effect]) -> Now:
        """Carry out effects; returns the instant at which that was done."""
        self._pushes = False
        for effect in effects:
            self._execute[type(effect)](effect)
        ended = self._clocks()
        if self._pushes:
            late_us = ended.mono_us - min(self._expected_us, self._began_us)
            self.inserts.pace.pushed(late_us, ended.mono_us)
        return ended

    def _gather(self, now: Now) -> list[Event]:
        """Collect this turn's events: urgent ones first, then a share of the inserts."""
        events, self._lost = self._lost, []
        if self._waiter.may_be_ready(self._inbox.fileno()):
            events += self._inbox.take()
        for event in self._sockets.receive():
            if not is_insert(event):
                events.append(event)
            elif (refusal := self.inserts.put(event, now)) is not None:
                self._sockets.counts.refuse("busy", refusal.text)
                self._sockets.answer(event, refusal)
        events.extend(self.inserts.take(now))
        return events

    def _wait(self, now: Now) -> None:
        self._waiter.skip()
        left_us = self._core.next_deadline_us(now) - now.mono_us
        # Messages that came due during this turn have waited for its end.
        self._expected_us = now.mono_us + left_us if left_us > 0 else self._began_us
        inserts_us = self.inserts.wait_us(now)
        if inserts_us is not None:
            left_us = min(left_us, inserts_us)
        busy = bool(self._lost) or left_us <= 0 or self._sockets.readable()
        self._rest(now, 0 if busy else left_us)
        if busy or self._stop:
            return
        left_us -= self._clocks().mono_us - now.mono_us
        if left_us > 0:
            self._waiter.wait(min(left_us / 1e6, _WAIT_MAX_S))

    def _rest(self, now: Now, left_us: int) -> None:
        """Collect garbage and publish numbers if nothing is due for `left_us`, or if that cannot wait."""
        idle = left_us > _IDLE_US
        if now.mono_us >= self._second_at_us + (0 if idle else _OVERDUE_US):
            self._second_at_us = now.mono_us + _SECOND_US
            self._each_second(now)
            self._complain()
        self._collector.rest(left_us)

    def _complain(self) -> None:
        """Refused frames are logged at most once a second."""
        count, latest = self._sockets.counts.take_unsaid()
        if count:
            self._log.warning("frames.refused", count=count, latest=latest)

    # -------------------------------------------------------------- effects

    def _send_client(self, effect: SendClient) -> None:
        if isinstance(effect.message, Push):
            self._pushes = True
        lost = self._sockets.to_client(effect.identity, effect.message, effect.bodies)
        if lost is not None:
            self._lost.append(lost)

    def _say(self, effect: Log) -> None:
        getattr(self._log, effect.level)(effect.event, **effect.fields)

    def _exit(self, effect: Exit) -> None:
        self.exit_reason = effect.reason
        self._stop = True


def _commits(event: Event) -> bool:
    """Whether an event may commit something: other replicas have synced it, or this one has.

    All that comes from peers but inserts, so that it stays in its order.
    """
    return isinstance(event, PeerFrameReceived | Persisted) and not is_insert(event)
