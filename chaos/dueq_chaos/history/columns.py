"""A whole history as numpy columns, one table for each thing that happens to a message.

Instants are µs of the shared monotonic clock (`mono`), releases too: the mesh's wall clock is brought onto it by the
median difference of the two clocks over the minute around.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
IdColumn = npt.NDArray[np.bytes_]
_MINUTE_US = 60_000_000


@dataclass(slots=True)
class Operations:
    """All operations, by number; `lost` lines are operations that complete at once.

    Attributes:
        client: number of the client.
        kind: `Kind`.
        topic: number of the topic.
        invoked, completed: µs; FOREVER if it never was. Rows of unknown outcome are never completed either way.
        amount_ms: `ms`: the delay of a nack, the length of an extend.
        line: of the invocation, in its file.
        file: number of the file.
    """

    client: I64
    kind: I64
    topic: I64
    invoked: I64
    completed: I64
    amount_ms: I64
    line: I64
    file: I64


@dataclass(slots=True)
class Table:
    """Rows of one kind, sorted by message (then in the order of the file).

    Attributes:
        message: number of the message; -1 for an insert whose id no client was told.
        operation: number of the operation; for deliveries the `receive`.
        columns: by name: `due`, `token`, … and `told` (`Told`).
    """

    message: I64
    operation: I64
    columns: dict[str, I64]

    def __len__(self) -> int:
        return len(self.message)

    def rows_of(self, message: int) -> range:
        """The rows of one message."""
        first, after = np.searchsorted(self.message, [message, message + 1])
        return range(int(first), int(after))


@dataclass(slots=True)
class History:
    """Everything that the files say.

    Attributes:
        clients, topics, files: names, by number.
        ids: message ids, sorted, by number.
        operations: all of them.
        inserts, moves, cancels, deliveries, settlings: rows; settlings are acks, nacks, releases, extends and losses.
        instants: (mono, us) of every line, µs, sorted by mono.
        notes: (mono, text), sorted.
        clock: how the mesh's clock becomes `mono`.
        cut: files whose last line was cut off.
    """

    clients: list[str]
    topics: list[str]
    files: list[str]
    ids: IdColumn
    operations: Operations
    inserts: Table
    moves: Table
    cancels: Table
    deliveries: Table
    settlings: Table
    instants: I64
    notes: list[tuple[int, str]]
    clock: Clock
    cut: list[str] = field(default_factory=list)


class Clock:
    """Between wall clock and monotonic clock.

    Args:
        mono, us: instants of lines, µs, sorted by mono.
    """

    def __init__(self, mono: I64, us: I64) -> None:
        difference = us - mono
        minutes = (mono - mono[:1]) // _MINUTE_US
        edges = [0, *(np.flatnonzero(np.diff(minutes)) + 1).tolist(), len(mono)] if len(mono) else []
        self._mono = [int(np.median(mono[a:b])) for a, b in pairwise(edges)] or [0]
        self._difference = [int(np.median(difference[a:b])) for a, b in pairwise(edges)] or [0]
        usual = self._usual(mono)
        self.spread_us = int(np.max(np.abs(difference - usual))) if len(mono) else 0
        """The farthest that a line's wall clock was from the usual."""

    def mono(self, wall_us: I64) -> I64:
        """Bring wall clock instants, µs, onto the monotonic clock."""
        about = wall_us - self._difference[0]
        return wall_us - self._usual(about)

    def wall(self, mono_us: I64) -> I64:
        """Bring instants of the monotonic clock, µs, onto the wall clock."""
        return mono_us + self._usual(mono_us)

    def _usual(self, mono_us: I64) -> I64:
        return np.asarray(np.rint(np.interp(mono_us, self._mono, self._offsets())), np.int64) + self._base

    @property
    def _base(self) -> int:
        return self._difference[0]

    def _offsets(self) -> list[int]:
        # Small numbers: a double would not hold every µs of Unix time plus its fraction.
        return [difference - self._base for difference in self._difference]
