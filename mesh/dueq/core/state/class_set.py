"""A set of classes of a fair topic, by group: most groups have one class, and there may be very many groups."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator
from typing import Final

RANK_BITS: Final = 16
"""Of a class: its last bits are the rank, those before them the group."""


class ClassSet:
    """Classes; those of one group are found at once."""

    def __init__(self) -> None:
        self._of: dict[int, int | list[int]] = {}  # a group's only class, or all of them, ascending
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        for found in self._of.values():
            if isinstance(found, int):
                yield found
            else:
                yield from found

    def __contains__(self, of: int) -> bool:
        found = self._of.get(of >> RANK_BITS)
        return found == of if isinstance(found, int) or found is None else of in found

    def add(self, of: int) -> None:
        """Enter a class, unless it is in."""
        if of in self:
            return
        self._count += 1
        found = self._of.get(of >> RANK_BITS)
        if found is None:
            self._of[of >> RANK_BITS] = of
        elif isinstance(found, int):
            self._of[of >> RANK_BITS] = sorted((found, of))
        else:
            insort(found, of)

    def update(self, classes: Iterable[int]) -> None:
        """Enter classes."""
        for of in classes:
            self.add(of)

    def discard(self, of: int) -> None:
        """Take a class out, if it is in."""
        if of not in self:
            return
        self._count -= 1
        found = self._of[of >> RANK_BITS]
        if isinstance(found, int) or len(found) == 1:
            del self._of[of >> RANK_BITS]
        else:
            found.remove(of)

    def clear(self) -> None:
        """Take all out."""
        self._of.clear()
        self._count = 0

    def irange(self, first: int, last: int | None = None) -> Iterable[int]:
        """Return the classes from one to another, ascending: quickly if they are of one group."""
        if last is not None and last >> RANK_BITS == first >> RANK_BITS:
            found = self._of.get(first >> RANK_BITS)
            if found is None:
                return ()
            if isinstance(found, int):
                return (found,) if first <= found <= last else ()
            return [of for of in found if first <= of <= last]
        return sorted(of for of in self if of >= first and (last is None or of <= last))
