"""The waiting messages of one led partition of a fair topic: groups take turns, level by level.

A group `acme.reports` is a child of `acme`. Each level has a ring of children that have something ready. The child in
front gets as many messages as its weight is; then it goes to the back. So however many messages one group has, the
first of another waits at most for the sum of the weights of those in its ring. This is deficit round robin where
every message costs one (Shreedhar and Varghese 1996). Rings are volatile: a new leader begins anew.

A child that is paused, has no slot left (`max_unacked`), or waits for the disk is passed over until the next round.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, KeysView
from heapq import heappop, heappush
from typing import Final

import numpy as np

from dueq.core.delivery.due_queue import KEY_BITS, KEY_MASK, NEVER_MS
from dueq.core.delivery.hot_messages import HotMessages
from dueq.core.delivery.leases import LeaseTable, Phase
from dueq.core.ports.entry import NO_ENTRIES, Entries, State, is_wide, joined, keys_of
from dueq.core.state.fair import RANK_BITS, group_classes
from dueq_codecs.groups import AS_CREATED, GroupSettings

WAITING: Final = int(State.WAITING)
_PLACE_BITS: Final = 48 + KEY_BITS
"""Of a place in a group's heap: rank, then wait_at and key."""
_PLACE_MASK: Final = (1 << _PLACE_BITS) - 1
_RANK_MASK: Final = (1 << RANK_BITS) - 1


