"""Whose turn it is: what the leader keeps of a topic's order, and from which partition it leases next.

The order (`core/state/order.py`) says which class a message is of, and which messages of a class are in memory. This
module says which of the ready messages is next, per kind of topic: nothing of it is replicated.
"""

from __future__ import annotations

from collections.abc import Callable, KeysView
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dueq import limits
from dueq.core.delivery.due_queue import DueQueue
from dueq.core.delivery.fair_queue import FairQueue
from dueq.core.delivery.group_rates import GroupRates
from dueq.core.delivery.hot_messages import HotMessages
from dueq.core.delivery.leases import LeaseTable
from dueq.core.delivery.priority_queue import PriorityQueue
from dueq.core.ports.entry import Entries, joined
from dueq.core.state.priority import ranks_of
from dueq.core.state.window import Guide


class WaitingQueue(Protocol):
    """The waiting messages of one led partition, as far as memory has them, in the order of their kind.

    A caller that takes messages out leases them or puts them back. Places of messages that are gone may stay for a
    while: they are checked against the timeline when they come up.
    """

    def __len__(self) -> int: ...

    @property
    def guide(self) -> Guide | None:
        """Tells the window whose turn it is; None: the kind has no turns."""
        ...

    @property
    def head_ms(self) -> int:
        """Instant at which the first message of any class falls due; NEVER_MS when none waits."""
        ...

    @property
    def later_ms(self) -> int:
        """Instant at which something falls due beside what is due and may not be given now; NEVER_MS: nothing does."""
        ...

    @property
    def is_cut(self) -> bool:
        """Whether `pop` has ended before it had looked at all that might be given: the next look goes on."""
        ...

    def add(self, entries: Entries) -> None:
        """Enter waiting messages; those that are in already do no harm."""
        ...

    def group_changed(self, name: str) -> None:
        """Something else is set for a group."""
        ...

    def put_back(self, entries: Entries) -> None:
        """Enter messages again that were taken out just now and not leased: they are next."""
        ...

    def pass_over(self, entries: Entries, passed: npt.NDArray[np.bool_]) -> int:
        """Some of what was taken out just now is not delivered; that costs nobody a turn.

        Args:
            entries: as they came out.
            passed: which of them are not delivered; at least one.

        Returns:
            How many of the first stay out. The others are entered again, but for those that are not delivered.
        """
        ...

    def renew(self, entries: Entries) -> None:
        """Forget all places but those of these waiting messages, which are all that may come out."""
        ...

    def go_back(self, entries: Entries, until_ms: int) -> None:
        """Mesh time has gone back: what was ready may not be due.

        Args:
            entries: the waiting messages, which are all that may come out.
            until_ms: no message that waits until later is ready.
        """
        ...

    def pop(self, until_ms: int, limit: int, taken: KeysView[int], *, again: bool = False) -> Entries:
        """Take out the next of all messages that wait until `until_ms` or sooner.

        Nothing comes out while something that is before it in the order may be only on disk.

        Args:
            until_ms: the latest instant, inclusive.
            limit: at most this many.
            taken: keys that are spoken for although the timeline does not show it yet.
            again: it was asked in this turn before: what came out then is spoken for, too.
        """
        ...

    def count_until(self, until_ms: int, limit: int) -> int:
        """Return about how many wait until `until_ms`, at most `limit`."""
        ...


class Queued(Protocol):
    """A led partition, as far as one chooses from it."""

    @property
    def uid(self) -> int: ...
    @property
    def queue(self) -> WaitingQueue: ...

    @property
    def last_turn(self) -> int:
        """Number of the turn in which something of its queue was leased last."""
        ...

    def take_waiting(self, until_ms: int, limit: int, *, again: bool = False) -> Entries:
        """Take messages out of the queue that may be delivered; again: not for the first time in this turn."""
        ...


