"""Reads history files into columns; an error names each line that is not of the format."""

from __future__ import annotations

import json
import os
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from dueq_chaos.history.columns import I64, Clock, History, IdColumn, Operations, Table
from dueq_chaos.history.operations import (
    DELIVERED,
    FOREVER,
    ID_LENGTH_MAX,
    INVOKED,
    KINDS,
    OUTCOMES,
    VERSION,
    Kind,
    Told,
)

_FINAL: Final = frozenset((Told.DONE, Told.LEASED, Told.NOT_FOUND, Told.STALE))
_TABLE_OF: Final = {
    Kind.SCHEDULE: "inserts",
    Kind.MOVE: "moves",
    Kind.CANCEL: "cancels",
    Kind.RECEIVE: "deliveries",
    Kind.ACK: "settlings",
    Kind.NACK: "settlings",
    Kind.RELEASE: "settlings",
    Kind.EXTEND: "settlings",
    Kind.LOST: "settlings",
}
_COLUMNS: Final = {
    "inserts": ("due", "crc", "size", "told"),
    "moves": ("due", "told"),
    "cancels": ("told",),
    "deliveries": tuple(name for name in DELIVERED if name != "id"),
    "settlings": ("token", "told"),
}


class HistoryError(Exception):
    """A file that is not a history.

    Attributes:
        path: the file.
        line: number of the line, from 1; 0 if it is about no line.
        reason: what is wrong with it.
    """

    def __init__(self, path: str, line: int, reason: str) -> None:
        super().__init__(f"{path}:{line}: {reason}" if line else f"{path}: {reason}")
        self.path, self.line, self.reason = path, line, reason


@dataclass(slots=True)
class _Open:
    """An operation that is not completed for good: its number, and what its rows hold so far."""

    number: int
    kind: Kind
    rows: int
    columns: dict[str, Any]
    told: Any = Told.UNKNOWN
    completed: bool = False


