"""Groups of a fair topic that rest until they have a token, by the instant at which they have it."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from dueq.core.delivery.fair_tree import Node
from dueq.core.delivery.leases import NEVER_US

_SPARE: Final = 256
"""Dead places that are always allowed, so that a small heap is not made again and again."""


class TokenWaits:
    """A heap of nodes by `rests_until`. One that has been roused, or rests until another instant, has a dead place."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Node]] = []
        self._entered = 0
        self._most = _SPARE

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_us(self) -> int:
        """(mono) When the first of them has a token; NEVER_US: none rests here."""
        heap = self._heap
        while heap and not _is_alive(heap[0]):
            heappop(heap)
        return heap[0][0] if heap else NEVER_US

    @property
    def first(self) -> Node:
        """The first of them; it must be there."""
        return self._heap[0][2]

    def enter(self, node: Node) -> None:
        """Enter a node that rests from now on."""
        self._entered += 1
        heappush(self._heap, (node.rests_until, self._entered, node))
        if len(self._heap) > self._most:
            self._heap = [place for place in self._heap if _is_alive(place)]
            heapify(self._heap)
            self._most = 2 * len(self._heap) + _SPARE

    def clear(self) -> None:
        """Forget all of them."""
        self._heap, self._most = [], _SPARE

    def soonest(self) -> Iterator[Node]:
        """Yield the nodes in the order of their instants, each once; a step costs the same however many there are."""
        heap, seen = self._heap, set[int]()
        front = [(heap[0], 0)] if heap else []
        while front:
            place, at = heappop(front)
            for below in range(2 * at + 1, min(2 * at + 3, len(heap))):
                heappush(front, (heap[below], below))
            node = place[2]
            if _is_alive(place) and id(node) not in seen:
                seen.add(id(node))
                yield node


def _is_alive(place: tuple[int, int, Node]) -> bool:
    return place[2].rests_until == place[0]