class Node:
    """One level of the tree of groups.

    Attributes:
        name: of the group.
        parent: the level above; None: the root.
        number: of the group, where messages are its own; -1: there are none.
        children: by the last part of their names; `None` is what is the group's own.
        ring: children that have something ready, in the order of their turns.
        in_ring: whether it is in the ring of its parent.
        left: how many more messages the child in front gets.
        heap: places of messages that are ready, where they are its own.
        used: messages of the group that consumers hold, as far as anybody asks.
    """

    __slots__ = ("children", "heap", "in_ring", "left", "name", "number", "parent", "ring", "used")

    def __init__(self, name: str, parent: Node | None, number: int = -1) -> None:
        self.name, self.parent, self.number = name, parent, number
        self.children: dict[str | None, Node] = {}
        self.ring: deque[Node] = deque()
        self.in_ring = False
        self.left = 0
        self.heap: list[int] = []
        self.used = 0

    @property
    def is_active(self) -> bool:
        """Whether something of it is ready."""
        return bool(self.heap or self.ring)

    def path(self) -> Iterator[Node]:
        """Yield this node and those above it, up to the root."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent


class FairQueue:
    """Places of waiting messages; see `WaitingQueue`."""

    def __init__(self, messages: HotMessages, leases: LeaseTable) -> None:
        self._messages, self._leases = messages, leases
        self._clear()

    def _clear(self) -> None:
        self._root = Node("", None)
        self._leaves: dict[int, Node] = {}
        self._sleeping: list[tuple[int, int]] = []  # (wait_at and key, class)
        self._ready_ms = NEVER_MS
        self._places = 0

    def __len__(self) -> int:
        return self._places

    @property
    def head_ms(self) -> int:
        """Instant of some message that is due, or else of the first that will be; NEVER_MS when none waits."""
        if self._root.ring:
            return self._ready_ms
        return self._sleeping[0][0] >> KEY_BITS if self._sleeping else NEVER_MS

    def add(self, entries: Entries) -> None:
        """Enter waiting messages; those that are in already do no harm."""
        columns = group_classes(entries).tolist(), entries["wait_at"].tolist(), keys_of(entries).tolist()
        for of, wait_at, key in zip(*columns, strict=True):
            heappush(self._sleeping, (wait_at << KEY_BITS | key, of))
        self._places += len(entries)

    def put_back(self, entries: Entries) -> None:
        """Enter messages again that were taken out just now and not leased, and give their groups the turns back."""
        columns = group_classes(entries).tolist(), entries["wait_at"].tolist(), keys_of(entries).tolist()
        for of, wait_at, key in reversed(list(zip(*columns, strict=True))):
            leaf = self._leaf(of >> RANK_BITS)
            if leaf is None:
                continue
            heappush(leaf.heap, (of & _RANK_MASK) << _PLACE_BITS | wait_at << KEY_BITS | key)
            self._places += 1
            self._ready_ms = min(self._ready_ms, wait_at)
            self._give_turn_back(leaf)

    def renew(self, entries: Entries) -> None:
        """Forget all places but those of these waiting messages, which are all that may come out."""
        self._clear()
        self.add(entries)

    def count_until(self, until_ms: int, limit: int) -> int:
        """Return about how many wait until `until_ms`, at most `limit`."""
        self._wake(until_ms)
        count = 0
        for leaf in self._leaves.values():
            count += len(leaf.heap)
            if count >= limit:
                return limit
        return count

    # ------------------------------------------------------------ what is ready

    def _wake(self, until_ms: int) -> None:
        """Let messages be ready that wait until then."""
        bound = (until_ms + 1) << KEY_BITS
        while self._sleeping and self._sleeping[0][0] < bound:
            place, of = heappop(self._sleeping)
            leaf = self._leaf(of >> RANK_BITS)
            if leaf is None:
                self._places -= 1
                continue
            heappush(leaf.heap, (of & _RANK_MASK) << _PLACE_BITS | place)
            self._activate(leaf)
            self._ready_ms = min(self._ready_ms, place >> KEY_BITS)

    def _leaf(self, number: int) -> Node | None:
        """Return the node of a group's own messages; None: the group is forgotten, and has none."""
        leaf = self._leaves.get(number)
        if leaf is None:
            name = self._messages.groups.name_of(number)
            if name is None:
                return None
            node = self._root
            for level in name.split(".") if name else ():
                child = node.children.get(level)
                if child is None:
                    child = node.children[level] = Node(f"{node.name}.{level}".lstrip("."), node)
                node = child
            leaf = self._leaves[number] = node.children[None] = Node(name, node, number)
        return leaf

    def _activate(self, node: Node) -> None:
        """Enter a node at the back of the ring above it, and so on up to the root, if it is not in yet."""
        while node.parent is not None and not node.in_ring:
            above = node.parent
            above.ring.append(node)
            node.in_ring = True
            if len(above.ring) == 1:
                above.left = self._weight(node)
            node = above

    def _settings(self, node: Node) -> GroupSettings:
        """What is set for a group; what is its own has the usual settings, as its level has those of the group."""
        group = self._messages.groups.limited.get(node.name) if node.number < 0 else None
        return group.settings if group is not None and group.settings is not None else AS_CREATED

    def _weight(self, node: Node) -> int:
        return self._settings(node).weight

    # ------------------------------------------------------------ turns

    def pop(self, until_ms: int, limit: int, taken: KeysView[int]) -> Entries:
        """Take out what comes next of all that waits until `until_ms` or sooner (see `WaitingQueue`)."""
        self._wake(until_ms)
        if not self._root.ring:
            return NO_ENTRIES
        self._count_used()
        found: list[Entries] = []
        keys: set[int] = set()
        while len(found) < limit:
            leaf = self._next(self._root, until_ms)
            if leaf is None:
                break
            row = self._take(leaf, taken, keys)
            if row is not None:
                keys.add(int(keys_of(row)[0]))
                found.append(row)
                self._charge(leaf)
            elif not leaf.heap:
                self._deactivate(leaf)
        if not self._root.ring:
            self._ready_ms = NEVER_MS
        return joined(found) if found else NO_ENTRIES

    def _count_used(self) -> None:
        """Count the slots in use of groups that have a limit: derived from the leases, so that none is lost."""
        limited = [
            group.name for group in self._messages.groups.limited.values()
            if group.settings is not None and group.settings.max_unacked
        ]  # fmt: skip
        if not limited:
            return
        leases = self._leases
        entry, phase = leases.entry[: leases.high], leases.phase[: leases.high]
        held = entry["group"][phase != Phase.FREE] if is_wide(entry) else np.zeros(0, np.uint32)
        used = Counter[str]()
        for number, count in Counter(held.tolist()).items():
            levels = (self._messages.groups.name_of(number) or "").split(".")
            for depth in range(1, len(levels) + 1):
                used[".".join(levels[:depth])] += count
        for name in limited:
            node = self._find(name)
            if node is not None:
                node.used = used[name]

    def _find(self, name: str) -> Node | None:
        node: Node | None = self._root
        for level in name.split("."):
            node = node.children.get(level) if node is not None else None
        return node

    def _may_give(self, node: Node, until_ms: int) -> bool:
        settings = self._settings(node)
        if settings.paused or (settings.max_unacked and node.used >= settings.max_unacked):
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
        for _ in range(len(node.ring)):
            child = node.ring[0]
            leaf = self._next(child, until_ms) if self._may_give(child, until_ms) else None
            if leaf is not None:
                return leaf
            self._pass_on(node)
        return None

    def _pass_on(self, node: Node) -> None:
        """It is the next child's turn."""
        node.ring.rotate(-1)
        node.left = self._weight(node.ring[0])

    def _take(self, leaf: Node, taken: KeysView[int], chosen: set[int]) -> Entries | None:
        """Take out the first message that still waits at its place; None: there is none left, or it was gone."""
        place = heappop(leaf.heap)
        self._places -= 1
        key, wait_at = place & KEY_MASK, (place & _PLACE_MASK) >> KEY_BITS
        row = self._messages.rows(np.array([key], np.uint64))
        waits = (int(row["state"][0]), int(row["wait_at"][0])) == (WAITING, wait_at)
        same = int(group_classes(row)[0]) == leaf.number << RANK_BITS | place >> _PLACE_BITS
        return row if waits and same and key not in taken and key not in chosen else None

    def _charge(self, leaf: Node) -> None:
        """One message of the group was given."""
        node = leaf
        for above in leaf.path():
            if above is leaf:
                continue
            above.used += 1
            above.left -= 1
            if not node.is_active:
                self._leave(above, node)
            elif above.left <= 0:
                self._pass_on(above)
            node = above

    def _deactivate(self, leaf: Node) -> None:
        """A group's own messages were all gone."""
        node = leaf
        for above in leaf.path():
            if above is leaf:
                continue
            if node.is_active:
                return
            self._leave(above, node)
            node = above

    def _give_turn_back(self, leaf: Node) -> None:
        """A message that was given comes back: it is the group's turn."""
        node = leaf
        while (above := node.parent) is not None:
            is_first = bool(above.ring) and above.ring[0] is node
            if node.in_ring and not is_first:
                above.ring.remove(node)
            if not is_first:
                above.ring.appendleft(node)
            node.in_ring = True
            above.left = above.left + 1 if is_first else 1
            node = above

    def _leave(self, above: Node, node: Node) -> None:
        """Nothing of a child is ready any more."""
        assert above.ring[0] is node, "only a child whose turn it is loses messages"
        above.ring.popleft()
        node.in_ring = False
        if above.ring:
            above.left = self._weight(above.ring[0])
        if not node.children:
            above.children.pop(None if node.number >= 0 else node.name.rpartition(".")[2], None)
            self._leaves.pop(node.number, None)
