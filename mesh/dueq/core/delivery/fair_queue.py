"""The waiting messages of one led partition of a fair topic: groups take turns, level by level.

A group `acme.reports` is a child of `acme`. Each level has a ring of children that have something ready. The child in
front gets as many messages as its weight, then it goes to the back. So however many messages one group has, the first
message of another waits for no more messages than the sum of the weights in its ring. This is deficit round robin where
every message costs one (Shreedhar and Varghese 1996). Rings are volatile: a new leader begins anew.

A child is *closed* while it is paused, has no slot left (`max_unacked`) or no token (`rate`). One that is found closed
at its turn rests: it leaves the ring, so that it costs nothing, however many there are. So does a level of which all
children rest. Its rest ends when something may have opened it. Then it goes to the back of the ring:

    no slot     a lease at or below it has ended (`GroupSlots` counts), what was chosen of it is put back,
                or something else is set for it
    paused      something else is set for it
    no token    the instant at which it has one (`TokenWaits`; `GroupRates.next_us` tells the dispatcher)
    a level     a child is in its ring again

A child that waits for the disk while there are few groups is passed over until the next round. With very many groups,
most have nothing in memory (see `core/state/fair_window.py`): the order of turns says which are read next, and a group
that waits for its read keeps its turn.

A group sleeps until its first message is due. If a hundred thousand groups wake together, or are closed, one look takes
a bounded number of them (`is_cut`); the next look, at once, goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final

import numpy as np
import numpy.typing as npt

from dueq.core.delivery.due_queue import KEY_BITS, KEY_MASK, NEVER_MS, SPARE_PLACES
from dueq.core.delivery.fair_tree import UNTIL_ONE_BELOW, Node
from dueq.core.delivery.group_rates import GroupRates
from dueq.core.delivery.group_slots import GroupSlots
from dueq.core.delivery.hot_messages import HotMessages
from dueq.core.delivery.leases import NEVER_US, LeaseTable
from dueq.core.delivery.token_waits import TokenWaits
from dueq.core.ports.entry import NO_ENTRIES, Entries, State, joined, keys_of
from dueq.core.state.class_set import RANK_BITS
from dueq.core.state.fair import group_classes
from dueq.core.state.window import Cut, Guide
from dueq.limits import FAIR_LOOKS_MAX, FAIR_WAKES_MAX, FAIR_WAKES_MIN
from dueq_codecs.groups import AS_CREATED, GroupSettings

WAITING: Final = int(State.WAITING)
_PLACE_BITS: Final = 48 + KEY_BITS
"""Of a place in a group's heap: rank, then wait_at and key."""
_PLACE_MASK: Final = (1 << _PLACE_BITS) - 1
_RANK_MASK: Final = (1 << RANK_BITS) - 1
_NUMBER_BITS: Final = 32
"""Of an alarm: its last bits are the group's number."""
_NUMBER_MASK: Final = (1 << _NUMBER_BITS) - 1


