"""Taps: places of a simulated mesh at which a script holds things up, lets them through, or sees them go by.

There are three: the input of a broker's process (frames of peers and clients, answers of its disk and of the
coordinator), its orders to its disk, and its orders to the coordinator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dueq.core.ports.effects import Persist
from dueq.core.ports.events import Event, PeerFrameReceived
from dueq.core.ports.membership import (
    CompareAndSet,
    CompareAndSetDone,
    CoordinatorOrder,
    SetOutcome,
)
from dueq_chaos.sim.environment.coordinator import Session, SimCoordinator
from dueq_chaos.sim.environment.node import Node
from dueq_codecs.messages import PeerFrame

Match = Callable[[Event], bool]


def peer_frames(sender: str = "") -> Match:
    """Frames of one peer, or of all of them."""

    def match(event: Event) -> bool:
        return isinstance(event, PeerFrameReceived) and sender in ("", event.message.sender)

    return match


def appends(sender: str = "") -> Match:
    """Frames that bring records."""

    def match(event: Event) -> bool:
        return (
            isinstance(event, PeerFrameReceived)
            and isinstance(event.message, PeerFrame)
            and sender in ("", event.message.sender)
            and any(append.entries for append in event.message.appends)
        )

    return match


def without_records(event: Event) -> PeerFrameReceived:
    """The same frame as a leader sends it that does not know yet what its follower has: probes, no records."""
    assert isinstance(event, PeerFrameReceived)
    assert isinstance(event.message, PeerFrame)
    probes = [replace(append, entries=[]) for append in event.message.appends]
    return PeerFrameReceived(replace(event.message, appends=probes), event.bodies)


def for_life(event: Event, node: Node) -> PeerFrameReceived:
    """The same frame, as if it had been meant for the broker's present life."""
    assert isinstance(event, PeerFrameReceived)
    assert isinstance(event.message, PeerFrame)
    return PeerFrameReceived(replace(event.message, receiver_incarnation=node.incarnation), event.bodies)


class Caught:
    """The catch of a tap at a door, oldest first.

    Attributes:
        events: still held, or (for one that only looks) seen.
    """

    def __init__(self, door: Door, match: Match, *, keep: bool) -> None:
        self._door, self.match, self.keep = door, match, keep
        self.events: list[Event] = []

    def let_go(self) -> None:
        """Stop holding; the held input goes in now."""
        self.forget()
        for event in self.events:
            self._door.pass_on(event)

    def forget(self) -> None:
        """Stop holding; the held input is lost."""
        if self in self._door.taps:
            self._door.taps.remove(self)

    def again(self, *, backwards: bool = False) -> None:
        """Everything caught goes in (once more)."""
        for event in reversed(self.events) if backwards else list(self.events):
            self._door.pass_on(event)


class Door:
    """Where events come into one broker's process."""

    def __init__(self, node: Node) -> None:
        self.pass_on: Callable[[Event], None] = node.receive
        self.taps: list[Caught] = []
        setattr(node, "receive", self._take)  # noqa: B010

    def tap(self, match: Match, *, keep: bool) -> Caught:
        """Catch what matches; `keep`: it does not go in before it is let go."""
        caught = Caught(self, match, keep=keep)
        self.taps.append(caught)
        return caught

    def _take(self, event: Event) -> None:
        kept = False
        for caught in self.taps:
            if caught.match(event):
                caught.events.append(event)
                kept = kept or caught.keep
        if not kept:
            self.pass_on(event)


class Spindle:
    """The way of one broker's writes to its disk.

    Attributes:
        stopped: writes wait; a crash loses them.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._persist = node.disk.persist
        self.stopped = False
        self._waiting: list[tuple[int, Persist, Callable[[Event], None]]] = []
        setattr(node.disk, "persist", self._take)  # noqa: B010

    def _take(self, order: Persist, done: Callable[[Event], None]) -> None:
        if self.stopped:
            self._waiting.append((self._node.incarnation, order, done))
        else:
            self._persist(order, done)

    def go(self) -> None:
        """Do the writes that have waited, and go on."""
        self.stopped = False
        self.go_on(len(self._waiting))

    def go_on(self, count: int) -> None:
        """Do the first of the writes that have waited."""
        waiting, self._waiting = self._waiting[:count], self._waiting[count:]
        for life, order, done in waiting:
            if self._node.core is not None and life == self._node.incarnation:
                self._persist(order, done)


class LateOrder:
    """A compare-and-set that its broker has sent and the coordinator has not had yet."""

    def __init__(self, desk: Desk, session: Session, order: CompareAndSet) -> None:
        self._desk, self.session, self.order = desk, session, order
        self._ended = False

    def unknown(self) -> None:
        """The connection breaks: the broker learns nothing of the outcome."""
        order, ended, self._ended = self.order, self._ended, True
        if not ended:
            self.session.deliver(CompareAndSetDone(order.token, order.uid, SetOutcome.UNKNOWN, -1))

    def arrive(self) -> None:
        """The coordinator has it and answers."""
        self._ended = True
        self._desk.pass_on(self.session, self.order)

    def arrive_unheard(self) -> None:
        """The coordinator has it; the answer goes nowhere."""
        nobody = Session(self._desk.coordinator, self.session.registration, lambda event: None)
        nobody.connected = True
        self._desk.pass_on(nobody, self.order)


class Desk:
    """Where orders reach the coordinator.

    Attributes:
        late: compare-and-sets that have been held up, oldest first.
    """

    def __init__(self, coordinator: SimCoordinator) -> None:
        self.coordinator = coordinator
        self.pass_on = coordinator.order
        self.late: list[LateOrder] = []
        self._held: Callable[[CompareAndSet, str], bool] | None = None
        setattr(coordinator, "order", self._take)  # noqa: B010

    def hold(self, which: Callable[[CompareAndSet, str], bool]) -> None:
        """Hold up every compare-and-set for which this is true of it and of its broker's id."""
        self._held = which

    def stop_holding(self) -> None:
        """Let orders through again; of those in `late` that have not ended the outcome stays unknown."""
        self._held = None
        for late in self.late:
            late.unknown()

    def _take(self, session: Session, order: CoordinatorOrder) -> None:
        broker_id = session.registration.broker_id
        held = isinstance(order, CompareAndSet) and self._held is not None and session.connected
        if (
            held
            and isinstance(order, CompareAndSet)
            and self._held is not None
            and self._held(order, broker_id)
        ):
            self.late.append(LateOrder(self, session, order))
        else:
            self.pass_on(session, order)
