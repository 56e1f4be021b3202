"""The tree of those groups of a fair topic that have something ready: each level has a ring of turns.

There may be as many groups as messages. So a node holds no more than it needs, and each step costs the same however
many other groups there are: a ring is linked through its nodes. A group without groups below it is one node. If it has
groups below it, its own messages take turns with them.

A child that has something ready is in the ring, or it *rests*: nothing of it may be given for a while.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

AWAKE: Final = 0
"""In place of an instant: a node does not rest."""
UNTIL_ONE_BELOW: Final = -1
"""In place of an instant: it rests until one of the groups below it, which all rest, is back in its ring."""


class Node:
    """One level of the tree of groups, or a group's own messages beside the groups below it.

    Attributes:
        name: of the group, under which something may be set for it; "" for a group's own messages.
        parent: the level above; None: the root.
        number: of the group, if it is a leaf; -1: it has groups below it.
        own: the node of the group's own messages, beside the groups below it; None: nothing.
        children: groups below it, by the last part of their names; None: there are none.
        front: the child whose turn it is, of those that have something ready; None: none has.
        ring_size: how many children are in the ring.
        in_ring: whether it is in the ring of its parent.
        resting: how many children have something ready, and rest.
        rests_until: (mono, µs) if it rests: until then, or until somebody ends it; AWAKE: it does not.
        left: how many more messages it gets in its turn, which another's may interrupt; 0: it has not begun.
        heap: places of messages that are ready and in memory, where they are its own.
        drawn: messages of the group that were chosen in this turn, and are not leased yet.
    """

    __slots__ = (
        "_after", "_before", "children", "drawn", "front", "heap", "in_ring", "left", "name", "number", "own", "parent",
        "resting", "rests_until", "ring_size",
    )  # fmt: skip

    def __init__(self, name: str, parent: Node | None, number: int = -1) -> None:
        self.name, self.parent, self.number = name, parent, number
        self.own: Node | None = None
        self.children: dict[str, Node] | None = None
        self.front: Node | None = None
        self.ring_size = self.resting = 0
        self.in_ring = False
        self.rests_until = AWAKE
        self.left = 0
        self.heap: list[int] | None = None
        self.drawn = 0
        self._before: Node | None = None
        self._after: Node | None = None

    @property
    def is_leaf(self) -> bool:
        """Whether messages are its own, and no group is below it."""
        return self.number >= 0

    def path(self) -> Iterator[Node]:
        """Yield this node and those above it, up to the root."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    # ------------------------------------------------------------ the tree

    def child(self, level: str) -> Node | None:
        """Return the group of that name below this one, if anything of it is ready."""
        return self.children.get(level) if self.children is not None else None

    def leaf(self, name: str, number: int, split: Callable[[Node], None]) -> Node:
        """Return a leaf for a group's own messages, and make all levels above it; to be called at the root.

        A leaf that is there already keeps its number.

        Args:
            name: of the group.
            number: of the group.
            split: called with a leaf that gets a group below it.
        """
        node = self
        for level in name.split(".") if name else ():
            if node.is_leaf:
                split(node)
            child = node.child(level)
            if child is None:
                child = Node(f"{node.name}.{level}" if node.name else level, node)
                node.children = node.children if node.children is not None else {}
                node.children[level] = child
            node = child
        if node.own is not None:  # of a group of that name that was forgotten
            return node.own
        if node.parent is None or node.children:
            node.own = Node("", node, number)
            return node.own
        if not node.is_leaf:
            node.number = number
        return node

    def split(self) -> Node:
        """Let a leaf's own messages take turns with groups below it; returns their node."""
        own = self.own = Node("", self, self.number)
        own.heap, self.heap, self.number = self.heap, None, -1
        if self.in_ring or self.rests_until:
            self.append(own)
            own.left = 1
        return own

    def drop(self, node: Node) -> None:
        """Take a child out of the tree that has nothing any more."""
        if node is self.own:
            self.own = None
        elif self.children is not None and node.own is None and not node.children:
            self.children.pop(node.name.rpartition(".")[2], None)

    # ------------------------------------------------------------ the ring

    def append(self, node: Node) -> None:
        """Let a child have its turn after all others."""
        if self.front is None:
            self.front = node._before = node._after = node
        else:
            front = self.front
            last = front._before
            assert last is not None
            node._before, node._after = last, front
            last._after = front._before = node
        node.in_ring = True
        self.ring_size += 1

    def append_first(self, node: Node) -> None:
        """Let it be a child's turn."""
        self.append(node)
        self.front = node

    def remove(self, node: Node) -> None:
        """Take a child out of the ring; if it was in front, it is the next one's turn."""
        before, after = node._before, node._after
        assert before is not None
        assert after is not None
        self.ring_size -= 1
        if not self.ring_size:
            self.front = None
        elif self.front is node:
            self.front = after
        before._after, after._before = after, before
        node._before = node._after = None  # a circle would stay until everything is collected
        node.in_ring = False

    def rest(self, node: Node, until_us: int) -> None:
        """Take a child out of the ring that has something ready."""
        self.remove(node)
        node.rests_until = until_us
        self.resting += 1

    def rouse(self, node: Node) -> None:
        """A child rests no more; it is not in the ring yet."""
        node.rests_until = AWAKE
        self.resting -= 1

    def rotate(self) -> None:
        """It is the next child's turn."""
        if self.front is not None:
            self.front = self.front._after

    def coming(self, passes: Callable[[Node], bool]) -> Iterator[Node]:
        """Yield the leaves in the order of their next turns, each once; those that rest have none.

        Args:
            passes: returns whether a child is passed over.
        """
        if self.is_leaf:
            yield self
            return
        levels: deque[Iterator[Node]] = deque()
        child = self.front
        for _ in range(self.ring_size):
            assert child is not None
            if not passes(child):
                if child.number >= 0:
                    yield child
                else:
                    levels.append(below := child.coming(passes))
                    if (leaf := next(below, None)) is not None:
                        yield leaf
            child = child._after
        while levels:
            below = levels.popleft()
            leaf = next(below, None)
            if leaf is not None:
                yield leaf
                levels.append(below)
