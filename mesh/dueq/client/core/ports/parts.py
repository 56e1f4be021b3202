"""A changing call: its rows, cut into parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from dueq.client.core.ports.change import Part
from dueq.client.core.ports.id_run import IdRun, SpreadIds
from dueq.errors import DueqError, OutcomeUnknown, PartialFailure
from dueq_codecs.records import Outcome, RecordKind

T = TypeVar("T")


class Placed(NamedTuple):
    """A message that a row of an Insert has made, or that its key names."""

    id: str
    due_ms: int


class PartsCall:
    """The result of an Insert or Alter call, with the data that a Repeat of it needs.

    Attributes:
        owner: client id of the session machine that sends it: another one cannot repeat it.
        parts: in the order of the call's rows, or with `places`: the call's row of each part's rows.
    """

    __slots__ = ("call", "owner", "parts", "places", "rows", "unresolved")

    def __init__(self, call: int, rows: int) -> None:
        self.call = call
        self.rows = rows
        self.owner = b""
        self.parts: list[Part] = []
        self.places: list[npt.NDArray[np.intp]] | None = None
        self.unresolved = 0

    @property
    def failures(self) -> list[DueqError]:
        """Why parts failed, in order."""
        return [part.error for part in self.parts if part.error is not None]

    def ids(self) -> list[str]:
        """One id per row of an Insert that succeeded.

        Raises:
            Refused: the only row was refused, since its unique key names another message.
            PartialFailure: some of many rows were.
        """
        if self.met:
            return whole(self.found())
        runs = self.id_runs()
        return runs[0].texts() if len(runs) == 1 else [each for run in runs for each in run.texts()]

    def id_runs(self) -> Sequence[IdRun | SpreadIds]:
        """The ids of an Insert of which no row has met another message, as numbers."""
        runs = [part.id_run() for part in self.parts]
        return runs if self.places is None else [SpreadIds.of(runs, self.places)]

    @property
    def met(self) -> bool:
        """Whether a row has met another message of its unique key."""
        return any(part.met for part in self.parts)

    def found(self) -> list[str | DueqError]:
        """One entry per row of an Insert that was answered: an id, or why the row was refused."""
        return self._spread([part.found() for part in self.parts])

    def placed(self) -> list[Placed | DueqError]:
        """The same, each id with the due instant of its message."""
        dues = self._spread([part.dues() for part in self.parts])
        return [
            Placed(found, due) if isinstance(found, str) else found
            for found, due in zip(self.found(), dues, strict=True)
        ]

    def outcomes(self) -> list[Outcome]:
        """One Outcome per row of an Alter that succeeded."""
        if len(self.parts) == 1 and self.places is None:
            return self.parts[0].outcomes()
        return self._spread([part.outcomes() for part in self.parts])

    def mixed(self) -> list[str | Outcome | DueqError]:
        """One entry per row: its id or Outcome where it succeeded, the error where it did not."""
        columns: list[list[str | Outcome | DueqError]] = []
        for part in self.parts:
            if part.error is not None:
                columns.append([part.error] * part.rows)
            elif part.kind == RecordKind.INSERT:
                columns.append([*part.found()])
            else:
                columns.append([*part.outcomes()])
        return self._spread(columns)

    def _spread(self, columns: list[list[T]]) -> list[T]:
        if self.places is None:
            return [value for column in columns for value in column]
        rows: dict[int, T] = {}
        for places, column in zip(self.places, columns, strict=True):
            rows.update(zip(places.tolist(), column, strict=True))
        return [rows[row] for row in range(self.rows)]

    def verdict(self) -> DueqError | None:
        """The one error of the whole call, or None when it succeeded."""
        failures = self.failures
        if not failures:
            return None
        for error in failures:
            if isinstance(error, OutcomeUnknown):
                return error
        return failures[0]


def whole(rows: list[str | DueqError]) -> list[str]:
    """Return the ids of rows.

    Raises:
        DueqError: the only row failed.
        PartialFailure: some of many rows did, for good.
    """
    failures = [row for row in rows if isinstance(row, DueqError)]
    if not failures:
        return [row for row in rows if isinstance(row, str)]
    if len(rows) == 1:
        raise failures[0]
    raise PartialFailure(f"{len(failures)} of {len(rows)} rows were refused, the first: {failures[0]}", rows)
