"""The broker's statistics in a file of its data folder, so that a restart does not begin them anew.

One line per hour and topic. The whole file is written anew, beside the old one, once a minute at most and at a clean
end, in a thread of its own; only lines that have changed are made anew. A crash loses the last minute, and a file that
cannot be read or written costs the statistics, never the broker.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from threading import Thread
from typing import Any, Final

import structlog

from dueq.core.turn.statistics import BOUNDS_US, Statistics

NAME: Final = "statistics.jsonl"
FORMAT: Final = 1
_EVERY_US: Final = 60_000_000
_JOIN_S: Final = 5.0
_HEAD: Final = {"format": FORMAT, "bounds_us": list(BOUNDS_US)}


class StatisticsFile:
    """Keeps one broker's statistics.

    Args:
        folder: the broker's data folder; None: nothing is kept.
        statistics: of the core; what the file holds is put into it.
        log: for what goes wrong.
    """

    def __init__(
        self, folder: Path | None, statistics: Statistics, log: structlog.stdlib.BoundLogger
    ) -> None:
        self._path = folder / NAME if folder is not None else None
        self._statistics, self._log = statistics, log
        self._lines: dict[tuple[int, str], tuple[int, bytes]] = {}
        self._thread: Thread | None = None
        self._next_us: int | None = None
        if self._path is not None:
            self._load(self._path)

    def each_second(self, mono_us: int) -> None:
        """Write in the background, if it is time to; called by the loop."""
        if self._path is None:
            return
        if self._next_us is None:
            self._next_us = mono_us + _EVERY_US
        if mono_us >= self._next_us and not self._writing:
            self._next_us = mono_us + _EVERY_US
            self._begin(self._path)

    def close(self) -> None:
        """Write a last time, once nothing is counted any more; a disk that hangs is not waited for."""
        if self._path is None:
            return
        if self._thread is not None:
            self._thread.join(_JOIN_S)
        if self._writing:
            return
        self._begin(self._path)
        if self._thread is not None:
            self._thread.join(_JOIN_S)

    def _begin(self, path: Path) -> None:
        """Write in a thread of its own."""
        thread = Thread(target=self._save, args=(path,), name="dueq-statistics", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the machine has no thread left for this process
            self._log.warning("statistics.not_written", path=str(path), reason=str(error))
        else:
            self._thread = thread

    @property
    def _writing(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    # -------------------------------------------------------------- the file

    def _load(self, path: Path) -> None:
        try:
            lines = path.read_bytes().splitlines()
            if not lines or json.loads(lines[0]) != _HEAD:
                raise ValueError("another format")
            for line in lines[1:]:
                row: dict[str, Any] = json.loads(line)
                self._statistics.restore(int(row["hour"]), str(row["topic"]), row)
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            self._log.warning("statistics.not_read", path=str(path), reason=str(error))

    def _save(self, path: Path) -> None:
        if not self._changed():
            return
        beside = path.with_suffix(".new")
        try:
            with beside.open("wb") as file:
                file.write(json.dumps(_HEAD).encode() + b"\n")
                file.writelines(line for _, line in self._lines.values())
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except OSError as error:
            self._log.warning("statistics.not_written", path=str(path), reason=str(error))
            self._lines.clear()

    def _changed(self) -> bool:
        """Make the lines of changed hours and topics; returns whether any has changed."""
        lines: dict[tuple[int, str], tuple[int, bytes]] = {}
        for key, counts in self._statistics.items():
            changes = counts.changes
            known = self._lines.get(key)
            if known is None or known[0] != changes:
                row = {"hour": key[0], "topic": key[1], **counts.document()}
                known = changes, json.dumps(row).encode() + b"\n"
            lines[key] = known
        changed = lines != self._lines
        self._lines = lines
        return changed