class FairQueue:
    """Places of waiting messages; see `WaitingQueue`.

    Attributes:
        until_ms: messages that wait until then are ready: the latest instant that was asked for.
        is_starving: somebody whose turn it is waits for the disk.
        is_cut: the last `pop` has ended before it had looked at all that might be given.
    """

    def __init__(self, messages: HotMessages, leases: LeaseTable, rates: GroupRates) -> None:
        self._messages, self._rates = messages, rates
        self._slots = leases.group_slots = GroupSlots(messages.groups)
        self._token_waits = TokenWaits()
        self._limited = messages.groups.limited
        self._root = Node("", None)
        self._leaves: dict[int, Node] = {}
        # Messages that were not due when they came, by group: heaps of wait_at, key and rank.
        self._sleeping: dict[int, list[int]] = {}
        # A heap of instants with groups that are to be looked at then, and its elements: none is there twice.
        self._alarms: list[int] = []
        self._alarmed: set[int] = set()
        self.until_ms = -1
        self._ready_ms = NEVER_MS
        self._ready = self._places = 0
        self._counted: list[Node] = []  # of which something was chosen in this turn
        # By key that has come out in this turn, at most those of a record, whose turn it was: a message may be entered
        # twice.
        self._given: dict[int, Node] = {}
        self._looks = 0
        self._in_vain = 0  # looks at what stays in its ring, since anything was leased or came into a ring
        self._stopped = self.is_starving = self.is_cut = False  # stopped: in this look
        self._turns = self._hungry_from = 0

    def __len__(self) -> int:
        return self._places

    @property
    def guide(self) -> Guide:
        """Tells the window whose turn it is."""
        return self

    @property
    def head_ms(self) -> int:
        """Instant of some message that is due, or else of the first that will be; NEVER_MS when none waits."""
        if self._has_more(self._root):
            return self._ready_ms
        return self._alarms[0] >> _NUMBER_BITS if self._alarms else NEVER_MS

    @property
    def later_ms(self) -> int:
        """Instant at which a group wakes next; NEVER_MS when none sleeps."""
        return self._alarms[0] >> _NUMBER_BITS if self._alarms else NEVER_MS

    def add(self, entries: Entries) -> None:
        """Enter waiting messages; those that are in already do no harm."""
        columns = group_classes(entries).tolist(), entries["wait_at"].tolist(), keys_of(entries).tolist()
        for of, wait_at, key in zip(*columns, strict=True):
            number = of >> RANK_BITS
            if wait_at <= self.until_ms and (leaf := self._leaves.get(number)) is not None:
                self._wake_due(number)
                self._is_ready(leaf, of & _RANK_MASK, wait_at << KEY_BITS | key)
                continue
            place = (wait_at << KEY_BITS | key) << RANK_BITS | of & _RANK_MASK
            heap = self._sleeping.get(number)
            if heap is None:
                self._sleeping[number] = [place]
                self._wake_at(wait_at, number)
                continue
            if wait_at < heap[0] >> KEY_BITS + RANK_BITS:
                self._wake_at(wait_at, number)
            heappush(heap, place)
        self._places += len(entries)

    def group_changed(self, name: str) -> None:
        """Something else is set for a group: it may be given something now."""
        node = self._find(name)
        if node is not None and node.rests_until > 0:
            self._reopen(node)

    def put_back(self, entries: Entries) -> None:
        """Enter messages again that were taken out just now and not leased, and give their groups the turns back."""
        columns = group_classes(entries).tolist(), entries["wait_at"].tolist(), keys_of(entries).tolist()
        for of, wait_at, key in reversed(list(zip(*columns, strict=True))):
            leaf = self._leaf(of >> RANK_BITS)
            if leaf is None:
                continue
            self._places += 1
            self._is_ready(leaf, of & _RANK_MASK, wait_at << KEY_BITS | key)
            for node in leaf.path():
                self._count(node, -1)
            self._give_turn_back(leaf)

    def pass_over(self, entries: Entries, passed: npt.NDArray[np.bool_]) -> int:
        """Give their groups the turns back: a group with many of them must not wait for all others after each.

        What came out after the first of them is entered again: another may have that turn now.
        """
        first = int(np.argmax(passed))
        rest = entries[first:]
        columns = (
            passed[first:].tolist(), group_classes(rest).tolist(), rest["wait_at"].tolist(), keys_of(rest).tolist(),
        )  # fmt: skip
        for is_over, of, wait_at, key in reversed(list(zip(*columns, strict=True))):
            if is_over:  # it is noted as given, so that it does not come out again where it was entered twice
                leaf = self._given[key]
                self._discharge(self._leaves.get(leaf.number, leaf))
            else:
                place = (of & _RANK_MASK) << _PLACE_BITS | wait_at << KEY_BITS | key
                self._return(self._given.pop(key), place)
        return first

    def renew(self, entries: Entries) -> None:
        """Forget all places but those of these waiting messages, which are all that may come out. Turns stay."""
        for leaf in self._leaves.values():
            leaf.heap = None
        self._sleeping.clear()
        self._places = self._ready = 0
        self.add(entries)
        # Who rests, or is below one that does, is not looked at: nothing else finds out that it has nothing any more.
        self._leave_empty(
            [leaf for leaf in self._leaves.values() if any(node.rests_until for node in leaf.path())]
        )
        self._trim_alarms()

    def go_back(self, entries: Entries, until_ms: int) -> None:
        """Mesh time has gone back: what was ready may have to sleep again. The turns of those that stay awake stay."""
        self.until_ms = min(self.until_ms, until_ms)
        self.renew(entries)
        self._leave_empty(list(self._leaves.values()))
        self._ready_ms = self.until_ms if self._has_more(self._root) else NEVER_MS

    def _leave_empty(self, leaves: list[Node]) -> None:
        """Let those of these groups leave that have nothing ready any more, and levels of which that was all."""
        for node in leaves:
            while node.parent is not None and not self._has_more(node):
                self._leave(node.parent, node)
                node = node.parent

    def count_until(self, until_ms: int, limit: int) -> int:
        """Return about how many wait until `until_ms`, at most `limit`; where all may be on the disk only, one."""
        self._wake(until_ms, FAIR_WAKES_MAX)
        return min(self._ready or int(self._has_more(self._root)), limit)

    # ------------------------------------------------------------ what is only on the disk

    def expect(self, cuts: Iterable[Cut]) -> None:
        """Note that more of these classes lies behind a position, and only on the disk (see `Guide`)."""
        ends: dict[int, dict[int, int]] = {}  # of each group, by rank: a group may have very many ranks
        for of, wait_at, key in cuts:
            ends.setdefault(of >> RANK_BITS, {})[of & _RANK_MASK] = wait_at << KEY_BITS | key
        for number, end_of in ends.items():
            leaf = self._leaves.get(number)
            if leaf is not None and leaf.heap:
                kept = [p for p in leaf.heap if p & _PLACE_MASK <= end_of.get(p >> _PLACE_BITS, _PLACE_MASK)]
                self._places -= len(leaf.heap) - len(kept)
                self._ready -= len(leaf.heap) - len(kept)
                heapify(kept)
                leaf.heap = kept or None
            heap = self._sleeping.get(number)
            if heap is not None:
                kept = [p for p in heap if p >> RANK_BITS <= end_of.get(p & _RANK_MASK, _PLACE_MASK)]
                self._places -= len(heap) - len(kept)
                if kept:
                    heapify(kept)
                    self._sleeping[number] = kept
                else:
                    del self._sleeping[number]
            for instant in {end >> KEY_BITS for end in end_of.values()}:
                if leaf is None or instant > self.until_ms:
                    self._wake_at(instant, number)
        self._trim_alarms()

    def coming(self, limit: int) -> list[tuple[int, int]]:
        """Return the groups that have the next turns, and how many messages a turn takes (see `Guide`)."""
        leaves = islice(self._coming(), limit)
        return [(leaf.number, self._weight(leaf)) for leaf in leaves]

    def hungry(self, runway: int, most: int) -> list[tuple[int, int]]:
        """Return what should be read for the next turns (see `Guide`), once half of the runway is used up."""
        if not self.is_starving and self._turns < self._hungry_from:
            return []
        self.is_starving = False
        found: list[tuple[int, int]] = []
        first = runway
        for at, leaf in enumerate(islice(self._coming(), runway)):
            heap, takes = leaf.heap or [], min(self._weight(leaf), most)
            if at and len(heap) >= takes and heap[0] < 1 << _PLACE_BITS:
                continue  # of its first rank, and it is not its turn yet: most likely nothing comes before it
            unknown = self._unknown(leaf, self.until_ms)
            if unknown is not None and not (len(heap) >= takes and self._comes_first(leaf, unknown)):
                first = min(first, at)
                found.append((unknown, takes))
                if len(found) == most:
                    break
        if first > runway // 2:
            self._hungry_from = self._turns + first - runway // 2
            return []
        return found

    def _coming(self) -> Iterator[Node]:
        """Yield the groups that have the next turns: those that only wait for a token are next after all others."""
        self._reopen_freed()
        yield from self._root.coming(self._is_closed)
        for node in self._token_waits.soonest():
            if not any(map(self._is_closed, node.path())):
                yield from node.coming(self._is_closed)

    def _is_closed(self, node: Node) -> bool:
        """Whether nothing of a group is given until a lease ends or something else is set; asked between turns."""
        settings = self._settings(node)
        return settings.paused or 0 < settings.max_unacked <= self._slots.used(node.name)

    def _unknown(self, leaf: Node, until_ms: int) -> int | None:
        """Return the first class of a group of which something that is ready may be only on the disk."""
        first = leaf.number << RANK_BITS
        return self._messages.unknown_in(first, first + (1 << RANK_BITS), until_ms)

    def _unknown_ms(self, number: int) -> int:
        """Return since when something of a group may be ready that is only on the disk; NEVER_MS: there is nothing."""
        first = number << RANK_BITS
        at = self._messages.unknown_at(first, first + (1 << RANK_BITS))
        return at if at is not None else NEVER_MS

    # ------------------------------------------------------------ what is ready

    def _wake_at(self, instant: int, number: int) -> None:
        alarm = instant << _NUMBER_BITS | number
        if alarm not in self._alarmed:
            self._alarmed.add(alarm)
            heappush(self._alarms, alarm)

    def _trim_alarms(self) -> None:
        """Make the alarms anew when most of them are of groups that have nothing any more."""
        most = 2 * (len(self._sleeping) + self._messages.unknown_count) + SPARE_PLACES
        if len(self._alarms) <= most:
            return
        groups = {alarm & _NUMBER_MASK for alarm in self._alarms}
        self._alarms.clear()
        self._alarmed.clear()
        for number in groups:
            self._sleep(number)

    def _sleep(self, number: int) -> None:
        """Look at a group again when the next of its messages is ready, if there is any."""
        heap = self._sleeping.get(number)
        at = heap[0] >> KEY_BITS + RANK_BITS if heap else NEVER_MS
        if number not in self._leaves:
            at = min(at, self._unknown_ms(number))
        if at < NEVER_MS:
            self._wake_at(at, number)

    def _wake(self, until_ms: int, most: int) -> None:
        """Let messages be ready that wait until then: all of a group at once, of this many groups."""
        self.until_ms = max(self.until_ms, until_ms)
        bound = (until_ms + 1) << KEY_BITS + RANK_BITS
        for _ in range(most):
            if not self._alarms or self._alarms[0] >> _NUMBER_BITS > until_ms:
                break
            alarm = heappop(self._alarms)
            self._alarmed.discard(alarm)
            self._wake_group(alarm & _NUMBER_MASK, bound, until_ms)
        self._give_memory_back()

    def _give_memory_back(self) -> None:
        """Begin tables anew that are empty: what held very many groups stays as large as it was."""
        if not self._alarmed:
            self._alarmed.clear()
        if not self._sleeping:
            self._sleeping.clear()
        if not self._leaves:
            self._leaves.clear()
            self._token_waits.clear()

    def _wake_due(self, number: int) -> None:
        """Let be ready what an awake group has asleep that is due: a message that comes now is behind that."""
        heap, bound = self._sleeping.get(number), (self.until_ms + 1) << KEY_BITS + RANK_BITS
        if heap is not None and heap[0] < bound:
            self._wake_group(number, bound, self.until_ms)

    def _wake_group(self, number: int, bound: int, until_ms: int) -> None:
        heap = self._sleeping.get(number)
        is_due = heap is not None and heap[0] < bound
        if not is_due and (number in self._leaves or self._unknown_ms(number) > until_ms):
            self._sleep(number)
            return
        leaf = self._leaf(number)
        while heap and heap[0] < bound:
            place = heappop(heap)
            if leaf is None:
                self._places -= 1
            else:
                self._is_ready(leaf, place & _RANK_MASK, place >> RANK_BITS)
        if heap:
            self._wake_at(heap[0] >> KEY_BITS + RANK_BITS, number)
        elif heap is not None:
            del self._sleeping[number]
        if leaf is not None:
            self._ready_ms = min(self._ready_ms, until_ms)
            self._activate(leaf)

    def _is_ready(self, leaf: Node, rank: int, place: int) -> None:
        if leaf.heap is None:
            leaf.heap = [rank << _PLACE_BITS | place]
        else:
            heappush(leaf.heap, rank << _PLACE_BITS | place)
        self._ready += 1
        self._ready_ms = min(self._ready_ms, place >> KEY_BITS)

    def _leaf(self, number: int) -> Node | None:
        """Return the node of a group's own messages; None: the group is forgotten, and has none."""
        leaf = self._leaves.get(number)
        if leaf is None:
            groups = self._messages.groups
            name = groups.name_of(number)
            if name is None:
                return None
            if number:
                number = groups.by_number[number].number  # the same object: there are many groups
            leaf = self._root.leaf(name, number, self._split)
            self._leaves.pop(leaf.number, None)  # of a group of that name that was forgotten
            leaf.number = number
            self._leaves[number] = leaf
        return leaf

    def _split(self, leaf: Node) -> None:
        """A group gets a group below it."""
        own = leaf.split()
        self._leaves[own.number] = own

    def _has_more(self, node: Node) -> bool:
        """Whether something of a group is ready, or may be on the disk."""
        if not node.is_leaf:
            return node.front is not None or node.resting > 0
        return bool(node.heap) or self._unknown(node, self.until_ms) is not None

    def _activate(self, node: Node) -> None:
        """Enter a node at the back of the ring above it, and so on up to the root, if it is not in, or closed, yet."""
        while node.parent is not None and not node.in_ring and node.rests_until <= 0:
            above = node.parent
            if node.rests_until:
                above.rouse(node)
                node.left = 0
            above.append(node)
            self._begin_turn(above)
            self._in_vain = 0
            node = above

    def _settings(self, node: Node) -> GroupSettings:
        """Return a group's settings. The group's own messages have the usual ones, as its level has the group's."""
        if not self._limited:
            return AS_CREATED
        group = self._limited.get(node.name)
        return group.settings if group is not None and group.settings is not None else AS_CREATED

    def _weight(self, node: Node) -> int:
        return self._settings(node).weight

    # ------------------------------------------------------------ turns

    def pop(self, until_ms: int, limit: int, taken: KeysView[int], *, again: bool = False) -> Entries:
        """Take out the next of all messages that wait until `until_ms` or sooner (see `WaitingQueue`)."""
        if not again:  # else slots are still charged for what was given
            self._given.clear()
            self._begin()
            self._wake(until_ms, min(max(2 * limit, FAIR_WAKES_MIN), FAIR_WAKES_MAX))
        self._reopen_freed()
        self._reopen_with_tokens()
        found = self._take(until_ms, limit, taken)
        if not (len(found) or again or self._stopped or self.is_cut):
            self._wake(until_ms, FAIR_WAKES_MAX)  # those that are awake cannot be given anything
            found = self._take(until_ms, limit, taken)
        if len(found) < limit and not self._stopped and self._alarms:
            self.is_cut |= self._alarms[0] >> _NUMBER_BITS <= until_ms
        if not self._has_more(self._root):
            self._ready_ms = NEVER_MS
        self._rates.next_us = min(self._rates.next_us, self._token_waits.next_us)
        return found

    def _take(self, until_ms: int, limit: int, taken: KeysView[int]) -> Entries:
        """Take out the next messages of the groups that are awake."""
        self._looks, self._stopped, self.is_cut = FAIR_LOOKS_MAX, False, False
        if self._root.front is None:
            return NO_ENTRIES
        found: list[Entries] = []
        count = 0
        while count < limit and (chosen := self._choose(until_ms, limit - count)):
            rows = self._valid(chosen, taken)
            count += len(rows)
            found.append(rows)
        if count < limit and self._looks <= 0 and not self._stopped and self._root.front is not None:
            # Whoever is closed has left its ring. If all that is left was passed over in vain, it waits for the disk,
            # and what is read brings the next look. Twice, since a level may have begun its round anew meanwhile.
            self.is_cut = self._in_vain <= 2 * len(self._leaves)
        return joined(found) if found else NO_ENTRIES

    def _choose(self, until_ms: int, limit: int) -> list[tuple[Node, int]]:
        """Take out up to `limit` places in the order of turns; returns them, each with its leaf."""
        chosen: list[tuple[Node, int]] = []
        while len(chosen) < limit:
            leaf = self._next(self._root, until_ms)
            if leaf is None:
                break
            assert leaf.heap
            chosen.append((leaf, heappop(leaf.heap)))
            self._charge(leaf)
        self._turns += len(chosen)
        self._places -= len(chosen)
        self._ready -= len(chosen)
        return chosen

    def _valid(self, chosen: list[tuple[Node, int]], taken: KeysView[int]) -> Entries:
        """Return the entries that still wait at their place and that nobody has taken, up to one that does not.

        Its group gets the turn back, so messages chosen after it may have to come later: they are put back.

        Args:
            chosen: leaves and places.
            taken: keys that are spoken for.
        """
        given = self._given
        keys = [place & KEY_MASK for _, place in chosen]
        rows = self._messages.rows(np.array(keys, np.uint64))
        waits = [(place & _PLACE_MASK) >> KEY_BITS for _, place in chosen]
        classes = [leaf.number << RANK_BITS | place >> _PLACE_BITS for leaf, place in chosen]
        good = (rows["state"] == WAITING) & (rows["wait_at"] == np.array(waits, np.uint64))
        good &= group_classes(rows) == np.array(classes, np.uint64)
        if not (taken.isdisjoint(keys) and given.keys().isdisjoint(keys) and len(set(keys)) == len(keys)):
            found: set[int] = set()
            for at in np.flatnonzero(good).tolist():
                key = keys[at]
                good[at] = not (key in taken or key in given or key in found)  # it may be entered twice
                found.add(key)
        first = len(keys) if good.all() else int(np.argmin(good))
        given.update((key, leaf) for key, (leaf, _) in zip(keys[:first], chosen, strict=False))
        if first == len(keys):
            return rows
        for at in range(len(chosen) - 1, first - 1, -1):
            leaf, place = chosen[at]
            if good[at]:
                self._return(leaf, place)
            else:
                self._discharge(self._leaves.get(leaf.number, leaf))
        return rows.take(np.arange(first))

    def _return(self, leaf: Node, place: int) -> None:
        """Enter a message again that was chosen, and give its group the turn back."""
        leaf = self._leaf(leaf.number) or leaf
        self._is_ready(leaf, place >> _PLACE_BITS, place & _PLACE_MASK)
        self._places += 1
        self._discharge(leaf)

    def _begin(self) -> None:
        """A turn begins: what was chosen in the last one is leased, or was put back."""
        if self._root.drawn > 0:
            self._in_vain = 0
        for node in self._counted:
            node.drawn = 0
            if node.rests_until == NEVER_US and not self._is_closed(node):
                self._reopen(node)
        self._counted = []

    # ------------------------------------------------------------ who is closed

    def _closed_until(self, node: Node) -> int:
        """Return until when (mono) nothing of a group is given; NEVER_US: until it is opened; 0: it is open."""
        settings = self._settings(node)
        if settings.paused:
            return NEVER_US
        if settings.max_unacked and self._slots.used(node.name) + node.drawn >= settings.max_unacked:
            return NEVER_US
        return self._rates.token_us(node.name, settings, node.drawn) if settings.rate else 0

    def _rest(self, above: Node, node: Node, until_us: int) -> None:
        """Let a child rest of which nothing is given now.

        What is left of its turn counts if a message that was given comes back, and else no more.
        """
        above.rest(node, until_us)
        self._begin_turn(above)
        if until_us == NEVER_US:
            if self._settings(node).max_unacked:
                self._slots.watch(node.name)
        elif until_us > 0:
            self._token_waits.enter(node)

    def _rouse(self, node: Node) -> None:
        """Something of a node may be given: it rests no more, and is about to come into the ring or to leave."""
        assert node.parent is not None
        if node.rests_until == NEVER_US:
            self._slots.unwatch(node.name)
        node.parent.rouse(node)

    def _reopen(self, node: Node) -> None:
        """A closed node may be open again: its turn comes after all others."""
        self._rouse(node)
        node.left = 0
        self._activate(node)

    def _reopen_freed(self) -> None:
        """Leases have ended at or below nodes that had no slot."""
        for name in self._slots.take_freed():
            node = self._find(name)
            if node is None or node.rests_until != NEVER_US:
                continue
            if self._is_closed(node):
                self._slots.watch(name)
            else:
                self._reopen(node)

    def _reopen_with_tokens(self) -> None:
        """Nodes have tokens by now; if very many do, the dispatcher looks again at once, as their instant is over."""
        waits, now_us = self._token_waits, self._rates.now.mono_us
        for _ in range(FAIR_LOOKS_MAX):
            if waits.next_us > now_us:
                break
            self._reopen(waits.first)

    def _find(self, name: str) -> Node | None:
        """Return the node of a group or level, if anything of it is ready."""
        node: Node | None = self._root
        for level in name.split("."):
            node = node.child(level) if node is not None else None
        return node

    def _is_known(self, leaf: Node, until_ms: int) -> bool:
        """Whether there is a first place in memory, and nothing that is only on disk may come before it."""
        unknown = self._unknown(leaf, until_ms)
        if unknown is None:
            return bool(leaf.heap)
        if leaf.heap and self._comes_first(leaf, unknown):
            return True
        if self._messages.by_turns:
            self._stopped = self.is_starving = True
        return False

    def _comes_first(self, leaf: Node, unknown: int) -> bool:
        """Whether a group's first place in memory comes before all that is only on disk, from a class on."""
        assert leaf.heap
        of = leaf.number << RANK_BITS | leaf.heap[0] >> _PLACE_BITS
        if of != unknown:
            return of < unknown
        end = self._messages.end_of(of)
        return end is None or (leaf.heap[0] & _PLACE_MASK) <= (end[0] << KEY_BITS | end[1])

    def _next(self, node: Node, until_ms: int) -> Node | None:
        """Return the group's own messages whose turn it is; None: none may be given."""
        if node.is_leaf:
            return node
        for _ in range(node.ring_size):
            child = node.front
            if child is None or self._looks <= 0:
                break
            closed_us, leaf = self._closed_until(child), None
            if not (closed_us or (child.is_leaf and not self._is_known(child, until_ms))):
                leaf = self._next(child, until_ms)
            if leaf is not None or self._stopped:
                return leaf
            self._looks -= 1
            if not self._has_more(child):
                self._leave(node, child)
            elif closed_us:
                self._rest(node, child, closed_us)
            elif not child.is_leaf and child.front is None:
                self._rest(node, child, UNTIL_ONE_BELOW)
            else:
                self._in_vain += 1
                self._pass_on(node)
        return None

    def _pass_on(self, node: Node) -> None:
        """It is the next child's turn."""
        assert node.front is not None
        node.front.left = 0
        node.rotate()
        self._begin_turn(node)

    def _begin_turn(self, node: Node) -> None:
        """Let the child in front have its turn, or go on with it."""
        front = node.front
        if front is not None and not front.left:
            front.left = self._weight(front)

    def _charge(self, leaf: Node) -> None:
        """One message of the group was given."""
        node = leaf
        self._count(node, 1)
        while (above := node.parent) is not None:
            self._count(above, 1)
            node.left -= 1
            if not self._has_more(node):
                self._leave(above, node)
            elif node.left <= 0:
                self._pass_on(above)
            node = above

    def _count(self, node: Node, given: int) -> None:
        if not node.drawn:
            self._counted.append(node)
        node.drawn += given

    def _discharge(self, leaf: Node) -> None:
        """The group was charged for something that was no message: it is its turn again, if anything of it is ready."""
        for node in leaf.path():
            self._count(node, -1)
        node = leaf
        while node.parent is not None and not self._has_more(node):
            node = node.parent
        self._give_turn_back(node)

    def _give_turn_back(self, node: Node) -> None:
        """A message that was given comes back: it is the group's turn."""
        while (above := node.parent) is not None:
            front = above.front
            if front is not None and front.left >= self._weight(front):
                front.left = 0  # nothing of its turn is used yet
            if front is not node:
                if node.in_ring:
                    above.remove(node)
                elif node.rests_until:
                    self._rouse(node)
                above.append_first(node)
            node.left += 1
            node = above

    def _leave(self, above: Node, node: Node) -> None:
        """Nothing of a child is ready any more."""
        if node.rests_until:
            self._rouse(node)
        else:
            above.remove(node)
        node.left = 0
        self._begin_turn(above)
        above.drop(node)
        if node.is_leaf:
            self._leaves.pop(node.number, None)
            self._sleep(node.number)
