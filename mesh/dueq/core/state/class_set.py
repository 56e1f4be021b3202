"""A set of classes of a fair topic, by group: most groups have one class, and there may be very many groups."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

RANK_BITS: Final = 16
"""Of a class: its last bits are the rank, those before them the group."""
_RANK_MASK: Final = (1 << RANK_BITS) - 1


class ClassSet:
    """Classes; those of one group are found at once."""

    def __init__(self) -> None:
        # The only rank of a group, or all of them, ascending. Small numbers are shared: classes would be objects each.
        self._ranks: dict[int, int | list[int]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        for group in self._ranks:
            yield from [group << RANK_BITS | rank for rank in self.ranks(group)]

    def __contains__(self, of: int) -> bool:
        found, rank = self._ranks.get(of >> RANK_BITS), of & _RANK_MASK
        return found == rank if isinstance(found, int) or found is None else _is_in(found, rank)

    def ranks(self, group: int) -> Sequence[int]:
        """Return the ranks of a group's classes, ascending; until the set changes."""
        found = self._ranks.get(group)
        if found is None:
            return ()
        return (found,) if isinstance(found, int) else found

    def add(self, of: int) -> None:
        """Enter a class, unless it is in."""
        group, rank = of >> RANK_BITS, of & _RANK_MASK
        found = self._ranks.get(group)
        if found is None:
            self._ranks[group] = rank
        elif of in self:
            return
        elif isinstance(found, int):
            self._ranks[group] = sorted((found, rank))
        else:
            insort(found, rank)
        self._count += 1

    def update(self, classes: Iterable[int]) -> None:
        """Enter classes."""
        for of in classes:
            self.add(of)

    def discard(self, of: int) -> None:
        """Take a class out, if it is in."""
        group, rank = of >> RANK_BITS, of & _RANK_MASK
        found = self._ranks.get(group)
        if found == rank or found == [rank]:
            del self._ranks[group]
        elif isinstance(found, list) and _is_in(found, rank):
            del found[bisect_left(found, rank)]
        else:
            return
        self._count -= 1

    def clear(self) -> None:
        """Take all out."""
        self._ranks.clear()
        self._count = 0

    def irange(self, first: int, last: int | None = None) -> Iterable[int]:
        """Return the classes from one to another, ascending: quickly if they are of one group."""
        if last is not None and last >> RANK_BITS == (group := first >> RANK_BITS):
            found = self.ranks(group)
            begin, end = bisect_left(found, first & _RANK_MASK), bisect_right(found, last & _RANK_MASK)
            return [group << RANK_BITS | rank for rank in found[begin:end]]
        return sorted(of for of in self if of >= first and (last is None or of <= last))


def _is_in(ranks: list[int], rank: int) -> bool:
    at = bisect_left(ranks, rank)
    return at < len(ranks) and ranks[at] == rank