class _Rows:
    """A table under construction: typed buffers, no object a row.

    Ids are kept as one padded string of bytes.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.ids = bytearray()
        self.operation = array("q")
        self.columns = {name: array("q") for name in names}

    def add(self, number: int, rows: int, ids: Sequence[str] | None, columns: dict[str, Any]) -> None:
        if ids is None:
            self.ids += bytes(rows * ID_LENGTH_MAX)
        else:
            self.ids += np.array(ids, f"S{ID_LENGTH_MAX}").tobytes()
        self.operation.extend([number] * rows)
        for name, column in self.columns.items():
            value = columns[name]
            column.extend(value if isinstance(value, list) else [value] * rows)


class Reader:
    """Gathers the lines of all files; `history` makes the columns."""

    def __init__(self) -> None:
        self._clients: dict[str, int] = {}
        self._topics: dict[str, int] = {}
        self._files: list[str] = []
        self._open: dict[tuple[int, int], _Open] = {}
        self._done: dict[int, set[int]] = {}
        self._operations = [array("q") for _ in range(8)]
        self._rows = {name: _Rows(columns) for name, columns in _COLUMNS.items()}
        self._instants = array("q")
        self._notes: list[tuple[int, str]] = []
        self._cut: list[str] = []
        self._line = 0

    # ------------------------------------------------------------ lines

    def read(self, path: str | os.PathLike[str]) -> None:
        """Read one file.

        Raises:
            HistoryError: it cannot be read, or is not a history.
        """
        name = str(path)
        self._files.append(name)
        self._line = 0
        try:
            with Path(path).open("rb") as file:
                for self._line, line in enumerate(file, 1):
                    self._take(name, line)
        except OSError as error:
            raise HistoryError(name, 0, error.strerror or str(error)) from error
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else str(error)
            raise HistoryError(name, self._line, reason) from error
        if not self._line:
            raise HistoryError(name, 0, "the file is empty: there is no header line")

    def _take(self, name: str, text: bytes) -> None:
        try:
            line = json.loads(text)
        except ValueError as error:
            if not text.endswith(b"\n") and self._line > 1:
                self._cut.append(name)
                return
            raise ValueError(f"not JSON: {error}") from error
        if not isinstance(line, dict):
            raise ValueError(f"a line is a JSON object, not {text[:60]!r}")
        if self._line == 1:
            _check_header(line)
            return
        event = line["event"]
        mono = _number(line, "mono")
        self._instants.append(mono)
        self._instants.append(_number(line, "us"))
        if event == "invoke":
            self._invoke(line, mono)
        elif event == "complete":
            self._complete(line, mono)
        elif event == "lost":
            self._lost(line, mono)
        elif event == "note":
            self._notes.append((mono, str(line["text"])))
        else:
            raise ValueError(f"event is invoke, complete, lost or note, not {event!r}")

    def _invoke(self, line: dict[str, Any], mono: int) -> None:
        kind = KINDS.get(line["kind"])
        if kind is None:
            raise ValueError(f"kind is one of {', '.join(KINDS)}, not {line['kind']!r}")
        client, operation = self._client(line), _number(line, "op")
        key = (client, operation)
        if key in self._open or operation in self._done.setdefault(client, set()):
            raise ValueError(f"operation {operation} of {line['client']!r} was invoked before")
        columns = {name: line[name] for name in INVOKED[kind]}
        rows = _check_columns(columns)
        number = self._add_operation(client, kind, line, mono, FOREVER)
        self._open[key] = _Open(number, kind, rows, columns)

    def _complete(self, line: dict[str, Any], mono: int) -> None:
        client, operation = self._client(line), _number(line, "op")
        key = (client, operation)
        found = self._open.get(key)
        if found is None:
            state = (
                "is completed for good" if operation in self._done.get(client, ()) else "was never invoked"
            )
            raise ValueError(f"operation {operation} of {line['client']!r} {state}")
        self._operations[4][found.number] = mono
        found.completed = True
        if found.kind is Kind.RECEIVE:
            found.columns = {name: line[name] for name in DELIVERED} if "id" in line else {}
            found.rows = _check_columns(found.columns)
            found.told = Told.DONE
        elif found.kind is not Kind.CLOSE:
            found.told = _told(line.get("outcome", "done"), found.rows)
            if found.kind is Kind.SCHEDULE:
                found.columns["id"] = _check_ids(found, line)
        final = found.told in _FINAL if isinstance(found.told, int) else _FINAL.issuperset(found.told)
        if final or found.kind is Kind.CLOSE:
            self._flush(found)
            del self._open[key]
            self._done.setdefault(client, set()).add(operation)

    def _lost(self, line: dict[str, Any], mono: int) -> None:
        columns = {name: line[name] for name in INVOKED[Kind.LOST]}
        rows = _check_columns(columns)
        number = self._add_operation(self._client(line), Kind.LOST, line, mono, mono)
        self._flush(_Open(number, Kind.LOST, rows, columns, Told.DONE, True))

    def _flush(self, found: _Open) -> None:
        table = _TABLE_OF.get(found.kind)
        if table is None or not found.rows:
            return
        columns = found.columns | {"told": found.told}
        ids = columns.get("id")
        self._rows[table].add(
            found.number, found.rows, [ids] * found.rows if isinstance(ids, str) else ids, columns
        )

    def _client(self, line: dict[str, Any]) -> int:
        name = line["client"]
        if not isinstance(name, str) or not name:
            raise ValueError(f"client is a name, not {name!r}")
        return self._clients.setdefault(name, len(self._clients))

    def _add_operation(
        self, client: int, kind: Kind, line: dict[str, Any], invoked: int, completed: int
    ) -> int:
        topic = self._topics.setdefault(str(line.get("topic", "")), len(self._topics))
        amount_ms = _number(line, "ms") if "ms" in line else 0
        number = len(self._operations[0])
        values = (client, kind, topic, invoked, completed, amount_ms, self._line, len(self._files) - 1)
        for column, value in zip(self._operations, values, strict=True):
            column.append(value)
        return number

    # ------------------------------------------------------------ columns

    def history(self) -> History:
        """Make the columns; nothing can be read afterwards."""
        for found in self._open.values():
            self._flush(found)
        self._open.clear()
        self._done.clear()
        ids, numbers = _numbered([rows.ids for rows in self._rows.values()])
        tables = {}
        for (name, rows), message in zip(self._rows.items(), numbers, strict=True):
            tables[name] = _table(rows, message)
        self._rows.clear()
        instants = np.array(self._instants, np.int64).reshape(-1, 2)
        instants = instants[np.argsort(instants[:, 0], kind="stable")]
        return History(
            clients=list(self._clients),
            topics=list(self._topics),
            files=self._files,
            ids=ids,
            operations=Operations(*(np.array(column, np.int64) for column in self._operations)),
            **tables,
            instants=instants,
            notes=sorted(self._notes),
            clock=Clock(instants[:, 0], instants[:, 1]),
            cut=self._cut,
        )


def read_history(*paths: str | os.PathLike[str]) -> History:
    """Read the files of one run.

    Raises:
        HistoryError: one cannot be read or is not a history; the error names file, line and reason.
    """
    reader = Reader()
    for path in paths:
        reader.read(path)
    return reader.history()


# ---------------------------------------------------------------- checks


def _check_header(line: dict[str, Any]) -> None:
    version = line.get("dueq_history")
    if version is None:
        raise ValueError('the first line of a history is its header, {"dueq_history": 1}')
    if version != VERSION:
        raise ValueError(f"a history of version {version!r}; this reads version {VERSION}")


def _number(line: dict[str, Any], name: str) -> int:
    value = line[name]
    if type(value) is not int or not 0 <= value < FOREVER:
        raise ValueError(f"{name} is a whole number from 0 to 2^63-2, not {value!r}")
    return value


def _check_columns(columns: dict[str, Any]) -> int:
    """Check types and lengths; return the number of rows."""
    lengths = {name: len(column) for name, column in columns.items() if isinstance(column, list)}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns of different lengths: {lengths}")
    rows = next(iter(lengths.values()), 1 if columns else 0)
    for name, column in columns.items():
        values = column if isinstance(column, list) else [column]
        wanted = str if name == "id" else int
        if not {wanted}.issuperset(map(type, values)):
            wrong = next(value for value in values if type(value) is not wanted)
            raise ValueError(
                f"{name} holds {wrong!r}, which is not {'a string' if wanted is str else 'whole'}"
            )
        if name == "id":
            _check_id_texts(values)
        elif values and not 0 <= min(values) <= max(values) < FOREVER // 1000:
            raise ValueError(f"{name} holds a number below 0 or too large")
    return rows


def _check_id_texts(values: list[str], least: int = 1) -> None:
    wrong = [v for v in values if not least <= len(v) <= ID_LENGTH_MAX or not v.isascii()]
    if wrong:
        raise ValueError(f"an id has {least} to {ID_LENGTH_MAX} ASCII characters, not {wrong[0]!r}")


def _check_ids(found: _Open, line: dict[str, Any]) -> Any:
    """Ids of an insert's completion: one a row, and there where the outcome is done."""
    ids = line.get("id", [""] * found.rows)
    values = ids if isinstance(ids, list) else [ids]
    if len(values) != found.rows:
        raise ValueError(f"{len(values)} ids for {found.rows} rows")
    if not {str}.issuperset(map(type, values)):
        raise ValueError("id holds something that is not a string")
    _check_id_texts(values, 0)
    told = found.told if isinstance(found.told, list) else [found.told] * found.rows
    if any((what == Told.DONE) != bool(text) for what, text in zip(told, values, strict=True)):
        raise ValueError("an insert that is done has an id, and no other has")
    return values