class Demand(NamedTuple):
    """How much may be leased in this turn, and up to which instants."""

    free: int
    """Messages that consumers have credit for."""
    free_bytes: Callable[[int], int]
    """Returns how many bytes they have credit for at most, if no message is longer than this."""
    mesh_ms: int
    """Now, by mesh time: messages that wait until then are ready."""
    ahead_ms: int
    """The end of the look-ahead."""
    gather_ms: int
    """Messages that wait until then may be leased with the rest, so that a steady stream costs fewer records."""
    recording: bool
    """A record is made in any case."""


class Picks:
    """The messages chosen in this turn.

    Attributes:
        entries: by the partition's uid, in pieces.
    """

    def __init__(self, room: Callable[[int], int]) -> None:
        self.entries: dict[int, list[Entries]] = {}
        self._room_at_first = room
        self._rooms: dict[int, int] = {}

    def room(self, uid: int) -> int:
        """Return how many more messages of a partition may be leased in this turn."""
        room = self._rooms.get(uid)
        if room is None:
            room = self._rooms[uid] = self._room_at_first(uid)
        return room

    def take(self, lane: Queued, until_ms: int, limit: int) -> int:
        """Choose up to `limit` messages of a partition that wait until then; returns how many it were."""
        again = lane.uid in self.entries
        entries = lane.take_waiting(until_ms, min(limit, self.room(lane.uid)), again=again)
        self.add(lane.uid, entries)
        return len(entries)

    def add(self, uid: int, entries: Entries) -> None:
        """Choose these messages of a partition, for which there is room."""
        if len(entries):
            self.entries.setdefault(uid, []).append(entries)
            self._rooms[uid] = self.room(uid) - len(entries)

    def of(self, uid: int) -> Entries:
        """Return all that was chosen of a partition."""
        pieces = self.entries[uid]
        return joined(pieces)


class Turns(Protocol):
    """The leader's side of a kind of topic.

    Attributes:
        looks_ahead: messages are leased before they are due.
        strict: no message is leased before an earlier one, even if there is no credit for the bytes of that one.
    """

    @property
    def looks_ahead(self) -> bool: ...
    @property
    def strict(self) -> bool: ...

    def queue(self, messages: HotMessages, leases: LeaseTable, rates: GroupRates) -> WaitingQueue:
        """Return an empty queue for a partition that is led from now on, and has these leases and rates of groups."""
        ...

    def choose(self, lanes: list[Queued], demand: Demand, picks: Picks) -> None:
        """Choose the messages to lease in this turn, from the partitions that have something near."""
        ...


