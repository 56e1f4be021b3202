"""Writes a history."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dueq_chaos.history.operations import VERSION, Kind


class Recorder:
    """One history file. Thread-safe; for one process: give each process of a run its own file, check them together.

    Each line is one write to the file, in the order of its instants: what a call has returned from survives a crash of
    the process (not of the machine).

    Args:
        path: the file; must not exist.
        facts: more for the header line, for people to read (JSON values).

    Raises:
        FileExistsError: two histories must not run into one another.
    """

    def __init__(self, path: str | os.PathLike[str], **facts: Any) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._file = self.path.open("xb", buffering=0)
        self._operations = 0
        self._file.write(_line({"dueq_history": VERSION, **facts}))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; later lines are dropped. A second call does nothing."""
        with self._lock:
            self._file.close()

    def invoke(self, client: str, kind: Kind, **columns: Any) -> int:
        """Write that a call begins; to be called right before it.

        Args:
            client: name of the producer or consumer.
            kind: any but LOST.
            columns: as `operations` says.

        Returns:
            The operation's number, for `complete`.
        """
        with self._lock:
            self._operations += 1
            operation = self._operations
            head = {"event": "invoke", "client": client, "op": operation, "kind": kind.name.lower()}
            self._write(head, columns)
        return operation

    def complete(self, client: str, operation: int, **columns: Any) -> None:
        """Write that a call has returned; to be called right after it."""
        with self._lock:
            self._write({"event": "complete", "client": client, "op": operation}, columns)

    def lost(self, client: str, ids: list[str], tokens: list[int]) -> None:
        """Write that a consumer was told that leases of it are over."""
        with self._lock:
            self._write({"event": "lost", "client": client}, {"id": ids, "token": tokens})

    def note(self, text: str) -> None:
        """Write something that a reader of a message's story should know, such as a fault."""
        with self._lock:
            self._write({"event": "note"}, {"text": text})

    def _write(self, head: dict[str, Any], columns: dict[str, Any]) -> None:
        if not self._file.closed:
            instants = {"us": time.time_ns() // 1000, "mono": time.monotonic_ns() // 1000}
            self._file.write(_line(head | instants | columns))


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"