def _told(outcome: Any, rows: int) -> Any:
    """Outcomes as numbers, a list or one for all."""
    if isinstance(outcome, str):
        outcome = [outcome]
    elif len(outcome) != rows:
        raise ValueError(f"{len(outcome)} outcomes for {rows} rows")
    try:
        told = [int(OUTCOMES[word]) for word in outcome]
    except (KeyError, TypeError):
        raise ValueError(f"an outcome is one of {', '.join(OUTCOMES)}: {outcome!r:.80}") from None
    return told if len(told) == rows else told[0]


# ---------------------------------------------------------------- numbers for ids


def _numbered(parts: list[bytearray]) -> tuple[IdColumn, list[I64]]:
    """Return all ids, sorted, and for each part the numbers of its ids; -1 for the empty id."""
    padded = np.frombuffer(b"".join(parts), f"S{ID_LENGTH_MAX}")
    # Sorted as four big-endian words each, which is far quicker than as strings and gives the same order.
    words = padded.view(">u8").reshape(-1, ID_LENGTH_MAX // 8).astype(np.uint64)
    order = np.lexsort(words.T[::-1])
    words = words[order]
    new = np.ones(len(order), bool)
    new[1:] = np.any(words[1:] != words[:-1], axis=1)
    ids = padded[order][new]
    empty = int(len(ids) > 0 and ids[0] == b"")
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(new) - 1 - empty
    ends = np.cumsum([len(part) // ID_LENGTH_MAX for part in parts])
    return ids[empty:], np.split(number, ends[:-1])


def _table(rows: _Rows, message: I64) -> Table:
    order = np.argsort(message, kind="stable")
    columns = {name: np.array(column, np.int64)[order] for name, column in rows.columns.items()}
    return Table(message[order], np.array(rows.operation, np.int64)[order], columns)