class TimelineTurns:
    """The soonest first, all partitions in even shares."""

    looks_ahead: Final = True
    strict: Final = False

    def queue(self, messages: HotMessages, leases: LeaseTable, rates: GroupRates) -> WaitingQueue:
        """Return an empty queue."""
        return DueQueue(messages.rows)

    def choose(self, lanes: list[Queued], demand: Demand, picks: Picks) -> None:
        """Choose ready messages first, then with the credit that is left those of the look-ahead.

        When there is anything to lease, half of the credit left goes to messages soon after the look-ahead: so a
        steady stream costs one commit in that time and not one per message.
        """
        free = demand.free
        for until_ms in (demand.mesh_ms, demand.ahead_ms):
            free = _share(lanes, until_ms, free, picks)
        if picks.entries or demand.recording:
            _share(lanes, demand.gather_ms, free // 2, picks)


def _share(lanes: list[Queued], until_ms: int, free: int, picks: Picks) -> int:
    """Take up to `free` messages from the queues in even shares; returns what is left of `free`.

    The lane whose head has waited longest comes first, so that little credit starves none.
    """
    asked = lanes
    while free > 0:
        ready = [lane for lane in asked if lane.queue.head_ms <= until_ms and picks.room(lane.uid) > 0]
        if not ready:
            break
        ready.sort(key=lambda lane: lane.queue.head_ms)
        share = max(1, free // len(ready))
        taken = [picks.take(lane, until_ms, share) for lane in ready[:free]]
        free -= sum(taken)
        # What is ready in the others waits for something else than credit, or was cancelled or moved.
        asked = [lane for lane, rows in zip(ready, taken, strict=False) if rows] + ready[len(taken) :]
    return free


class PriorityTurns:
    """The smallest rank first, over all partitions that this broker leads; only ready messages.

    A lease ahead of its time would take credit from a more urgent message that becomes ready before.
    """

    looks_ahead: Final = False
    strict: Final = True

    def queue(self, messages: HotMessages, leases: LeaseTable, rates: GroupRates) -> WaitingQueue:
        """Return an empty queue."""
        return PriorityQueue(messages)

    def choose(self, lanes: list[Queued], demand: Demand, picks: Picks) -> None:
        """Choose the first of the messages of all partitions; the others go back.

        Where bytes are short, the last one may fit nobody. It has a claim to them, so nothing after it is chosen, and
        its lane is dealt last, since nothing is dealt after it.
        """
        found = [
            (lane, lane.take_waiting(demand.mesh_ms, min(demand.free, picks.room(lane.uid))))
            for lane in lanes
        ]
        found.sort(key=lambda each: _place(each[1]))
        if len(found) < 2:
            for lane, entries in found:
                picks.add(lane.uid, entries)
            return
        rows = joined([entries for _, entries in found])
        order = np.lexsort((rows["wait_at"], ranks_of(rows)))[: demand.free]
        sizes = rows["size"][order].astype(np.int64)
        room = demand.free_bytes(int(sizes.max(initial=0)))
        order = order[: np.searchsorted(np.cumsum(sizes), room, side="right") + 1]
        chosen = np.zeros(len(rows), np.bool_)
        chosen[order] = True
        ends = np.cumsum([len(entries) for _, entries in found])
        last = int(np.searchsorted(ends, order[-1], side="right")) if len(order) else 0
        picked = zip(found, np.split(chosen, ends[:-1]), strict=True)
        for _, ((lane, entries), mine) in sorted(enumerate(picked), key=lambda each: each[0] == last):
            picks.add(lane.uid, entries[mine])
            lane.queue.put_back(entries[~mine])


def _place(entries: Entries) -> tuple[int, int]:
    """Return what the first of them is ordered by; no entries are last."""
    if not len(entries):
        return limits.RANK_MAX + 1, 0
    return int(ranks_of(entries[:1])[0]), int(entries["wait_at"][0])


class FairTurns:
    """Groups take turns inside each partition; partitions in even shares. Only ready messages."""

    looks_ahead: Final = False
    strict: Final = True

    def queue(self, messages: HotMessages, leases: LeaseTable, rates: GroupRates) -> WaitingQueue:
        """Return an empty queue."""
        return FairQueue(messages, leases, rates)

    def choose(self, lanes: list[Queued], demand: Demand, picks: Picks) -> None:
        """Choose ready messages, first of the partition that has been given nothing for longest.

        So little credit starves none, and messages for which there are no bytes keep their claim. If a queue gives
        less than it was asked for, its other groups have no slot or token: it is not asked again.
        """
        free, left = demand.free, sorted(lanes, key=lambda lane: lane.last_turn)
        while free > 0 and left:
            left = [
                lane for lane in left if lane.queue.head_ms <= demand.mesh_ms and picks.room(lane.uid) > 0
            ]
            share, willing = max(1, free // max(len(left), 1)), left[free:]
            for lane in left[:free]:
                taken = picks.take(lane, demand.mesh_ms, share)
                free -= taken
                if taken == share:
                    willing.append(lane)
            left = willing  # first those that were not asked yet


TIMELINE_TURNS: Final = TimelineTurns()
TURNS: Final[dict[str, Turns]] = {
    "timeline": TIMELINE_TURNS,
    "priority": PriorityTurns(),
    "fair": FairTurns(),
}
"""By kind of topic."""


def turns_of(kind: str) -> Turns:
    """Return whose turn it is in a topic; of a kind that this build does not know nothing is led."""
    return TURNS.get(kind, TIMELINE_TURNS)
