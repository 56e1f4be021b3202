"""The waiting messages of one led partition of a fair topic: groups take turns, level by level.

A group `acme.reports` is a child of `acme`. Each level has a ring of children that have something ready. The child in
front gets as many messages as its weight is; then it goes to the back. So however many messages one group has, the
first of another waits at most for the sum of the weights of those in its ring. This is deficit round robin where
every message costs one (Shreedhar and Varghese 1996). Rings are volatile: a new leader begins anew.

A child that is paused, has no slot left (`max_unacked`) or no token (`rate`), or waits for the disk is passed over
until the next round.

A group sleeps until its first message is due. Of a hundred thousand groups that wake together, or have no slot, one
look takes a bounded number; the next one goes on where it ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import KeysView
from heapq import heappop, heappush
from typing import Final

import numpy as np

from dueq.core.delivery.due_queue import KEY_BITS, KEY_MASK, NEVER_MS
from dueq.core.delivery.fair_tree import Node
from dueq.core.delivery.group_rates import GroupRates
from dueq.core.delivery.hot_messages import HotMessages
from dueq.core.delivery.leases import LeaseTable, Phase
from dueq.core.ports.entry import NO_ENTRIES, Entries, State, is_wide, joined, keys_of
from dueq.core.state.fair import RANK_BITS, group_classes
from dueq.limits import FAIR_LOOKS_MAX, FAIR_WAKES_MAX
from dueq_codecs.groups import AS_CREATED, GroupSettings

WAITING: Final = int(State.WAITING)
_PLACE_BITS: Final = 48 + KEY_BITS
"""Of a place in a group's heap: rank, then wait_at and key."""
_PLACE_MASK: Final = (1 << _PLACE_BITS) - 1
_RANK_MASK: Final = (1 << RANK_BITS) - 1


