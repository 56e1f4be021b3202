"""Operations that one write makes, in their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from dueq.storage.ordered.engine import Operation


class Batch:
    """Operations one behind the other; they can be read once.

    Rows that come as columns stay columns. As pairs they would be objects that the garbage collector looks at: tens of
    thousands of them, and in the thread that pushes messages.
    """

    def __init__(self) -> None:
        self._last: list[Operation] = []
        self._pieces: list[Iterable[Operation]] = [self._last]

    def __bool__(self) -> bool:
        return len(self._pieces) > 1 or bool(self._last)

    def __iter__(self) -> Iterator[Operation]:
        return chain.from_iterable(self._pieces)

    def append(self, operation: Operation) -> None:
        """Add one."""
        self._last.append(operation)

    def extend(self, operations: Iterable[Operation]) -> None:
        """Add some."""
        self._last.extend(operations)

    def put(self, keys: list[bytes], values: Sequence[bytes | None]) -> None:
        """Put rows, whose keys and values have one length; None deletes."""
        if keys:
            self._last = []
            self._pieces += (zip(keys, values, strict=True), self._last)
