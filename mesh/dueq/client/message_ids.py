"""The ids of very many messages, held as numbers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, overload

from dueq.client.core.ports.id_run import IdRun, SpreadIds
from dueq.client.core.ports.parts import PartsCall


class MessageIds(Sequence[str]):
    """Message ids in order, one for each row, converted to text on access.

    Each takes 8 bytes, or 14 where keys or groups say to which partition rows go.

    In `PartialFailure.outcomes` a row that failed has its error in place of an id.
    """

    __slots__ = ("_ends", "_runs")

    def __init__(self) -> None:
        self._runs: list[IdRun | SpreadIds | list[Any]] = []
        self._ends: list[int] = []

    @classmethod
    def of(cls, call: PartsCall) -> MessageIds:
        """Return the ids of one Insert that succeeded."""
        ids = cls()
        ids.add(call)
        return ids

    def add(self, call: PartsCall) -> None:
        """Add the ids of an Insert that succeeded."""
        for run in [call.ids()] if call.met else call.id_runs():
            self._append(run)

    def joined(self, outcomes: Sequence[Any]) -> MessageIds:
        """Return these ids, followed by what became of further rows."""
        both = MessageIds()
        for run in (*self._runs, list(outcomes)):
            both._append(run)
        return both

    def _append(self, run: IdRun | SpreadIds | list[Any]) -> None:
        self._runs.append(run)
        self._ends.append(len(self) + (len(run.first) if isinstance(run, IdRun | SpreadIds) else len(run)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"{len(self)} rows have no row {index}")
        which = bisect_right(self._ends, place)
        run = self._runs[which]
        place -= self._ends[which - 1] if which else 0
        if isinstance(run, IdRun | SpreadIds):
            return run.text(place)
        found: str = run[place]
        return found

    def __iter__(self) -> Iterator[str]:
        for run in self._runs:
            yield from run.texts() if isinstance(run, IdRun | SpreadIds) else run

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MessageIds | list | tuple):
            return NotImplemented
        return len(self) == len(other) and all(mine == its for mine, its in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(repr(one) for one in self[:3])
        return f"<MessageIds of {len(self)} rows: [{shown}{', …' if len(self) > 3 else ''}]>"