class FairQueue:
    """Places of waiting messages; see `WaitingQueue`."""

    def __init__(self, messages: HotMessages, leases: LeaseTable, rates: GroupRates) -> None:
        self._messages, self._leases, self._rates = messages, leases, rates
        self._clear()

    def _clear(self) -> None:
        self._root = Node("", None)
        self._leaves: dict[int, Node] = {}
        # Messages that are not due, by group: heaps of wait_at, key and rank; the first instant of each is an alarm.
        self._sleeping: dict[int, list[int]] = {}
        # A heap of (instant, group), and its elements: none is there twice, though a group gets new first messages.
        self._alarms: list[tuple[int, int]] = []
        self._alarmed: set[tuple[int, int]] = set()
        self._ready_ms = NEVER_MS
        self._ready = self._places = 0
        self._counted: list[Node] = []
        # Keys that have come out in this turn, at most those of a record: a message may be entered twice.
        self._given: set[int] = set()
        self._looks = 0

    def __len__(self) -> int:
        return self._places

    @property
    def head_ms(self) -> int:
        """Instant of some message that is due, or else of the first that will be; NEVER_MS when none waits."""
        if self._root.front is not None:
            return self._ready_ms
        return self._alarms[0][0] if self._alarms else NEVER_MS

    def add(self, entries: Entries) -> None:
        """Enter waiting messages; those that are in already do no harm."""
        columns = group_classes(entries).tolist(), entries["wait_at"].tolist(), keys_of(entries).tolist()
        for of, wait_at, key in zip(*columns, strict=True):
            number = of >> RANK_BITS
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

    def put_back(self, entries: Entries) -> None:
        """Enter messages again that were taken out just now and not leased, and give their groups the turns back."""
        columns = group_classes(entries).tolist(), entries["wait_at"].tolist(), keys_of(entries).tolist()
        for of, wait_at, key in reversed(list(zip(*columns, strict=True))):
            leaf = self._leaf(of >> RANK_BITS)
            if leaf is None:
                continue
            self._places += 1
            self._is_ready(leaf, of & _RANK_MASK, wait_at << KEY_BITS | key)
            self._give_turn_back(leaf)

    def renew(self, entries: Entries) -> None:
        """Forget all places but those of these waiting messages, which are all that may come out."""
        self._clear()
        self.add(entries)

    def count_until(self, until_ms: int, limit: int) -> int:
        """Return about how many wait until `until_ms`, at most `limit`."""
        self._wake(until_ms)
        return min(self._ready, limit)

    # ------------------------------------------------------------ what is ready

    def _wake_at(self, instant: int, number: int) -> None:
        alarm = instant, number
        if alarm not in self._alarmed:
            self._alarmed.add(alarm)
            heappush(self._alarms, alarm)

    def _wake(self, until_ms: int) -> None:
        """Let messages be ready that wait until then: all of a group at once, but not all groups."""
        bound = (until_ms + 1) << KEY_BITS + RANK_BITS
        for _ in range(FAIR_WAKES_MAX):
            if not self._alarms or self._alarms[0][0] > until_ms:
                return
            alarm = heappop(self._alarms)
            self._alarmed.discard(alarm)
            number = alarm[1]
            heap = self._sleeping.get(number)
            if heap is None or heap[0] >= bound:
                continue  # it has an alarm for its first instant
            leaf = self._leaf(number)
            while heap and heap[0] < bound:
                place = heappop(heap)
                if leaf is None:
                    self._places -= 1
                else:
                    self._is_ready(leaf, place & _RANK_MASK, place >> RANK_BITS)
            if leaf is not None:
                self._activate(leaf)
            if heap:
                self._wake_at(heap[0] >> KEY_BITS + RANK_BITS, number)
            else:
                del self._sleeping[number]

    def _is_ready(self, leaf: Node, rank: int, place: int) -> None:
        heappush(leaf.heap, rank << _PLACE_BITS | place)
        self._ready += 1
        self._ready_ms = min(self._ready_ms, place >> KEY_BITS)

    def _leaf(self, number: int) -> Node | None:
        """Return the node of a group's own messages; None: the group is forgotten, and has none."""
        leaf = self._leaves.get(number)
        if leaf is None:
            name = self._messages.groups.name_of(number)
            if name is None:
                return None
            leaf = self._leaves[number] = self._root.leaf(name, number)
        return leaf

    def _activate(self, node: Node) -> None:
        """Enter a node at the back of the ring above it, and so on up to the root, if it is not in yet."""
        while node.parent is not None and not node.in_ring:
            above = node.parent
            above.append(node)
            if above.front is node:
                above.left = self._weight(node)
            node = above

    def _settings(self, node: Node) -> GroupSettings:
        """What is set for a group; what is its own has the usual settings, as its level has those of the group."""
        group = self._messages.groups.limited.get(node.name) if node.number < 0 else None
        return group.settings if group is not None and group.settings is not None else AS_CREATED

    def _weight(self, node: Node) -> int:
        return self._settings(node).weight

    # ------------------------------------------------------------ turns

    def pop(self, until_ms: int, limit: int, taken: KeysView[int], *, again: bool = False) -> Entries:
        """Take out what comes next of all that waits until `until_ms` or sooner (see `WaitingQueue`)."""
        if not again:
            self._given.clear()
            self._wake(until_ms)
        if self._root.front is None:
            return NO_ENTRIES
        if not again:  # else slots are still charged for what was given
            self._count_used()
        self._looks = FAIR_LOOKS_MAX
        found: list[Entries] = []
        count = 0
        while count < limit and (chosen := self._choose(until_ms, limit - count)):
            rows = self._valid(chosen, taken)
            count += len(rows)
            found.append(rows)
        if self._root.front is None:
            self._ready_ms = NEVER_MS
        return joined(found) if found else NO_ENTRIES

    def _choose(self, until_ms: int, limit: int) -> list[tuple[Node, int]]:
        """Take out up to `limit` places in the order of turns; returns them, each with its leaf."""
        chosen: list[tuple[Node, int]] = []
        while len(chosen) < limit:
            leaf = self._next(self._root, until_ms)
            if leaf is None:
                break
            chosen.append((leaf, heappop(leaf.heap)))
            self._charge(leaf)
        self._places -= len(chosen)
        self._ready -= len(chosen)
        return chosen

    def _valid(self, chosen: list[tuple[Node, int]], taken: KeysView[int]) -> Entries:
        """Return the entries that still wait at their place and that nobody has taken.

        The groups of the others get their turns back.

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
        if taken.isdisjoint(keys) and given.isdisjoint(keys) and len(set(keys)) == len(keys):
            given.update(np.array(keys, np.uint64)[good].tolist())
        else:
            for at in np.flatnonzero(good).tolist():
                good[at] = keys[at] not in taken and keys[at] not in given  # a message may be entered twice
                given.add(keys[at])
        if good.all():
            return rows
        for at in reversed(np.flatnonzero(~good).tolist()):
            self._discharge(chosen[at][0])
        return rows.take(np.flatnonzero(good))

    def _count_used(self) -> None:
        """Count the slots in use of groups that have a limit: derived from the leases, so that none is lost."""
        for node in self._counted:
            node.used = node.drawn = 0
        self._counted = []
        if not self._messages.groups.limited:
            return
        leases = self._leases
        entry, phase = leases.entry[: leases.high], leases.phase[: leases.high]
        held = entry["group"][phase != Phase.FREE] if is_wide(entry) else np.zeros(0, np.uint32)
        for number, count in Counter(held.tolist()).items():
            node = self._root
            for level in (self._messages.groups.name_of(number) or "").split("."):
                below = node.child(level)
                if below is None:
                    break
                below.used += count
                self._counted.append(below)
                node = below

    def _may_give(self, node: Node, until_ms: int) -> bool:
        settings = self._settings(node)
        if settings.paused or (settings.max_unacked and node.used >= settings.max_unacked):
            return False
        if settings.rate and not self._rates.has_token(node.name, settings, node.drawn):
            return False
        return node.number < 0 or self._is_known(node, until_ms)

    def _is_known(self, leaf: Node, until_ms: int) -> bool:
        """Whether nothing of the group that is only on disk may come before its first place in memory."""
        first = leaf.number << RANK_BITS
        unknown = self._messages.unknown_in(first, first + (1 << RANK_BITS), until_ms)
        if unknown is None:
            return True
        of = first | leaf.heap[0] >> _PLACE_BITS
        if of != unknown:
            return of < unknown
        end = self._messages.end_of(of)
        return end is None or (leaf.heap[0] & _PLACE_MASK) <= (end[0] << KEY_BITS | end[1])

    def _next(self, node: Node, until_ms: int) -> Node | None:
        """Return the group's own messages whose turn it is; None: none may be given."""
        if node.number >= 0:
            return node
        for _ in range(node.ring_size):
            if not self._looks:
                break
            child = node.front
            assert child is not None
            leaf = self._next(child, until_ms) if self._may_give(child, until_ms) else None
            if leaf is not None:
                return leaf
            self._looks -= 1
            self._pass_on(node)
        return None

    def _pass_on(self, node: Node) -> None:
        """It is the next child's turn."""
        node.rotate()
        assert node.front is not None
        node.left = self._weight(node.front)

    def _charge(self, leaf: Node) -> None:
        """One message of the group was given."""
        node = leaf
        while (above := node.parent) is not None:
            if not above.used:
                self._counted.append(above)
            above.used += 1
            above.drawn += 1
            above.left -= 1
            if not node.is_active:
                self._leave(above, node)
            elif above.left <= 0:
                self._pass_on(above)
            node = above

    def _discharge(self, leaf: Node) -> None:
        """What the group was charged for was no message: it is its turn again, if anything of it is ready."""
        node = leaf
        while (above := node.parent) is not None:
            above.used -= 1
            above.drawn -= 1
            node = above
        node = leaf
        while node.parent is not None and not node.is_active:
            node = node.parent
        self._give_turn_back(node)

    def _give_turn_back(self, node: Node) -> None:
        """A message that was given comes back: it is the group's turn."""
        while (above := node.parent) is not None:
            is_first = above.front is node
            if node.in_ring and not is_first:
                above.remove(node)
            if not is_first:
                above.append_first(node)
            above.left = above.left + 1 if is_first else 1
            node = above

    def _leave(self, above: Node, node: Node) -> None:
        """Nothing of a child is ready any more."""
        above.remove(node)
        if above.front is not None:
            above.left = self._weight(above.front)
        above.drop(node)
        if node.number >= 0:
            self._leaves.pop(node.number, None)
