"""How many slots of each limited group are in use: messages that consumers hold, in it and in the groups below it.

Counted where leases begin and end, so that no look goes through all of them. What is counted for a lease when it begins
is taken off when it ends: the number of a message's group never changes, and the name is that which the number had when
the first of its leases began. So nothing drifts, though the group may be forgotten, and have another number, before its
last lease is. Levels are counted only where something is set for any group; when that begins, they follow from the
leases that there are.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from dueq.core.ports.entry import Entries, is_wide
from dueq.core.state.group_table import GroupTable
from dueq_codecs.groups import levels_of


class _Held:
    """The leases of one group."""

    __slots__ = ("count", "name")

    def __init__(self, name: str) -> None:
        self.name, self.count = name, 0


class GroupSlots:
    """The slots in use of the groups of one led partition.

    Args:
        groups: their names, and what is set for them.
    """

    def __init__(self, groups: GroupTable) -> None:
        self._groups = groups
        self._held: dict[int, _Held] = {}  # by number, of those that have leases
        self._used: dict[str, int] = {}  # by level, if anything is set for any group
        self._counts_levels = False
        self._watched: set[str] = set()
        self._freed: dict[str, None] = {}

    def used(self, name: str) -> int:
        """Return how many messages consumers hold of a group for which something is set, and of those below it."""
        self._follow()
        return self._used.get(name, 0)

    # ------------------------------------------------------------ leases

    def begin(self, entries: Entries) -> None:
        """Leases of these messages begin."""
        self._follow()
        for number, count in _count_groups(entries).items():
            held = self._held.get(number)
            if held is None:
                held = self._held[number] = _Held(self._groups.name_of(number) or "")
            held.count += count
            if self._counts_levels:
                self._count(held.name, count)

    def end(self, entries: Entries) -> None:
        """Leases of these messages end."""
        self._follow()
        for number, count in _count_groups(entries).items():
            held = self._held[number]
            held.count -= count
            if not held.count:
                del self._held[number]
            if self._counts_levels:
                self._count(held.name, -count)

    def _follow(self) -> None:
        """Begin to count levels, or cease to, as something is set for a group or nothing is any more."""
        if self._counts_levels == bool(self._groups.limited):
            return
        self._counts_levels = not self._counts_levels
        self._used = {}
        if self._counts_levels:
            for held in self._held.values():
                self._count(held.name, held.count)

    def _count(self, name: str, change: int) -> None:
        for level in levels_of(name):
            used = self._used.get(level, 0) + change
            if used:
                self._used[level] = used
            else:
                del self._used[level]
            if change < 0 and level in self._watched:
                self._watched.discard(level)
                self._freed[level] = None

    # ------------------------------------------------------------ who waits for a slot

    def watch(self, name: str) -> None:
        """Say it once when a group or level has fewer slots in use than now (see `take_freed`)."""
        self._watched.add(name)

    def unwatch(self, name: str) -> None:
        """Nobody waits for it any more."""
        self._watched.discard(name)
        self._freed.pop(name, None)

    def take_freed(self) -> list[str]:
        """Return those of the watched that have had fewer since, in this order; they are watched no more."""
        if not self._freed:
            return []
        freed, self._freed = list(self._freed), {}
        return freed


def _count_groups(entries: Entries) -> Counter[int]:
    """Return how many of these messages each group has, by number; those without a group are left aside."""
    if not is_wide(entries):
        return Counter()
    column = entries["group"]
    counts: Counter[int] = Counter(column.tolist()) if np.count_nonzero(column) else Counter()
    counts.pop(0, None)
    return counts
