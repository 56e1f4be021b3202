"""Notes of a process of the traffic for a judge, line by line; all its threads may write."""

from __future__ import annotations

import json
import threading
from typing import IO, Any


class Notes:
    """JSON objects, one a line.

    Args:
        file: that they are added to; it stays the caller's to close.
    """

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._lock = threading.Lock()

    def write(self, note: dict[str, Any]) -> None:
        """Add a line; it is in the file when this returns."""
        with self._lock:
            self._file.write(json.dumps(note) + "\n")
            self._file.flush()
